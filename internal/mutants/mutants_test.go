package mutants

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

var run = flag.Bool("mutants", false, "apply every mutant and run the test that has to notice (half a minute)")

// A mutant replaces text that stands in a file exactly once.
type mutant struct {
	rule string // what is broken, as docs/design.md puts it
	file string
	old  string
	new  string
	pkg  string // where the test is
	test string // the test that has to fail
}

const (
	leaseDir    = "shardlease/lease/"
	protocolDir = "internal/protocol/"
	inLease     = "./shardlease/lease"
	inProtocol  = "./internal/protocol"
	inStore     = "./memstore"
	inStorm     = "./internal/storm"
)

func mutants() []mutant {
	return []mutant{
		// Rows.
		{"a write is known by its id, not by its counter", protocolDir + "decide.go",
			`case at.WriteID == next.WriteID || at.Last.WriteID == next.WriteID:`,
			`case at.Counter == next.Counter || at.Last.WriteID == next.WriteID:`, inProtocol, "TestDecide"},
		{"every write has an id of its own", leaseDir + "check.go",
			`case w.Next.Written() == w.Old.Written():`, `case false:`, inProtocol, "TestTransitionsRefuseWithAReason"},
		{"a swap stands on the write id", leaseDir + "write.go",
			`return stored.Written() == w.Old.Written() && stored.count() == w.Old.count()`, `return true`, inStorm, "TestExplore"},
		{"a swap stands on the counter too", leaseDir + "write.go",
			`return stored.Written() == w.Old.Written() && stored.count() == w.Old.count()`,
			`return stored.Written() == w.Old.Written()`, inStore, "TestStore/SwapFromAnExpectedRowIsRefused"},
		{"a swap stands on more than the owner's name", leaseDir + "write.go",
			`return stored.Written() == w.Old.Written() && stored.count() == w.Old.count()`,
			`at, _ := stored.(Row); old, _ := w.Old.(Row); return at.Owner.Name == old.Owner.Name`,
			inStore, "TestStore/SameWorkerAcquiringAgainGetsAHigherGeneration"},
		{"giving back ends the generation", protocolDir + "rules.go",
			"	return changeHands(r, op, next, to, t, s, edit)",
			"	if to.IsZero() {\n\t\tnext = r.Generation\n\t}\n\treturn changeHands(r, op, next, to, t, s, edit)",
			inProtocol, "TestGenerationGrowsAtEveryChangeOfHandsAndNowhereElse"},
		{"within a generation the owner stays", leaseDir + "check.go",
			`case old.Owner.IsZero() || r.Owner != old.Owner || r.standing() != old.standing():`,
			`case false:`, inStore, "TestStore/BadInputWritesNothing"},
		{"a new row starts above all that was issued before", "internal/generation/generation.go",
			`return min(max(seconds, 1), math.MaxInt64>>23) << 22`, `return min(max(seconds, 1), math.MaxInt64>>62)`, inProtocol, "TestFirstGenerationIsAboveAllIssuedBefore"},
		{"a row stays within one kilobyte", protocolDir + "size.go",
			`for past != "" && len(past) > room {`, `for past != "" && len(past) > 4*room {`, inLease, "TestFullRowCostsOneWriteUnit"},
		{"a row keeps room for the next commits", protocolDir + "size.go",
			`lease.Encode(grown(*r)).Size()`, `lease.Encode(*r).Size()`, inLease, "TestCommitsKeepTheRowInOneUnit"},
		{"a guarded value refuses a lower generation", leaseDir + "guarded.go",
			`if generation < g.Generation {`, `if false {`, inStore, "TestRegister/LowerGenerationIsRefused"},
		{"a seat is keyed by its incarnation", leaseDir + "seat.go",
			`Name: string(s.Incarnation)}`, `Name: s.Name}`, inStore, "TestStore/TwoSeatsOfOneName"},
		{"a want is for one generation", leaseDir + "seat.go",
			`w.Shard == r.Shard && w.Generation == r.Generation`, `w.Shard == r.Shard`, inProtocol, "TestWantIsForOneGeneration"},
		{"an unconfirmed seat is no sign of life", leaseDir + "seat.go",
			`return s.Beat > 0`, `return s.Beat >= 0`, inStore, "TestStore/LateTwinOfASeatCountsForNothing"},

		// The store.
		{"one write of a row is open at a time", protocolDir + "copy.go",
			`	if c.busy {
		return fmt.Errorf`, `	if false {
		return fmt.Errorf`, inProtocol, "TestCopyHasOneWriteOpen"},
		{"a transfer is not starved by commits", leaseDir + "write.go",
			`return at.Generation == old.Generation && at.Owner.Incarnation == old.Owner.Incarnation`,
			`return at.Counter == old.Counter`, inStore, "TestStore/TransferIsNotStarvedByCommits"},
		{"a transfer stands on the generation", leaseDir + "write.go",
			`return at.Generation == old.Generation && at.Owner.Incarnation == old.Owner.Incarnation`,
			`return at.Owner.Incarnation == old.Owner.Incarnation`, inStorm, "TestExplore"},
		{"a transfer leaves the checkpoint as stored", leaseDir + "write.go",
			`next.Counter, next.Checkpoint = at.Counter+1, at.Checkpoint`, `next.Counter = at.Counter + 1`, inStorm, "TestExplore"},
		{"a transfer counts up from the stored counter", leaseDir + "write.go",
			`next.Counter, next.Checkpoint = at.Counter+1, at.Checkpoint`, `next.Checkpoint = at.Checkpoint`, inStore, "TestStore/TransferCountsUpFromTheStoredCounter"},
		{"a transfer ends an offer that was made since", "dynamostore/write.go",
			`before[attr.Offer], before[attr.Past] = string(old.OfferedTo), nil`, `before[attr.Past] = nil`,
			inDynamo, "TestStore/OfferMadeSinceEndsWithItsGeneration"},
		{"a swap does not overwrite an offer that was made since", leaseDir + "write.go",
			`return stored.Written() == w.Old.Written() && stored.count() == w.Old.count()`, `return stored.count() == w.Old.count()`,
			inStore, "TestStore/OfferMadeSinceIsNotLost"},
		{"withdrawn means withdrawn", leaseDir + "write.go",
			`if next.Accepts(old) && at.OfferedTo != old.OfferedTo {`, `if next.Accepts(old) && false {`, inStore, "TestStore/WithdrawnOfferIsNotTaken"},
		{"lease rows are never deleted", leaseDir + "check.go",
			`case deletes && w.Old.Key().Kind == KindLease:`, `case false:`, inStore, "TestStore/LeaseRowsAreNeverDeleted"},
		{"nothing is created over a tombstone", leaseDir + "write.go",
			`return w.Op == OpCreate && stored == nil`,
			`row, _ := stored.(Row); return w.Op == OpCreate && (stored == nil || row.Removed)`,
			inStore, "TestStore/RecreatedShardRefusesEarlierGenerations"},
		{"a revived shard starts above its tombstone", protocolDir + "rules.go",
			`max(r.Generation+by, generation.First(s.At))`, `max(by, generation.First(s.At))`, inProtocol, "TestRevivalAndAdoptionJump"},
		{"a listing skips tombstones", "memstore/memstore.go",
			`ok && row.Removed`, `false && ok && row.Removed`, inStore, "TestStore/RecreatedShardRefusesEarlierGenerations"},

		// What a refusal means.
		{"the transfer record tells my own write", protocolDir + "decide.go",
			`case at.WriteID == next.WriteID || at.Last.WriteID == next.WriteID:`,
			`case at.WriteID == next.WriteID:`, inStorm, "TestExplore"},
		{"my incarnation at the generation I tried to make is success", protocolDir + "decide.go",
			`case me != "" && at.Owner.Incarnation == me && next.Owner.Incarnation == me &&`,
			`case false && me != "" && at.Owner.Incarnation == me && next.Owner.Incarnation == me &&`, inProtocol, "TestDecide"},
		{"an older row means the table went back", protocolDir + "decide.go",
			`case at.Compare(old) < 0:`, `case at.Generation < 0:`, inProtocol, "TestDecide"},
		{"a tombstone is gone, whatever its generation", protocolDir + "decide.go",
			`case at.Removed:`, `case at.Removed && at.Generation == old.Generation:`, inProtocol, "TestDecide"},
		{"an earlier write of mine is no loss", protocolDir + "decide.go",
			`case at.Owner.Incarnation == old.Owner.Incarnation:
		return Again`, `case at.Owner.Incarnation == old.Owner.Incarnation:
		return Overtaken`, inProtocol, "TestDecide"},
		{"a late reply never replaces a newer row", protocolDir + "copy.go",
			`if c.busy || r.Key() != c.key || r.Compare(c.row) <= 0 {`, `if c.busy || r.Key() != c.key {`, inProtocol, "TestCopyNeverGoesBack"},
		{"a look never settles a pending write", protocolDir + "copy.go",
			`if c.busy || r.Key() != c.key || r.Compare(c.row) <= 0 {`, `if r.Key() != c.key || r.Compare(c.row) <= 0 {`, inProtocol, "TestCopyNeverGoesBack"},
		{"no answer keeps the write open", protocolDir + "copy.go",
			`	if verdict == Unknown {
		c.torn = c.torn || !errors.Is(err, lease.ErrQueued)`, `	if verdict == Unknown {
		c.busy, c.torn = false, true`, inProtocol, "TestCopyHasOneWriteOpen"},
		{"a write that was never sent leaves nothing unknown", protocolDir + "copy.go",
			`c.torn = c.torn || !errors.Is(err, lease.ErrQueued)`, `c.torn = true`, inProtocol, "TestStaleAnswerSaysWhatIsUnknown"},
		{"a long note is shortened", protocolDir + "rules.go",
			`t.Note = shortened(t.Note, lease.MaxNote)`, `_ = shortened`, inProtocol, "TestLongNotesAreShortened"},
		{"a torn write leaves the outcome unknown", protocolDir + "copy.go",
			`OutcomeUnknown: a.Torn,`, ``, inProtocol, "TestStaleAnswerSaysWhatIsUnknown"},
		{"what was never started is started", protocolDir + "copy.go",
			`	case c.row.Generation > c.held:
		return StartIt`, `	case c.row.Generation > c.held:
		return LeaveAlone`, inProtocol, "TestReconcile"},
		{"what was started is only claimed again", protocolDir + "copy.go",
			`|| c.row.Generation <= c.held {`, `{`, inProtocol, "TestReconcile"},
		{"a leaving worker gives back unstarted", protocolDir + "copy.go",
			`	case leaving:
		return GiveBack`, ``, inProtocol, "TestReconcile"},
		{"an answer that cannot be read settles nothing", protocolDir + "decide.go",
			`if w.Check() != nil {`, `if w.Check() != nil || errors.Is(err, lease.ErrMalformed) {`, inProtocol, "TestDecide"},
		{"a record is a value", leaseDir + "check.go",
			`case !creates && !isValue(w.Old) || !deletes && !isValue(w.Next):`, `case false:`, inStore, "TestStore/BadInputWritesNothing"},
		{"a hold is of one shard", protocolDir + "rules.go",
			`case r.Key() != h.Key:`, `case false:`, inProtocol, "TestTransitionsRefuseWithAReason"},
		{"a copy is of one row", protocolDir + "copy.go",
			`if w.Key() != c.key {`, `if false {`, inProtocol, "TestCopyIsOfOneRow"},
		{"reconciling waits for the open write", protocolDir + "copy.go",
			`case c.busy || tenure ||`, `case tenure ||`, inProtocol, "TestReconcile"},

		{"a rewind unfinishes", protocolDir + "protocol.go",
			`next.Finished, next.Failures = false, lease.Failures{}`, `next.Failures = lease.Failures{}`, inProtocol, "TestCommandsClearWhatTheySay"},
		{"planned ends never count", protocolDir + "protocol.go",
			`if e.Reason == lease.ReasonFailed || e.Reason == lease.ReasonStalled {`, `if e.Reason != lease.ReasonReleased {`, inProtocol, "TestWhatCountsAsFailure"},
		{"an answer is for the write that was asked of", protocolDir + "copy.go",
			`if !c.busy || w.ID() != c.open.ID() {`, `if !c.busy {`, inProtocol, "TestCopyHasOneWriteOpen"},
		{"a table that went back to a tombstone went back", protocolDir + "decide.go",
			`case at.Compare(old) < 0:`, `case at.Compare(old) < 0 && !at.Removed:`, inProtocol, "TestDecide"},
		{"a lost last mark is no success", protocolDir + "copy.go",
			` && next.Checkpoint.Mark == old.Checkpoint.Mark:`, `:`, inProtocol, "TestAnswersOfARowThatIsGone"},
		{"a row fits again at its first write", protocolDir + "size.go",
			`return old.WriteID == old.Last.WriteID ||`, `return false ||`, inLease, "TestRowFitsAgainAtTheFirstWrite"},
		{"a clock has to be set", "internal/generation/generation.go",
			`if at.Before(epoch) {`, `if false {`, inProtocol, "TestClockMustBeSet"},
		{"a checkpoint is of its own generation", leaseDir + "check.go",
			`is.Generation != old.Generation || is.IsZero()`, `is.IsZero()`, inStore, "TestStore/BadInputWritesNothing"},

		// Checkpoints.
		{"a stale handle is refused by the rules too", protocolDir + "rules.go",
			`case r.Generation > h.Generation:`, `case false:`, inStore, "TestStore/StaleGenerationIsRefused"},
		{"positions do not move back", "checkpoint/order.go",
			`if order > 0 {`, `if order > 9 {`, inProtocol, "TestTransitionsRefuseWithAReason"},
		{"decimals are compared as numbers", "checkpoint/order.go",
			`cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))`, `cmp.Compare(a, b)`, "./checkpoint", "TestAdvance"},
		{"a commit made after a transfer was read resets the attempts", leaseDir + "row.go",
			`case accepted > r.Failures.Last:
		return 0
	case accepted == r.Failures.Last:`, `case accepted > r.Failures.Last:
		return 0
	case false:`, inProtocol, "TestAttemptsOfATransferFromAnOldImage"},
		{"user data stays out of logs", leaseDir + "row.go",
			`func (r Row) GoString() string { return r.String() }`,
			`func (r Row) GoString() string { return r.Checkpoint.Position }`, inLease, "TestUserDataStaysPrivate"},
	}
}

