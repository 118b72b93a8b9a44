package inspect_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// ended adds to the counts of the hour that lies so long ago.
func (of *table) ended(ago time.Duration, reason lease.Reason, n int64) {
	hour := protocol.HourOf(of.now.Add(-ago))
	at := slices.IndexFunc(of.ends, func(e lease.Ends) bool { return e.Hour.Equal(hour) })
	if at < 0 {
		at = len(of.ends)
		of.ends = append(of.ends, lease.Ends{Group: group, Hour: hour, WriteID: "w"})
	}
	counts := map[lease.Reason]int64{reason: n}
	for reason, n := range of.ends[at].Counts { // earlier snapshots share the old map
		counts[reason] += n
	}
	of.ends[at].Counts = counts
}

// tallies returns what is not 0 in the tallies of a look as far back as that.
func (of *table) tallies(span time.Duration) (list []inspect.Tally) {
	of.t.Helper()
	s, err := inspect.Look(of.t.Context(), of, group, inspect.Options{Now: of.clock, Ends: span})
	if err != nil {
		of.t.Fatal(err)
	}
	return slices.DeleteFunc(s.Tallies(), func(t inspect.Tally) bool { return t.Count == 0 })
}

// TestTallies: the counts of the hours are added up as far back as the options say, also those for a reason of a newer version.
func TestTallies(t *testing.T) {
	of := settled(t)
	of.ended(0, lease.ReasonReleased, 60)
	of.ended(time.Hour, lease.ReasonReleased, 40)
	of.ended(2*time.Hour, lease.ReasonExpired, 1)
	of.ended(2*time.Hour, "telepathy", 2)
	of.ended(30*time.Hour, lease.ReasonExpired, 5)
	for span, want := range map[time.Duration]string{
		time.Hour: "[{released 100}]", 0: "[{released 100} {expired 1} {telepathy 2}]", 90 * 24 * time.Hour: "[{released 100} {expired 6} {telepathy 2}]", -1: "[]",
	} {
		if got := fmt.Sprint(of.tallies(span)); got != want {
			t.Errorf("as far back as %v: %s, want %s", span, got, want)
		}
	}
	var counted []lease.Reason
	for _, tally := range of.look().Tallies() {
		counted = append(counted, tally.Reason)
	}
	for _, reason := range fixture.Kinds[lease.Reason](t) {
		never := reason == lease.ReasonInitial || reason == lease.ReasonRemoved || reason == lease.ReasonAdopted
		if slices.Contains(counted, reason) == never {
			t.Errorf("counted are %v, which is wrong for %s", counted, reason)
		}
	}
}

// TestLookWithoutCounts: a look at which the counts cannot be read has everything else, and says why. Without the option there
// is no request for them.
func TestLookWithoutCounts(t *testing.T) {
	of := settled(t)
	of.ended(0, lease.ReasonReleased, 60)
	of.uncount = errors.New("denied")
	if s := of.look(); !errors.Is(s.Uncounted, of.uncount) || len(s.Shards) != 4 || len(s.Unreadable)+len(s.Warnings()) > 0 {
		t.Errorf("uncounted because of %v, with %d shards and %v", s.Uncounted, len(s.Shards), s.Warnings())
	}
	of.uncount, of.bad = nil, []lease.Key{of.ends[0].Key()}
	if s := of.look(); !errors.Is(s.Uncounted, lease.ErrMalformed) || len(s.Unreadable) > 0 {
		t.Errorf("uncounted because of %v, unreadable are %v", s.Uncounted, s.Unreadable)
	}
	of.bad, of.lists[lease.KindEnds] = nil, 0
	if of.tallies(-1); of.lists[lease.KindEnds] != 0 {
		t.Error("the counts were read, which nobody has asked for")
	}
}

// TestFiguresCountEnds: the figures count the ends since the first look that could read them, once each, also if a read lags behind.
func TestFiguresCountEnds(t *testing.T) {
	of, o := settled(t), inspect.Observer{}
	of.ended(0, lease.ReasonReleased, 60)
	of.ended(time.Hour, lease.ReasonExpired, 7)
	want := func(want string) {
		t.Helper()
		got := map[string]float64{}
		for _, f := range inspect.Figures(group, snapshotOf(of, &o)) {
			if f.Total && f.Value != 0 {
				got[f.Labels[1][1]] = f.Value
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	of.uncount = errors.New("denied")
	want("map[]")
	of.uncount = nil
	want("map[]")
	of.ended(0, lease.ReasonReleased, 1)
	of.ended(time.Hour, lease.ReasonExpired, 2)
	want("map[expired:2 released:1]")
	now := slices.Clone(of.ends)
	of.ends = of.ends[1:]
	of.ends[0].Counts = map[lease.Reason]int64{lease.ReasonExpired: 3}
	want("map[expired:2 released:1]")
	of.ends = now
	of.pass(time.Hour)
	of.ended(0, lease.ReasonFailed, 3)
	for range 2 {
		want("map[expired:2 failed:3 released:1]")
	}
	of.uncount = errors.New("denied")
	for _, f := range inspect.Figures(group, snapshotOf(of, &o)) {
		if f.Total {
			t.Errorf("the counts cannot be read, and there is %+v", f)
		}
	}
}

// TestWatchForgetsOldHours: an Observer that watches for months remembers only the hours that its looks read. An hour that comes
// back, because the clock was set back or because a look reads further back, is not counted again; neither does a clock that is
// ahead for one look stop the counting.
func TestWatchForgetsOldHours(t *testing.T) {
	of, o := settled(t), inspect.Observer{}
	look := func(span time.Duration) (n float64) {
		t.Helper()
		s, err := inspect.Look(t.Context(), of, group, inspect.Options{Now: of.clock, Ends: span})
		if err != nil {
			t.Fatal(err)
		}
		o.See(s)
		for _, f := range inspect.Figures(group, s) {
			if f.Total {
				n += f.Value
			}
		}
		return n
	}
	look(0)
	hours := fixture.Size(24*14, 24*60)
	for range hours {
		of.pass(time.Hour)
		of.ended(0, lease.ReasonReleased, 1)
		if look(0); o.EndsHours() > 25 {
			t.Fatalf("%d hours are remembered", o.EndsHours())
		}
	}
	for _, by := range []struct{ clock, span time.Duration }{
		{0, 0}, {0, 90 * 24 * time.Hour}, {30 * 24 * time.Hour, 0}, {0, 0}, {-10 * time.Hour, 0}, {0, 0},
	} {
		of.pass(by.clock)
		if n := look(by.span); n != float64(hours) {
			t.Errorf("by a clock that is %v ahead, %v ends are counted as far back as %v, and there were %d", by.clock, n, by.span, hours)
		}
		of.pass(-by.clock)
	}
	of.ended(0, lease.ReasonReleased, 1)
	if n := look(0); n != float64(hours+1) {
		t.Errorf("%v ends are counted in the end", n)
	}
}

func snapshotOf(of *table, o *inspect.Observer) *inspect.Snapshot {
	s := of.look()
	o.See(s)
	return s
}
