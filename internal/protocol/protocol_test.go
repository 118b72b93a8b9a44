package protocol_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	stamp  = fixture.Stamp
	owner  = fixture.Worker
	at     = fixture.At
	handle = fixture.Hold
	next   = fixture.Next
	write  = fixture.Write
)

// errOf returns the error of a transition.
func errOf(w lease.Write, err error) error { return err }

func TestTransitionsRefuseWithAReason(t *testing.T) {
	free, a := fixture.Free(t), fixture.Held(t, "a")
	ha := handle(a)
	command := func(r lease.Row) protocol.Command { return protocol.Command{Seen: r.Generation, By: "op"} }
	finished := next(t)(protocol.Finish(a, ha, checkpoint.Mark{}, stamp()))
	aside := next(t)(protocol.Quarantine(free, command(free), lease.ReasonFailed, stamp()))
	gone := next(t)(protocol.Remove(free, command(free), stamp()))
	released := next(t)(protocol.ForceRelease(a, command(a), stamp()))
	ten := next(t)(protocol.Commit(a, ha, at("10"), stamp()))
	older := handle(a)
	older.Generation++

	for name, tc := range map[string]struct{ got, want error }{
		"claim a held row":                      {errOf(protocol.Claim(a, owner("b"), stamp())), lease.ErrHeld},
		"claim a finished row":                  {errOf(protocol.Claim(finished, owner("b"), stamp())), protocol.ErrFinished},
		"claim a quarantined row":               {errOf(protocol.Claim(aside, owner("b"), stamp())), protocol.ErrQuarantined},
		"claim a tombstone":                     {errOf(protocol.Claim(gone, owner("b"), stamp())), protocol.ErrRemoved},
		"recover a free row":                    {errOf(protocol.Recover(free, owner("b"), stamp())), protocol.ErrNotHeld},
		"recover from oneself":                  {errOf(protocol.Recover(a, owner("a"), stamp())), protocol.ErrSelf},
		"seize a free row":                      {errOf(protocol.Seize(free, owner("b"), stamp())), protocol.ErrNotHeld},
		"take what was not offered":             {errOf(protocol.Take(a, owner("b"), stamp())), protocol.ErrNotOffered},
		"commit with another incarnation":       {errOf(protocol.Commit(a, lease.Hold{Key: a.Key(), Incarnation: "b-1", Generation: a.Generation}, at("1"), stamp())), protocol.ErrNotHolder},
		"commit by nobody on a free row":        {errOf(protocol.Commit(free, lease.Hold{Key: free.Key(), Generation: free.Generation}, at("1"), stamp())), protocol.ErrNotHeld},
		"commit from an old image":              {errOf(protocol.Commit(a, older, at("1"), stamp())), protocol.ErrOldImage},
		"commit with the hold of another shard": {errOf(protocol.Commit(a, lease.Hold{Key: lease.Key{Group: "orders", Kind: lease.KindLease, Name: "shard-2"}, Incarnation: "a-1", Generation: a.Generation}, at("1"), stamp())), protocol.ErrOtherRow},
		"commit after finish":                   {errOf(protocol.Commit(finished, ha, at("1"), stamp())), checkpoint.ErrStale},
		"commit backwards":                      {errOf(protocol.Commit(ten, ha, at("9"), stamp())), checkpoint.ErrBackwards},
		"commit nothing":                        {errOf(protocol.Commit(ten, ha, checkpoint.Mark{}, stamp())), checkpoint.ErrInvalid},
		"commit no number":                      {errOf(protocol.Commit(ten, ha, at("x"), stamp())), checkpoint.ErrInvalid},
		"release backwards":                     {errOf(protocol.Release(ten, ha, protocol.End{Reason: lease.ReasonReleased, Mark: at("9")}, stamp())), checkpoint.ErrBackwards},
		"release without a reason":              {errOf(protocol.Release(a, ha, protocol.End{}, stamp())), protocol.ErrReason},
		"release as expired":                    {errOf(protocol.Release(a, ha, protocol.End{Reason: lease.ReasonExpired}, stamp())), protocol.ErrReason},
		"offer to oneself":                      {errOf(protocol.Offer(a, ha, "a-1", at("1"), stamp())), protocol.ErrSelf},
		"offer to nobody":                       {errOf(protocol.Offer(a, ha, "", at("1"), stamp())), checkpoint.ErrInvalid},
		"withdraw nothing":                      {errOf(protocol.Withdraw(a, ha, stamp())), protocol.ErrNotOffered},
		"yield to oneself":                      {errOf(protocol.Yield(a, ha, owner("a"), protocol.End{Reason: lease.ReasonHandoff}, stamp())), protocol.ErrSelf},
		"yield to nobody":                       {errOf(protocol.Yield(a, ha, lease.Owner{}, protocol.End{Reason: lease.ReasonHandoff}, stamp())), checkpoint.ErrInvalid},
		"yield as released":                     {errOf(protocol.Yield(a, ha, owner("b"), protocol.End{Reason: lease.ReasonReleased}, stamp())), protocol.ErrReason},
		"force-release of a free row":           {errOf(protocol.ForceRelease(free, command(free), stamp())), protocol.ErrNotHeld},
		"reassign a free row":                   {errOf(protocol.Reassign(free, command(free), lease.Reservation{For: "b", Lasts: time.Second}, stamp())), protocol.ErrNotHeld},
		"force-release twice":                   {errOf(protocol.ForceRelease(released, command(released), stamp())), protocol.ErrNotHeld},
		"reassign seen under another":           {errOf(protocol.Reassign(a, command(free), lease.Reservation{For: "b", Lasts: time.Second}, stamp())), lease.ErrOutdated},
		"reassign to nobody":                    {errOf(protocol.Reassign(a, command(a), lease.Reservation{Lasts: time.Second}, stamp())), checkpoint.ErrInvalid},
		"reassign for no time":                  {errOf(protocol.Reassign(a, command(a), lease.Reservation{For: "b"}, stamp())), checkpoint.ErrInvalid},
		"reassign for a year":                   {errOf(protocol.Reassign(a, command(a), lease.Reservation{For: "b", Lasts: 365 * 24 * time.Hour}, stamp())), checkpoint.ErrInvalid},
		"quarantine twice":                      {errOf(protocol.Quarantine(aside, command(aside), lease.ReasonFailed, stamp())), protocol.ErrQuarantined},
		"quarantine for a handoff":              {errOf(protocol.Quarantine(a, command(a), lease.ReasonHandoff, stamp())), protocol.ErrReason},
		"unquarantine a free row":               {errOf(protocol.Unquarantine(free, command(free), stamp())), protocol.ErrNotQuarantined},
		"rewind a held row":                     {errOf(protocol.Rewind(a, command(a), at("1"), stamp())), lease.ErrHeld},
		"rewind to a state alone":               {errOf(protocol.Rewind(free, command(free), checkpoint.Mark{State: "s"}, stamp())), checkpoint.ErrInvalid},
		"remove a held row":                     {errOf(protocol.Remove(a, command(a), stamp())), lease.ErrHeld},
		"remove a tombstone":                    {errOf(protocol.Remove(gone, command(gone), stamp())), protocol.ErrRemoved},
		"revive a free row":                     {errOf(protocol.Revive(free, nil, "s", stamp())), protocol.ErrNotRemoved},
		"revive a free row, held":               {errOf(protocol.ReviveHeld(free, owner("a"), stamp())), protocol.ErrNotRemoved},
		"revive for nobody, held":               {errOf(protocol.ReviveHeld(gone, lease.Owner{Name: "a"}, stamp())), checkpoint.ErrInvalid},
		"discard with a checkpoint":             {errOf(protocol.Discard(ten, ha, protocol.End{Reason: lease.ReasonReleased}, stamp())), protocol.ErrCheckpoint},
		"discard with a last mark":              {errOf(protocol.Discard(a, ha, protocol.End{Reason: lease.ReasonReleased, Mark: at("1")}, stamp())), protocol.ErrCheckpoint},
		"discard as failed":                     {errOf(protocol.Discard(a, ha, protocol.End{Reason: lease.ReasonFailed}, stamp())), protocol.ErrReason},
		"discard by another":                    {errOf(protocol.Discard(a, lease.Hold{Key: a.Key(), Incarnation: "b-1", Generation: a.Generation}, protocol.End{Reason: lease.ReasonReleased}, stamp())), protocol.ErrNotHolder},
		"discard a free row":                    {errOf(protocol.Discard(free, lease.Hold{Key: free.Key(), Generation: free.Generation}, protocol.End{Reason: lease.ReasonReleased}, stamp())), protocol.ErrNotHeld},
		"begin held by nobody":                  {errOf(protocol.BeginHeld("orders", "shard-1", lease.Owner{Name: "a"}, stamp())), checkpoint.ErrInvalid},
		"begin held with half a millisecond":    {errOf(protocol.BeginHeld("orders", "shard-1", lease.Owner{Name: "a", Incarnation: "a-1", LockDelay: time.Millisecond / 2}, stamp())), checkpoint.ErrInvalid},
		"rewind seen under another":             {errOf(protocol.Rewind(free, protocol.Command{Seen: free.Generation - 1}, at("1"), stamp())), lease.ErrOutdated},
		"begin with a parent twice":             {errOf(protocol.Begin("g", "s", []string{"p", "p"}, "", stamp())), checkpoint.ErrInvalid},
		"begin as its own parent":               {errOf(protocol.Begin("g", "s", []string{"s"}, "", stamp())), checkpoint.ErrInvalid},
		"begin without a write id":              {errOf(protocol.Begin("g", "s", nil, "", protocol.Stamp{})), checkpoint.ErrInvalid},
		"claim without an incarnation":          {errOf(protocol.Claim(free, lease.Owner{Name: "a"}, stamp())), checkpoint.ErrInvalid},
		"claim with the row's own id":           {errOf(protocol.Claim(free, owner("a"), protocol.Stamp{ID: free.WriteID})), lease.ErrBadWrite},
		"commit with the row's own write id":    {errOf(protocol.Commit(a, ha, at("1"), protocol.Stamp{ID: a.WriteID})), lease.ErrBadWrite},
	} {
		if !errors.Is(tc.got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, tc.got, tc.want)
		}
		verb, _, _ := strings.Cut(name, " ")
		if rule, ok := errors.AsType[*lease.RuleError](tc.got); ok && (rule.Transition != verb || rule.Key.Name != "shard-1") {
			t.Errorf("%s: %v does not name transition and shard", name, tc.got)
		}
	}
	if err := errOf(protocol.Remove(a, command(a), stamp())); err.Error() != "remove lease orders/shard-1: a worker holds the shard" {
		t.Errorf("the error reads %q", err)
	}
}

