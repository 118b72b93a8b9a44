package engine

import (
	"reflect"
	"slices"

	"github.com/shardlease/shardlease-go/internal/digest"
)

// An order numbers the steps of one engine, a serial its reads; a wall is a reading of
// the wall clock in nanoseconds. Only how they compare matters.
type (
	order  uint64
	serial uint64
	wall   int64
)

func (e *Engine) wall() wall { return wall(e.now.Wall.UnixNano()) }

// Clone is another engine in the same state. It shares nothing that either changes.
func (e *Engine) Clone() *Engine {
	c := *e
	c.out = nil
	c.seat.former = slices.Clone(e.seat.former)
	c.looks.peers = slices.Clone(e.looks.peers)
	c.fleet.malformed = slices.Clone(e.fleet.malformed)
	c.shards = make([]*shard, len(e.shards))
	for i, s := range e.shards {
		t := new(*s)
		if s.ask != nil {
			t.ask = new(*s.ask)
		}
		if s.t.give != nil {
			t.t.give = new(*s.t.give)
		}
		c.shards[i] = t
	}
	return &c
}

// Hash is the same for two engines that will do the same from now on, whenever now
// is: instants, steps and reads count as how long ago they were. (It may differ for
// engines that will.) It leaves out the faults, which only with a CommitTimeout change
// more than reports.
func (e *Engine) Hash() uint64 {
	now := map[reflect.Type]int64{
		reflect.TypeFor[Instant](): int64(e.now.Mono), reflect.TypeFor[wall](): e.now.Wall.UnixNano(),
		reflect.TypeFor[order](): int64(e.step), reflect.TypeFor[serial](): int64(e.looks.count),
	}
	return digest.Of(now, int64(Never), e.beat, e.seat, e.looks, e.fleet, e.leave, e.feed, e.rows, e.due, e.all, e.shards)
}
