package inspect

import (
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An Observer remembers the earlier looks at one group, and turns told ages into observed ones. The
// zero Observer is ready to use. It is not safe for concurrent use.
type Observer struct {
	looks   int
	shards  map[string]*seenShard
	workers map[lease.Incarnation]*seenWorker
	moves   map[moveKey]*seenMove
	plan    sight[planKey]
	ends    seenEnds
}

// A sight is something that was seen, and since when it has been as it is.
type sight[K comparable] struct {
	as    K
	since time.Time
	whole bool // it was seen as something else before, so its beginning is known
	known bool
}

// see notes how something is now, and returns for how long it has been seen so.
func (s *sight[K]) see(as K, now time.Time) time.Duration {
	if !s.known || s.as != as {
		*s = sight[K]{as: as, since: now, whole: s.known, known: true}
	}
	return max(0, now.Sub(s.since))
}

type planKey struct {
	revision int64
	open     bool
}

type seenShard struct {
	look       int
	state      sight[stateKey]
	tenure     sight[int64]
	checkpoint sight[checkpoint.Checkpoint]
}

// A stateKey is the state of a shard, and what else begins it again: another owner, and the first living
// worker of a group that had none.
type stateKey struct {
	state      State
	owner      lease.Incarnation
	claimed    bool  // there is a worker that could claim it
	generation int64 // of a shard without an owner: a later one shows that it had an owner meanwhile
}

type seenWorker struct {
	look      int
	from      time.Time
	beat      sight[int64]
	unsettled sight[unsettledKey]
	emptying  sight[emptyingKey]
}

type unsettledKey struct {
	revision int64
	settled  bool
}

type emptyingKey struct {
	leaves bool
	held   int
}

// A moveKey identifies a move. A successor that calls its request off and requests again continues
// the move.
type moveKey struct {
	shard      string
	generation int64
	to         lease.Incarnation
}

type seenMove struct {
	since, last time.Time
}

// moveGap is how long a move may be out of sight and still be the same move, in lease times.
const moveGap = 2

// See compares a snapshot with the earlier ones, and sets the ages of its shards and workers. Show every
// snapshot once, in order. Snapshots of LookAt and of Look belong to different observers.
func (o *Observer) See(s *Snapshot) {
	if o.looks++; o.looks == 1 {
		o.shards, o.workers, o.moves = map[string]*seenShard{}, map[lease.Incarnation]*seenWorker{}, map[moveKey]*seenMove{}
	}
	for i := range s.Workers {
		o.seeWorker(s, &s.Workers[i])
	}
	claimed := len(claimers(s.living())) > 0
	for i := range s.Shards {
		o.seeShard(s, &s.Shards[i], claimed)
	}
	if s.Plan != nil {
		watched := o.plan.see(planKey{s.Plan.Revision, s.Plan.Open}, s.At)
		s.PlanAge = o.age(s.PlanAge, watched, o.plan.whole)
	}
	o.forget(s)
	s.ended = o.ends.see(s)
}

// age returns an age after it was watched. At the first look nothing was watched yet.
func (o *Observer) age(told Age, watched time.Duration, whole bool) Age {
	if o.looks == 1 {
		return told
	}
	return told.seen(watched, whole)
}

func (o *Observer) seeWorker(s *Snapshot, w *Worker) {
	of := o.workers[w.Seat.Incarnation]
	if of == nil {
		of = &seenWorker{from: s.At}
		o.workers[w.Seat.Incarnation] = of
	}
	of.look = o.looks
	w.Seated = o.age(w.Seated, s.At.Sub(of.from), false)
	watched := of.beat.see(w.Seat.Beat, s.At)
	w.Silent = o.age(w.Silent, watched, of.beat.whole)
	w.setDead(len(s.Workers))
	switch {
	case watched >= w.Seat.TTL && o.looks > 1:
		w.Beating = No
	case of.beat.whole:
		w.Beating = Yes
	}
	settled := w.settled(s.Plan)
	key := unsettledKey{settled: settled}
	if s.Plan != nil {
		key.revision = s.Plan.Revision
	}
	if of.unsettled.see(key, s.At); !settled { // the rows may be older than the plan
		w.Unsettled = o.age(w.Unsettled, max(0, s.RowsAt.Sub(of.unsettled.since)), of.unsettled.whole)
	}
	if watched := of.emptying.see(emptyingKey{w.Leaves, w.Held}, s.At); w.Leaves && o.looks > 1 {
		w.Emptying = Age{}.seen(watched, of.emptying.whole)
	}
}

// seeShard measures the ages of a shard. Its row is as old as the listing of the rows, so nothing is
// watched for longer than until then.
func (o *Observer) seeShard(s *Snapshot, of *Shard, claimed bool) {
	was := o.shards[of.Name]
	if was == nil {
		was = &seenShard{}
		o.shards[of.Name] = was
	}
	was.look = o.looks
	at := s.RowsAt
	watched := was.tenure.see(of.Row.Generation, at)
	of.Tenure = o.age(of.Tenure, watched, was.tenure.whole)
	if watched = was.checkpoint.see(of.Row.Checkpoint, at); of.Row.Checkpoint.Generation > 0 {
		of.Checkpoint = o.age(of.Checkpoint, watched, was.checkpoint.whole)
	}
	before, key := was.state, stateKey{state: of.State, owner: of.Owner.Incarnation}
	if of.State == Free || of.State == Resting || of.State == Orphaned {
		key.claimed, key.generation = claimed, of.Row.Generation
	}
	if was.state.see(key, s.At); before.as.state == key.state && before.as.claimed != key.claimed {
		was.state.whole = false // the state began earlier, and only the count begins again
	}
	of.Since = o.age(of.Since, max(0, at.Sub(was.state.since)), was.state.whole)
	if of.Move != nil {
		o.seeMove(s, of)
	}
}

// seeMove measures for how long a move has been standing.
func (o *Observer) seeMove(s *Snapshot, of *Shard) {
	key := moveKey{of.Name, of.Row.Generation, of.Move.To.Incarnation}
	m := o.moves[key]
	if m == nil {
		m = &seenMove{since: s.At}
		o.moves[key] = m
	}
	m.last = s.At
	if o.looks > 1 {
		of.Move.For = Age{}.seen(max(0, s.RowsAt.Sub(m.since)), true)
	}
}

// forget drops what no longer exists.
func (o *Observer) forget(s *Snapshot) {
	for name, of := range o.shards {
		if of.look < o.looks {
			delete(o.shards, name)
		}
	}
	for inc, of := range o.workers {
		if of.look < o.looks {
			delete(o.workers, inc)
		}
	}
	for key, of := range o.moves {
		if s.At.Sub(of.last) > moveGap*s.leaseTime() {
			delete(o.moves, key)
		}
	}
}
