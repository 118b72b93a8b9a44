package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A probe is told by the handlers themselves when they begin and end, on one clock.
// Its gaps and overlaps are exact: the library never sees it.
type probe struct {
	mu      sync.Mutex
	shards  map[string]*traffic
	moves   []*move
	changed chan struct{} // closed when a visit begins or ends
}

// Traffic is who processes one shard.
type traffic struct {
	now  []*visit
	left time.Time // when it was last left alone; zero: never
}

// A visit is one run of a handler.
type visit struct {
	worker, shard string
	overtaken     *move // by which another one began meanwhile
}

// A move is a visit that followed another one.
type move struct {
	at           time.Time
	gap, overlap time.Duration
}

func newProbe() *probe {
	return &probe{shards: map[string]*traffic{}, changed: make(chan struct{})}
}

func (p *probe) enter(worker, shard string) *visit {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.shards[shard]
	if t == nil {
		t = &traffic{}
		p.shards[shard] = t
	}
	v, now := &visit{worker: worker, shard: shard}, time.Now()
	if len(t.now) > 0 || !t.left.IsZero() {
		m := &move{at: now}
		if len(t.now) == 0 {
			m.gap = now.Sub(t.left)
		}
		for _, other := range t.now {
			other.overtaken = m
		}
		p.moves = append(p.moves, m)
	}
	t.now = append(t.now, v)
	p.tell()
	return v
}

// leave ends a visit; it may have ended before.
func (p *probe) leave(v *visit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(func(other *visit) bool { return other == v })
}

// vanish ends all visits of a worker: it was killed or paused, and processes nothing.
func (p *probe) vanish(worker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(func(v *visit) bool { return v.worker == worker })
}

func (p *probe) end(which func(*visit) bool) {
	now := time.Now()
	for _, t := range p.shards {
		var rest []*visit
		for _, v := range t.now {
			switch {
			case !which(v):
				rest = append(rest, v)
			case v.overtaken != nil:
				v.overtaken.overlap = now.Sub(v.overtaken.at)
			}
		}
		if len(t.now) > 0 && len(rest) == 0 {
			t.left = now
		}
		t.now = rest
	}
	p.tell()
}

func (p *probe) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// A serving tells how many shards each worker processes, and how many have somebody
// at all, and how many two.
type serving struct {
	by          map[string]int
	some, twice int
}

func (p *probe) serving() (serving, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := serving{by: map[string]int{}}
	for _, t := range p.shards {
		for _, v := range t.now {
			s.by[v.worker]++
		}
		s.some += min(len(t.now), 1)
		s.twice += max(len(t.now)-1, 0)
	}
	return s, p.changed
}

// since gives the moves that began at or after a moment.
func (p *probe) since(at time.Time) []move {
	p.mu.Lock()
	defer p.mu.Unlock()
	var moves []move
	for _, m := range p.moves {
		if !m.at.Before(at) {
			moves = append(moves, *m)
		}
	}
	return moves
}

var errTooLong = errors.New("this takes too long")

// until waits for the moment at which ok holds.
func (p *probe) until(ctx context.Context, what string, ok func(serving) bool) error {
	const limit = 20 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: %v, and still not %s", errTooLong, limit, what))
	defer cancel()
	for {
		s, changed := p.serving()
		if ok(s) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
