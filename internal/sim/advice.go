package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The plan and the targets are advice: an adversary may write anything there, and delete it, and no
// promise is broken. Once the adversary stops, the fleet comes to rest by itself.
//
// What the adversary writes is well-formed, and the hash of the inputs is never the right one:
// that of a finished plan says that nothing has to be planned.

// theirs is the plan as it stands in the table.
func (w *world) theirs() (p lease.Plan, ok bool) {
	r, _ := w.store.Get(context.Background(), lease.Plan{Group: group}.Key())
	p, ok = r.(lease.Plan)
	return p, ok
}

// meddle writes or deletes some advice.
func (w *world) meddle() bool {
	for range 1 + w.chance.IntN(4) {
		switch w.chance.IntN(8) {
		case 0:
			w.unadvise()
		case 1, 2, 3:
			w.misplan()
		default:
			w.misguide()
		}
	}
	return true
}

// unadvise deletes the plan, or targets, or both.
func (w *world) unadvise() bool {
	which := w.chance.IntN(3)
	if _, ok := w.theirs(); ok && which != 0 {
		w.trace("plan deleted", "", nil)
		w.store.unplan()
		w.judge.unadvised(lease.Plan{Group: group}.Key())
	}
	for _, r := range w.table.Records(group, lease.KindTarget) {
		if which != 1 && w.likely(0.5) {
			w.advise(lease.Write{Op: lease.OpDelete, Old: r})
		}
	}
	return true
}

// misplan writes a plan that no planner would write: a random revision, above the present one or,
// after the present one is deleted, below it; open or finished; with wrong counts and watchers.
func (w *world) misplan() {
	old, exists := w.theirs()
	next := old
	next.Group, next.By, next.Planner = group, w.somebody(), pick(w, "even", "adversary")
	next.Revision, next.Open = w.revision(old.Revision), true
	if exists && next.Revision <= old.Revision {
		w.store.unplan()
		w.judge.unadvised(old.Key())
		exists = false
	}
	if !exists {
		next.Finding, next.Tick, next.Late = lease.Finding{}, 0, false
	}
	w.advise(replacing(w, old, next, exists))
	if old, exists = w.theirs(); !exists || w.likely(0.5) {
		return
	}
	next = old
	next.Open = false
	next.Finding = lease.Finding{
		Inputs: "adversary", Members: int64(pick(w, 0, 1, 3, 9, 1000)),
		Shards: int64(pick(w, 0, 1, 7, 1000)), Unplaced: int64(pick(w, 0, 1, 7, 1000)),
	}
	for range w.chance.IntN(lease.MaxWatchers + 1) {
		if inc := w.somebody().Incarnation; !slices.Contains(next.Watchers, inc) {
			next.Watchers = append(next.Watchers, inc)
		}
	}
	w.advise(replacing(w, old, next, true))
}

// misguide writes some pages of the target of a worker: they may give it shards of others, be of
// different revisions, or not be all of them.
func (w *world) misguide() {
	plan, _ := w.theirs()
	to, pages := w.somebody().Incarnation, int64(1+w.chance.IntN(3))
	for page := range pages {
		if w.likely(0.2) {
			continue
		}
		next := lease.Target{Group: group, Incarnation: to, Page: page, Pages: pages, Revision: w.revision(plan.Revision)}
		for _, s := range w.streams {
			if w.likely(0.3) {
				next.Hold = append(next.Hold, lease.Assigned{Shard: s.name, Parents: slices.Sorted(slices.Values(s.parents))})
			}
			if w.likely(0.3) {
				next.Give = append(next.Give, lease.Give{Shard: s.name, To: w.somebody().Incarnation})
			}
		}
		r, _ := w.store.Get(context.Background(), next.Key())
		old, exists := r.(lease.Target)
		if exists && old.Revision >= next.Revision {
			w.advise(lease.Write{Op: lease.OpDelete, Old: old})
			exists = false
		}
		w.advise(replacing(w, old, next, exists))
	}
}

// somebody is a worker that runs, or has run, or is unknown.
func (w *world) somebody() lease.Owner {
	if n := pick(w, w.nodes...); n.me != "" && w.likely(0.9) {
		return lease.Owner{Name: n.Name, Incarnation: n.me}
	}
	return lease.Owner{Name: "nobody", Incarnation: lease.Incarnation(fmt.Sprintf("nobody-%d", w.chance.IntN(10)))}
}

// lowest is the lowest revision that a new plan can have, by a clock that was never set.
const lowest = 1 << 22