func TestGenerationGrowsAtEveryChangeOfHandsAndNowhereElse(t *testing.T) {
	r := fixture.Held(t, "a")
	h := handle(r)
	r2 := next(t)(protocol.Commit(r, h, at("1"), stamp()))
	r3 := next(t)(protocol.Offer(r2, h, "b-1", at("2"), stamp()))
	r4 := next(t)(protocol.Withdraw(r3, h, stamp()))
	for _, same := range []lease.Row{r2, r3, r4} {
		if same.Generation != r.Generation || same.Owner != r.Owner {
			t.Errorf("%v changed hands", same)
		}
	}
	seen := protocol.Command{Seen: r4.Generation, By: "op"}
	for name, w := range map[string]lease.Write{
		"yield":   write(t)(protocol.Yield(r4, h, owner("b"), protocol.End{Reason: lease.ReasonHandoff, Mark: at("3")}, stamp())),
		"release": write(t)(protocol.Release(r4, h, protocol.End{Reason: lease.ReasonReleased}, stamp())),
		"finish":  write(t)(protocol.Finish(r4, h, checkpoint.Mark{}, stamp())),
		"recover": write(t)(protocol.Recover(r4, owner("b"), stamp())),
		"reclaim": write(t)(protocol.Claim(r4, owner("a"), stamp())),
		"force":   write(t)(protocol.ForceRelease(r4, seen, stamp())),
	} {
		if got := next(t)(w, nil); got.Generation != r.Generation+1 || got.Last.WriteID != w.ID() || got.OfferedTo != "" {
			t.Errorf("%s left %v", name, got)
		}
	}
}

