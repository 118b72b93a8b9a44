package virtual_test

import (
	"errors"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestDeletable: a record that was deleted is missing for every call until it is created again,
// and a clone is independent.
func TestDeletable(t *testing.T) {
	store := virtual.NewDeletable()
	open := func(id string) lease.Plan {
		t.Helper()
		w, err := protocol.OpenPlan(lease.Plan{Group: "g"}, protocol.Opening{By: lease.Owner{Name: "a", Incarnation: "a"}}, protocol.Stamp{ID: lease.WriteID(id), At: virtual.Epoch()})
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.Write(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		return r.(lease.Plan)
	}
	count := func(s *virtual.Deletable, limit int) (n int) {
		for range s.List(t.Context(), lease.Query{Group: "g", Kind: lease.KindSeat, Limit: limit}) {
			n++
		}
		return n
	}
	listed := func(s *virtual.Deletable) int { return count(s, 0) }
	key := open("1").Key()
	before := store.Clone()
	store.Delete(key)
	if _, err := store.Get(t.Context(), key); !errors.Is(err, lease.ErrNotFound) || listed(store) != 0 || listed(before) != 1 {
		t.Errorf("after the deletion: %v, %d records, %d in the earlier clone", err, listed(store), listed(before))
	}
	if open("2"); listed(store) != 1 {
		t.Error("the new plan is not listed")
	}
	after := store.Clone()
	if _, err := after.Write(t.Context(), fixture.Write(t)(protocol.Sit(lease.Seat{Group: "g", Incarnation: "a", Name: "a", TTL: time.Second}, fixture.Stamp()))); err != nil {
		t.Fatal(err)
	}
	if n, one := listed(after), count(after, 1); n != 2 || one != 1 {
		t.Errorf("%d records are listed, and with a limit of one %d", n, one)
	}
	store.Delete(key)
	if r, err := after.Get(t.Context(), key); err != nil || r.Written() != "2" || listed(store) != 0 {
		t.Errorf("the later clone has %v, %v; the store %d records", r, err, listed(store))
	}
}
