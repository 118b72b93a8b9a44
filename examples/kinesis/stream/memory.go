package stream

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Kinesis sends at most this much in an answer.
const largestAnswer = 10 << 20

// What a record costs in memory beside its data and its key.
const overhead = 256

// A Memory bounds, in bytes, what is read and not yet done with: per shard, and for all
// shards that share it. A reader takes room for the largest answer there is before it asks
// Kinesis, and gives back what the answer did not need; the consumer gives back the rest,
// entry by entry. So a sink that is slow slows the reading down, and a worker that gets a
// hundred more shards does not grow with them.
//
// A bound below the largest answer, 10 MiB, allows one answer at a time. What a consumer
// makes of its records is not counted.
type Memory struct {
	PerShard int64 // default 16 MiB
	Total    int64 // default 256 MiB

	mu    sync.Mutex
	used  int64
	queue []*claim // in the order in which they came
}

// A claim is a reader that waits for room.
type claim struct {
	room    *Room
	bytes   int64
	granted chan struct{}
}

// A Room is the part of a Memory that one reader of a shard uses. A nil Room has no bound.
type Room struct {
	memory *Memory
	used   int64
	closed bool
}

// Room opens the room of one reader. It must be closed.
func (m *Memory) Room() *Room { return &Room{memory: m} }

// Used is how many bytes are in use, by all readers.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Give gives back what an entry has used.
func (r *Room) Give(bytes int64) {
	if r == nil {
		return
	}
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(r, -bytes)
}

// Close gives back all that the room still uses.
func (r *Room) Close() {
	if r == nil {
		return
	}
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(r, -r.used)
	r.closed = true
}

// take waits for room for one answer, and says how much it took.
func (r *Room) take(ctx context.Context) (int64, error) {
	if r == nil {
		return 0, nil
	}
	m := r.memory
	m.mu.Lock()
	c := &claim{room: r, bytes: min(largestAnswer, m.perShard(), m.total()), granted: make(chan struct{})}
	m.queue = append(m.queue, c)
	m.change(r, 0)
	m.mu.Unlock()
	select {
	case <-c.granted:
		return c.bytes, nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.queue, c); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
		m.change(r, 0) // those behind it may fit
	} else {
		m.change(r, -c.bytes)
	}
	return 0, context.Cause(ctx)
}

// settle replaces what was taken by what the answer needs.
func (r *Room) settle(taken, needed int64) { r.Give(taken - needed) }

func (m *Memory) perShard() int64 { return cmp.Or(m.PerShard, 16<<20) }
func (m *Memory) total() int64    { return cmp.Or(m.Total, 256<<20) }

// change is called with the lock held. It grants what has room now, in order: a claim that
// its own shard leaves no room for waits for nobody else, and nobody waits for it; one that
// all shards together leave no room for goes before those that came later.
func (m *Memory) change(r *Room, bytes int64) {
	if !r.closed {
		r.used += bytes
		m.used += bytes
	}
	for i := 0; i < len(m.queue); {
		c := m.queue[i]
		if c.room.used > 0 && c.room.used+c.bytes > m.perShard() {
			i++
			continue
		}
		if m.used > 0 && m.used+c.bytes > m.total() {
			return
		}
		c.room.used += c.bytes
		m.used += c.bytes
		close(c.granted)
		m.queue = slices.Delete(m.queue, i, i+1)
	}
}