// TestFirstGenerationIsAboveAllIssuedBefore: a row that is lost and created again a second later
// starts above four million changes of hands.
func TestFirstGenerationIsAboveAllIssuedBefore(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, lost := range []time.Duration{time.Second, time.Hour, 20 * 365 * 24 * time.Hour} {
		last := generation.First(now) + 1<<22 - 1
		if again := generation.First(now.Add(lost)); again <= last {
			t.Errorf("after %v a new row starts at %d, not above %d", lost, again, last)
		}
	}
	r := next(t)(protocol.Begin("orders", "shard-1", nil, "a", protocol.Stamp{ID: "w", At: now}))
	if want := generation.First(now); r.Generation != want {
		t.Errorf("a new row starts at %d, want %d", r.Generation, want)
	}
	for _, odd := range []time.Time{{}, time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(292277026595, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if g := generation.First(odd); g < 1 {
			t.Errorf("First(%v) is %d, want at least 1", odd, g)
		}
	}
}

// TestRevivalAndAdoptionJump: the new generation is above the row's own and not below the clock's.
func TestRevivalAndAdoptionJump(t *testing.T) {
	r := fixture.Free(t)
	gone := next(t)(protocol.Remove(r, protocol.Command{Seen: r.Generation}, stamp()))
	later := stamp()
	later.At = later.At.Add(time.Hour)
	for name, tc := range map[string]struct {
		jump func(r lease.Row) (lease.Write, error)
		far  int64 // how many generations may have been lost since
	}{
		"revive":      {func(r lease.Row) (lease.Write, error) { return protocol.Revive(r, nil, "s", later) }, 1},
		"revive held": {func(r lease.Row) (lease.Write, error) { return protocol.ReviveHeld(r, owner("a"), later) }, 1},
		"adopt":       {func(r lease.Row) (lease.Write, error) { return protocol.Adopt(r, "s", later) }, 1 << 22},
	} {
		if got := next(t)(tc.jump(gone)).Generation; got != generation.First(later.At) {
			t.Errorf("%s: generation %d, want the clock's", name, got)
		}
		ahead := gone
		ahead.Generation, ahead.Last.Generation = math.MaxInt64/2, math.MaxInt64/2
		if got := next(t)(tc.jump(ahead)).Generation; got != ahead.Generation+tc.far {
			t.Errorf("%s: generation %d, want %d above the row's", name, got, tc.far)
		}
		ahead.Generation, ahead.Last.Generation = math.MaxInt64-1, math.MaxInt64-1
		if w, err := tc.jump(ahead); tc.far > 1 && err == nil {
			t.Errorf("%s: %v", name, w)
		}
	}
}

// TestLeaseByName: a lease by name is created, given up and created again in one write each. The
// generation grows with each of them, and the lock delay is that of the owner.
func TestLeaseByName(t *testing.T) {
	by := owner("a")
	by.Task, by.LockDelay = "run 7", 3*time.Second
	released := protocol.End{Reason: lease.ReasonReleased, Note: "done"}
	r := next(t)(protocol.BeginHeld("orders", "shard-1", by, stamp()))
	if r.Owner != by || r.Generation != generation.First(r.Last.At) || r.Last.Reason != lease.ReasonInitial || r.Last.By != "a" {
		t.Errorf("created as %v by %+v", r, r.Owner)
	}
	gone := next(t)(protocol.Discard(r, handle(r), released, stamp()))
	if !gone.Removed || !gone.Owner.IsZero() || gone.Generation != r.Generation+1 || gone.Last.From != "a" || gone.Last.Task != "run 7" {
		t.Errorf("given up as %v", gone)
	}
	again := next(t)(protocol.ReviveHeld(gone, owner("b"), stamp()))
	if again.Removed || again.Owner != owner("b") || again.Generation <= gone.Generation || again.Owner.LockDelay != 0 {
		t.Errorf("created again as %v", again)
	}
	marked := next(t)(protocol.Commit(r, handle(r), checkpoint.Mark{Position: "1", State: "data"}, stamp()))
	for name, w := range map[string]lease.Write{
		"release":       write(t)(protocol.Release(marked, handle(marked), released, stamp())),
		"force-release": write(t)(protocol.ForceRelease(marked, protocol.Command{Seen: r.Generation, By: "op"}, stamp())),
		"recover":       write(t)(protocol.Recover(marked, owner("b"), stamp())),
	} {
		if after := next(t)(w, nil); after.Owner.LockDelay != 0 || after.Removed || after.Checkpoint != marked.Checkpoint {
			t.Errorf("%s left %v with a lock delay of %v", name, after, after.Owner.LockDelay)
		}
	}
}

// TestStoresRefuseOtherLeasesByName: what no transition makes is refused by the check of a write.
func TestStoresRefuseOtherLeasesByName(t *testing.T) {
	by := owner("a")
	by.LockDelay = time.Second
	create := write(t)(protocol.BeginHeld("orders", "shard-1", by, stamp()))
	r := next(t)(create, nil)
	discard := write(t)(protocol.Discard(r, handle(r), protocol.End{Reason: lease.ReasonReleased}, stamp()))
	gone := next(t)(discard, nil)
	revive := write(t)(protocol.ReviveHeld(gone, owner("b"), stamp()))
	marked := next(t)(protocol.Commit(r, handle(r), at("1"), stamp()))
	swap := func(w lease.Write, edit func(old, next *lease.Row)) lease.Write {
		old, _ := w.Old.(lease.Row)
		n := w.Next.(lease.Row)
		edit(&old, &n)
		if w.Next = n; w.Op != lease.OpCreate {
			w.Old = old
		}
		return w
	}
	for name, w := range map[string]lease.Write{
		"created held with parents": swap(create, func(_, n *lease.Row) { n.Parents = []string{"p"} }),
		"created held and offered":  swap(create, func(_, n *lease.Row) { n.OfferedTo = "b-1" }),
		"revived by a transfer":     {Op: lease.OpTransfer, Old: revive.Old, Next: revive.Next},
		"revived for another reason": swap(revive, func(_, n *lease.Row) {
			n.Last.Reason = lease.ReasonReleased
			n.Generation = gone.Generation + 1
			n.Last.Generation = n.Generation
		}),
		"a free row that is taken by a swap": swap(revive, func(old, _ *lease.Row) { old.Removed = false }),
		"discarded with a checkpoint":        swap(discard, func(old, _ *lease.Row) { old.Checkpoint = marked.Checkpoint }),
		"discarded with a checkpoint kept":   swap(discard, func(old, n *lease.Row) { old.Checkpoint, n.Checkpoint = marked.Checkpoint, marked.Checkpoint }),
		"discarded and finished":             swap(discard, func(_, n *lease.Row) { n.Finished = true }),
		"a lock delay that changes":          swap(write(t)(protocol.Commit(r, handle(r), at("1"), stamp())), func(_, n *lease.Row) { n.Owner.LockDelay = 0 }),
		"a lock delay without an owner":      swap(discard, func(_, n *lease.Row) { n.Owner.LockDelay = time.Second }),
	} {
		if err := w.Check(); !errors.Is(err, lease.ErrBadWrite) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAttempts(t *testing.T) {
	r := fixture.Held(t, "a")
	fail := func(progressed bool, m checkpoint.Mark) {
		t.Helper()
		r = next(t)(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonFailed, Mark: m, Progressed: progressed}, stamp()))
		r = next(t)(protocol.Claim(r, owner("a"), stamp()))
	}
	want := func(what string, n int64) {
		t.Helper()
		if r.Attempts() != n {
			t.Errorf("%s: %d attempts, want %d", what, r.Attempts(), n)
		}
	}
	fail(false, checkpoint.Mark{})
	fail(false, checkpoint.Mark{})
	want("two failures", 2)
	fail(true, checkpoint.Mark{})
	want("a failure after progress", 1)
	fail(false, checkpoint.Mark{})
	fail(false, at("5"))
	want("a failure with a checkpoint", 1)
	fail(false, checkpoint.Mark{})
	want("and one without", 2)
	r = next(t)(protocol.Yield(r, handle(r), owner("b"), protocol.End{Reason: lease.ReasonHandoff}, stamp()))
	want("a planned move", 2)
	r = next(t)(protocol.Commit(r, handle(r), at("6"), stamp()))
	want("an accepted checkpoint", 0)

	// A tenure without any position also resets the attempts with Progress.
	r = fixture.Held(t, "a")
	fail(false, checkpoint.Mark{})
	fail(false, checkpoint.Mark{})
	r = next(t)(protocol.Progress(r, handle(r), stamp()))
	want("progress", 0)
	fail(false, checkpoint.Mark{})
	want("a failure after progress", 1)
	fail(false, checkpoint.Mark{})
	r = next(t)(protocol.Yield(r, handle(r), owner("b"), protocol.End{Reason: lease.ReasonHandoff, Progressed: true}, stamp()))
	want("a planned move after progress", 0)
}

// TestWhatCountsAsFailure: an error, a panic, a stall and an expiry count; a planned end does not.
func TestWhatCountsAsFailure(t *testing.T) {
	a := fixture.Held(t, "a")
	h := handle(a)
	seen := protocol.Command{Seen: a.Generation, By: "op"}
	release := func(reason lease.Reason) lease.Write {
		return write(t)(protocol.Release(a, h, protocol.End{Reason: reason}, stamp()))
	}
	for name, tc := range map[string]struct {
		w    lease.Write
		want int64
	}{
		"release":                 {release(lease.ReasonReleased), 0},
		"drain timeout":           {release(lease.ReasonDrainTimeout), 0},
		"failure":                 {release(lease.ReasonFailed), 1},
		"stall":                   {release(lease.ReasonStalled), 1},
		"recovery":                {write(t)(protocol.Recover(a, owner("b"), stamp())), 1},
		"seizure":                 {write(t)(protocol.Seize(a, owner("b"), stamp())), 0},
		"force-release":           {write(t)(protocol.ForceRelease(a, seen, stamp())), 0},
		"adoption":                {write(t)(protocol.Adopt(a, "op", stamp())), 0},
		"yield":                   {write(t)(protocol.Yield(a, h, owner("b"), protocol.End{Reason: lease.ReasonDrainTimeout}, stamp())), 0},
		"quarantine by command":   {write(t)(protocol.Quarantine(a, seen, lease.ReasonForced, stamp())), 0},
		"quarantine of the dead":  {write(t)(protocol.Quarantine(a, seen, lease.ReasonExpired, stamp())), 1},
		"quarantine of a failure": {write(t)(protocol.Quarantine(a, seen, lease.ReasonFailed, stamp())), 1},
	} {
		if got := next(t)(tc.w, nil).Attempts(); got != tc.want {
			t.Errorf("%s: %d attempts, want %d", name, got, tc.want)
		}
	}
	free := fixture.Free(t)
	if got := next(t)(protocol.Quarantine(free, protocol.Command{Seen: free.Generation}, lease.ReasonExpired, stamp())).Attempts(); got != 0 {
		t.Errorf("quarantine of a free row: %d attempts, want 0", got)
	}
}

// TestFailuresNameTheirWorkers: a row shows under which workers its tenures have failed since the
// last progress, by error and by death, whatever is left of its history. An excused failure is
// recorded and does not count.
func TestFailuresNameTheirWorkers(t *testing.T) {
	r := fixture.Free(t)
	do := func(w lease.Write, err error) { t.Helper(); r = next(t)(w, err); r.Past = "" }
	fail := func(worker string, e protocol.End) {
		t.Helper()
		do(protocol.Claim(r, owner(worker), stamp()))
		e.Reason = lease.ReasonFailed
		do(protocol.Release(r, handle(r), e, stamp()))
	}
	want := func(what string, workers int, under string) {
		t.Helper()
		got := fmt.Sprint(r.FailedUnder("a"), r.FailedUnder("b"), r.FailedUnder("c"), r.FailedUnder("d"))
		if got = strings.ReplaceAll(got, " ", ""); r.FailedWorkers() != workers || got != under {
			t.Errorf("%s: under %d workers, of a, b, c and d %s; want %d and %s", what, r.FailedWorkers(), got, workers, under)
		}
	}
	want("no failure", 0, "0000")
	fail("a", protocol.End{})
	fail("a", protocol.End{})
	want("two failures of one worker", 1, "2000")
	fail("c", protocol.End{Excused: true})
	want("an excused failure", 1, "2000")
	if r.Last.Reason != lease.ReasonFailed || r.Last.From != owner("c").Name || r.Attempts() != 2 {
		t.Errorf("after an excused failure: %v with %d attempts", r, r.Attempts())
	}
	do(protocol.Claim(r, owner("b"), stamp()))
	do(protocol.Recover(r, owner("c"), stamp()))
	want("a death", 2, "2100")
	do(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonStalled}, stamp()))
	want("a stall", 3, "2110")
	fail("d", protocol.End{})
	want("a fourth worker, beyond what a row remembers", 4, "0111")
	fail("b", protocol.End{})
	want("one of them again", 4, "0211")
	fail("a", protocol.End{Progressed: true})
	want("a failure after progress", 1, "1000")
	do(protocol.Claim(r, owner("b"), stamp()))
	do(protocol.Quarantine(r, protocol.Command{Seen: r.Generation, By: "c"}, lease.ReasonExpired, stamp()))
	want("a quarantine of a dead worker's shard", 2, "1100")
	do(protocol.Unquarantine(r, protocol.Command{Seen: r.Generation}, stamp()))
	want("its end", 0, "0000")

	r.Failures = lease.Failures{Count: 3, Last: r.Generation} // as a version counts that notes no names
	want("failures without names", 1, "0000")
	fail("a", protocol.End{})
	want("and one with a name", 2, "1000")
}

