package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func missingRowIsNotCreated(b *bench) {
	elsewhere := &bench{T: b.T, open: b.open, store: b.open(b.T), ids: 1000}
	r := elsewhere.held("a")
	for _, write := range holdersWrites() {
		if now := b.refuse(write.make(r, hold(r), b.stamp())); now != nil {
			b.Errorf("%s of a missing row was refused with %v", write.name, now)
		}
	}
	b.refuse(protocol.Recover(r, worker("b"), b.stamp()))
	b.refuse(protocol.ForceRelease(r, protocol.Command{Seen: r.Generation, By: "op"}, b.stamp()))
	seat := elsewhere.seat("a")
	b.refuse(protocol.NextBeat(seat, lease.Says{}, b.stamp()))
	b.refuse(protocol.Evict(seat))
	equal(b, "rows", len(b.list(lease.KindLease)), 0)
	equal(b, "seats", len(b.list(lease.KindSeat)), 0)
}

func twoCreatorsMakeOneRow(b *bench) {
	_, errs := b.race(func(i int) (lease.Write, error) {
		return protocol.Begin(group, shard, nil, fmt.Sprint("w", i), b.stamp())
	})
	row, made := b.row(), 0
	for _, err := range errs {
		refused, ok := errors.AsType[*lease.RefusedError](err)
		switch {
		case err == nil:
			made++
		case !ok:
			b.Errorf("got %v, want a refusal", err)
		default:
			equal(b, "the row in a refusal", refused.Now, lease.Record(row))
		}
	}
	equal(b, "creators", made, 1)
}

func twoSeatsOfOneName(b *bench) {
	first, second := newSeat("a"), newSeat("a")
	second.Incarnation = "a-again"
	one := b.putSeat(protocol.Sit(first, b.stamp()))
	two := b.putSeat(protocol.Sit(second, b.stamp()))
	b.putSeat(protocol.Evict(one))
	b.putSeat(protocol.NextBeat(two, lease.Says{}, b.stamp()))
	b.refuse(protocol.NextBeat(one, lease.Says{}, b.stamp()))
	equal(b, "seats left", len(b.list(lease.KindSeat)), 1)
}

// beatOrEvictionWins: of a heartbeat and an eviction of the same seat exactly one is stored, in
// either order and when they race.
func beatOrEvictionWins(b *bench) {
	seat := b.seat("a")
	evict, errEvict := protocol.Evict(seat)
	beaten := b.putSeat(protocol.NextBeat(seat, lease.Says{Leaving: true}, b.stamp()))
	b.refuse(evict, errEvict)
	b.refuse(protocol.EvictSpoilt(seat.Key(), seat.WriteID)) // it cannot be read, and was written since

	beat, errBeat := protocol.NextBeat(beaten, lease.Says{Leaving: true}, b.stamp())
	b.putSeat(protocol.Evict(beaten))
	b.refuse(beat, errBeat)
	equal(b, "verdict of the evicted worker", protocol.Decide(seat.Incarnation, beat, nil), protocol.Gone)

	for i := range 50 {
		seat := b.seat(fmt.Sprint("racer", i))
		beat, errBeat := protocol.NextBeat(seat, lease.Says{}, b.stamp())
		evict, errEvict := protocol.Evict(seat)
		if err := errors.Join(errBeat, errEvict); err != nil {
			b.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() { _, errBeat = b.store.Write(b.Context(), beat) })
		both.Go(func() { _, errEvict = b.store.Write(b.Context(), evict) })
		both.Wait()
		if (errBeat == nil) == (errEvict == nil) {
			b.Fatalf("beat: %v, eviction: %v", errBeat, errEvict)
		}
		equal(b, "the seat is there", b.look(seat.Key()) != nil, errBeat == nil)
	}
}

// lateTwinOfASeat: the write that created a seat arrives again after the eviction. The seat
// exists again but is not confirmed: it proves no life, the evicted worker cannot renew it, and
// it can be evicted again.
func lateTwinOfASeat(b *bench) {
	creation, err := b.sit("a")
	created := b.putSeat(creation, err)
	confirmed := b.putSeat(protocol.NextBeat(created, lease.Says{}, b.stamp()))
	b.refuse(creation, nil)
	beat, errBeat := protocol.NextBeat(confirmed, lease.Says{}, b.stamp())
	b.putSeat(protocol.Evict(confirmed))

	ghost := b.putSeat(creation, nil)
	if ghost.Confirmed() {
		b.Error("a seat from a repeated creation is confirmed")
	}
	now := b.refuse(beat, errBeat)
	equal(b, "verdict of the evicted worker", protocol.Decide(confirmed.Incarnation, beat, now), protocol.Gone)
	b.putSeat(protocol.Evict(ghost))
}

func leaseRowsAreNeverDeleted(b *bench) {
	r := b.free()
	if _, err := b.store.Write(b.Context(), lease.Write{Op: lease.OpDelete, Old: r}); !errors.Is(err, lease.ErrBadWrite) {
		b.Errorf("got %v, want ErrBadWrite", err)
	}
	equal(b, "the row", b.row(), r)
}

