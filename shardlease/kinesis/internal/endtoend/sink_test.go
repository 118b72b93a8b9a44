package endtoend

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
)

// An effect is what a sink has stored.
type effect struct {
	topic, shard, key string
	digest            digest
	generation        int64
}

// A sink stores effects in the order of their arrival. In one step it compares the token, and stores the record and its id.
// It recognizes by the id that a record comes again.
type sink struct {
	mu      sync.Mutex
	fences  map[string]int64
	ids     map[string]bool
	effects []effect
	done    map[digest]bool
	repeats int // how many records came again
	stale   int // how many were refused
}

func newSink() *sink {
	return &sink{fences: map[string]int64{}, ids: map[string]bool{}, done: map[digest]bool{}}
}

// write stores a record under the token of ctx.
func (s *sink) write(ctx context.Context, r kinesis.Record) error {
	token, ok := fence.FromContext(ctx)
	if !ok {
		return fence.ErrMissing
	}
	e := effect{topic: r.Stream, shard: r.Shard, digest: sha256.Sum256(r.Data), generation: token.Generation}
	if !r.Keyless {
		e.key = r.Key
	}
	id := r.ID()
	s.mu.Lock()
	defer s.mu.Unlock()
	if observed := s.fences[token.Shard]; token.Generation < observed {
		s.stale++
		return token.Refused(observed)
	}
	s.fences[token.Shard] = token.Generation
	if s.ids[id] {
		s.repeats++
		return nil
	}
	s.ids[id], s.done[e.digest] = true, true
	s.effects = append(s.effects, e)
	return nil
}

// has reports whether a record has its effect.
func (s *sink) has(d digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[d]
}

// replaced reports whether another worker has written under a later token of the shard of one of these.
func (s *sink) replaced(tokens []fence.Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(tokens, func(t fence.Token) bool { return s.fences[t.Shard] > t.Generation })
}
