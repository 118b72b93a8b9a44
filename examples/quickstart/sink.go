package main

import (
	"fmt"
	"sync"
)

// A sink is where the effects of processing go. It remembers the highest generation
// that has written to a shard and refuses lower ones, in one step with the write
// itself: that is all it takes to be fenced. (In SQL: UPDATE … WHERE fence <= ?.)
type sink struct {
	mu     sync.Mutex
	shards map[string]*ledger
}

// A ledger is what the sink knows of one shard.
type ledger struct {
	fence   int64
	writes  map[int]int // of each record
	refused int
}

// A fencedError refuses the write of a worker that was replaced.
type fencedError struct {
	shard      string
	record     int
	mine, seen int64
}

func (e *fencedError) Error() string {
	return fmt.Sprintf("record %d of %s: written under generation %d, and the sink has seen %d", e.record, e.shard, e.mine, e.seen)
}

func (s *sink) write(shard string, record int, generation int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shards == nil {
		s.shards = map[string]*ledger{}
	}
	l := s.shards[shard]
	if l == nil {
		l = &ledger{writes: map[int]int{}}
		s.shards[shard] = l
	}
	if generation < l.fence {
		l.refused++
		return &fencedError{shard: shard, record: record, mine: generation, seen: l.fence}
	}
	l.fence = generation
	l.writes[record]++
	return nil
}

// A count is what became of the records of a stream.
type count struct{ processed, again, lost, refused int }

// count looks for each record from 1 to last of every shard.
func (s *sink) count(shards []string, last int) count {
	s.mu.Lock()
	defer s.mu.Unlock()
	var c count
	for _, name := range shards {
		l := s.shards[name]
		if l == nil {
			l = &ledger{}
		}
		c.refused += l.refused
		for n := 1; n <= last; n++ {
			switch writes := l.writes[n]; {
			case writes == 0:
				c.lost++
			default:
				c.processed++
				c.again += writes - 1
			}
		}
	}
	return c
}
