package stream

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// largestAnswer is the size of the largest answer of Kinesis.
const largestAnswer = 10 << 20

// overhead is an estimate of the memory of a record in addition to its data and key.
const overhead = 256

// A Memory bounds the bytes of records that are read and not yet processed, per shard and for
// all shards that share it. A reader reserves room for the largest possible answer before it
// sends a request, and then returns what the answer did not need. (The size of an event of a subscription
// is known when it arrives.) The caller returns the rest, entry by entry. So a slow sink slows the readers
// down, and the memory of a worker does not grow with the number of its shards.
//
// A bound below the largest answer, 10 MiB, allows one answer at a time. The memory for results of the caller
// is not counted.
type Memory struct {
	PerShard int64 // the bound for one shard; default 16 MiB
	Total    int64 // the bound for all shards; default 256 MiB

	mu    sync.Mutex
	used  int64
	queue []*claim // in the order of their arrival
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

// Room returns a new room for one reader. The caller must close it.
func (m *Memory) Room() *Room { return &Room{memory: m} }

// Used returns the number of bytes that all readers use.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Give returns bytes of an entry that is processed.
func (r *Room) Give(bytes int64) {
	if r == nil {
		return
	}
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(r, -bytes)
}

// Close returns all bytes that the room still uses.
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

// take waits for room for the largest answer, and returns how many bytes it reserved.
func (r *Room) take(ctx context.Context) (int64, error) {
	if r == nil {
		return 0, nil
	}
	return r.occupy(ctx, largestAnswer)
}

// occupy waits for room for some bytes, and reserves them.
func (r *Room) occupy(ctx context.Context, bytes int64) (int64, error) {
	if r == nil {
		return bytes, nil
	}
	m := r.memory
	m.mu.Lock()
	c := &claim{room: r, bytes: bytes, granted: make(chan struct{})}
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
		m.change(r, 0) // claims behind it may fit now
	} else {
		m.change(r, -c.bytes)
	}
	return 0, context.Cause(ctx)
}

// settle replaces the reserved bytes by those that the answer needs.
func (r *Room) settle(taken, needed int64) { r.Give(taken - needed) }

func (m *Memory) perShard() int64 { return cmp.Or(m.PerShard, 16<<20) }
func (m *Memory) total() int64    { return cmp.Or(m.Total, 256<<20) }

// change adds to the bytes of a room, and then grants the claims that fit, in order of arrival. A
// claim that exceeds the bound of its own shard does not block the others. A claim that exceeds
// the total bound blocks those that arrived later. The caller holds the lock.
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