// TestDeathsAreNoFailures: Attempts counts every tenure that failed or whose owner died, and
// Failed counts only those that ended by error, panic or stall. An accepted checkpoint resets both
// counts, also if a recovery was made from a row that was read before it.
func TestDeathsAreNoFailures(t *testing.T) {
	r := fixture.Free(t)
	do := func(w lease.Write, err error) { t.Helper(); r = next(t)(w, err) }
	want := func(what string, attempts, failed int64) {
		t.Helper()
		if r.Attempts() != attempts || r.Failed() != failed {
			t.Errorf("%s: %d attempts, %d failed; want %d and %d", what, r.Attempts(), r.Failed(), attempts, failed)
		}
	}
	do(protocol.Claim(r, owner("a"), stamp()))
	do(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonFailed}, stamp()))
	do(protocol.Claim(r, owner("a"), stamp()))
	want("a failure", 1, 1)
	do(protocol.Recover(r, owner("b"), stamp()))
	do(protocol.Recover(r, owner("a"), stamp()))
	want("and two deaths", 3, 1)
	do(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonStalled}, stamp()))
	want("and a stall", 4, 2)
	do(protocol.Claim(r, owner("a"), stamp()))
	image := r
	do(protocol.Commit(r, handle(r), at("5"), stamp()))
	want("a checkpoint", 0, 0)
	accepted := r
	do(protocol.Recover(r, owner("b"), stamp()))
	want("and a death", 1, 0)
	do(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonFailed}, stamp()))
	want("and a failure", 2, 1)

	do(protocol.Recover(image, owner("b"), stamp())) // a real store would keep the stored checkpoint
	r.Checkpoint = accepted.Checkpoint
	want("a death after a checkpoint that was not read", 1, 0)
	do(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonFailed}, stamp()))
	want("and a failure", 2, 1)
}

