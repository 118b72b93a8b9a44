package engine

import (
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A leave is a clean stop. The worker says that it is leaving and serves until
// others have asked for its shards; then it releases the rest and gives up its
// seat. Nobody has to wait for anything to expire.
type leave struct {
	on    bool
	began Instant
	all   bool    // release whatever is left
	since Instant // when that was decided
	at    int     // the shard that was found to be left the last time
	freed int64   // what had been given to nobody until it began
	over  bool    // nothing is left but the seat
	done  bool
	wake  Instant
}

func (e *Engine) stop() {
	if e.leave.on {
		return
	}
	e.leave = leave{on: true, began: e.now.Mono, freed: e.seat.freed}
	e.tendAllSoon()
	e.look(0)
}

// keepLeaving goes on with a stop.
func (e *Engine) keepLeaving() {
	l := &e.leave
	l.wake = Never
	if !l.on || l.done {
		return
	}
	switch e.seat.phase {
	case standing:
		l.done = true
		return
	case sitting, confirming: // once it has a seat it can give it up; without an answer, nobody counts it
		l.wake = l.began.Add(e.beat)
		l.done = e.now.Mono >= l.wake
		return
	case left: // without an answer, the seat expires by itself
		l.wake = e.seat.trust
		l.done = e.now.Mono >= l.wake
		return
	}
	if !l.all {
		e.releaseAll()
	}
	if l.all && !l.over {
		e.comeToAnEnd()
	}
	if l.over && e.seat.open.Op == 0 && e.lastWords() {
		w, err := protocol.Evict(e.seat.seat)
		e.sendSeat(w, err)
		e.seat.phase = left
	}
}

// comeToAnEnd decides when there is nothing left but the seat. Handlers have their
// drain time, and writes a lease time after it. What the table has not answered by
// then is left to the others: without a seat, whatever is in this worker's name is a
// dead worker's.
func (e *Engine) comeToAnEnd() {
	l := &e.leave
	at := l.since.Add(e.cfg.Drain + e.cfg.TTL)
	if !e.nothingLeft() && e.now.Mono < at {
		l.wake = at
		return
	}
	l.over = true
	for _, s := range e.shards {
		if s.t.on {
			e.over(s, event.CauseStopped, nil)
		}
	}
}

// lastWords reports whether the others have had time to see what this worker has to say. Of
// a large fleet, only some few look what a worker has left that told them to.
func (e *Engine) lastWords() bool {
	c := &e.seat
	if !e.large() || c.freed == e.leave.freed {
		return true
	}
	if c.seat.Freed != c.freed {
		return false // the next beat says it
	}
	at := c.sent.Add(e.beat + lookSuspect) // who is not in a move looks once in a heartbeat
	e.leave.wake = at
	return e.now.Mono >= at
}

// releaseAll decides whether to wait for successors any longer.
func (e *Engine) releaseAll() {
	l := &e.leave
	at := l.began.Add(e.cfg.Drain)
	if e.fleet.held > 0 && e.successors() && e.now.Mono < at {
		l.wake = at
		return
	}
	l.all, l.since = true, e.now.Mono
	e.tendAllSoon()
	e.tendAll()
}

// successors reports whether there is anybody who could take over.
func (e *Engine) successors() bool {
	for i := range e.looks.peers {
		p := &e.looks.peers[i]
		if p.unreadable || p.seat.Leaving || !p.seat.Confirmed() {
			continue
		}
		if p.seat.MaxShards == 0 || e.heldBy(p.seat.Incarnation) < p.seat.MaxShards {
			return true
		}
	}
	return false
}

func (e *Engine) heldBy(inc lease.Incarnation) (n int64) {
	for _, s := range e.shards {
		if s.holder() == inc {
			n++
		}
	}
	return n
}

// nothingLeft reports whether no row is in this worker's name, nor may come to be.
func (e *Engine) nothingLeft() bool {
	for i := range e.shards {
		at := (e.leave.at + i) % len(e.shards)
		s := e.shards[at]
		if _, busy := s.copy.Open(); busy || s.t.on || s.copy.Row().Owner.Incarnation == e.seat.me {
			e.leave.at = at // it is asked in every step: go on from here
			return false
		}
	}
	return true
}

// seatGivenUp takes in the answer to the deletion of the own seat. A refusal shows
// a beat that landed unnoticed; if something else stands there it is not this
// worker's any more.
func (e *Engine) seatGivenUp(verdict protocol.Verdict, now lease.Record) {
	c := &e.seat
	c.open, c.try = lease.Write{}, retry{}
	if seat, ok := now.(lease.Seat); ok && verdict == protocol.Again && seat.Incarnation == c.me {
		if w, err := protocol.Evict(seat); err == nil {
			e.sendSeat(w, nil)
			return
		}
	}
	e.leave.done = true
}