// TestMutantsApply keeps the museum in step with the code: every mutant still
// finds its text, exactly once.
func TestMutantsApply(t *testing.T) {
	for _, m := range append(mutants(), engineMutants()...) {
		if _, err := m.source(); err != nil {
			t.Error(err)
		}
	}
}

func TestMutants(t *testing.T) {
	if !*run {
		t.Skip("breaks every rule once: go test ./internal/mutants -mutants -v")
	}
	var killed atomic.Int32
	all := append(mutants(), engineMutants()...)
	t.Run("unharmed", func(t *testing.T) { unharmed(t, all) })
	t.Run("each", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.rule, func(t *testing.T) {
				t.Parallel()
				if m.survives(t) {
					t.Errorf("%s: %s does not notice", m.rule, m.test)
				} else {
					killed.Add(1)
				}
			})
		}
	})
	t.Logf("%d/%d mutants killed", killed.Load(), len(all))
}

type notOnce struct{ file, text string }

func (e notOnce) Error() string { return e.file + " does not hold exactly once: " + e.text }

// source is the mutated file.
func (m mutant) source() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if strings.Count(string(text), m.old) != 1 || m.old == m.new {
		return nil, notOnce{m.file, m.old}
	}
	return []byte(strings.Replace(string(text), m.old, m.new, 1)), nil
}