// TestCommandsClearWhatTheySay: an unquarantine, a rewind and a removal reset the fields that no
// longer count.
func TestCommandsClearWhatTheySay(t *testing.T) {
	r := fixture.Held(t, "a")
	seen := func() protocol.Command { return protocol.Command{Seen: r.Generation, By: "op"} }
	do := func(w lease.Write, err error) { t.Helper(); r = next(t)(w, err) }
	do(protocol.Commit(r, handle(r), at("9"), stamp()))
	do(protocol.Finish(r, handle(r), checkpoint.Mark{}, stamp()))
	do(protocol.Rewind(r, seen(), at("3"), stamp()))
	if r.Finished || r.Checkpoint.Position != "3" {
		t.Errorf("after the rewind: %v", r)
	}
	do(protocol.Claim(r, owner("a"), stamp()))
	do(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonFailed}, stamp()))
	do(protocol.Quarantine(r, seen(), lease.ReasonFailed, stamp()))
	do(protocol.Unquarantine(r, seen(), stamp()))
	if r.Quarantined || r.Attempts() != 0 || (r.Failures != lease.Failures{}) {
		t.Errorf("after unquarantine: %v with %v", r, r.Failures)
	}
	do(protocol.Claim(r, owner("a"), stamp()))
	do(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonFailed}, stamp()))
	do(protocol.Rewind(r, seen(), checkpoint.Mark{}, stamp()))
	if (r.Failures != lease.Failures{}) || !r.Checkpoint.IsZero() {
		t.Errorf("after a rewind to the beginning: %v with %v", r, r.Failures)
	}
	r = next(t)(protocol.Begin("orders", "shard-1", []string{"p"}, "s", stamp()))
	do(protocol.Remove(r, seen(), stamp()))
	if r.Parents != nil || !r.Removed {
		t.Errorf("after removal: %v with parents %v", r, r.Parents)
	}
}

