package protocol_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
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

// must ends the test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
	delaying := a
	delaying.Owner.LockDelay = time.Minute
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
		"inherit a free row":                    {errOf(protocol.Inherit(free, owner("b"), stamp())), protocol.ErrNotHeld},
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
		"force-release of a quarantined row":    {errOf(protocol.ForceRelease(aside, command(aside), stamp())), protocol.ErrQuarantined},
		"reassign a quarantined row":            {errOf(protocol.Reassign(aside, command(aside), lease.Reservation{For: "b", Lasts: time.Second}, stamp())), protocol.ErrQuarantined},
		"quarantine twice":                      {errOf(protocol.Quarantine(aside, command(aside), lease.ReasonFailed, stamp())), protocol.ErrQuarantined},
		"quarantine for a handoff":              {errOf(protocol.Quarantine(a, command(a), lease.ReasonHandoff, stamp())), protocol.ErrReason},
		"unquarantine a free row":               {errOf(protocol.Unquarantine(free, command(free), stamp())), protocol.ErrNotQuarantined},
		"finish a finished row":                 {errOf(protocol.Conclude(finished, command(finished), stamp())), protocol.ErrFinished},
		"finish a tombstone":                    {errOf(protocol.Conclude(gone, command(gone), stamp())), protocol.ErrRemoved},
		"finish seen under another":             {errOf(protocol.Conclude(a, protocol.Command{Seen: a.Generation - 1}, stamp())), lease.ErrOutdated},
		"rewind to a state alone":               {errOf(protocol.Rewind(free, command(free), checkpoint.Mark{State: "s"}, stamp())), checkpoint.ErrInvalid},
		"rewind a lease with a lock delay":      {errOf(protocol.Rewind(delaying, command(delaying), at("1"), stamp())), protocol.ErrDelays},
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
		"inherit": write(t)(protocol.Inherit(r4, owner("b"), stamp())),
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
	quarantine := write(t)(protocol.Quarantine(r, protocol.Command{Seen: r.Generation}, lease.ReasonExpired, stamp()))
	free := fixture.Free(t)
	ofFree := write(t)(protocol.Quarantine(free, protocol.Command{Seen: free.Generation}, lease.ReasonFailed, stamp()))
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
		"a free row that is taken by a swap":  swap(revive, func(old, _ *lease.Row) { old.Removed = false }),
		"discarded with a checkpoint":         swap(discard, func(old, _ *lease.Row) { old.Checkpoint = marked.Checkpoint }),
		"discarded with a checkpoint kept":    swap(discard, func(old, n *lease.Row) { old.Checkpoint, n.Checkpoint = marked.Checkpoint, marked.Checkpoint }),
		"discarded and finished":              swap(discard, func(_, n *lease.Row) { n.Finished = true }),
		"a lock delay that changes":           swap(write(t)(protocol.Commit(r, handle(r), at("1"), stamp())), func(_, n *lease.Row) { n.Owner.LockDelay = 0 }),
		"quarantined with another checkpoint": swap(quarantine, func(_, n *lease.Row) { n.Checkpoint = marked.Checkpoint }),
		"quarantined without a failure":       swap(quarantine, func(_, n *lease.Row) { n.Failures = lease.Failures{} }),
		"quarantined and finished":            swap(quarantine, func(_, n *lease.Row) { n.Finished = true }),
		"quarantined by a transfer":           {Op: lease.OpTransfer, Old: quarantine.Old, Next: quarantine.Next},
		"a free row by a transfer":            {Op: lease.OpTransfer, Old: ofFree.Old, Next: ofFree.Next},
		"quarantined by a command's swap":     swap(quarantine, func(_, n *lease.Row) { n.Last.Reason = lease.ReasonForced }),
		"a lock delay without an owner":       swap(discard, func(_, n *lease.Row) { n.Owner.LockDelay = time.Second }),
	} {
		if err := w.Check(); !errors.Is(err, lease.ErrBadWrite) {
			t.Errorf("%s: %v", name, err)
		}
	}
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
			must(t, err)
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

// TestCommandsKeepTheLockDelay: a command that takes a lease from its owner leaves the owner's lock delay in the row, and so
// does a command that replaces or ends a reservation. Without the delay, or after it, nothing is left.
func TestCommandsKeepTheLockDelay(t *testing.T) {
	const delay = 5 * time.Second
	to := lease.Reservation{For: "b", Lasts: time.Minute}
	c := func(r lease.Row, none bool) protocol.Command {
		return protocol.Command{Seen: r.Generation, By: "op", NoDelay: none}
	}
	held := fixture.Held(t, "a")
	held.Owner.LockDelay = delay
	for _, none := range []bool{false, true} {
		left, given := lease.Reservation{Delay: delay}, to
		given.Delay = delay
		if none {
			left, given = lease.Reservation{}, to
		}
		released := next(t)(protocol.ForceRelease(held, c(held, none), stamp()))
		reserved := next(t)(protocol.Reassign(held, c(held, none), to, stamp()))
		again := next(t)(protocol.Reassign(reserved, c(reserved, none), to, stamp()))
		ended := next(t)(protocol.ForceRelease(again, c(again, none), stamp()))
		if released.Reserved != left || reserved.Reserved != given || again.Reserved != given || ended.Reserved != left {
			t.Errorf("NoDelay %t: %v, %v, %v and %v", none, released.Reserved, reserved.Reserved, again.Reserved, ended.Reserved)
		}
		if _, err := protocol.ForceRelease(ended, c(ended, none), stamp()); !errors.Is(err, protocol.ErrNotHeld) {
			t.Errorf("NoDelay %t: a forced release that changes nothing: %v", none, err)
		}
		claimed := next(t)(protocol.Claim(ended, fixture.Worker("b"), stamp()))
		if !claimed.Reserved.IsZero() {
			t.Errorf("NoDelay %t: claimed as %v", none, claimed)
		}
	}
	released := next(t)(protocol.ForceRelease(held, c(held, false), stamp()))
	if ended := next(t)(protocol.ForceRelease(released, c(released, true), stamp())); !ended.Reserved.IsZero() {
		t.Errorf("the delay that an earlier command has left: %v", ended)
	}
}
