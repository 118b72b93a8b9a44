package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The acquisitions of a session that find a lease taken: which of them wait, and how many there were.
//
//	wanted → taken → refused: counted
//	               → waits: counted → acquired, refused, or its caller gives up
//	a count has grown → a minute later, or when the session ends: one event
//
// Called by the spine of a session: saw after each step towards a lease, and while a lock delay of this session keeps a
// caller from one; ended and stopped when callers give up, oldest for a heartbeat that is due, and keep at the end of each
// step.
//
// Nothing is written here. The seat shows the waits with the heartbeat that is due anyway. A crash leaves them there
// until the seat is evicted: package inspect does not show them.
//
// Invariant: no heartbeat is sent for a wait, and no decision depends on one.
// Invariant: an acquisition is counted once, as refused or as waited for, and in one event.

// contendedEvery is how much time there is at least between two events, unless the session ends.
const contendedEvery = time.Minute

// A contention is what a session knows of its acquisitions that found a lease taken.
type contention struct {
	waits   []queued // sorted by lease
	refused int      // acquisitions since the session began
	waited  int
	told    int           // how many of both the events have reported
	names   []string      // the first few leases of those that no event has reported
	longest time.Duration // the longest wait that has ended since the last event
	due     Instant       // when the next event is due; 0: there is none
}

// A queued is an acquisition that waits.
type queued struct {
	lease.Wait
	id    uint64 // of the Acquire
	since Instant
}

func (w *queued) name() string { return w.Lease }

// saw takes what a step towards a lease has done. want is what a caller wanted before that step.
func (c *contention) saw(t *turn, s *shard, want *wanted) {
	switch {
	case want == nil || s.want == want && want.look == 0: // it is not known yet whether the lease is taken
	case s.want == want:
		w := know(&c.waits, s.name, (*queued).name)
		if w.id != want.id {
			*w = queued{lease.Wait{Lease: s.name, Task: want.task, Since: t.now.Wall}, want.id, t.now.Mono}
			c.waited++
			c.counted(t, s.name)
		}
	case c.ended(t, s.name) || s.t != nil && !s.t.lost(&s.row) || s.row.copy.Row().Finished:
	default:
		c.refused++
		c.counted(t, s.name)
	}
}

// counted makes an event due.
func (c *contention) counted(t *turn, name string) {
	if len(c.names) < faultNames && !slices.Contains(c.names, name) {
		c.names = append(slices.Clip(c.names), name)
	}
	if c.due == 0 {
		c.due = t.now.Mono.Add(contendedEvery)
	}
}

// ended ends the wait for a lease, and reports whether there was one.
func (c *contention) ended(t *turn, name string) (waited bool) {
	i, waited := place(c.waits, name, (*queued).name)
	if waited {
		c.longest = max(c.longest, t.now.Mono.Sub(c.waits[i].since))
		c.waits = slices.Delete(c.waits, i, i+1)
	}
	return waited
}

// stopped ends all waits: the session shuts down, and its callers have got an error.
func (c *contention) stopped(t *turn) {
	c.longest, c.waits = c.wait(t), nil
}

// wait returns the longest wait since the last event.
func (c *contention) wait(t *turn) time.Duration {
	if since := c.since(); since > 0 {
		return max(c.longest, t.now.Mono.Sub(since))
	}
	return c.longest
}

// since returns when the oldest wait began that has not ended; 0: nobody waits.
func (c *contention) since() (first Instant) {
	for i := range c.waits {
		if since := c.waits[i].since; first == 0 || since < first {
			first = since
		}
	}
	return first
}

// oldest returns the waits that began first, as many as a seat may have, and how many others there are.
func (c *contention) oldest() (all []lease.Wait, left int64) {
	var first []queued
	for i := range c.waits {
		w := c.waits[i]
		at, _ := slices.BinarySearchFunc(first, w, func(a, b queued) int { return cmp.Compare(a.since, b.since) })
		if at < lease.MaxWaits {
			first = slices.Insert(first[:min(len(first), lease.MaxWaits-1)], at, w)
		}
	}
	for _, w := range first {
		all = append(all, w.Wait)
	}
	return all, int64(len(c.waits) - len(all))
}

// keep reports the acquisitions that no event has reported. done: the session ends.
func (c *contention) keep(t *turn, done bool) {
	if c.due == 0 || !done && t.before(c.due) {
		return
	}
	ev := event.Event{Kind: event.Contended, Count: c.refused + c.waited - c.told, Shards: c.names, Lasted: c.wait(t)}
	if len(c.names) == 1 {
		ev.Shard = c.names[0]
	}
	t.report(ev)
	c.told, c.names, c.longest, c.due = c.refused+c.waited, nil, 0, 0
}
