package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The holders of simulated leases by name: what they do in their tenures, and how these end.

// A holder holds a lease in one tenure.
type holder struct {
	*virtual.Handler
	s        *session
	by       virtual.Sender
	ended    bool // the holder has returned
	released bool
	hangs    bool
	asked    []time.Duration // when it asked whether it holds the lease
}

// trusts reports whether the holder may believe that it holds the lease: its process is not paused, and has not
// learnt that the tenure has ended. After a sleep of the machine, a process learns that only from the answer to a
// heartbeat.
func (o *holder) trusts() bool {
	return !o.ended && !o.Over && o.s.Up() && o.s.Sender() == o.by && o.s.well() && o.s.Clock.Slept == 0
}

// Start begins a tenure: the caller makes effects for a while, and releases the lease.
func (s *session) Start(t *virtual.Handler, o engine.Start) {
	c, name := s.c, o.Tenure.Shard
	of := &holder{Handler: t, s: s, by: s.Sender()}
	t.Script = of
	c.trace("start", s.Name, func() string { return fmt.Sprint(o.Tenure, " ", o.Transfer) })
	c.start(of, o)
	r := c.register(name)
	r.active = append(slices.DeleteFunc(r.active, func(o *holder) bool { return o.ended || o.s.Sender() != o.by }), of)
	c.report.Tenures++
	caller := s.waiting[name]
	if caller.id != o.Acquire {
		of.release() // nobody waits for it any more
		return
	}
	delete(s.waiting, name)
	c.waits = append(c.waits, c.Now()-caller.since)
	if c.strict && !c.hot {
		return // the caller holds the lease until the chapter ends
	}
	if !c.peace && !c.closing && c.likely(0.03) {
		of.hangs = true
		c.report.Hung++
		return
	}
	keep := c.between(0, c.holds())
	if c.peace {
		keep = min(keep, 100*time.Millisecond)
	}
	until := c.Now() + keep
	// Not within this step of the engine: if a move of the lease is known already, the next one ends the soft context.
	s.Later(0, func() { of.work(until) })
}

// start checks that the start of a tenure keeps the promises.
func (c *contest) start(of *holder, o engine.Start) {
	s, p := of.s, c.promises
	c.check(p.Start(judge.Tenure(of.Tenure), s.me, o.Checkpoint.Position))
	if !s.trusts() {
		c.blame("%v is started without trust: seated %t", of.Tenure, s.seated)
	}
	forced := func(o *holder) bool { return p.of(o.Tenure).Ended.Reason == lease.ReasonForced }
	for _, o := range c.register(of.Shard).active {
		if o.trusts() && !forced(o) && !forced(of) {
			c.blame("%s starts %v while %s trusts in %v", s.Name, of.Tenure, o.s.Name, o.Tenure)
		}
	}
}

// work makes effects and marks until the given time, and then releases the lease.
func (o *holder) work(until time.Duration) {
	s, w := o.s, o.s.w
	if o.ended {
		return
	}
	o.effect()
	if o.Over {
		return
	}
	if !w.peace && w.likely(0.04) {
		o.fail()
		return
	}
	if w.Now() >= until || o.Soft {
		o.release()
		return
	}
	if w.likely(0.3) {
		o.Marks++
		in := engine.Marks{Tenure: o.Tenure, Mark: checkpoint.Mark{Position: strconv.FormatInt(int64(w.Now()), 10)}, Seq: o.Marks}
		if w.likely(0.3) {
			in.Flush = o.Marks
		}
		s.Input(in)
	}
	if w.likely(0.3) {
		o.asked = append(o.asked, w.Now())
		s.Input(engine.Confirm{Tenure: o.Tenure, Call: uint64(len(o.asked))})
	}
	s.Later(w.between(0, w.set.ttl/2), func() { o.work(until) })
}

// fail makes the holder return an error.
func (o *holder) fail() {
	if s := o.s; !o.ended && !s.done && s.Handlers.Remove(o.Tenure) {
		o.ended = true
		s.c.report.Failed++
		s.Input(engine.Returned{Tenure: o.Tenure, Failed: true})
		s.Later(s.w.between(0, s.w.set.ttl/2), s.want)
	}
}

