package main

import (
	"context"
	"sync"
	"time"
)

// The targets imitate three kinds of systems. None of them can compare the generation of a shard whose handler has staged
// an effect: they know nothing of leases.

// A log is what a target has done.
type log struct {
	mu   sync.Mutex
	done []effect
}

func (l *log) all() []effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]effect(nil), l.done...)
}

// A queue leaves out an effect whose id it remembers. Queues remember ids for a while only: SQS for five minutes.
type queue struct {
	log
	window time.Duration
	seen   map[string]time.Time // by id: when it was first sent
}

func (q *queue) send(_ context.Context, e effect) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at, again := q.seen[e.id]; again && time.Since(at) < q.window {
		return nil
	}
	q.seen[e.id] = time.Now()
	q.done = append(q.done, e)
	return nil
}

// A mailer sends whatever it gets.
type mailer struct{ log }

func (m *mailer) send(_ context.Context, e effect) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = append(m.done, e)
	return nil
}

// A stream keeps the sequence of the last effect of each shard with what it has appended, and leaves out what is not
// above. A relay sends the effects of a shard in their order, so a lower one is a repetition.
type stream struct {
	log
	last map[string]int64 // by shard
}

func (s *stream) send(_ context.Context, e effect) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.sequence <= s.last[e.shard] {
		return nil
	}
	s.last[e.shard] = e.sequence
	s.done = append(s.done, e)
	return nil
}
