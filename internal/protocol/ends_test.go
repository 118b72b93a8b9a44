package protocol_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestWhatEndsATenure: a tenure ends with the one write that begins a generation of a row that has an owner, and has the reason
// of that change of hands. Other writes end none; nor does an adoption, nor the recovery of a row whose owner has never started it.
func TestWhatEndsATenure(t *testing.T) {
	free := fixture.Next(t)(protocol.Begin(fixture.Key.Group, fixture.Key.Name, nil, "source", fixture.Stamp()))
	a, b := fixture.Worker("a"), fixture.Worker("b")
	held := fixture.Next(t)(protocol.Claim(free, a, fixture.Stamp()))
	offered := fixture.Next(t)(protocol.Offer(held, fixture.Hold(held), b.Incarnation, checkpoint.Mark{}, fixture.Stamp()))
	given := fixture.Next(t)(protocol.Yield(held, fixture.Hold(held), b, protocol.End{Reason: lease.ReasonHandoff}, fixture.Stamp()))
	command := protocol.Command{Seen: held.Generation, By: "op"}
	ends := func(reason lease.Reason) protocol.End { return protocol.End{Reason: reason} }
	check := func(want lease.Reason) func(lease.Write, error) {
		return func(w lease.Write, err error) {
			t.Helper()
			must(t, err)
			stored, err := w.Apply(w.Old)
			must(t, err)
			if got, ended := protocol.Ended(w, stored, nil); ended != (want != "") || ended && got != want {
				t.Errorf("%v has ended a tenure: %v, %q, want %q", w, ended, got, want)
			}
		}
	}
	check("")(protocol.Begin(fixture.Key.Group, fixture.Key.Name, nil, "source", fixture.Stamp()))
	check("")(protocol.Claim(free, a, fixture.Stamp()))
	check("")(protocol.Commit(held, fixture.Hold(held), checkpoint.Mark{Position: "1"}, fixture.Stamp()))
	check("")(protocol.Offer(held, fixture.Hold(held), b.Incarnation, checkpoint.Mark{}, fixture.Stamp()))
	check("")(protocol.Adopt(held, "op", fixture.Stamp()))
	check("")(protocol.Inherit(given, a, fixture.Stamp()))
	check("")(protocol.Quarantine(free, protocol.Command{Seen: free.Generation, By: "op"}, lease.ReasonForced, fixture.Stamp()))
	check(lease.ReasonExpired)(protocol.Recover(held, b, fixture.Stamp()))
	check(lease.ReasonExpired)(protocol.Quarantine(held, command, lease.ReasonExpired, fixture.Stamp()))
	check(lease.ReasonDrainTimeout)(protocol.Seize(held, b, fixture.Stamp()))
	check(lease.ReasonHandoff)(protocol.Take(offered, b, fixture.Stamp()))
	check(lease.ReasonHandoff)(protocol.Yield(held, fixture.Hold(held), b, ends(lease.ReasonHandoff), fixture.Stamp()))
	check(lease.ReasonFailed)(protocol.Release(held, fixture.Hold(held), ends(lease.ReasonFailed), fixture.Stamp()))
	check(lease.ReasonReleased)(protocol.Discard(held, fixture.Hold(held), ends(lease.ReasonReleased), fixture.Stamp()))
	check(lease.ReasonReleased)(protocol.Claim(held, a, fixture.Stamp())) // it claims again what it holds without a tenure
	check(lease.ReasonFinished)(protocol.Finish(held, fixture.Hold(held), checkpoint.Mark{}, fixture.Stamp()))
	check(lease.ReasonForced)(protocol.ForceRelease(held, command, fixture.Stamp()))
	check(lease.ReasonForced)(protocol.Quarantine(held, command, lease.ReasonForced, fixture.Stamp()))
}