// revision draws one that is near the present one, or far above or below.
func (w *world) revision(now int64) int64 {
	near := max(lowest, now+int64(w.chance.IntN(5))-1)
	return pick(w, near, near, near, near, lowest+int64(w.chance.IntN(5)), near+1000, min(near+1<<40, 1<<60))
}

func replacing[R interface {
	lease.Plan | lease.Target
	lease.Record
}](w *world, old, next R, exists bool) lease.Write {
	s := w.stamp()
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

// advise writes as somebody who may write anything.
func (w *world) advise(write lease.Write) {
	if write.Next != nil {
		w.judge.unadvised(write.Key())
	}
	if _, err := w.table.Write(virtual.Sender{}, write); errors.Is(err, lease.ErrBadWrite) {
		w.fault("adversary: %v", err)
	}
	if write.Next == nil {
		w.judge.unadvised(write.Key())
	}
}

// unadvised forgets the revision of a record that the adversary has written or deleted.
func (j *judge) unadvised(k lease.Key) { delete(j.revisions, k) }

// judgeAdvice holds that a worker never replaces a plan or a target by one of a lower revision.
func (j *judge) judgeAdvice(w lease.Write, by virtual.Sender) {
	revision := int64(0)
	switch next := w.Next.(type) {
	case lease.Plan:
		revision = next.Revision
		j.w.snared(by, next.Open)
	case lease.Target:
		revision = next.Revision
		j.planted[w.Key()] = by == (virtual.Sender{})
		j.w.snared(by, true)
	default:
		j.planted[w.Key()] = false
		j.unadvised(w.Key()) // a late twin of its creation may come
		return
	}
	if last := j.revisions[w.Key()]; by != (virtual.Sender{}) && revision < last {
		j.w.fault("%s wrote revision %d of %v after %d", by.Name, revision, w.Key(), last)
	}
	j.revisions[w.Key()] = max(revision, j.revisions[w.Key()])
}

// misled reports whether the adversary's targets still stand. The fleet rests all the same, until a plan is made for
// another reason. That plan is made from them, so it may move more shards than that reason needs.
func (j *judge) misled() bool { return slices.Contains(slices.Collect(maps.Values(j.planted)), true) }

// snared stops a planner whose write has just been stored, if it is time for that.
func (w *world) snared(by virtual.Sender, open bool) {
	if !open || by == (virtual.Sender{}) || !w.snare || w.peace || w.likely(0.5) {
		return
	}
	for _, n := range w.nodes {
		if n.Name == by.Name && n.Up() && !n.Paused() {
			w.snare = false
			w.stats.Faults[PlannerPaused]++
			n.pause(2*w.set.ttl, false)
		}
	}
}

// rackCrash ends all watchers at once, as far as the plan names them.
func (w *world) rackCrash() bool {
	plan, _ := w.theirs()
	hit := false
	for _, n := range w.nodes {
		if n.me != "" && slices.Contains(plan.Watchers, n.me) {
			hit = w.replace(Crash, n) || hit
		}
	}
	return hit
}

// wish makes some wishes, as an operator does. Each ends by itself, by the wall clock of a planner.
func (w *world) wish() bool {
	return !w.went && !w.net.down && w.rewish(func(list []lease.Wish) []lease.Wish {
		for range 1 + w.chance.IntN(4) {
			worker, shard := pick(w, w.nodes...).Name, pick(w, w.streams...).name
			next, names := lease.Wish{Kind: pick(w, lease.WishKinds()...)}, map[string]string{"worker": worker, "shard": shard}
			of, to, _ := next.Kind.Names()
			next.Subject, next.To = names[of], names[to]
			next.By, next.Until = "operator", w.stamp().At.Add(w.between(0, 10*w.set.ttl))
			list = append(slices.DeleteFunc(list, func(old lease.Wish) bool { return old.Compare(next) == 0 }), next)
		}
		return list
	})
}

// rewish changes the wishes. It reports whether it wrote them.
func (w *world) rewish(change func([]lease.Wish) []lease.Wish) bool {
	r, _ := w.store.Get(context.Background(), lease.Wishes{Group: group}.Key())
	now, _ := r.(lease.Wishes)
	now.Group = group
	list := change(slices.Clone(now.List))
	if len(list) == 0 && len(now.List) == 0 {
		return false
	}
	write, err := protocol.SetWishes(now, list, w.stamp())
	if err == nil {
		_, err = w.table.Write(virtual.Sender{}, write)
	}
	if err != nil {
		w.fault("wishes: %v", err)
	}
	return err == nil
}
