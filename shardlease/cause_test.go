package shardlease_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A causeless store is that of a worker of an earlier version, which does not know why a shard moves: it finds no causes in
// targets, and the packed cause of a transfer in the note. It writes neither, and leaves those of a row as they are.
type causeless struct{ lease.Store }

func (s causeless) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	r, err := s.Store.Get(ctx, k)
	return withoutCauses(r), err
}

func (s causeless) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for r, err := range s.Store.List(ctx, q) {
			if !yield(withoutCauses(r), err) {
				return
			}
		}
	}
}

func (s causeless) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	switch next := w.Next.(type) {
	case lease.Target:
		next.Causes = nil
		w.Next = next
	case lease.Row:
		old, _ := w.Old.(lease.Row)
		stored, _ := s.Store.Get(ctx, w.Key())
		if now, is := stored.(lease.Row); is && w.Op == lease.OpSwap && next.Generation == old.Generation && now.Generation == old.Generation {
			old.Last, next.Last = now.Last, now.Last // the attribute stays as it is
			w.Old = old
		} else if next.Last.Mode != 0 {
			next.Last.Why, next.Last.Note = 0, "" // it knows them only of a plan that it has made itself
		}
		w.Next = next
	}
	r, err := s.Store.Write(ctx, w)
	if refused, is := errors.AsType[*lease.RefusedError](err); is {
		refused.Now = withoutCauses(refused.Now)
	}
	return withoutCauses(r), err
}

func withoutCauses(r lease.Record) lease.Record {
	switch r := r.(type) {
	case lease.Target:
		r.Causes = nil
		return r
	case lease.Row:
		if fields := strings.Split(lease.Encode(r)[attr.Last].(string), "\t"); r.Last.Mode != 0 && len(fields) == 8 {
			r.Last.Why, r.Last.Note = 0, fields[7]
		}
		return r
	}
	return r
}

// TestCauseBesideEarlierWorkers: in a fleet with workers of an earlier version, shards move as ever. A move that a new worker
// has planned and made has its cause; any other has none, and no move has a wrong one. An earlier worker stores what it reads.
// The handlers take a moment to wind down, in which their worker reads why.
func TestCauseBesideEarlierWorkers(t *testing.T) {
	t.Parallel()
	for _, builds := range []map[string]bool{ // whether a worker is of an earlier version
		{"a": false, "b": true, "c": false}, {"a": true, "b": false, "c": true}, {"a": false, "b": false, "c": false}, {"a": true, "b": true, "c": true},
	} {
		inBothModes(t, func(t *testing.T, mode rebalance.Mode) {
			s := newStage(t, 12)
			for _, name := range []string{"a", "b", "c"} {
				link := storetest.NewLink(s.store)
				if builds[name] {
					link = storetest.NewLink(causeless{s.store})
				}
				s.enterOn(link, name, shardlease.Config{TTL: ttl, Handoff: mode}, marking(time.Second, 300*time.Millisecond))
			}
			s.shared(beat+1500*time.Millisecond, "a", "b", "c")
			time.Sleep(time.Minute)
			must(t, s.operator().Drain(t.Context(), "b", time.Minute, "its disk is slow"))
			s.shared(soon, "a", "c")
			by := s.plan().By.Name
			moved := 0
			for _, shard := range s.names() {
				last := s.row(shard).Last
				if last.From != "b" {
					continue
				}
				moved++
				want, note := rebalance.Drained, "by ann: its disk is slow"
				if builds[by] || builds[last.By] {
					want, note = 0, ""
				}
				if last.Why != want || last.Note != note {
					t.Errorf("planned by %s: %v", by, last)
				}
			}
			time.Sleep(2 * time.Minute)
			s.shared(soon, "a", "b", "c")
			if moved != 4 {
				t.Errorf("%d shards moved away from the drained worker", moved)
			}
		})
	}
}

// plan returns the plan of the fleet.
func (s *stage) plan() lease.Plan {
	s.Helper()
	r, err := s.store.Get(s.Context(), lease.Plan{Group: "orders"}.Key())
	must(s, err)
	return r.(lease.Plan)
}
