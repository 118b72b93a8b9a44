package protocol_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestDecide checks the verdict of every kind of refusal.
func TestDecide(t *testing.T) {
	free := fixture.Free(t) // before the next one, so that its generation is not above it
	claimed := fixture.Held(t, "a")
	a := next(t)(protocol.Commit(claimed, handle(claimed), at("10"), stamp()))
	h := handle(a)

	commit, _ := protocol.Commit(a, h, at("20"), stamp())
	yield, _ := protocol.Yield(a, h, owner("b"), protocol.End{Reason: lease.ReasonHandoff, Mark: at("20")}, stamp())
	release, _ := protocol.Release(a, h, protocol.End{Reason: lease.ReasonReleased}, stamp())
	claim, _ := protocol.Claim(free, owner("a"), stamp())
	recovery, _ := protocol.Recover(a, owner("b"), stamp())
	force, _ := protocol.ForceRelease(a, protocol.Command{Seen: a.Generation, By: "op"}, stamp())
	begin, _ := protocol.Begin("orders", "shard-1", nil, "a", stamp())
	beginHeld, _ := protocol.BeginHeld("orders", "shard-1", owner("a"), stamp())
	named := next(t)(beginHeld, nil)
	discard, _ := protocol.Discard(named, handle(named), protocol.End{Reason: lease.ReasonReleased}, stamp())
	gone := next(t)(discard, nil)
	reviveHeld, _ := protocol.ReviveHeld(gone, owner("a"), stamp())
	otherRevives, _ := protocol.ReviveHeld(gone, owner("b"), stamp())
	discardAgain, _ := protocol.Discard(next(t)(reviveHeld, nil), handle(next(t)(reviveHeld, nil)), protocol.End{Reason: lease.ReasonReleased}, stamp())

	after := func(w lease.Write) lease.Row { return next(t)(w, nil) }
	committed := func(r lease.Row, position string) lease.Row {
		return next(t)(protocol.Commit(r, handle(r), at(position), stamp()))
	}
	remove := func(r lease.Row) lease.Row {
		return next(t)(protocol.Remove(r, protocol.Command{Seen: r.Generation}, stamp()))
	}
	older := a
	older.Counter--
	older.WriteID = "of the backup"
	sameElsewhere := a
	sameElsewhere.Owner, sameElsewhere.WriteID = owner("c"), "somehow"
	reclaimed, _ := protocol.Claim(after(release), owner("c"), stamp())
	revived, _ := protocol.Revive(remove(after(release)), nil, "s", stamp())

	again, _ := protocol.Claim(after(revived), owner("a"), stamp())
	claimedAgain, _ := protocol.Commit(after(again), handle(after(again)), at("40"), stamp())
	given, _ := protocol.Release(after(claim), handle(after(claim)), protocol.End{Reason: lease.ReasonReleased}, stamp())
	twice, _ := protocol.Claim(after(given), owner("a"), stamp())
	laterMine := after(twice)

	for name, tc := range map[string]struct {
		me   lease.Incarnation
		w    lease.Write
		now  lease.Record
		want protocol.Verdict
	}{
		"commit: my write id":                                           {"a-1", commit, after(commit), protocol.Stored},
		"yield: the successor has written since":                        {"a-1", yield, committed(after(yield), "30"), protocol.Stored},
		"force-release: my id in the last transfer":                     {"", force, after(force), protocol.Stored},
		"claim: I have written since":                                   {"a-1", claim, committed(after(claim), "5"), protocol.Stored},
		"recovery overtaken by a yield to me":                           {"b-1", recovery, after(yield), protocol.Stored},
		"recovery overtaken by a yield to me, and I have written since": {"b-1", recovery, committed(after(yield), "30"), protocol.Stored},
		"commit: an earlier write of mine was stored":                   {"a-1", commit, committed(a, "15"), protocol.Again},
		"commit: lower counter":                                         {"a-1", commit, older, protocol.WentBack},
		"commit: lower generation":                                      {"a-1", commit, free, protocol.WentBack},
		"recovery: the row went back":                                   {"b-1", recovery, older, protocol.WentBack},
		"commit: fenced":                                                {"a-1", commit, after(recovery), protocol.Overtaken},
		"commit: fenced by my own later claim":                          {"a-1", commit, committed(after(recovery), "30"), protocol.Overtaken},
		"release: stored, then claimed":                                 {"a-1", release, after(reclaimed), protocol.Overtaken},
		"commit: another owner at my generation":                        {"a-1", commit, sameElsewhere, protocol.Conflict},
		"commit: a tombstone":                                           {"a-1", commit, remove(after(release)), protocol.Gone},
		"commit: the table went back to a tombstone":                    {"a-1", claimedAgain, remove(after(release)), protocol.WentBack},
		"no write":                                        {"a-1", lease.Write{}, free, protocol.Unsent},
		"a pointer is no answer":                          {"a-1", commit, &free, protocol.Unknown},
		"claim: my own later claim":                       {"a-1", claim, laterMine, protocol.Overtaken},
		"commit: no row":                                  {"a-1", commit, nil, protocol.Gone},
		"commit: revived":                                 {"a-1", commit, after(revived), protocol.Overtaken},
		"recovery: another worker was faster":             {"z-1", recovery, after(reclaimed), protocol.Overtaken},
		"creation: another worker was faster":             {"a-1", begin, free, protocol.Overtaken},
		"creation: a tombstone":                           {"a-1", begin, remove(after(release)), protocol.Gone},
		"creation held: stored":                           {"a-1", beginHeld, named, protocol.Stored},
		"creation held: stored, and I have written since": {"a-1", beginHeld, committed(named, "5"), protocol.Stored},
		"creation held: another session was faster":       {"b-1", beginHeld, after(claim), protocol.Overtaken},
		"creation held: given up since":                   {"a-1", beginHeld, gone, protocol.Gone},
		"discard: stored":                                 {"a-1", discard, gone, protocol.Stored},
		"discard: stored, and revived since":              {"a-1", discard, after(otherRevives), protocol.Overtaken},
		"discard: I have written since":                   {"a-1", discard, committed(named, "5"), protocol.Again},
		"revival held: stored":                            {"a-1", reviveHeld, after(reviveHeld), protocol.Stored},
		"revival held: another session was faster":        {"a-1", reviveHeld, after(otherRevives), protocol.Overtaken},
		"revival held: given up since":                    {"a-1", reviveHeld, after(discardAgain), protocol.Gone},
		"operator: the row was released before, and an operator has no incarnation": {"", force, after(release), protocol.Overtaken},
	} {
		if got := protocol.Decide(tc.me, tc.w, tc.now); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	for name, tc := range map[string]struct {
		err  error
		want protocol.Verdict
	}{
		"timeout":      {errors.New("timeout"), protocol.Unknown},
		"unreadable":   {&lease.MalformedError{Cause: &checkpoint.InvalidError{Field: "counter"}}, protocol.Unknown},
		"nil refusal":  {fmt.Errorf("wrapped: %w", (*lease.RefusedError)(nil)), protocol.Unknown},
		"stored":       {nil, protocol.Stored},
		"refused, row": {&lease.RefusedError{Now: after(recovery)}, protocol.Overtaken},
	} {
		if got, _ := protocol.Settle("a-1", commit, after(commit), tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestUnsentIsWhatCannotBeSent: a write that fails its check is Unsent, whatever the store
// returns.
func TestUnsentIsWhatCannotBeSent(t *testing.T) {
	a := fixture.Held(t, "a")
	w, _ := protocol.Commit(a, handle(a), at("1"), stamp())
	bad := w.Next.(lease.Row)
	bad.Owner = owner("b")
	w.Next = bad
	if got, _ := protocol.Settle("a-1", w, nil, w.Check()); got != protocol.Unsent {
		t.Errorf("a write that fails its check has the verdict %v", got)
	}
}

func TestCopyIsOfOneRow(t *testing.T) {
	r := fixture.Held(t, "a")
	other := r
	other.Shard, other.Counter = "shard-2", r.Counter+1
	c := protocol.NewCopy(fixture.Key, "a-1")
	c.Saw(r)
	if c.Saw(other) || c.Row().Shard != "shard-1" {
		t.Error("the copy records another row")
	}
	w, err := protocol.Seize(other, owner("b"), stamp())
	must(t, err)
	if err := c.Send(w); !errors.Is(err, protocol.ErrOtherRow) {
		t.Errorf("a write of another row: got %v", err)
	}
	if answer := c.Answer(w, nil, &lease.RefusedError{Now: r}); answer.Verdict != protocol.Unsent || !errors.Is(answer.Err(), protocol.ErrNotOpen) {
		t.Errorf("an answer without an open write: %v, %v", answer.Verdict, answer.Err())
	}
}

// sent returns the copy of a worker that has read this row, if there is one, and sent this write.
func sent(t *testing.T, me lease.Incarnation, row lease.Row, w lease.Write) *protocol.Copy {
	t.Helper()
	c := protocol.NewCopy(fixture.Key, me)
	c.Saw(row)
	must(t, c.Send(w))
	return &c
}

// TestAnswersSayWhatHappened: a writer that does not hold the shard receives the error that fits
// its write.
func TestAnswersSayWhatHappened(t *testing.T) {
	a := fixture.Held(t, "a")
	begin, _ := protocol.Begin("orders", "shard-1", nil, "b", stamp())
	recovery, _ := protocol.Recover(a, owner("b"), stamp())
	offered := next(t)(protocol.Offer(a, handle(a), "b-1", at("1"), stamp()))
	take, _ := protocol.Take(offered, owner("b"), stamp())
	withdrawn := next(t)(protocol.Withdraw(offered, handle(offered), stamp()))
	other := next(t)(protocol.Recover(a, owner("c"), stamp()))
	for want, tc := range map[error]struct {
		w   lease.Write
		now lease.Row
	}{
		protocol.ErrExists: {begin, a}, lease.ErrOutdated: {recovery, other}, protocol.ErrMoved: {take, withdrawn},
	} {
		if err := sent(t, "b-1", lease.Row{}, tc.w).Answer(tc.w, nil, &lease.RefusedError{Now: tc.now}).Err(); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestCopyHasOneWriteOpen(t *testing.T) {
	a := fixture.Held(t, "a")
	first, _ := protocol.Commit(a, handle(a), at("1"), stamp())
	second, _ := protocol.Commit(a, handle(a), at("2"), stamp())
	c := sent(t, "a-1", a, first)
	if err := c.Send(second); !errors.Is(err, protocol.ErrOpen) {
		t.Fatalf("a second write while one is open: got %v, want ErrOpen", err)
	}
	if answer := c.Answer(first, nil, errors.New("timeout")); answer.Verdict != protocol.Unknown || answer.Err() == nil {
		t.Errorf("no answer: verdict %v, %v", answer.Verdict, answer.Err())
	}
	if open, busy := c.Open(); !busy || open.ID() != first.ID() {
		t.Errorf("without an answer %v is open, want the same write", open)
	}
	if err := c.Send(second); !errors.Is(err, protocol.ErrOpen) {
		t.Errorf("a second write while the outcome of one is unknown: got %v, want ErrOpen", err)
	}
	after := next(t)(first, nil)
	if answer := c.Answer(first, nil, &lease.RefusedError{Now: after}); answer.Verdict != protocol.Stored || answer.Err() != nil {
		t.Errorf("the repeated write: verdict %v, %v", answer.Verdict, answer.Err())
	}
	if c.Row().WriteID != first.ID() {
		t.Error("the copy does not have the row from the refusal")
	}
	if err := c.Send(second); err != nil {
		t.Errorf("after the answer: %v", err)
	}
	slow := c.Answer(first, after, nil)
	if open, busy := c.Open(); slow.Verdict != protocol.Unsent || !busy || open.ID() != second.ID() {
		t.Errorf("a late reply to the first write counts for the second: %v", slow.Verdict)
	}
}

func TestCopyNeverGoesBack(t *testing.T) {
	old := fixture.Held(t, "a")
	row := next(t)(protocol.Commit(old, handle(old), at("1"), stamp()))
	c := protocol.NewCopy(fixture.Key, "a-1")
	if !c.Saw(row) || c.Saw(row) || c.Saw(old) {
		t.Error("Saw does not report exactly the newer rows")
	}
	if c.Row().Counter != row.Counter {
		t.Error("a late reply replaced a newer row")
	}
	recovery, _ := protocol.Recover(row, owner("b"), stamp())
	fenced := next(t)(recovery, nil)
	commit, _ := protocol.Commit(row, handle(row), at("2"), stamp())
	must(t, c.Send(commit))
	if c.Saw(fenced) || c.Row().Generation != row.Generation {
		t.Error("a read settled an open write")
	}
	if _, busy := c.Open(); !busy {
		t.Error("a read closed an open write")
	}
	c.Answer(commit, nil, &lease.RefusedError{Now: fenced})
	if c.Row().Generation != fenced.Generation {
		t.Error("the copy does not have the row from the refusal")
	}
	c.Saw(next(t)(protocol.Commit(fenced, handle(fenced), at("9"), stamp())))
	backup := row
	backup.WriteID = "of the backup"
	late, _ := protocol.Seize(c.Row(), owner("a"), stamp())
	must(t, c.Send(late))
	if answer := c.Answer(late, nil, &lease.RefusedError{Now: backup}); answer.Verdict != protocol.WentBack || !errors.Is(answer.Err(), lease.ErrWentBack) {
		t.Errorf("an older row in a refusal: verdict %v, %v", answer.Verdict, answer.Err())
	}
	if c.Row().Generation != fenced.Generation {
		t.Error("the copy went back with the table")
	}
}

// TestStaleAnswerSaysWhatIsUnknown: a commit that was overtaken returns a StaleError. Its outcome
// is unknown exactly if an earlier attempt was not answered.
func TestStaleAnswerSaysWhatIsUnknown(t *testing.T) {
	row := fixture.Held(t, "a")
	commit, _ := protocol.Commit(row, handle(row), at("2"), stamp())
	recovery, _ := protocol.Recover(row, owner("b"), stamp())
	fenced := next(t)(recovery, nil)
	for name, tc := range map[string]struct {
		torn    error
		retried bool
		want    bool
	}{
		"one clean refusal":       {nil, false, false},
		"unanswered before":       {errors.New("timeout"), false, true},
		"not even sent before":    {fmt.Errorf("commit: %w", &lease.QueuedError{Waited: time.Second}), false, false},
		"sent twice by the store": {nil, true, true},
	} {
		c := sent(t, "a-1", row, commit)
		if tc.torn != nil && c.Answer(commit, nil, tc.torn).Verdict != protocol.Unknown {
			t.Errorf("%s: no answer has a verdict other than Unknown", name)
		}
		err := c.Answer(commit, nil, &lease.RefusedError{Now: fenced, Retried: tc.retried}).Err()
		stale, ok := errors.AsType[*checkpoint.StaleError](err)
		want := checkpoint.StaleError{Shard: "shard-1", Mine: row.Generation, Observed: fenced.Generation, Owner: "b", OutcomeUnknown: tc.want}
		if !ok || *stale != want {
			t.Errorf("%s: got %v, want %v", name, err, &want)
		}
	}
}

func TestAnswersOfARowThatIsGone(t *testing.T) {
	row := fixture.Held(t, "a")
	end := protocol.End{Reason: lease.ReasonReleased}
	commit, _ := protocol.Commit(row, handle(row), at("2"), stamp())
	release, _ := protocol.Release(row, handle(row), end, stamp())
	end.Mark = at("2")
	marked, _ := protocol.Release(row, handle(row), end, stamp())
	force, _ := protocol.ForceRelease(row, protocol.Command{Seen: row.Generation}, stamp())
	forced := next(t)(force, nil)
	tombstone := next(t)(protocol.Remove(forced, protocol.Command{Seen: forced.Generation}, stamp()))
	for name, tc := range map[string]struct {
		w    lease.Write
		now  lease.Record
		want error
	}{
		"a commit, no row":                   {commit, nil, protocol.ErrGone},
		"a commit, a tombstone":              {commit, tombstone, checkpoint.ErrStale},
		"a release, a tombstone":             {release, tombstone, nil},
		"a release, no row":                  {release, nil, nil},
		"a release with a mark, a tombstone": {marked, tombstone, checkpoint.ErrStale},
		"a release with a mark, and no row":  {marked, nil, protocol.ErrGone},
		"a command, a tombstone":             {force, tombstone, protocol.ErrGone},
	} {
		me := lease.Incarnation("a-1")
		if tc.w.ID() == force.ID() {
			me = ""
		}
		if answer := sent(t, me, row, tc.w).Answer(tc.w, nil, &lease.RefusedError{Now: tc.now}); answer.Verdict != protocol.Gone || !errors.Is(answer.Err(), tc.want) {
			t.Errorf("%s: %v, %v; want %v", name, answer.Verdict, answer.Err(), tc.want)
		}
	}
}

// TestAlarms: an answer that should be impossible has its own error, and a refused eviction is a
// sign of life.
func TestAlarms(t *testing.T) {
	row := fixture.Held(t, "a")
	commit, _ := protocol.Commit(row, handle(row), at("2"), stamp())
	other, between := row, row
	other.Owner, other.WriteID = owner("c"), "somehow"
	between.Counter, between.WriteID = row.Counter+1, "mine, earlier"
	for want, now := range map[error]lease.Row{protocol.ErrConflict: other, protocol.ErrMoved: between} {
		if err := sent(t, "a-1", row, commit).Answer(commit, nil, &lease.RefusedError{Now: now}).Err(); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	seat := lease.Seat{Group: "g", Incarnation: "i", WriteID: "w", Name: "n", TTL: time.Second}
	evict, err := protocol.Evict(seat)
	must(t, err)
	alive := seat
	alive.WriteID = "another"
	if got := protocol.Decide("b-1", evict, alive); got != protocol.Again {
		t.Errorf("a refused eviction has the verdict %v", got)
	}
}

func TestReconcile(t *testing.T) {
	row := fixture.Held(t, "a")
	look := func(r lease.Row) protocol.Copy {
		c := protocol.NewCopy(fixture.Key, "a-1")
		c.Saw(r)
		return c
	}
	want := func(what string, got, want protocol.Remedy) {
		t.Helper()
		if got != want {
			t.Errorf("%s: remedy %d, want %d", what, got, want)
		}
	}
	c := look(row)
	want("never started", c.Reconcile(false, false), protocol.StartIt)
	want("a tenure is running", c.Reconcile(true, false), protocol.LeaveAlone)
	want("leaving", c.Reconcile(false, true), protocol.GiveBack)
	if h, ok := c.Start(checkpoint.Decimal); !ok || h.Generation != row.Generation {
		t.Errorf("Start returned %v, %v", h, ok)
	}
	want("started before", c.Reconcile(false, false), protocol.ClaimAgain)
	if _, ok := c.Start(nil); ok {
		t.Error("one generation was started twice")
	}
	again, _ := protocol.Claim(row, owner("a"), stamp())
	must(t, c.Send(again))
	want("a write is open", c.Reconcile(false, false), protocol.LeaveAlone)
	c.Answer(again, next(t)(again, nil), nil)
	want("claimed again", c.Reconcile(false, false), protocol.StartIt)

	c = look(fixture.Free(t))
	want("free", c.Reconcile(false, false), protocol.LeaveAlone)
	c = look(fixture.Held(t, "b"))
	want("another worker's row", c.Reconcile(false, false), protocol.LeaveAlone)
	if _, ok := c.Start(nil); ok {
		t.Error("a tenure of another worker's row was started")
	}
}
