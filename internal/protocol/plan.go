package protocol

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the transitions of the plan, of targets and of wishes. All are advice to the
// workers: no transition of a lease row depends on them.
//
//	transition     from                        to                made by
//	OpenPlan       no plan, or any revision    a higher, open    a worker that plans
//	ClosePlan      open, by the same worker    finished          the worker that opened it
//	TickPlan       any                         the same          the first watcher, or a worker that takes over
//	BeginSessions  no plan                     no plan ever      a session
//	WriteTarget    no target, or a lower       the revision of   the worker that opened the
//	               revision                    the plan          plan
//	DropTarget     a lower revision            no target         the same
//	SetWishes      any                         any               an operator; the first watcher or a
//	                                                             session, to remove ended wishes
//	DropWishes     wishes that cannot be read  no wishes         an operator
//
// A planner opens a revision, writes the targets that differ, drops those of workers that have
// gone, and completes the revision. If it dies in between, the plan stays open, and the next
// planner opens a higher revision.
//
// Invariant: a new revision is above every earlier one, also after the plan was deleted by hand,
// because a worker ignores a revision that is not above the one that it knows.

// An Opening describes a worker that opens a revision.
type Opening struct {
	By      lease.Owner
	Planner string // the name of its planner
	Known   int64  // the highest revision in any seat or target
}

// OpenPlan opens the revision after the one of the plan, or the first one: p is zero except for
// its group if there is no plan. A first revision is at least the clock's, so it is above the
// revisions of a plan that was lost.
func OpenPlan(p lease.Plan, o Opening, s Stamp) (lease.Write, error) {
	revision, err := succ("revision", max(p.Revision, o.Known))
	if err != nil {
		return lease.Write{}, err
	}
	if p.Revision == 0 {
		if err := generation.ValidClock(s.At); err != nil {
			return lease.Write{}, err
		}
		revision = max(revision, generation.First(s.At))
	}
	next := p
	next.Revision, next.Open, next.By, next.Planner = revision, true, o.By, o.Planner
	return writePlan(p, next, s)
}

// ClosePlan finishes the given revision. Only the worker that opened the revision can finish it. If
// another revision has been opened since, another worker writes the targets.
func ClosePlan(p lease.Plan, revision int64, by lease.Incarnation, found lease.Finding, s Stamp) (lease.Write, error) {
	const name = "closing of the plan"
	switch {
	case p.Revision != revision || p.By.Incarnation != by:
		return lease.Write{}, ruleOf(p, name, ErrOtherRevision)
	case !p.Open:
		return lease.Write{}, ruleOf(p, name, ErrFinishedRevision)
	}
	next := p
	next.Open, next.Finding = false, found.Fit()
	return writePlan(p, next, s)
}

// TickPlan shows that a watcher lives, and whether a seat has missed a heartbeat.
func TickPlan(p lease.Plan, late bool, s Stamp) (lease.Write, error) {
	if p.Revision == 0 {
		return lease.Write{}, ruleOf(p, "tick of the plan", ErrNoPlan)
	}
	tick, err := succ("tick", p.Tick)
	if err != nil {
		return lease.Write{}, err
	}
	next := p
	next.Tick, next.Late = tick, late
	return writePlan(p, next, s)
}

// BeginSessions makes a group one of sessions: it stores a record under the key at which a group of
// workers has its plan.
func BeginSessions(group string, by lease.Owner, s Stamp) (lease.Write, error) {
	if err := generation.ValidClock(s.At); err != nil {
		return lease.Write{}, err
	}
	return writePlan(lease.Plan{}, lease.Plan{Group: group, Revision: generation.First(s.At), By: by, Sessions: true}, s)
}

func writePlan(old, next lease.Plan, s Stamp) (lease.Write, error) {
	next.WriteID, next.At = s.ID, wall(s.At)
	return replacement(old, next, old.WriteID != "")
}

// WriteTarget replaces one page of a target. old is the page as it was read, or zero if there is
// none. A planner that finds its own revision or a higher one stops: another worker plans.
func WriteTarget(old, next lease.Target, s Stamp) (lease.Write, error) {
	if old.WriteID != "" && old.Revision >= next.Revision {
		return lease.Write{}, ruleOf(next, "write of the target", ErrOvertaken)
	}
	next.WriteID, next.At = s.ID, wall(s.At)
	return replacement(old, next, old.WriteID != "")
}

