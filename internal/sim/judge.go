package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const group = "sim"

// A judge stands in front of the table and sees every write that reaches it.
type judge struct {
	w        *world
	rows     map[string]lease.Row   // as they stand
	stored   map[lease.WriteID]bool // writes that took effect, …
	older    map[lease.WriteID]bool // … and those of the spell before
	owners   map[engine.Tenure]lease.Owner
	base     map[engine.Tenure]int64 // where each generation started
	accepted map[engine.Tenure]int64 // the last position of each
	ended    map[engine.Tenure]ending
	started  map[engine.Tenure]bool
	handlers map[engine.Tenure]*handler
	seats    map[lease.Incarnation]*sitting
	wants    map[wish]time.Duration // since when they are in the table
	restored time.Duration          // when the table last went back; 0: never
	adopted  time.Duration
	moves    []string // since calm
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
	beaten time.Duration // when it was last written
	by     sender
	gone   bool // it was deleted; if it is there again, by a late twin
}

// A wish is one want.
type wish struct {
	by     lease.Incarnation
	tenure engine.Tenure
}

func newJudge(w *world) *judge {
	return &judge{
		w: w, rows: map[string]lease.Row{}, stored: map[lease.WriteID]bool{},
		owners: map[engine.Tenure]lease.Owner{}, base: map[engine.Tenure]int64{}, accepted: map[engine.Tenure]int64{},
		ended: map[engine.Tenure]ending{}, started: map[engine.Tenure]bool{}, handlers: map[engine.Tenure]*handler{},
		seats: map[lease.Incarnation]*sitting{}, wants: map[wish]time.Duration{},
	}
}

// forget keeps the writes of one spell more: nothing is under way for longer.
func (j *judge) forget() { j.older, j.stored = j.stored, map[lease.WriteID]bool{} }

// lately reports whether the table went back not long ago: what engines believe may
// then be ahead of it.
func (j *judge) lately() bool {
	return j.restored > 0 && (j.w.went || j.w.now-j.adopted < 15*j.w.set.ttl)
}

// sits reports whether that incarnation has a seat.
func (j *judge) sits(me lease.Incarnation) bool {
	_, err := j.w.store.Get(context.Background(), lease.Key{Group: group, Kind: lease.KindSeat, Name: string(me)})
	return err == nil
}

// A sender is the process that sent a write; none, for an operator's.
type sender struct {
	n     *node
	epoch int
}

// evicted reports whether that incarnation's seat was deleted, whatever stands
// there now: a late twin of its creation, say.
func (j *judge) evicted(me lease.Incarnation) bool { return j.seats[me] != nil && j.seats[me].gone }

// write serves one write.
func (j *judge) write(w lease.Write, from sender) (lease.Record, error) {
	r, err := j.w.store.Write(context.Background(), w)
	if err != nil {
		return r, err
	}
	j.w.trace(w.Op.String(), w.Key().Name, func() string {
		if r == nil {
			return ""
		}
		return r.String()
	})
	j.w.mix(fold(w.ID()))
	if w.Key().Kind == lease.KindSeat {
		j.judgeSeat(w, from)
		return r, err
	}
	before, after := j.rows[w.Key().Name], r.(lease.Row)
	j.rows[w.Key().Name] = after
	j.w.stats.Writes++
	j.judgeRow(w, before, after)
	j.judgeCheckpoint(w, before, after)
	if after.Generation > before.Generation {
		j.judgeHands(w, before, after)
	}
	return r, err
}

func fold(id lease.WriteID) (v uint64) {
	for i := range len(id) {
		v = v*31 + uint64(id[i])
	}
	return v
}

// judgeRow: S3, and no write is applied twice.
func (j *judge) judgeRow(w lease.Write, before, after lease.Row) {
	if j.stored[w.ID()] || j.older[w.ID()] {
		j.w.fault("%v was applied twice", w)
	}
	j.stored[w.ID()] = true
	if after.Compare(before) <= 0 {
		j.w.fault("S3: from %v to %v", before, after)
	}
	id := engine.Tenure{Shard: after.Shard, Generation: after.Generation}
	if owner, known := j.owners[id]; known && owner != after.Owner {
		j.w.fault("S3: generation %d of %s belonged to %v, and now to %v", after.Generation, after.Shard, owner, after.Owner)
	}
	j.owners[id] = after.Owner
}

// judgeCheckpoint: S1 and S2, and that what is accepted was processed.
func (j *judge) judgeCheckpoint(w lease.Write, before, after lease.Row) {
	is, was := after.Checkpoint, before.Checkpoint
	if is == was || after.Removed || before.Removed {
		return
	}
	if w.Op == lease.OpTransfer {
		j.w.fault("S2: %v moved the checkpoint", w)
	}
	if is.Generation < was.Generation || is.Generation != before.Generation || before.Owner.IsZero() {
		j.w.fault("S1: a checkpoint of generation %d was stored over one of %d while %v", is.Generation, was.Generation, before)
	}
	if old, _ := w.Old.(lease.Row); old.Owner.Incarnation != before.Owner.Incarnation {
		j.w.fault("S1: %v was made by another than the owner of %v", w, before)
	}
	if is.Mark == was.Mark {
		return // progress without a mark
	}
	j.w.stats.Commits++
	from, to := position(was.Position), position(is.Position)
	id := engine.Tenure{Shard: after.Shard, Generation: is.Generation}
	if to < from {
		j.w.fault("S2: from %d back to %d in %v", from, to, after)
	}
	j.accepted[id] = max(j.accepted[id], to)
	if h := j.handlers[id]; h == nil || to > h.pos {
		j.w.fault("loss: %d is accepted, and its handler has not come so far: %v", to, h)
	}
}

// judgeHands notes how a generation ended and the next began, and asks whether
// whoever did that was entitled to.
func (j *judge) judgeHands(w lease.Write, before, after lease.Row) {
	last := after.Last
	j.w.stats.Hands[reasonAt(last.Reason)]++
	j.base[engine.Tenure{Shard: after.Shard, Generation: after.Generation}] = position(after.Checkpoint.Position)
	id := engine.Tenure{Shard: before.Shard, Generation: before.Generation}
	if !before.Owner.IsZero() {
		j.ended[id] = ending{reason: last.Reason, given: w.Op == lease.OpSwap, generation: after.Generation, by: last.By}
	}
	if j.w.strict && !after.Finished && !after.Removed {
		j.moves = append(j.moves, fmt.Sprintf("%v: %s@%d held by %q, %v", j.w.now, after.Shard, after.Generation, after.Owner.Name, last))
	}
	if after.Quarantined && !before.Quarantined && after.Attempts() < j.w.set.attempts {
		j.w.fault("%v was set aside too early", after)
	}
	s := j.w.stream(after.Shard)
	if before.Removed && !after.Removed && s.dropped {
		j.w.fault("replay: %v is back, and the source lists it no more", after)
	}
	if after.Finished && !before.Finished {
		s.ended = j.w.now
		if !s.closed || position(after.Checkpoint.Position) != s.total {
			j.w.fault("finished before its end: %v, %d records", after, s.total)
		}
	}
	j.entitled(w, before, after)
}

// last is the last changes of hands.
func (j *judge) last(n int) string { return strings.Join(j.moves[max(0, len(j.moves)-n):], "\n\t") }
