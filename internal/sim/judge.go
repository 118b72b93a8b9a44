package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	promises "github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const group = "sim"

// A judge stands in front of the table and sees every write that reaches it.
type judge struct {
	w        *world
	promises *promises.Judge         // checks S1 to S3
	base     map[engine.Tenure]int64 // where each generation started
	accepted map[engine.Tenure]int64 // the last position of each
	ended    map[engine.Tenure]ending
	started  map[engine.Tenure]bool
	handlers map[engine.Tenure]*handler
	seats    map[lease.Incarnation]*sitting
	wants    map[wish]time.Duration // since when they are in the table
	// revisions are the highest of the plan and of each page of a target that a worker has written
	// and the adversary has not touched since.
	revisions map[lease.Key]int64
	planted   map[lease.Key]bool // pages of targets as the adversary has written them
	restored  time.Duration      // when the table last went back; 0: never
	adopted   time.Duration
	moves     []string // since calm
}

// An ending is how a generation ended.
type ending struct {
	reason     lease.Reason
	given      bool  // by its owner itself, not taken
	generation int64 // that began
	by         string
}

// A sitting is what is known of one seat.
type sitting struct {
	began  time.Duration
	beaten time.Duration // when it was last written
	by     virtual.Sender
	gone   bool // it was deleted; if it is there again, by a late twin
}

// A wish is one want.
type wish struct {
	by     lease.Incarnation
	tenure engine.Tenure
}

func newJudge(w *world) *judge {
	return &judge{
		w: w, promises: promises.New(checkpoint.Decimal), base: map[engine.Tenure]int64{}, accepted: map[engine.Tenure]int64{},
		ended: map[engine.Tenure]ending{}, started: map[engine.Tenure]bool{}, handlers: map[engine.Tenure]*handler{},
		seats: map[lease.Incarnation]*sitting{}, wants: map[wish]time.Duration{}, revisions: map[lease.Key]int64{},
		planted: map[lease.Key]bool{},
	}
}

// row returns the row of a shard as it stands in the table; one without a generation if there
// was none.
func (j *judge) row(shard string) lease.Row {
	r, _ := j.promises.Row(rowKey(shard))
	return r
}

func rowKey(shard string) lease.Key {
	return lease.Key{Group: group, Kind: lease.KindLease, Name: shard}
}

// lately reports whether the table went back not long ago: what engines believe may
// then be ahead of it.
func (j *judge) lately() bool {
	return j.restored > 0 && (j.w.went || j.w.Now()-j.adopted < 15*j.w.set.ttl)
}

// sits reports whether that incarnation has a seat.
func (j *judge) sits(me lease.Incarnation) bool {
	_, err := j.w.store.Get(context.Background(), lease.Key{Group: group, Kind: lease.KindSeat, Name: string(me)})
	return err == nil
}

// evicted reports whether that incarnation's seat was deleted, whatever stands
// there now: a late twin of its creation, say.
func (j *judge) evicted(me lease.Incarnation) bool { return j.seats[me] != nil && j.seats[me].gone }

// Accepted notes a write that the table has accepted, and checks it.
func (j *judge) Accepted(by virtual.Sender, w lease.Write, r lease.Record) {
	j.w.trace(w.Op.String(), w.Key().Name, func() string {
		if r == nil {
			return ""
		}
		return r.String()
	})
	j.w.mix(fold(w.ID()))
	if w.Key().Kind == lease.KindSeat {
		j.judgeSeat(w, by)
		return
	}
	if w.Key().Kind != lease.KindLease {
		j.judgeAdvice(w, by)
		return
	}
	before, after := j.row(w.Key().Name), r.(lease.Row)
	j.w.stats.Writes++
	if fault := j.promises.Accepted(w, by.Name, after); fault != nil {
		j.w.fault("%w", fault)
	}
	j.judgeMark(before, after)
	id := engine.Tenure{Shard: after.Shard, Generation: after.Generation}
	if to := after.OfferedTo; to != "" && to != before.OfferedTo {
		if _, wanted := j.wants[wish{by: to, tenure: id}]; !wanted {
			j.w.fault("%v was offered to a worker that did not request it", after)
		}
	}
	if after.Generation > before.Generation {
		j.judgeHands(w, before, after)
	}
}

func fold(id lease.WriteID) (v uint64) {
	for i := range len(id) {
		v = v*31 + uint64(id[i])
	}
	return v
}

// judgeMark checks that the position that was accepted has been processed.
func (j *judge) judgeMark(before, after lease.Row) {
	is, was := after.Checkpoint, before.Checkpoint
	if is.Mark == was.Mark || after.Removed || before.Removed {
		return // at most progress without a mark
	}
	j.w.stats.Commits++
	to := position(is.Position)
	id := engine.Tenure{Shard: after.Shard, Generation: is.Generation}
	j.accepted[id] = max(j.accepted[id], to)
	if h := j.handlers[id]; h == nil || to > h.pos {
		j.w.fault("loss: %d is accepted, and its handler has not come so far: %v", to, h)
	}
}

// judgeHands notes how a generation ended and the next began, and asks whether
// whoever did that was entitled to.
func (j *judge) judgeHands(w lease.Write, before, after lease.Row) {
	last := after.Last
	j.w.stats.hands(last.Reason, 1)
	j.base[engine.Tenure{Shard: after.Shard, Generation: after.Generation}] = position(after.Checkpoint.Position)
	id := engine.Tenure{Shard: before.Shard, Generation: before.Generation}
	if !before.Owner.IsZero() {
		j.ended[id] = ending{reason: last.Reason, given: w.Op == lease.OpSwap, generation: after.Generation, by: last.By}
	}
	if j.w.strict && !after.Finished && !after.Removed {
		j.moves = append(j.moves, fmt.Sprintf("%v: %s@%d held by %q, %v", j.w.Now(), after.Shard, after.Generation, after.Owner.Name, last))
	}
	if after.Quarantined && !before.Quarantined && after.Attempts() < j.w.set.attempts {
		j.w.fault("%v was set aside too early", after)
	}
	s := j.w.stream(after.Shard)
	if before.Removed && !after.Removed && s.dropped {
		j.w.fault("replay: %v is back, and the source lists it no more", after)
	}
	if after.Finished && !before.Finished {
		s.ended = j.w.Now()
		if !s.closed || position(after.Checkpoint.Position) != s.total {
			j.w.fault("finished before its end: %v, %d records", after, s.total)
		}
	}
	j.entitled(w, before, after)
}

// last is the last changes of hands.
func (j *judge) last(n int) string { return strings.Join(j.moves[max(0, len(j.moves)-n):], "\n\t") }