// TestClockMustBeSet: a first generation from a clock that was never set would be below all
// generations that were issued before, and a tombstone would expire at once.
func TestClockMustBeSet(t *testing.T) {
	r := fixture.Free(t)
	held := fixture.Held(t, "a")
	gone := next(t)(protocol.Remove(r, protocol.Command{Seen: r.Generation}, stamp()))
	unset := protocol.Stamp{ID: "x", At: time.Unix(0, 0)}
	for name, err := range map[string]error{
		"begin":       errOf(protocol.Begin("g", "s", nil, "", unset)),
		"begin held":  errOf(protocol.BeginHeld("g", "s", owner("a"), unset)),
		"revive":      errOf(protocol.Revive(gone, nil, "", unset)),
		"revive held": errOf(protocol.ReviveHeld(gone, owner("a"), unset)),
		"remove":      errOf(protocol.Remove(r, protocol.Command{Seen: r.Generation}, unset)),
		"discard":     errOf(protocol.Discard(held, handle(held), protocol.End{Reason: lease.ReasonReleased}, unset)),
		"adopt":       errOf(protocol.Adopt(r, "", unset)),
		"sessions":    errOf(protocol.BeginSessions("g", owner("a"), unset)),
	} {
		if !errors.Is(err, checkpoint.ErrInvalid) || !strings.Contains(err.Error(), "clock") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestAttemptsOfATransferFromAnOldImage: a commit resets the attempts even if the recovery after
// it was made from a row that was read before the commit.
func TestAttemptsOfATransferFromAnOldImage(t *testing.T) {
	r := fixture.Held(t, "a")
	for range 3 {
		r = next(t)(protocol.Recover(r, owner("b"), stamp()))
		r = next(t)(protocol.Recover(r, owner("a"), stamp()))
	}
	recovery, err := protocol.Recover(r, owner("b"), stamp())
	if err != nil {
		t.Fatal(err)
	}
	committed := next(t)(protocol.Commit(r, handle(r), at("1"), stamp()))
	after, err := recovery.Apply(committed)
	if err != nil {
		t.Fatal(err)
	}
	if got := after.(lease.Row).Attempts(); got != 1 {
		t.Errorf("%d attempts, want the one since the commit", got)
	}
}

func TestNumbersAtTheirEdge(t *testing.T) {
	r := fixture.Held(t, "a")
	last := r
	last.Counter = math.MaxInt64
	end := r
	end.Generation, end.Last.Generation = math.MaxInt64, math.MaxInt64
	seat := lease.Seat{Group: "g", Incarnation: "i", WriteID: "w", Name: "n", TTL: time.Second, Beat: math.MaxInt64}
	for name, err := range map[string]error{
		"counter":    errOf(protocol.Commit(last, handle(last), at("1"), stamp())),
		"generation": errOf(protocol.Release(end, handle(end), protocol.End{Reason: lease.ReasonReleased}, stamp())),
		"adoption":   errOf(protocol.Adopt(end, "s", stamp())),
		"beat":       errOf(protocol.NextBeat(seat, lease.Says{}, stamp())),
	} {
		invalid, ok := errors.AsType[*checkpoint.InvalidError](err)
		if !ok || invalid.Limit != math.MaxInt64 {
			t.Errorf("%s: got %v, want an InvalidError naming the limit", name, err)
		}
	}
	if _, err := protocol.Commit(end, handle(end), at("1"), stamp()); err != nil {
		t.Errorf("commit under the last generation: %v", err)
	}
	w, err := protocol.Recover(r, owner("b"), stamp())
	if err != nil {
		t.Fatal(err)
	}
	refused, ok := errors.AsType[*lease.RefusedError](func() error { _, err := w.Apply(last); return err }())
	if !ok || protocol.Decide("b-1", w, refused.Now) != protocol.Again {
		t.Errorf("transfer of a row whose counter is at its limit: not refused with verdict Again")
	}
	if _, err := protocol.Recover(last, owner("b"), stamp()); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("the same transition on that row: got %v, want an InvalidError", err)
	}
}

func TestNamesAtTheirEdge(t *testing.T) {
	bad := map[string]string{
		"empty": "", "over-long": strings.Repeat("n", lease.MaxName+1),
		"not UTF-8": "a\xffb", "control": "a\nb", "C1 control": "a\u0085b",
	}
	free := fixture.Free(t)
	tries := map[string]func(name string) error{
		"group":  func(n string) error { return errOf(protocol.Begin(n, "s", nil, "", stamp())) },
		"shard":  func(n string) error { return errOf(protocol.Begin("g", n, nil, "", stamp())) },
		"parent": func(n string) error { return errOf(protocol.Begin("g", "s", []string{n}, "", stamp())) },
		"owner": func(n string) error {
			return errOf(protocol.Claim(free, lease.Owner{Name: n, Incarnation: "i"}, stamp()))
		},
		"incarnation": func(n string) error {
			return errOf(protocol.Claim(free, lease.Owner{Name: "a", Incarnation: lease.Incarnation(n)}, stamp()))
		},
		"worker": func(n string) error {
			return errOf(protocol.Sit(lease.Seat{Group: "g", Incarnation: "i", Name: n, TTL: time.Second}, stamp()))
		},
		"task": func(n string) error {
			return errOf(protocol.Claim(free, lease.Owner{Name: "a", Incarnation: "i", Task: n}, stamp()))
		},
		"by": func(n string) error {
			return errOf(protocol.Quarantine(free, protocol.Command{Seen: free.Generation, By: n}, lease.ReasonForced, stamp()))
		},
		"note": func(n string) error {
			return errOf(protocol.Quarantine(free, protocol.Command{Seen: free.Generation, Note: n}, lease.ReasonForced, stamp()))
		},
	}
	optional := map[string]bool{"task": true, "by": true, "note": true}
	limits := map[string]int{"note": lease.MaxNote, "incarnation": lease.MaxID}
	for field, try := range tries {
		for what, name := range bad {
			if name == "" && optional[field] || field == "note" && what == "over-long" { // TestLongNotesAreShortened
				continue
			}
			if err := try(name); !errors.Is(err, checkpoint.ErrInvalid) || len(err.Error()) > 500 {
				t.Errorf("%s, %s: got %v", field, what, err)
			}
		}
		limit := lease.MaxName
		if l, ok := limits[field]; ok {
			limit = l
		}
		if err := try(strings.Repeat("n", limit)); err != nil {
			t.Errorf("%s of %d bytes: %v", field, limit, err)
		}
		if err := try("größe 例 " + field); err != nil {
			t.Errorf("%s: %v", field, err)
		}
		if err := try(strings.Repeat("n", limit+1)); err != nil && !strings.Contains(err.Error(), fmt.Sprint(limit)) {
			t.Errorf("%s: %v does not name the limit %d", field, err, limit)
		}
	}
	if _, err := protocol.Begin("g", "s", strings.Split("abcdefghi", ""), "", stamp()); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("nine parents: %v", err)
	}
}

