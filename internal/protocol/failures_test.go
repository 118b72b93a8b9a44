package protocol_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

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

// TestAttemptsOfATransferFromAnOldImage: a commit resets the attempts even if the recovery after
// it was made from a row that was read before the commit.
func TestAttemptsOfATransferFromAnOldImage(t *testing.T) {
	r := fixture.Held(t, "a")
	for range 3 {
		r = next(t)(protocol.Recover(r, owner("b"), stamp()))
		r = next(t)(protocol.Recover(r, owner("a"), stamp()))
	}
	recovery, err := protocol.Recover(r, owner("b"), stamp())
	must(t, err)
	committed := next(t)(protocol.Commit(r, handle(r), at("1"), stamp()))
	after, err := recovery.Apply(committed)
	must(t, err)
	if got := after.(lease.Row).Attempts(); got != 1 {
		t.Errorf("%d attempts, want the one since the commit", got)
	}
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
		"inheritance":             {write(t)(protocol.Inherit(a, owner("b"), stamp())), 0},
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

// TestUntouched: a shard may never have been started only if the previous owner has handed its row over, and the new
// owner has not written the row since.
func TestUntouched(t *testing.T) {
	a := fixture.Held(t, "a")
	yield := func(to lease.Owner, reason lease.Reason) lease.Row {
		return next(t)(protocol.Yield(a, handle(a), to, protocol.End{Reason: reason, Mode: rebalance.Eager}, stamp()))
	}
	b := yield(owner("b"), lease.ReasonHandoff)
	offered := next(t)(protocol.Offer(a, handle(a), "b-1", checkpoint.Mark{}, stamp()))
	cut := next(t)(protocol.Release(a, handle(a), protocol.End{Reason: lease.ReasonDrainTimeout}, stamp()))
	for name, tc := range map[string]struct {
		r    lease.Row
		want bool
	}{
		"handed over":             {b, true},
		"handed over, cut off":    {yield(owner("b"), lease.ReasonDrainTimeout), true},
		"handed over to its name": {yield(lease.Owner{Name: "a", Incarnation: "a-2"}, lease.ReasonHandoff), false},
		"written since":           {next(t)(protocol.Commit(b, handle(b), at("1"), stamp())), false},
		"claimed":                 {a, false},
		"claimed after a cut":     {next(t)(protocol.Claim(cut, owner("b"), stamp())), false},
		"taken over":              {next(t)(protocol.Take(offered, owner("b"), stamp())), false},
		"seized":                  {next(t)(protocol.Seize(a, owner("b"), stamp())), false},
		"recovered":               {next(t)(protocol.Recover(a, owner("b"), stamp())), false},
		"released":                {next(t)(protocol.Release(a, handle(a), protocol.End{Reason: lease.ReasonReleased}, stamp())), false},
	} {
		if got := protocol.Untouched(tc.r); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
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
