package engine

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An Engine is one worker's side of the protocol as a plain value.
type Engine struct {
	cfg  Config
	beat time.Duration // h: how often the seat beats

	now  Moment
	step order // counts the steps: which of two things at one instant came first
	ids  int   // ids made in this step
	out  []Output

	seat  chair
	looks looks
	fleet fleet
	leave leave
	feed  feed

	rows   rowAnswers
	faults faults // the faults that last; apart from surrender they change only reports

	shards []*shard // sorted by name
	due    Instant  // when a shard wants to be tended, at the earliest
	all    bool     // something has changed for all of them
}

// New is a worker that has done nothing yet. Its first step is a [Tick].
func New(c Config, now Moment) *Engine {
	return &Engine{cfg: c, beat: c.TTL / 3, now: now, due: Never, faults: newFaults()}
}

// Step takes in what has happened and says what to do, and when to be called
// again at the latest. The outputs are valid until the next step.
func (e *Engine) Step(now Moment, in Input) (out []Output, wake Instant) {
	if now.Mono < e.now.Mono {
		now.Mono = e.now.Mono
	}
	if late := now.Mono.Sub(e.wake()); late >= e.beat/8 {
		e.overslept(now.Mono.Sub(e.now.Mono))
	}
	clear(e.out) // what they refer to is large, and the next ones may be few
	e.now, e.ids, e.out = now, 0, e.out[:0]
	e.step++
	if !e.leave.done {
		e.selfFence() // first: an answer must not prolong what has ended
		e.take(in)
		e.live()
	} else if r, ok := in.(Returned); ok {
		e.returned(r)
	}
	return e.out, e.wake()
}

// Done reports whether the worker has given everything up after a [Stop]. Its
// handlers may still run, if they ignore their contexts.
func (e *Engine) Done() bool { return e.leave.done }

func (e *Engine) take(in Input) {
	switch in := in.(type) {
	case Listed:
		e.listed(in)
	case Got:
		e.got(in)
	case Settled:
		e.settled(in)
	case Verified:
		e.verified(in)
	case Source:
		e.sourced(in)
	case Marks:
		e.marked(in)
	case Batch:
		e.marked(in...)
	case Returned:
		e.returned(in)
	case Prepared:
		e.prepared(in)
	case SourceSilent:
		e.raise(&e.faults.source, e.now.Mono, "", in.Err)
	case StoreSlow:
		if in.Err == nil {
			e.lower(&e.faults.slow)
		} else {
			e.raise(&e.faults.slow, e.now.Mono, "", in.Err)
		}
	case Stop:
		e.stop()
	}
}

// live does what is due, whatever it was that happened.
func (e *Engine) live() {
	e.keepPolling()
	if e.now.Mono >= e.due {
		e.tendAll()
	}
	e.keepLeaving()
	e.keepPlanning()
	e.keepLooking()
	e.keepSeat() // after all decisions: some have to be written to the seat at once
	e.keepReporting()
}

// overslept is about a step that comes much later than it was asked for. The process was paused,
// or its machine is too slow: the handlers could do nothing either, so the time since the last step
// does not count as their silence.
func (e *Engine) overslept(paused time.Duration) {
	for _, s := range e.shards {
		if s.t.on {
			s.t.pulse = s.t.pulse.Add(paused)
		}
	}
}

// wake is when to be called again at the latest.
func (e *Engine) wake() Instant {
	if e.leave.done {
		return Never
	}
	return min(e.due, e.seat.wake, e.looks.wake, e.fleet.wake, e.feed.wake, e.leave.wake, e.faults.wake)
}

// tendAll tends every shard that is due.
func (e *Engine) tendAll() {
	all := e.all
	e.due, e.all = Never, false
	for _, s := range e.shards {
		if all || e.now.Mono >= s.wake {
			e.tend(s)
		} else {
			e.due = min(e.due, s.wake)
		}
	}
}

// tendAllSoon is for what changes something for all shards.
func (e *Engine) tendAllSoon() { e.due, e.all = e.now.Mono, true }

// shard finds a shard by its name; nil if it was never heard of.
func (e *Engine) shard(name string) *shard {
	i, ok := slices.BinarySearchFunc(e.shards, name, func(s *shard, name string) int { return strings.Compare(s.name, name) })
	if !ok {
		return nil
	}
	return e.shards[i]
}

func (e *Engine) newShard(name string) *shard {
	key := lease.Key{Group: e.cfg.Group, Kind: lease.KindLease, Name: name}
	return &shard{name: name, tie: rebalance.Tie(name), copy: protocol.NewCopy(key, e.seat.me), wake: Never, bound: rebalance.Nobody}
}

func (e *Engine) do(o Output) { e.out = append(e.out, o) }

func (e *Engine) tell(ev event.Event) { e.do(Tell{Event: ev}) }

// stamp is that of the next write: unique to the step and to the write in it.
func (e *Engine) stamp() protocol.Stamp {
	id := e.now.Chance
	if e.ids > 0 {
		id += "." + strconv.Itoa(e.ids)
	}
	e.ids++
	return protocol.Stamp{ID: lease.WriteID(id), At: e.now.Wall}
}

// jitter is d, less up to a tenth of it: what many workers do regularly, they
// should not do at the same time.
func (e *Engine) jitter(d time.Duration) time.Duration {
	e.ids++
	return d - time.Duration(rebalance.Tie(e.now.Chance+strconv.Itoa(e.ids))%uint64(d/10+1))
}

// backoff is how long to wait after so many tries: from first on, doubling, not
// beyond limit.
func backoff(tries int64, first, limit time.Duration) time.Duration {
	d := first
	for range min(tries-1, 63) {
		if d *= 2; d >= limit {
			return limit
		}
	}
	return min(d, limit)
}

// A retry paces what is repeated until it is answered.
type retry struct {
	sent  bool // under way
	at    Instant
	tries int64
}

// longestPause is the longest pause before a call is repeated. With a long lease time, a part of
// it would delay everything by hours because of one request that was lost.
const longestPause = 10 * time.Second

// failed makes r wait before the next try.
func (r *retry) failed(now Instant, first, limit time.Duration) {
	r.sent = false
	r.tries++
	r.at = now.Add(min(backoff(r.tries, first, limit), longestPause))
}

// due reports whether to try now; wake is lowered to when, if later.
func (r *retry) due(now Instant, wake *Instant) bool {
	switch {
	case r.sent:
		return false
	case now < r.at:
		*wake = min(*wake, r.at)
		return false
	}
	return true
}
