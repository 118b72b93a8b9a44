package engine

import (
	"reflect"
	"slices"

	"github.com/shardlease/shardlease-go/internal/digest"
)

// Copies and hashes of an engine, for the explorer and for tests: with them it finds out that two
// ways lead to the same state.
//
// Called by tests and worlds only, between two steps. A shell has one engine, and never copies it.
//
// A slice that its part replaces, and never changes in place, is not copied: two engines may share it. Such are
// news.items, the pages of facts, the lists in records, and those of a question.
//
// Invariant: a clone shares nothing that either engine changes. A new field of a part that is a
// slice, a map or a pointer has to be copied here.

// Clone returns another engine in the same state. It shares nothing that either changes.
func (e *Engine) Clone() *Engine {
	c := *e
	c.common = e.common.clone()
	c.seat.former = slices.Clone(e.seat.former)
	c.peers.all = slices.Clone(e.peers.all)
	c.owners.all = slices.Clone(e.owners.all)
	c.proofs.links = slices.Clone(e.proofs.links)
	c.draft.writes = slices.Clone(e.draft.writes)
	c.draft.next = slices.Clone(e.draft.next)
	c.draft.asked = slices.Clone(e.draft.asked)
	c.follow.reading.pages = slices.Clone(e.follow.reading.pages)
	c.facts.all = slices.Clone(e.facts.all)
	c.feed.shards = slices.Clone(e.feed.shards)
	c.watch.looks = slices.Clip(e.watch.looks)
	c.sweep.found.Records = slices.Clip(e.sweep.found.Records)
	c.sweep.found.Unreadable = slices.Clip(e.sweep.found.Unreadable)
	return &c
}

// Clone returns another session in the same state. The two share nothing that either of them changes.
func (e *Session) Clone() *Session {
	c := *e
	c.common = e.common.clone()
	c.seat.former = slices.Clone(e.seat.former)
	c.rivals = slices.Clone(e.rivals)
	c.proofs.links = slices.Clone(e.proofs.links)
	c.roll.doubts = slices.Clone(e.roll.doubts)
	c.contention.waits = slices.Clone(e.contention.waits)
	c.owners.all = slices.Clone(e.owners.all)
	return &c
}

func (c *common) clone() common {
	d := *c
	d.turn.out = nil
	d.faults.malformed = slices.Clone(c.faults.malformed)
	d.confirms.all = slices.Clone(c.confirms.all)
	d.shards.all = make([]*shard, len(c.shards.all))
	for i, s := range c.shards.all {
		d.shards.all[i] = s.clone()
	}
	return d
}

func (s *shard) clone() *shard {
	c := new(*s)
	if s.want != nil {
		c.want = new(*s.want)
	}
	if s.ask != nil {
		c.ask = new(*s.ask)
	}
	if s.t != nil {
		c.t = new(*s.t)
		if s.t.give != nil {
			c.t.give = new(*s.t.give)
		}
	}
	return c
}

// Hash returns the same for two engines that will do the same from now on, whenever now is:
// instants, steps and reads count as how long ago they were. It may differ for engines that will.
// It leaves out the other faults, which only with a CommitTimeout change more than reports.
func (e *Engine) Hash() uint64 {
	u := &e.faults.unread
	return e.hash(u.on, u.singles[:], u.lists[:], u.table, u.probed, u.again, e.fleet, e.reads, e.follow, e.sweep, e.draft, e.planner, e.feed, e.facts, e.wishes, e.moves, e.news, e.health)
}

// Hash returns the same number for two sessions that will act alike from now on, as [Engine.Hash] does.
func (e *Session) Hash() uint64 {
	return e.hash(e.seat, e.kind, e.owners, e.rivals, e.heed, e.census, e.roll, e.proofs, e.former)
}

func (c *common) hash(parts ...any) uint64 {
	t := &c.turn
	now := map[reflect.Type]int64{
		reflect.TypeFor[Instant](): int64(t.now.Mono), reflect.TypeFor[wall](): t.now.Wall.UnixNano(),
		reflect.TypeFor[order](): int64(t.step), reflect.TypeFor[serial](): int64(t.reads),
	}
	r := &c.raiser // without what only reports need
	return digest.Of(now, int64(Never), append(parts, t.wake, c.shards, c.leave, c.confirms,
		r.on, r.target, r.broken, r.away, r.rests, r.until, r.able, r.next, r.failing > 0, r.beside, r.wish, r.known, r.obeyed, r.check, r.asked)...)
}
