package explore

import (
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
)

// This file has the moves of stories of sessions. Each session has one caller, and all callers want the same lease by
// name. An operator may take the lease from its holder.

// Sessions describes what may happen in a story of sessions, and how often.
type Sessions struct {
	Acquires  int           // how often callers begin to wait for the lease
	Forgoes   int           // how often callers stop waiting
	Releases  int           // how often holders release the lease
	Commands  int           // how often an operator takes the lease from its holder
	Reassign  string        // the session for which a command reserves the lease; empty: a command only releases it
	Move      string        // the session to which a command moves the lease, by a wish; empty: none does
	Lasts     time.Duration // how long a reservation lasts
	LockDelay time.Duration // the lock delay of each acquisition
	Try       bool          // the callers do not wait for a holder

	StallAfter  time.Duration // how long a holder may be silent; 0: forever
	MaxAttempts int64         // how many tenures may fail before the lease is quarantined; 0: any number
}

// wantedLease is the name of the lease that all callers want.
const wantedLease = "s0"

// A caller is the state of the only caller of a session. Two states with different callers are different states.
type caller struct {
	waits    uint64        // the ID of the caller's Acquire that has no answer yet; 0: the caller does not wait
	asked    uint64        // how many Acquires the caller has made
	released engine.Tenure // the last tenure that the caller has released
	slept    bool          // the session of the caller was paused
}

// maker returns the constructor of the engines of the story: for workers or for sessions.
func (w *state) maker() virtual.Maker {
	if w.story.Sessions == nil {
		return virtual.New
	}
	return virtual.NewSession
}

// Acquire makes the caller of a session wait for the lease.
func (p *Prelude) Acquire(i int) { p.w.nodes[i].acquire() }

// Commit makes the holder of the lease mark its next position, and wait for the commit.
func (p *Prelude) Commit(i int) { p.w.nodes[i].mark(0) }

// Release makes the holder of the lease release it, and return.
func (p *Prelude) Release(i int) {
	n := &p.w.nodes[i]
	n.release(n.Handlers[0].Tenure)
	n.ret(0, false)
}

// Fail makes the holder of the lease return an error.
func (p *Prelude) Fail(i int) { p.w.nodes[i].ret(0, true) }

func (n *node) acquire() {
	n.asked++
	n.waits = n.asked
	of := n.w.story.Sessions
	n.give(engine.Acquire{Name: wantedLease, ID: n.asked, LockDelay: of.LockDelay, Try: of.Try, StallAfter: of.StallAfter, MaxAttempts: of.MaxAttempts})
}

func (n *node) release(t engine.Tenure) {
	n.released = t
	n.give(engine.Marks{Tenure: t, Release: true})
}

// callerMoves adds what the caller of a session may do next.
func (n *node) callerMoves(add func(allowed bool, name string, do func(*node))) {
	left := n.w.left.Sessions
	add(left.Acquires > 0 && n.waits == 0 && len(n.Handlers) == 0, "acquires "+wantedLease, func(n *node) {
		n.w.spend(func(left *Sessions) { left.Acquires-- })
		n.acquire()
	})
	add(left.Forgoes > 0 && n.waits > 0, "stops waiting for "+wantedLease, func(n *node) {
		n.w.spend(func(left *Sessions) { left.Forgoes-- })
		id := n.waits
		n.waits = 0
		n.give(engine.Forgo{Name: wantedLease, ID: id})
	})
	for _, h := range n.Handlers {
		t := h.Tenure
		add(left.Releases > 0 && !h.Over && n.released != t, "releases "+wantedLease, func(n *node) {
			n.w.spend(func(left *Sessions) { left.Releases-- })
			n.release(t)
		})
	}
}

// spend changes how often things may still happen in this state. It changes a copy, because other states share the
// original.
func (w *state) spend(from func(left *Sessions)) {
	left := *w.left.Sessions
	from(&left)
	w.left.Sessions = &left
}

// nextOfSessions does the next thing that takes no time, and reports whether there was one: the operator's command
// arrives, or a holder releases the lease because another caller waits for it. So in the end every caller is served.
// In a story with Try no holder has to release the lease: callers get an answer while the holder keeps it.
func (w *state) nextOfSessions() bool {
	if w.command.Op != 0 {
		operator{w}.arrive()
		return true
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		for _, h := range n.Handlers {
			if n.up() && !h.Over && n.released != h.Tenure && w.otherWaits(i) && !w.story.Sessions.Try {
				n.release(h.Tenure)
				return true
			}
		}
	}
	return false
}

// otherWaits reports whether a living session other than session i has a caller that waits for the lease.
func (w *state) otherWaits(i int) bool {
	for j := range w.nodes {
		if n := &w.nodes[j]; j != i && n.up() && n.waits > 0 {
			return true
		}
	}
	return false
}