// TestLostAnswersEndATenureOnce: a refusal that shows that an earlier attempt was stored counts the end, also if the shard has
// changed hands since. One that shows that another process has ended the tenure does not: that process counts it.
func TestLostAnswersEndATenureOnce(t *testing.T) {
	free := fixture.Next(t)(protocol.Begin(fixture.Key.Group, fixture.Key.Name, nil, "source", fixture.Stamp()))
	a, b := fixture.Worker("a"), fixture.Worker("b")
	held := fixture.Next(t)(protocol.Claim(free, a, fixture.Stamp()))
	held = fixture.Next(t)(protocol.Offer(held, fixture.Hold(held), b.Incarnation, checkpoint.Mark{}, fixture.Stamp()))
	release := fixture.Write(t)(protocol.Release(held, fixture.Hold(held), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
	released := release.Next.(lease.Row)
	claimed := fixture.Next(t)(protocol.Claim(released, b, fixture.Stamp()))
	take := fixture.Write(t)(protocol.Take(held, b, fixture.Stamp()))
	given := fixture.Next(t)(protocol.Yield(held, fixture.Hold(held), b, protocol.End{Reason: lease.ReasonHandoff, Mode: take.Next.(lease.Row).Last.Mode}, fixture.Stamp()))
	committed := fixture.Next(t)(protocol.Commit(held, fixture.Hold(held), checkpoint.Mark{Position: "1"}, fixture.Stamp()))
	// Three sessions have one name: two find that the third is dead.
	twin := func(inc lease.Incarnation) lease.Owner { return lease.Owner{Name: "a", Incarnation: inc} }
	recovery := fixture.Write(t)(protocol.Recover(held, twin("a2"), fixture.Stamp()))
	recovered := fixture.Next(t)(protocol.Recover(held, twin("a3"), fixture.Stamp()))
	back := fixture.Next(t)(protocol.Release(given, fixture.Hold(given), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
	regained := fixture.Next(t)(protocol.Claim(back, a, fixture.Stamp()))
	for _, tc := range []struct {
		what string
		w    lease.Write
		now  lease.Record
		want bool
	}{
		{"the release itself", release, released, true},
		{"a claim after the release", release, claimed, true},
		{"another end", release, take.Next, false},
		{"no end", release, committed, false},
		{"no row", release, nil, false},
		{"the takeover itself", take, take.Next, true},
		{"a hand-over by the owner, who counts it", take, given, false},
		{"a release by the owner", take, released, false},
		{"a claim after a hand-over by the owner", take, regained, false},
		{"the recovery itself", recovery, recovery.Next, true},
		{"a recovery by another of that name", recovery, recovered, false},
	} {
		if _, got := protocol.Ended(tc.w, nil, &lease.RefusedError{Now: tc.now}); got != tc.want {
			t.Errorf("%v, refused because of %s: ended is %v", tc.w, tc.what, got)
		}
	}
	if _, ended := protocol.Ended(release, nil, fmt.Errorf("no answer")); ended {
		t.Error("without an answer it is not known that the write is stored")
	}
}

// counted returns what adds one release to the counts.
func counted(t *testing.T, e lease.Ends) lease.Write {
	t.Helper()
	return fixture.Write(t)(protocol.AddEnds(e, map[lease.Reason]int64{lease.ReasonReleased: 1}, fixture.Stamp()))
}

// TestEndsAreAdded: an addition keeps the other counts, and every writer finds its own write among the latest ones.
func TestEndsAreAdded(t *testing.T) {
	none := lease.Ends{Group: "orders", Hour: protocol.HourOf(time.Date(2026, 11, 28, 17, 59, 59, 7, time.FixedZone("", 1800)))}
	if none.Key().Name != "2026-11-28T17" {
		t.Errorf("key %v", none.Key())
	}
	e := stored[lease.Ends](t, counted(t, none), nil)
	w := fixture.Write(t)(protocol.AddEnds(e, map[lease.Reason]int64{lease.ReasonExpired: 2, lease.ReasonReleased: 99}, fixture.Stamp()))
	e = stored[lease.Ends](t, w, nil)
	if want := map[lease.Reason]int64{lease.ReasonReleased: 100, lease.ReasonExpired: 2}; !reflect.DeepEqual(e.Counts, want) {
		t.Errorf("counts %v, want %v", e.Counts, want)
	}
}

// TestLostAdditionIsFound: a refused addition is known to be stored or not to be, as long as the record remembers the writes
// since it was read.
func TestLostAdditionIsFound(t *testing.T) {
	const remembered = 20
	for _, base := range []int{0, 1, 30} { // how many have written before the record was read
		e := lease.Ends{Group: "orders", Hour: protocol.HourOf(fixture.Stamp().At)}
		for range base {
			e = stored[lease.Ends](t, counted(t, e), nil)
		}
		mine := counted(t, e)
		lost, made := e, stored[lease.Ends](t, mine, nil)
		for others := 1; others < 3*remembered; others++ {
			lost, made = stored[lease.Ends](t, counted(t, lost), nil), stored[lease.Ends](t, counted(t, made), nil)
			want, found := protocol.Again, protocol.Stored
			if others > remembered {
				want, found = protocol.Overtaken, protocol.Overtaken
			}
			if got := protocol.Decide("", mine, lost); got != want {
				t.Errorf("%d others have written, after %d before: the addition that is not stored is %v, want %v", others, base, got, want)
			}
			if got := protocol.Decide("", mine, made); got != found {
				t.Errorf("%d others have written, after %d before: the addition that is stored is %v, want %v", others, base, got, found)
			}
		}
	}
	if got := protocol.Decide("", counted(t, lease.Ends{Group: "orders", Hour: protocol.HourOf(time.Unix(0, 0))}), nil); got != protocol.Again {
		t.Errorf("the record is gone: %v", got)
	}
}
