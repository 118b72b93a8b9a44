package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The plan and the targets are advice: an adversary may write anything there, and delete it, and no
// promise is broken. Once the adversary stops, the fleet comes to rest by itself.
//
// What the adversary writes is well-formed, and its hash of the inputs is never right: the right hash in
// a finished plan would mean that nothing has to be planned.

// An adversary writes what no planner would write.
type adversary struct{ *world }

// misadvise writes or deletes some advice.
func misadvise(f *faults, of Fault, n *node) (time.Duration, bool) {
	by := adversary{f.w}
	for range 1 + by.IntN(4) {
		switch by.IntN(8) {
		case 0:
			deleteAdvice(f, of, n)
		case 1, 2, 3:
			by.misplan()
		default:
			by.misguide()
		}
	}
	return 0, true
}

// deleteAdvice deletes the plan, or targets, or both.
func deleteAdvice(f *faults, _ Fault, _ *node) (time.Duration, bool) {
	by := adversary{f.w}
	which := by.IntN(3)
	if _, ok := by.plan(); ok && which != 0 {
		by.trace("plan deleted", "", nil)
		by.deletePlan()
	}
	for _, r := range by.table.Records(group, lease.KindTarget) {
		if which != 1 && by.likely(0.5) {
			by.write(lease.Write{Op: lease.OpDelete, Old: r})
		}
	}
	return 0, true
}

// deletePlan deletes the plan by hand.
func (w *world) deletePlan() {
	w.store.Delete(planKey())
	w.promises.advised(planKey())
}

// misplan writes a plan that no planner would write: a random revision, above the present one or,
// after the present one is deleted, below it; open or finished; with wrong counts and watchers.
func (by adversary) misplan() {
	old, exists := by.plan()
	next := old
	next.Group, next.By, next.Planner = group, by.somebody(), pick(by.chance, "even", "adversary")
	next.Revision, next.Open = by.revision(old.Revision), true
	if exists && next.Revision <= old.Revision {
		by.deletePlan()
		exists = false
	}
	if !exists {
		next.Finding, next.Tick, next.Late = lease.Finding{}, 0, false
	}
	by.write(replacing(by, old, next, exists))
	if old, exists = by.plan(); !exists || by.likely(0.5) {
		return
	}
	next = old
	next.Open = false
	next.Finding = lease.Finding{
		Inputs: "adversary", Members: int64(pick(by.chance, 0, 1, 3, 9, 1000)),
		Shards: int64(pick(by.chance, 0, 1, 7, 1000)), Unplaced: int64(pick(by.chance, 0, 1, 7, 1000)),
	}
	for range by.IntN(lease.MaxWatchers + 1) {
		if inc := by.somebody().Incarnation; !slices.Contains(next.Watchers, inc) {
			next.Watchers = append(next.Watchers, inc)
		}
	}
	by.write(replacing(by, old, next, true))
}

// misguide writes some pages of the target of a worker. They may assign shards of other workers, have
// different revisions, or be incomplete. They name no shard whose tombstone was swept: a worker that its
// target sends to a shard without a row creates the row, and only a tombstone can refuse that.
func (by adversary) misguide() {
	plan, _ := by.plan()
	to, pages := by.somebody().Incarnation, int64(1+by.IntN(3))
	for page := range pages {
		if by.likely(0.2) {
			continue
		}
		next := lease.Target{Group: group, Incarnation: to, Page: page, Pages: pages, Revision: by.revision(plan.Revision)}
		for _, s := range by.streams.all {
			if s.swept {
				continue
			}
			if by.likely(0.3) {
				next.Hold = append(next.Hold, lease.Assigned{Shard: s.name, Parents: slices.Sorted(slices.Values(s.parents))})
			}
			if by.likely(0.3) {
				next.Give = append(next.Give, lease.Give{Shard: s.name, To: by.somebody().Incarnation})
			}
		}
		old, exists := by.table.Read(next.Key()).(lease.Target)
		if exists && old.Revision >= next.Revision {
			by.write(lease.Write{Op: lease.OpDelete, Old: old})
			exists = false
		}
		by.write(replacing(by, old, next, exists))
	}
}

// somebody returns a worker that runs, or has run, or is unknown.
func (by adversary) somebody() lease.Owner {
	if n := pick(by.chance, by.nodes...); n.me != "" && by.likely(0.9) {
		return lease.Owner{Name: n.Name, Incarnation: n.me}
	}
	return lease.Owner{Name: "nobody", Incarnation: lease.Incarnation(fmt.Sprintf("nobody-%d", by.IntN(10)))}
}

// lowest is the lowest revision that a new plan can have, by a clock that was never set.
const lowest = 1 << 22

// revision draws a revision that is near the present one, or far above or below it.
func (by adversary) revision(now int64) int64 {
	near := max(lowest, now+int64(by.IntN(5))-1)
	return pick(by.chance, near, near, near, near, lowest+int64(by.IntN(5)), near+1000, min(near+1<<40, 1<<60))
}

func replacing[R interface {
	lease.Plan | lease.Target
	lease.Record
}](by adversary, old, next R, exists bool) lease.Write {
	s := by.operator.stamp()
	s.At = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // so that low revisions can be written
	write := lease.Write{Op: lease.OpCreate}
	if exists {
		write = lease.Write{Op: lease.OpSwap, Old: old}
	}
	switch r := any(next).(type) {
	case lease.Plan:
		r.WriteID, r.At = s.ID, s.At
		write.Next = r
	case lease.Target:
		r.WriteID, r.At = s.ID, s.At
		write.Next = r
	}
	return write
}

// write makes a write of the adversary.
func (by adversary) write(w lease.Write) {
	if w.Next != nil {
		by.promises.advised(w.Key())
	}
	if _, err := by.table.Write(virtual.Sender{}, w); errors.Is(err, lease.ErrBadWrite) {
		by.blame("adversary: %v", err)
	}
	if w.Next == nil {
		by.promises.advised(w.Key())
	}
}
