package storetest

import (
	"errors"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// addEnds adds to the counts of the hour that lies so many hours after that of the clock. e are the counts as they were read, or zero.
func (b *bench) addEnds(e lease.Ends, hours int) (lease.Write, error) {
	if e.WriteID == "" {
		e = lease.Ends{Group: group, Hour: protocol.HourOf(clock()).Add(time.Duration(hours) * time.Hour)}
	}
	return protocol.AddEnds(e, map[lease.Reason]int64{lease.ReasonReleased: 100, lease.ReasonExpired: 1}, b.stamp())
}

func (b *bench) ends(e lease.Ends, hours int) lease.Ends {
	b.Helper()
	return kept[lease.Ends](b)(b.addEnds(e, hours))
}

// endsComeBackByHour: the counts of ends are listed by hour, also from a certain hour on, and beside nothing else. They come
// back as they were stored, callers share no memory with the store, and a store refuses counts that no transition writes.
func endsComeBackByHour(b *bench) {
	b.seat("a")
	first := b.ends(b.ends(lease.Ends{}, 0), 0)
	later := b.ends(lease.Ends{}, 7)
	next := b.ends(lease.Ends{}, 1)
	equal(b, "the hours", b.list(lease.KindEnds), []lease.Record{first, next, later})
	var since []lease.Record
	for r, err := range b.store.List(b.Context(), lease.Query{Group: group, Kind: lease.KindEnds, After: first.Key().Name, Eventually: true}) {
		if err != nil {
			b.Fatalf("List: %v", err)
		}
		since = append(since, r)
	}
	equal(b, "the hours after the first", since, []lease.Record{next, later})
	equal(b, "the seats", len(b.list(lease.KindSeat)), 1)
	equal(b, "one hour", b.look(first.Key()), lease.Record(lease.Clone(first)))

	want := lease.Clone(first)
	first.Counts[lease.ReasonExpired], first.Recent[0] = 7, "changed"
	b.look(first.Key()).(lease.Ends).Counts[lease.ReasonReleased] = 7
	equal(b, "counts that a caller has changed", b.look(first.Key()), want)

	fewer := lease.Ends{Group: group, Hour: next.Hour, WriteID: "new", Recent: next.Followed(), Counts: map[lease.Reason]int64{lease.ReasonReleased: 101}}
	forgetful := lease.Ends{Group: group, Hour: next.Hour, WriteID: "new", Counts: next.Counts}
	for name, w := range map[string]lease.Write{
		"a count decreases":         {Op: lease.OpSwap, Old: next, Next: fewer},
		"a write is not remembered": {Op: lease.OpSwap, Old: next, Next: forgetful},
		"counts are deleted":        {Op: lease.OpDelete, Old: next},
	} {
		if _, err := b.store.Write(b.Context(), w); !errors.Is(err, lease.ErrBadWrite) {
			b.Errorf("%s: got %v", name, err)
		}
	}
	equal(b, "the counts", b.look(next.Key()), lease.Record(next))
}