// DropTarget deletes a page that is not part of the given revision: a page of a dead worker, or a
// page beyond the last one of a target that has become shorter.
func DropTarget(t lease.Target, revision int64) (lease.Write, error) {
	if t.Revision >= revision {
		return lease.Write{}, ruleOf(t, "drop of the target", ErrOvertaken)
	}
	return checked(lease.Write{Op: lease.OpDelete, Old: t})
}

// WishLook is the kind of a wish that asks workers to read the row of the shard Subject, because a
// command has changed that row. Plans ignore the wish.
const WishLook lease.WishKind = "look"

// LookAll is the subject of a wish of the kind WishLook after a command that has changed many rows: workers list all rows. A
// version that does not know it reads the row of a shard with that name, and finds the change at its next audit.
const LookAll = "*"

// SetWishes replaces the wishes of a group. w has the wishes as they were read; without a write
// id there are none yet.
func SetWishes(w lease.Wishes, list []lease.Wish, s Stamp) (lease.Write, error) {
	next := lease.Wishes{Group: w.Group, WriteID: s.ID, List: slices.SortedFunc(slices.Values(list), lease.Wish.Compare), At: wall(s.At)}
	for i := range next.List {
		next.List[i].Until = wall(next.List[i].Until)
	}
	return replacement(w, next, w.WriteID != "")
}

// DropWishes deletes wishes that cannot be read, on the condition that nothing has written them since.
func DropWishes(group string, id lease.WriteID) (lease.Write, error) {
	return checked(lease.Write{Op: lease.OpDelete, Old: lease.Wishes{Group: group, WriteID: id}, Spoilt: true})
}

// replacement is a swap of old for next, or the creation of next if there is no old record.
func replacement(old, next lease.Record, exists bool) (lease.Write, error) {
	if !exists {
		return checked(lease.Write{Op: lease.OpCreate, Next: next})
	}
	return checked(lease.Write{Op: lease.OpSwap, Old: old, Next: next})
}

func ruleOf(r lease.Record, transition string, rule lease.Rule) error {
	return &lease.RuleError{Transition: transition, Key: r.Key(), Rule: rule}
}

// decidePlan is Decide for plans. A planner whose write arrived after a tick makes the write again. A
// planner that finds another revision, or its own revision finished, stops.
func decidePlan(w lease.Write, now lease.Record) Verdict {
	old, _ := w.Old.(lease.Plan)
	next, ok := w.Next.(lease.Plan)
	if !ok {
		return Unsent
	}
	at, ok := now.(lease.Plan)
	changes := next.Revision != old.Revision || next.Open != old.Open
	switch {
	case now == nil:
		return Gone
	case !ok:
		return Unknown // not an answer to this write
	// Two sessions make the same record.
	case at.WriteID == next.WriteID || at.Sessions && next.Sessions:
		return Stored
	case at.Sessions != next.Sessions: // the group is of the other kind
		return Overtaken
	// My write was stored, and the plan has ticked since.
	case changes && at.Revision == next.Revision && at.Open == next.Open && at.By == next.By:
		return Stored
	case at.Revision == old.Revision && at.Open == old.Open:
		return Again
	}
	return Overtaken
}

// decideTarget is Decide for targets. A planner reads and writes again while the target has a
// lower revision than its own.
func decideTarget(w lease.Write, now lease.Record) Verdict {
	next, writes := w.Next.(lease.Target)
	at, ok := now.(lease.Target)
	switch {
	case now == nil && !writes:
		return Stored // the target is gone, which is what a deletion is for
	case now == nil:
		return Again
	case !ok:
		return Unknown
	case !writes:
		return Again
	case at.WriteID == next.WriteID:
		return Stored
	case at.Revision < next.Revision:
		return Again
	}
	return Overtaken
}

// decideWishes is Decide for wishes. If somebody else has changed the wishes, the caller makes its
// change again, on the present wishes.
func decideWishes(w lease.Write, now lease.Record) Verdict {
	switch {
	case w.Op == lease.OpDelete && now == nil:
		return Stored
	case w.Op != lease.OpDelete && now != nil && now.Written() == w.ID():
		return Stored
	}
	return Again
}
