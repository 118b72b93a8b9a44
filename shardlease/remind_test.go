package shardlease_test

import (
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// steered returns what the workers of the stage have reported of wishes, in all.
func (s *stage) steered() (wishes []string) {
	for _, a := range s.actors {
		for _, e := range a.of(event.Steered) {
			wishes = append(wishes, e.Wish)
		}
	}
	return wishes
}

// TestWishesAreNamedDaily: one worker names each cordon, drain, pause and pin that stands with its author and reason, within
// two minutes and then daily. A wish of another kind is none of them, and a wish that was lifted or has ended is not named.
func TestWishesAreNamedDaily(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 4)
		for _, name := range []string{"a", "b"} {
			s.enter(name, shardlease.Config{TTL: 3 * time.Minute, PollEvery: time.Hour, AuditEvery: time.Hour}, serve) // little happens in a day
		}
		op := s.operator()
		must(t, op.Drain(t.Context(), "c", 0, "disk is slow"))
		must(t, op.Pin(t.Context(), "shard-00", "b", 0, "warm cache"))
		must(t, op.Pause(t.Context(), time.Hour, "soon over"))
		list, err := s.store.Get(t.Context(), lease.Wishes{Group: "orders"}.Key())
		must(t, err)
		others := list.(lease.Wishes)
		s.write(protocol.SetWishes(others, append(others.List, lease.Wish{Kind: "dream", By: "ann"}), fixture.Stamp()))
		time.Sleep(2 * time.Minute)
		first := s.steered()
		all := strings.Join(first, "; ")
		for _, want := range []string{`drain "c" by "ann" (disk is slow)`, `pin "shard-00" to "b" by "ann" (warm cache)`, `pause by "ann" until `} {
			if len(first) != 3 || !strings.Contains(all, want) {
				t.Errorf("named: %s", all)
			}
		}
		must(t, op.Lift(t.Context(), lease.WishPin, "shard-00", "done"))
		must(t, op.Cordon(t.Context(), "d", time.Hour, "a later one"))
		time.Sleep(2 * time.Minute)
		if now := s.steered(); len(now) != 4 || !strings.Contains(now[3], "a later one") {
			t.Errorf("a wish beside those that were named: %v", now)
		}
		time.Sleep(23*time.Hour - 5*time.Minute)
		if now := s.steered(); len(now) != 4 {
			t.Errorf("named again within a day: %v", now)
		}
		time.Sleep(2 * time.Hour)
		if now := s.steered(); len(now) != 5 || strings.Count(strings.Join(now, "; "), "drain") != 2 {
			t.Errorf("named after a day: %v", now)
		}
		for _, a := range s.actors {
			for _, e := range a.of(event.Steered) {
				if pin := strings.HasPrefix(e.Wish, "pin"); pin && (e.Shard != "shard-00" || e.Peer != "b") || strings.HasPrefix(e.Wish, "drain") && e.Peer != "c" {
					t.Errorf("reported: %v", e)
				}
			}
		}
	})
}

// TestPauseEndsByItself: without a duration a pause ends after a day, and with a negative one only when it is lifted. A drain
// and a pin stay.
func TestPauseEndsByItself(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 0)
		op := s.operator()
		until := func() time.Time {
			t.Helper()
			list, err := op.Wishes(t.Context())
			if err != nil || len(list) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			return list[0].Until
		}
		must(t, op.Pause(t.Context(), 0, "test"))
		if is := until(); !is.Equal(time.Now().Add(24 * time.Hour)) {
			t.Errorf("a pause ends at %v", is)
		}
		must(t, op.Pause(t.Context(), -1, "test"))
		if is := until(); !is.IsZero() {
			t.Errorf("a pause until it is lifted ends at %v", is)
		}
		must(t, op.Lift(t.Context(), lease.WishPause, "", "done"))
		must(t, op.Drain(t.Context(), "a", 0, "test"))
		if is := until(); !is.IsZero() {
			t.Errorf("a drain ends at %v", is)
		}
	})
}
