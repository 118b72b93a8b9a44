package sim

import (
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// A stream is one shard and what is in it: records numbered from 1 on, one every
// so often. A position is the number of the last record that is processed.
type stream struct {
	name    string
	parents []string
	born    time.Duration
	every   time.Duration
	total   int64 // of a closed stream: how many records there are
	closed  bool
	ended   time.Duration // when its finish was accepted
	dropped bool          // the source lists it no more
	swept   bool          // the source lists it no more, and its tombstone is gone
	lacked  bool          // the source of some node has lacked it before it was finished

	// What consumers left behind. Each handler reads without a gap from where it
	// starts, so the highest number says it all, as long as nobody starts beyond.
	processed int64
	sink      sink
	active    []*handler // every handler that runs, on whatever node
	emptied   time.Duration
	by        *handler // that was the last to return
}

// A sink is a register that is fenced: it remembers the highest generation.
type sink struct {
	generation int64
	by         *handler
	accepted   int64
}

// available is how many records there are.
func (s *stream) available(now time.Duration) int64 {
	if s.closed {
		return s.total
	}
	return int64((now - s.born) / s.every)
}

func (w *world) addStream(name string, every time.Duration, parents ...string) *stream {
	s := &stream{name: name, parents: parents, born: w.Now(), every: every}
	w.streams, w.named[name] = append(w.streams, s), s
	return s
}

func (w *world) stream(name string) *stream { return w.named[name] }

// listing is what the source says: closed shards too, until retention drops them.
func (w *world) listing() (shards []engine.Shard) {
	for _, s := range w.streams {
		if s.ended > 0 && w.Now()-s.ended > w.set.retention {
			s.dropped = true
		}
		if !s.dropped {
			shards = append(shards, engine.Shard{Name: s.name, Parents: s.parents})
		}
	}
	return shards
}

// close ends a stream: what is in it now is all there will be.
func (w *world) close(s *stream) {
	s.total = s.available(w.Now())
	s.closed = true
	w.trace("close", s.name, nil)
}

// effect processes the records up to to.
//
// Invariant: of every record that is covered by an accepted checkpoint, the effect
// was made by somebody; and in a fenced sink the effects stand in the order of
// generations, without a gap between them.
//
// It reports whether the sink took it: what it refuses must not be marked.
func (w *world) effect(h *handler, to int64) bool {
	s := h.s
	from := h.pos + 1
	w.stats.Records += to - h.pos
	w.stats.Again += max(0, min(to, s.processed)-h.pos)
	if from > s.processed+1 {
		w.fault("loss: %v starts with record %d, and nobody has processed what follows %d", h, from, s.processed)
	}
	s.processed = max(s.processed, to)
	if row := w.judge.row(s.name); row.Generation == h.Tenure.Generation && row.Generation < s.sink.generation && !w.judge.lately() {
		w.fault("S3: the sink has seen generation %d, and the table is at %v", s.sink.generation, row)
	}
	switch k := &s.sink; {
	case h.Tenure.Generation < k.generation:
		w.stats.Refused++
		return false
	case h.Tenure.Generation == k.generation && k.by != h:
		w.fault("S3: two handlers of generation %d at the sink of %s: %v and %v", k.generation, s.name, k.by, h)
	case from > k.accepted+1:
		w.fault("loss: %v, the first the sink accepts is %d after %d", h, from, k.accepted)
	default:
		k.generation, k.by, k.accepted = h.Tenure.Generation, h, to
	}
	return true
}