// Confirmed checks that a holder held the lease after it asked, or that it is told rightly that it does not.
func (s *session) Confirmed(t *virtual.Handler, o engine.Confirmed) {
	if t == nil {
		return
	}
	lost, over := s.c.lost[o.Tenure]
	switch {
	case o.Err == nil && over && lost < t.Script.(*holder).asked[o.Call-1]:
		s.c.blame("%s is told that it holds %v, which it lost before it asked", s.Name, o.Tenure)
	case o.Lost && !over:
		s.c.blame("%s is told that it has lost %v, which it holds: %v", s.Name, o.Tenure, o.Err)
	case o.Err == nil:
		s.c.report.Confirmed++
	case o.Lost:
		s.c.report.Denied++
	}
}

// effect sends an effect to the register. Some effects arrive late, when the lease may have changed hands.
func (o *holder) effect() {
	w := o.s.w
	d := w.between(time.Millisecond/2, 5*time.Millisecond)
	if !w.peace && w.likely(0.05) {
		d = w.between(0, 3*w.set.ttl)
	}
	w.After(d, func() { o.s.c.arrive(o) })
}

// arrive takes an effect that arrives at the register.
func (c *contest) arrive(o *holder) {
	accepted, err := c.register(o.Shard).Effect(judge.Tenure(o.Tenure), o.by)
	c.check(err)
	if accepted {
		c.report.Effects++
	} else {
		c.report.Refused++
	}
}

// release makes the holder release its lease.
func (o *holder) release() {
	o.released = true
	o.s.Later(0, func() {
		if !o.ended {
			o.s.Input(engine.Marks{Tenure: o.Tenure, Release: true})
		}
	})
}

// Drain ends the soft context: the holder returns soon, or is cut off.
func (s *session) Drain(t *virtual.Handler, o engine.Drain) {
	if t == nil {
		return
	}
	s.w.check(s.reasons(t, o.Tenure, o.Cause, nil).WindDown())
	if o.Cause == event.CauseStalled {
		s.c.stalled[o.Tenure] = true
	}
	d := s.w.between(0, 50*time.Millisecond)
	of := t.Script.(*holder)
	if (s.w.likely(0.1) || of.hangs) && !s.w.peace {
		d = s.w.between(0, 2*s.w.set.drain)
	}
	s.Later(d, of.ret)
}

// Over ends a tenure.
func (s *session) Over(t *virtual.Handler, o engine.Over) {
	s.w.trace("over", s.Name, func() string { return fmt.Sprint(o.Tenure, " cause ", o.Cause, " ", o.Err) })
	s.w.check(s.reasons(t, o.Tenure, o.Cause, o.Err).Check())
	if t == nil {
		return // its holder has returned
	}
	of := t.Script.(*holder)
	if !of.released {
		s.c.report.Lost++
	}
	s.Later(s.w.between(0, 50*time.Millisecond), of.ret)
}

// reasons returns what is known of the reasons for the end of a tenure. The handler is nil if its holder has returned.
func (s *session) reasons(t *virtual.Handler, id engine.Tenure, cause event.Cause, err error) judge.End {
	p := s.c.promises
	e := judge.End{
		Cause: cause, Err: err, Tenure: judge.Tenure(id), Ended: p.of(id).Ended, Soft: s.c.stalled[id], Returned: t == nil, Stopping: s.leaver, Calm: s.w.strict,
		Requested: s.c.ordered[judge.Tenure(id)], Stalls: s.w.set.stall > 0,
		Untrusted: (cause == event.CauseExpired || cause == event.CauseUnreachable) && p.untrusted(s.node),
	}
	if t != nil {
		e.Soft, e.Released = e.Soft || t.Soft, t.Script.(*holder).released
	}
	return e
}

// ret makes the holder return.
func (o *holder) ret() {
	s := o.s
	if o.ended || !s.Handlers.Remove(o.Tenure) {
		return
	}
	o.ended = true
	if s.done {
		if len(s.Handlers) == 0 {
			s.exit()
		}
		return
	}
	s.Input(engine.Returned{Tenure: o.Tenure})
	if !s.w.strict {
		s.Later(s.w.between(0, s.w.set.ttl/2), s.want)
	}
}

// Committed does nothing: a holder does not wait for commits.
func (s *session) Committed(*virtual.Handler, engine.Committed) {}
