package inspect

import (
	"cmp"
	"iter"
	"slices"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A waiter is the wait of one session for one lease, as its seat shows it.
type waiter struct {
	by    *Worker
	of    lease.Owner // the session, with the task for which it wants the lease
	lasts Age
}

// Waiters yields the sessions that wait for the lease, the longest wait first: each with the task for which it wants
// the lease, and with how long it has waited by its own clock. The waits of a dead session are left out, because
// nobody waits any more. A session that waits for many leases names only those with the oldest waits on its seat;
// [Worker.Waits] counts all. Every wait is as old as the last heartbeat of its session: one that began or ended
// later is not known.
func (s *Shard) Waiters() iter.Seq2[lease.Owner, Age] {
	return func(yield func(lease.Owner, Age) bool) {
		for _, w := range s.waits {
			if w.by.alive() && !yield(w.of, w.lasts) {
				return
			}
		}
	}
}

// Waits returns for how many leases a session waits; 0 if it is dead.
func (w *Worker) Waits() int {
	if !w.alive() {
		return 0
	}
	return w.waits
}

// findWaits finds the waits that the seats show.
//
// A session that has acquired a lease since its last heartbeat does not wait for it.
func (s *Snapshot) findWaits() {
	for i := range s.Workers {
		w := &s.Workers[i]
		w.waits = int(w.Seat.WaitsLeft)
		for _, wait := range w.Seat.Waits {
			of := s.Shard(wait.Lease)
			if of != nil && of.Owner.Incarnation == w.Seat.Incarnation {
				continue
			}
			if w.waits++; of != nil {
				by := w.Seat.Owner()
				by.Task = cmp.Or(wait.Task, by.Task)
				of.waits = append(of.waits, waiter{w, by, since(s.At, wait.Since)})
			}
		}
	}
	for i := range s.Shards {
		slices.SortStableFunc(s.Shards[i].waits, func(a, b waiter) int { return cmp.Compare(b.lasts.D, a.lasts.D) })
	}
}
