package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
)

// A stream is one shard with its records, which are numbered from 1 on and come at equal intervals. A position
// is the number of the last record that was processed.
type stream struct {
	name    string
	parents []string
	born    time.Duration
	every   time.Duration
	total   int64 // how many records a closed stream has
	closed  bool
	ended   time.Duration // when its finish was accepted
	dropped bool          // the source lists it no more
	swept   bool          // the source lists it no more, and its tombstone is gone
	lacked  bool          // the source of some node has lacked it before it was finished

	// The effects of consumers. Each handler processes every record from its start on. So one number
	// tells which records were processed, as long as no handler starts beyond it.
	processed int64
	sink      judge.Register
	accepted  int64         // the last record that the sink has accepted
	active    []*handler    // the handlers that run, on all nodes
	emptied   time.Duration // when the last of them returned
	by        *handler      // the last one that returned
}

// available returns how many records there are.
func (s *stream) available(now time.Duration) int64 {
	if s.closed {
		return s.total
	}
	return int64((now - s.born) / s.every)
}

// listed reports whether the source lists the stream. It lists a finished stream for the time of retention.
func (s *stream) listed(now, retention time.Duration) bool {
	s.dropped = s.dropped || s.ended > 0 && now-s.ended > retention
	return !s.dropped
}

// close ends a stream: there are no more records than now.
func (s *stream) close(now time.Duration) { s.total, s.closed = s.available(now), true }

// renew makes the stream a new shard of the same name. Only the sink still has the former generation.
func (s *stream) renew(now time.Duration) {
	*s = stream{name: s.name, born: now, every: s.every, sink: judge.Register{Generation: s.sink.Generation}}
}

// Streams are the streams that the source of the fleet lists, or has listed.
type streams struct {
	all   []*stream
	named map[string]*stream
}

func newStreams() streams { return streams{named: map[string]*stream{}} }

func numbered(i int) string { return fmt.Sprintf("s%02d", i) }

func (ss *streams) add(name string, every, now time.Duration, parents ...string) *stream {
	s := &stream{name: name, parents: parents, born: now, every: every}
	ss.all, ss.named[name] = append(ss.all, s), s
	return s
}

// of returns the stream with that name; nil: there is none.
func (ss *streams) of(name string) *stream { return ss.named[name] }

// listing returns what the source lists.
func (ss *streams) listing(now, retention time.Duration) (shards []engine.Shard) {
	for _, s := range ss.all {
		if s.listed(now, retention) {
			shards = append(shards, engine.Shard{Name: s.name, Parents: s.parents})
		}
	}
	return shards
}

// open returns the streams that have not ended.
func (ss *streams) open() []*stream {
	return slices.DeleteFunc(slices.Clone(ss.all), func(s *stream) bool { return s.closed })
}

// crowded reports whether there are so many streams that no more should be added.
func (ss *streams) crowded(seasonal bool) bool {
	if !seasonal {
		return len(ss.all) > 40
	}
	dropped := 0
	for _, s := range ss.all {
		if s.dropped {
			dropped++
		}
	}
	return len(ss.all)-dropped > 40 || len(ss.open()) > 15
}

// follow ends streams, and begins their successors: two for one stream, one for two.
func (ss *streams) follow(now time.Duration, ends ...*stream) {
	var parents []string
	for _, s := range ends {
		s.close(now)
		parents = append(parents, s.name)
	}
	for range 3 - len(ends) {
		ss.add(numbered(len(ss.all)), ends[0].every, now, parents...)
	}
}