// TestReservationIsReplaced: commands that take a shard from its owner also take it from a reservation.
func TestReservationIsReplaced(t *testing.T) {
	held := fixture.Held(t, "a")
	c := func(r lease.Row) protocol.Command { return protocol.Command{Seen: r.Generation, By: "op"} }
	first, second := lease.Reservation{For: "nobody", Lasts: time.Hour}, lease.Reservation{For: "b", Lasts: time.Minute}
	reserved := next(t)(protocol.Reassign(held, c(held), first, stamp()))
	again := next(t)(protocol.Reassign(reserved, c(reserved), second, stamp()))
	if again.Reserved != second || !again.Owner.IsZero() || again.Generation != reserved.Generation+1 || again.Last.From != "" {
		t.Errorf("reassigned to %v", again)
	}
	released := next(t)(protocol.ForceRelease(again, c(again), stamp()))
	if !released.Reserved.IsZero() || !released.Owner.IsZero() || released.Generation != again.Generation+1 || released.Last.Did != "released" {
		t.Errorf("released to %v", released)
	}
}

// TestLongNotesAreShortened: every transition shortens a note that is too long, and does not
// refuse it. A character is not cut in two.
func TestLongNotesAreShortened(t *testing.T) {
	long := strings.Repeat("é", 160) // 320 bytes
	free, held := fixture.Free(t), fixture.Held(t, "a")
	c := func(r lease.Row) protocol.Command {
		return protocol.Command{Seen: r.Generation, By: "op", Note: "x" + long}
	}
	end := protocol.End{Reason: lease.ReasonReleased, Note: "x" + long}
	handedOff := protocol.End{Reason: lease.ReasonHandoff, Note: end.Note}
	for name, w := range map[string]lease.Write{
		"quarantine":    write(t)(protocol.Quarantine(free, c(free), lease.ReasonForced, stamp())),
		"force-release": write(t)(protocol.ForceRelease(held, c(held), stamp())),
		"rewind":        write(t)(protocol.Rewind(free, c(free), checkpoint.Mark{}, stamp())),
		"remove":        write(t)(protocol.Remove(free, c(free), stamp())),
		"release":       write(t)(protocol.Release(held, handle(held), end, stamp())),
		"yield":         write(t)(protocol.Yield(held, handle(held), owner("b"), handedOff, stamp())),
	} {
		if note := w.Next.(lease.Row).Last.Note; note != "x"+long[:254] {
			t.Errorf("%s: the row keeps the note %q", name, note)
		}
	}
}

func TestSeats(t *testing.T) {
	seat := lease.Seat{Group: "g", Incarnation: "i", Name: "n", TTL: 3*time.Second + 1}
	w, err := protocol.Sit(seat, stamp())
	if err != nil {
		t.Fatal(err)
	}
	created := w.Next.(lease.Seat)
	if created.Confirmed() || created.TTL != 3*time.Second {
		t.Errorf("the new seat is %v", created)
	}
	terms := rebalance.Terms{Mode: rebalance.Eager, Drain: time.Second}
	wants := []lease.Want{{Shard: "b", Generation: 4, Terms: terms}, {Shard: "a", Generation: 3, Terms: terms}}
	w, err = protocol.NextBeat(created, lease.Says{Leaving: true, Wants: wants}, stamp())
	if err != nil {
		t.Fatal(err)
	}
	beaten := w.Next.(lease.Seat)
	if !beaten.Confirmed() || beaten.Beat != 1 || !beaten.Leaving || beaten.Wants[0].Shard != "a" || wants[0].Shard != "b" {
		t.Errorf("the seat after its first heartbeat is %v, with requests %v", beaten, beaten.Wants)
	}
	for name, wants := range map[string][]lease.Want{
		"twice":         {{Shard: "a", Generation: 1, Terms: terms}, {Shard: "a", Generation: 2, Terms: terms}},
		"no generation": {{Shard: "a", Terms: terms}},
		"no shard":      {{Generation: 1, Terms: terms}},
		"no mode":       {{Shard: "a", Generation: 1}},
		"too many":      make([]lease.Want, lease.MaxWants+1),
	} {
		if _, err := protocol.NextBeat(created, lease.Says{Wants: wants}, stamp()); err == nil {
			t.Errorf("requests, %s: accepted", name)
		}
	}
}

