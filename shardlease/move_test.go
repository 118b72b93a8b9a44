package shardlease_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestMoveALease: the holder is told by its soft context, releases the lease, and the named session acquires it.
func TestMoveALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		s := shardlease.Supervisor{Store: store, Group: "locks", By: "ann"}
		a, b := runSession(t, store, shardlease.SessionConfig{Name: "a", LockDelay: time.Hour}), runSession(t, store, shardlease.SessionConfig{Name: "b"})
		c := runSession(t, store, shardlease.SessionConfig{Name: "c"})
		first := a.lock(t, shardlease.AcquireOptions{})
		next, other := make(chan *shardlease.Tenure, 1), make(chan *shardlease.Tenure, 1)
		go func() { next <- b.lock(t, shardlease.AcquireOptions{}) }()
		go func() { other <- c.lock(t, shardlease.AcquireOptions{}) }()
		time.Sleep(time.Minute)
		row, err := s.Move(t.Context(), "lock", first.Generation(), "b", 0, "host is old")
		if err != nil || row.Owner.Name != "a" {
			t.Fatalf("%v, %v", row, err)
		}
		wishes, err := s.Wishes(t.Context())
		if err != nil || len(wishes) != 1 || wishes[0].Generation != row.Generation || wishes[0].By != "ann" || time.Until(wishes[0].Until) > 10*time.Minute {
			t.Errorf("wishes %v, %v", wishes, err)
		}
		<-first.Soft().Done()
		if cause := context.Cause(first.Soft()); !errors.Is(cause, event.CauseHandedOff) || first.Context().Err() != nil {
			t.Errorf("the holder is told %v, and its hard context: %v", cause, context.Cause(first.Context()))
		}
		time.Sleep(time.Second)
		must(t, first.Commit(t.Context(), "7"))
		first.Release("done")
		released := time.Now()
		second := <-next
		if took := time.Since(released); took > 4*time.Second || second.Checkpoint().Position != "7" {
			t.Errorf("acquired after %v at %v", took, second.Checkpoint())
		}
		second.Release("")
		(<-other).Release("")
	})
}

// TestMoveAShard: an ordinary move, after which the wish ends.
func TestMoveAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := staged(t, 6, shardlease.Config{TTL: ttl, Handoff: rebalance.Cooperative}, plodding, "a", "b", "c")
		time.Sleep(time.Minute)
		shard := s.names()[0]
		row, to := s.row(shard), "b"
		if row.Owner.Name == "b" {
			to = "c"
		}
		_, err := s.operator().Move(t.Context(), shard, row.Generation, to, time.Minute, "warm cache")
		must(t, err)
		s.within(soon, "the named worker holds the shard", func() bool { return s.row(shard).Owner.Name == to })
		s.within(soon, "the wish has ended", func() bool {
			list, err := s.operator().Wishes(t.Context())
			return err == nil && len(list) == 0
		})
		if now := s.row(shard); now.Generation != row.Generation+1 || now.Last.Mode != rebalance.Cooperative {
			t.Errorf("moved as %v", now)
		}
	})
}

// TestMoveThatCannotHappen: it is refused by the rule that forbids it, and nothing is written.
func TestMoveThatCannotHappen(t *testing.T) {
	wish := func(kind lease.WishKind, subject, to string) []lease.Wish {
		return []lease.Wish{{Kind: kind, Subject: subject, To: to, By: "ben"}}
	}
	for name, tc := range map[string]struct {
		to     string
		within time.Duration
		seen   int64 // relative to the present generation
		seat   lease.Says
		wishes []lease.Wish
		change func(lease.Row) (lease.Write, error)
		is     error
	}{
		"nobody":           {to: "", is: shardlease.ErrConfig},
		"back in time":     {to: "b", within: -1, is: shardlease.ErrConfig},
		"a year":           {to: "b", within: 365 * 24 * time.Hour, is: shardlease.ErrConfig},
		"stale":            {to: "b", seen: -1, is: lease.ErrOutdated},
		"there already":    {to: "a", is: protocol.ErrThere},
		"unknown worker":   {to: "z", is: protocol.ErrNobody},
		"leaving worker":   {to: "b", seat: lease.Says{Leaving: true}, is: protocol.ErrLeaving},
		"unwell worker":    {to: "b", seat: lease.Says{Health: lease.Health{Unwell: "failing", UnwellSince: time.Unix(1, 0)}}, is: protocol.ErrUnwell},
		"cordoned worker":  {to: "b", wishes: wish(lease.WishCordon, "b", ""), is: protocol.ErrShunned},
		"drained worker":   {to: "b", wishes: wish(lease.WishDrain, "b", ""), is: protocol.ErrShunned},
		"paused group":     {to: "b", wishes: wish(lease.WishPause, "", ""), is: protocol.ErrPaused},
		"pinned shard":     {to: "b", wishes: wish(lease.WishPin, "s", "a"), is: protocol.ErrPinned},
		"another's pin":    {to: "b", wishes: wish(lease.WishPin, "t", "a")},
		"another cordoned": {to: "b", wishes: wish(lease.WishCordon, "a", "")},
		"finished": {to: "b", seen: 1, is: protocol.ErrFinished, change: func(r lease.Row) (lease.Write, error) {
			return protocol.Finish(r, fixture.Hold(r), fixture.At("1"), fixture.Stamp())
		}},
		"quarantined": {to: "b", seen: 1, is: protocol.ErrQuarantined, change: func(r lease.Row) (lease.Write, error) {
			return protocol.Quarantine(r, protocol.Command{Seen: r.Generation, By: "ben"}, lease.ReasonForced, fixture.Stamp())
		}},
		"free": {to: "b", seen: 1, change: func(r lease.Row) (lease.Write, error) {
			return protocol.ForceRelease(r, protocol.Command{Seen: r.Generation, By: "ben"}, fixture.Stamp())
		}},
		"reserved for another": {to: "b", seen: 1, is: protocol.ErrReserved, change: func(r lease.Row) (lease.Write, error) {
			return protocol.Reassign(r, protocol.Command{Seen: r.Generation, By: "ben"}, lease.Reservation{For: "c", Lasts: time.Hour}, fixture.Stamp())
		}},
	} {
		store := new(memstore.Store)
		put := fixture.Must[lease.Record](t, store)
		row := held(t, store, "s", "")
		seat := put(protocol.Sit(lease.Seat{Group: "orders", Name: "b", Incarnation: "b-1", TTL: time.Second}, fixture.Stamp()))
		put(protocol.NextBeat(seat.(lease.Seat), tc.seat, fixture.Stamp()))
		if tc.change != nil {
			put(tc.change(row))
		}
		if tc.wishes != nil {
			put(protocol.SetWishes(lease.Wishes{Group: "orders"}, tc.wishes, fixture.Stamp()))
		}
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
		_, err := s.Move(t.Context(), "s", row.Generation+tc.seen, tc.to, tc.within, "why")
		if !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %v", name, err, tc.is)
		}
		now, err := s.Wishes(t.Context())
		if moved := slices.ContainsFunc(now, func(w lease.Wish) bool { return w.Kind == lease.WishMove }); err != nil || moved != (tc.is == nil) {
			t.Errorf("%s: the wishes are %v, %v", name, now, err)
		}
	}
}