func recordsComeBackAsStored(b *bench) {
	r := b.put(protocol.Begin(group, shard, []string{"parent-2", "parent-1"}, "source", b.stamp()))
	equal(b, "parents", r.Parents, []string{"parent-1", "parent-2"})
	for i := range 12 {
		r = b.put(protocol.Claim(r, worker(fmt.Sprint("w", i)), b.stamp()))
		r = b.put(protocol.Commit(r, hold(r), mark(fmt.Sprint(i)), b.stamp()))
		equal(b, "a held row", b.row(), r)
		r = b.put(protocol.Release(r, hold(r), protocol.End{Reason: lease.ReasonStalled, Note: "no progress"}, b.stamp()))
		equal(b, "a free row", b.row(), r)
	}
	r = b.put(protocol.Claim(r, worker("z"), b.stamp()))
	r = b.put(protocol.Offer(r, hold(r), worker("y").Incarnation, mark("99"), b.stamp()))
	equal(b, "an offered row", b.row(), r)
	cause := lease.MoveCause{Why: rebalance.Drained, Note: "by an operator: why"}
	r = b.put(protocol.Because(cause)(protocol.Take(r, worker("y"), b.stamp())))
	equal(b, "a row that has moved", b.row(), r)
	equal(b, "its cause", r.Last.Why, rebalance.Drained)

	seat := b.seat("a")
	equal(b, "a seat", b.look(seat.Key()), lease.Record(seat))
	seat = b.putSeat(protocol.NextBeat(seat, lease.Says{Leaving: true, Wants: wants(r)}, b.stamp()))
	equal(b, "a seat with a request", b.look(seat.Key()), lease.Record(seat))
	equal(b, "its request stands", seat.Wants[0].Stands(b.row()), true)
}

func listing(b *bench) {
	var names []string
	for i := range 40 {
		name := fmt.Sprintf("shard-%03d", (i*17)%40)
		names = append(names, name)
		b.put(protocol.Begin(group, name, nil, "source", b.stamp()))
	}
	b.put(protocol.Begin(group+"-other", "elsewhere", nil, "source", b.stamp()))
	b.put(protocol.Begin(group+"/seat", "nasty name", nil, "source", b.stamp()))
	seat := b.seat("a")
	slices.Sort(names)

	var got []string
	for _, r := range b.list(lease.KindLease) {
		got = append(got, r.Key().Name)
	}
	equal(b, "rows", got, names)
	equal(b, "seats", b.list(lease.KindSeat), []lease.Record{seat})

	first := 0
	for range b.store.List(b.Context(), lease.Query{Group: group, Kind: lease.KindLease, Eventually: true}) {
		first++
		break
	}
	equal(b, "records until the caller stops", first, 1)
	listingInPages(b, names, seat)
	for r, err := range b.store.List(b.Context(), lease.Query{Group: "nobody", Kind: lease.KindLease}) {
		b.Errorf("an empty group lists %v, %v", r, err)
	}
}

// listingInPages: queries with a limit, each after the last record of the one before, yield every
// record once; and tombstones do not count.
func listingInPages(b *bench, names []string, seat lease.Seat) {
	removed := b.look(lease.Key{Group: group, Kind: lease.KindLease, Name: names[20]}).(lease.Row)
	b.put(protocol.Remove(removed, protocol.Command{Seen: removed.Generation, By: "operator"}, b.stamp()))
	var got []string
	q := lease.Query{Group: group, Kind: lease.KindLease, Limit: 7}
	for done := false; !done; {
		page := 0
		for r, err := range b.store.List(b.Context(), q) {
			if err != nil {
				b.Fatal(err)
			}
			page++
			got, q.After = append(got, r.Key().Name), r.Key().Name
		}
		done = page < q.Limit
	}
	equal(b, "rows, page by page", got, slices.Delete(slices.Clone(names), 20, 21))

	b.plan("planner")
	for r := range b.store.List(b.Context(), lease.Query{Group: group, Kind: lease.KindSeat, Eventually: true, Limit: 1}) {
		equal(b, "the kind of the first record beside the seats", r.Key().Kind, lease.KindPlan)
	}
	for r := range b.store.List(b.Context(), lease.Query{Group: group, Kind: lease.KindSeat, After: string(seat.Incarnation)}) {
		b.Errorf("after the last seat there is %v", r)
	}
}

// newGroupIsVerified: Verify accepts a new group, before and after its first row is created.
func newGroupIsVerified(b *bench) {
	for range 2 {
		if err := b.store.Verify(b.Context(), group); err != nil {
			b.Errorf("Verify: %v", err)
		}
		if b.look(theRow()) == nil {
			b.free()
		}
	}
	if err := b.store.Verify(b.Context(), ""); !errors.Is(err, checkpoint.ErrInvalid) {
		b.Errorf("Verify of no group: got %v", err)
	}
}

// callersShareNothing: a caller can change the records that it passed to the store or received
// from it, without an effect on the store.
func callersShareNothing(b *bench) {
	w, err := protocol.Begin(group, shard, []string{"p1", "p2"}, "source", b.stamp())
	returned := b.put(w, err)
	w.Next.(lease.Row).Parents[0] = "changed"
	returned.Parents[0] = "changed"
	b.row().Parents[0] = "changed"
	b.list(lease.KindLease)[0].(lease.Row).Parents[0] = "changed"
	equal(b, "parents", b.row().Parents, []string{"p1", "p2"})

	seat := newSeat("a")
	asked := wants(b.row())
	seat = b.putSeat(protocol.NextBeat(b.putSeat(protocol.Sit(seat, b.stamp())), lease.Says{Wants: asked}, b.stamp()))
	asked[0].Terms.Drain = time.Hour
	seat.Wants[0].Terms.Drain = time.Hour
	equal(b, "requests", b.look(seat.Key()).(lease.Seat).Wants, wants(b.row()))
}