// TestSeatSaysWhatFits: a worker does not lose its seat because it has much to say. It says the
// first news and counts the others, and cleans the text that says why it is unwell.
func TestSeatSaysWhatFits(t *testing.T) {
	w, err := protocol.Sit(lease.Seat{Group: "g", Incarnation: "i", Name: "n", TTL: time.Second, Backoff: -time.Hour, Since: time.Unix(0, 1_999_999)}, stamp())
	if err != nil {
		t.Fatal(err)
	}
	created := w.Next.(lease.Seat)
	if created.Backoff != -time.Millisecond || created.Since.Nanosecond() != 1_000_000 {
		t.Errorf("backoff %v, since %v", created.Backoff, created.Since)
	}
	for given, want := range map[time.Duration]time.Duration{0: 0, lease.DefaultBackoff: 0, -1: 0, -time.Millisecond: -time.Millisecond, time.Minute + 1: time.Minute} {
		w, err := protocol.Sit(lease.Seat{Group: "g", Incarnation: "i", Name: "n", TTL: time.Second, Backoff: given}, stamp())
		if err != nil || w.Next.(lease.Seat).Backoff != want {
			t.Errorf("a backoff of %v: %v, %v", given, w.Next, err)
		}
	}
	var news []lease.News
	for i := range lease.MaxNews + 7 {
		news = append(news, lease.News{Kind: lease.NewsFinished, Shard: fmt.Sprintf("s-%03d", 999-i)})
	}
	says := lease.Says{News: news, NewsLeft: 3, Health: lease.Health{Unwell: "a\nb\xff" + strings.Repeat("ä", 300), UnwellSince: time.Unix(0, 1_999_999)}}
	w, err = protocol.NextBeat(created, says, stamp())
	if err != nil {
		t.Fatal(err)
	}
	next := w.Next.(lease.Seat)
	if len(next.News) != lease.MaxNews || next.NewsLeft != 10 || next.News[0].Shard != "s-900" || news[0].Shard != "s-999" {
		t.Errorf("%d news from %v, %d left", len(next.News), next.News[0], next.NewsLeft)
	}
	if h := next.Health; !strings.HasPrefix(h.Unwell, "a b?ää") || len(h.Unwell) > lease.MaxName || h.UnwellSince.Nanosecond() != 1_000_000 {
		t.Errorf("health %v", h)
	}
	for name, says := range map[string]lease.Says{
		"a negative revision": {Revision: -1}, "a negative count": {NewsLeft: -1},
		"news of no kind": {News: []lease.News{{Shard: "s"}}}, "news of two words": {News: []lease.News{{Kind: "a b", Shard: "s"}}},
		"news of no shard": {News: []lease.News{{Kind: lease.NewsFinished}}},
	} {
		if _, err := protocol.NextBeat(created, says, stamp()); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWantIsForOneGeneration: a request for an earlier generation of a shard does not count.
func TestWantIsForOneGeneration(t *testing.T) {
	r := fixture.Held(t, "a")
	want := lease.Want{Shard: r.Shard, Generation: r.Generation}
	if !want.Stands(r) {
		t.Error("the request does not stand for the row for which it was written")
	}
	if want.Stands(next(t)(protocol.Recover(r, owner("b"), stamp()))) {
		t.Error("the request stands for a later generation")
	}
	other := r
	other.Shard = "another"
	if want.Stands(other) {
		t.Error("the request stands for another shard")
	}
}

// TestAdoptedRowsCanBeClaimed: a claim repeats the reason adopted, but it adds 1 to the generation
// like every claim, however much later it is made.
func TestAdoptedRowsCanBeClaimed(t *testing.T) {
	adopted := next(t)(protocol.Adopt(fixture.Held(t, "a"), "op", stamp()))
	later := stamp()
	later.At = later.At.Add(time.Hour)
	if claimed := next(t)(protocol.Claim(adopted, lease.Owner{Name: "b", Incarnation: "b"}, later)); claimed.Generation != adopted.Generation+1 || claimed.Last.Reason != lease.ReasonAdopted {
		t.Errorf("adopted as %v, then claimed as %v", adopted, claimed)
	}
}

// TestErrorsThatAnOlderVersionLeft: a version that does not know the attribute `errors` restarts or
// clears the count of failures and leaves that attribute as it was. The row stays readable.
func TestErrorsThatAnOlderVersionLeft(t *testing.T) {
	r := fixture.Held(t, "a")
	for _, failures := range []lease.Failures{{Count: 1, Last: r.Generation, Errors: 3}, {Errors: 3}} {
		r.Failures = failures
		decoded, err := lease.Decode(lease.Encode(r))
		if err != nil {
			t.Errorf("%+v: %v", failures, err)
			continue
		}
		if failed := decoded.(lease.Row).Failed(); failed != failures.Count {
			t.Errorf("%+v: %d failed", failures, failed)
		}
	}
}

// FuzzTransitions: any names, marks and notes lead either to a row that can be stored and read
// back, or to a typed error.
func FuzzTransitions(f *testing.F) {
	f.Add("group", "shard", "parent", "worker", "incarnation", "task", "note", "100", "state", int64(0))
	f.Add("g", "s", "", "w", "i", "", "", "", "", int64(-1))
	f.Fuzz(func(t *testing.T, group, shard, parent, name, incarnation, task, note, position, state string, millis int64) {
		s := func(id string) protocol.Stamp {
			return protocol.Stamp{ID: lease.WriteID(id), At: time.UnixMilli(millis)}
		}
		check := func(w lease.Write, err error) (lease.Row, bool) {
			if err != nil {
				if !errors.Is(err, checkpoint.ErrInvalid) && !errors.Is(err, lease.ErrBadWrite) {
					t.Fatalf("untyped error: %v", err)
				}
				return lease.Row{}, false
			}
			after, err := w.Apply(w.Old)
			if err != nil {
				t.Fatal(err)
			}
			back, err := lease.Decode(lease.Encode(after))
			if err != nil || !reflect.DeepEqual(back, after) {
				t.Fatalf("%v was read back as %v, %v", after, back, err)
			}
			return after.(lease.Row), true
		}
		by := lease.Owner{Name: name, Incarnation: lease.Incarnation(incarnation), Task: task, LockDelay: time.Duration(millis)}
		if r, ok := check(protocol.BeginHeld(group, shard, by, s("h1"))); ok {
			hold := lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation}
			if r, ok = check(protocol.Discard(r, hold, protocol.End{Reason: lease.ReasonReleased, Note: note}, s("h2"))); ok {
				check(protocol.ReviveHeld(r, by, s("h3")))
			}
		}
		r, ok := check(protocol.Begin(group, shard, []string{parent}, name, s("1")))
		if !ok {
			return
		}
		if r, ok = check(protocol.Claim(r, lease.Owner{Name: name, Incarnation: lease.Incarnation(incarnation), Task: task}, s("2"))); !ok {
			return
		}
		h := lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation}
		if committed, ok := check(protocol.Commit(r, h, checkpoint.Mark{Position: position, State: state}, s("3"))); ok {
			r = committed
		}
		check(protocol.Release(r, h, protocol.End{Reason: lease.ReasonFailed, Note: note}, s("4")))
	})
}