const root = "../.."

// survives runs the test over the mutated file.
func (m mutant) survives(t *testing.T) bool {
	t.Helper()
	text, err := m.source()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	original, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	mutated := filepath.Join(dir, "mutated.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{mutated: text, filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := goTest("-overlay", filepath.Join(dir, "overlay.json"), "-run", pattern(m.test), m.pkg)
	if err == nil {
		return true
	}
	if !strings.Contains(out, "--- FAIL: ") && !strings.Contains(out, "test timed out") { // some breaks spin
		t.Fatalf("the mutant does not run:\n%s", out)
	}
	return false
}

// unharmed runs the tests over the code as it is: one that fails anyway, or that
// is not there, would kill every mutant.
func unharmed(t *testing.T, all []mutant) {
	tests := map[string][]string{}
	for _, m := range all {
		if !slices.Contains(tests[m.pkg], m.test) {
			tests[m.pkg] = append(tests[m.pkg], m.test)
		}
	}
	for pkg, names := range tests {
		for _, name := range names {
			out, err := goTest("-v", "-run", pattern(name), pkg)
			if err != nil || !strings.Contains(out, "--- PASS: "+name) {
				t.Fatalf("%s in %s does not pass by itself:\n%s", name, pkg, out)
			}
		}
	}
}

func pattern(test string) string { return "^" + strings.ReplaceAll(test, "/", "$/^") + "$" }

func goTest(args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"test", "-vet=off", "-timeout=30s"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
