package explore

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/judge"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the moves of stories of sessions, and the judge of these stories. Each session has one caller, and all
// callers want the same lease by name. An operator may take the lease from its holder.
//
// Every accepted write is checked as for workers. The judge of sessions also checks what callers can see:
//
//	exclusive  No tenure starts while another living session trusts in an earlier tenure, unless an operator's
//	           command has ended the earlier one. No session holds a lease after it has stopped trusting in its seat.
//	S4         A lease is recovered only if its owner has no seat any more, and only after the owner's lock delay.
//	           A tenure is lost only to a higher generation, or because its session was paused.
//	commits    If a commit is reported as accepted, the table has stored it before, in the same generation, and
//	           its holder has not learnt that the lease is lost.
//	answers    A Start answers the call that waits. Only a call that does not wait for a holder is refused.
//	reserved   Nobody else gets a reserved lease until the reservation has ended.

// Sessions describes what may happen in a story of sessions, and how often.
type Sessions struct {
	Acquires  int           // how often callers begin to wait for the lease
	Forgoes   int           // how often callers stop waiting
	Releases  int           // how often holders release the lease
	Commands  int           // how often an operator takes the lease from its holder
	Reassign  string        // the session for which a command reserves the lease; empty: a command only releases it
	Lasts     time.Duration // how long a reservation lasts
	LockDelay time.Duration // the lock delay of each acquisition
	Try       bool          // the callers do not wait for a holder
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

// A sessionRecord is the operator's command that is under way, and what the judge of sessions remembers. Two states
// with different commands are different states. What the judge remembers does not distinguish states: if two paths
// lead to the same state, the judge keeps what it remembers from the first one.
type sessionRecord struct {
	command    lease.Write                          // the operator's command that has not arrived; zero: there is none
	forcedAt   map[engine.Tenure]engine.Instant     // when a command ended each tenure
	lastForced engine.Instant                       // when the last command ended a tenure
	stored     map[engine.Tenure]int                // the last position that the table has accepted from each tenure
	deletedAt  map[lease.Incarnation]engine.Instant // when each seat was deleted
}

func newSessionRecord() sessionRecord {
	return sessionRecord{
		forcedAt: map[engine.Tenure]engine.Instant{}, stored: map[engine.Tenure]int{}, deletedAt: map[lease.Incarnation]engine.Instant{},
	}
}

func (r sessionRecord) clone() sessionRecord {
	r.forcedAt, r.stored, r.deletedAt = maps.Clone(r.forcedAt), maps.Clone(r.stored), maps.Clone(r.deletedAt)
	return r
}

// maker returns the constructor of the engines of the story: for workers or for sessions.
func (w *state) maker() virtual.Maker {
	if w.story.Sessions == nil {
		return virtual.New
	}
	return virtual.NewSession
}

// Acquire makes the caller of a session wait for the lease.
func (p *Prelude) Acquire(i int) { p.w.acquire(i) }

// Commit makes the holder of the lease mark its next position, and wait for the commit.
func (p *Prelude) Commit(i int) { p.w.mark(i, 0) }

// Release makes the holder of the lease release it, and return.
func (p *Prelude) Release(i int) {
	p.w.release(i, p.w.nodes[i].Handlers[0].Tenure)
	p.w.ret(i, 0)
}

func (w *state) acquire(i int) {
	n := &w.nodes[i]
	n.asked++
	n.waits = n.asked
	w.step(i, engine.Acquire{Name: wantedLease, ID: n.asked, LockDelay: w.story.Sessions.LockDelay, Try: w.story.Sessions.Try})
}

func (w *state) release(i int, t engine.Tenure) {
	w.nodes[i].released = t
	w.step(i, engine.Marks{Tenure: t, Release: true})
}

// callerMoves adds what the caller of a session may do next.
func (w *state) callerMoves(i int, add func(allowed bool, name string, do func(*state))) {
	n, left := &w.nodes[i], w.left.Sessions
	add(left.Acquires > 0 && n.waits == 0 && len(n.Handlers) == 0, "acquires "+wantedLease, func(w *state) {
		w.spend(func(left *Sessions) { left.Acquires-- })
		w.acquire(i)
	})
	add(left.Forgoes > 0 && n.waits > 0, "stops waiting for "+wantedLease, func(w *state) {
		w.spend(func(left *Sessions) { left.Forgoes-- })
		n := &w.nodes[i]
		id := n.waits
		n.waits = 0
		w.step(i, engine.Forgo{Name: wantedLease, ID: id})
	})
	for _, h := range n.Handlers {
		t := h.Tenure
		add(left.Releases > 0 && !h.Over && n.released != t, "releases "+wantedLease, func(w *state) {
			w.spend(func(left *Sessions) { left.Releases-- })
			w.release(i, t)
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

// commands returns what the operator may do next. The operator takes the lease from its holder in two moves: first the
// operator decides, later the write arrives. Between the two the holder may write, and the lease may change hands.
func (w *state) commands() []move {
	switch row := w.row(); {
	case w.left.Sessions == nil:
	case w.command.Op != 0:
		return []move{{"the operator's command arrives", (*state).arrive}}
	case w.left.Sessions.Commands > 0 && !row.Owner.IsZero():
		return []move{{"the operator decides to take " + wantedLease, func(w *state) {
			w.spend(func(left *Sessions) { left.Commands-- })
			w.decide(row)
		}}}
	}
	return nil
}

// decide prepares the operator's command for the row that the operator sees now.
func (w *state) decide(row lease.Row) {
	by := w.story.Sessions
	c := protocol.Command{Seen: row.Generation, By: "operator", Note: "because"}
	stamp := protocol.Stamp{ID: lease.WriteID(fmt.Sprintf("command-%d", w.left.Sessions.Commands)), At: w.wall()}
	var err error
	if by.Reassign == "" {
		w.command, err = protocol.ForceRelease(row, c, stamp)
	} else {
		w.command, err = protocol.Reassign(row, c, lease.Reservation{For: by.Reassign, Lasts: by.Lasts}, stamp)
	}
	if err != nil {
		w.blame("command: %w", err)
	}
}

// arrive delivers the operator's command to the table. If the table accepts the command, the operator also stores the
// wish that asks the sessions to look at the row.
func (w *state) arrive() {
	write := w.command
	w.command = lease.Write{}
	_, err := w.table.Write(virtual.Sender{Name: "operator"}, write)
	if _, refused := errors.AsType[*lease.RefusedError](err); refused {
		return
	}
	if err != nil {
		w.blame("command: %w", err)
		return
	}
	look := lease.Wish{Kind: protocol.WishLook, Subject: wantedLease, By: "operator", Until: w.wall().Add(time.Minute)}
	w.rewish("look-after-"+write.ID(), append(w.wished(), look))
}

// row returns the row of the lease as it is in the table now.
func (w *state) row() (row lease.Row) {
	for _, r := range w.stands {
		if r, ok := r.(lease.Row); ok {
			row = r
		}
	}
	return row
}

// checkRefusals checks that a session refuses only the call that waits, and only in a story with Try. The caller then
// does not wait any more.
func (n *node) checkRefusals(out []engine.Output) {
	for _, o := range out {
		if o, ok := o.(engine.Unavailable); ok {
			if o.ID != n.waits || !n.w.story.Sessions.Try {
				n.w.blame("%s refuses acquisition %d, but its caller waits for the answer to acquisition %d (Try: %t)", n.name(), o.ID, n.waits, n.w.story.Sessions.Try)
			}
			n.waits = 0
		}
	}
}

// checkTrust checks that a session holds no tenure after it has stopped trusting in its seat.
func (n *node) checkTrust() {
	for _, h := range n.Handlers {
		if n.w.story.Sessions != nil && !h.Over && n.w.now >= n.Engine.Status().Trust {
			n.w.blame("%s still holds %v, but does not trust in its seat any more", n.name(), h.Tenure)
		}
	}
}

// checkStart checks the start of a tenure.
func (n *node) checkStart(o engine.Start) {
	w := n.w
	if w.story.Sessions == nil {
		return
	}
	if o.Acquire != n.waits {
		w.blame("%s starts %v for acquisition %d, but its caller waits for the answer to acquisition %d", n.name(), o.Tenure, o.Acquire, n.waits)
	}
	n.waits = 0
	if w.now >= n.Engine.Status().Trust {
		w.blame("%s starts %v, but does not trust in its seat any more", n.name(), o.Tenure)
	}
	for i := range w.nodes {
		other := &w.nodes[i]
		if other.dead || other.paused || other.Engine == nil {
			continue
		}
		for _, h := range other.Handlers {
			if !h.Over && w.now < other.Engine.Status().Trust && w.forcedAt[h.Tenure] == 0 {
				w.blame("%s starts %v while %s still trusts in %v", n.name(), o.Tenure, other.name(), h.Tenure)
			}
		}
	}
}

// checkOver checks that the end of a tenure has a reason.
func (n *node) checkOver(o engine.Over) {
	w := n.w
	if w.story.Sessions == nil {
		return
	}
	ok := true
	switch now := w.row(); o.Cause {
	case event.CauseExpired, event.CauseUnreachable:
		ok = n.slept
	case event.CauseFenced, event.CauseForced:
		ok = now.Generation > o.Tenure.Generation
	case event.CauseGivenUp:
		ok = n.released == o.Tenure
	case event.CauseStopped:
	default:
		ok = false
	}
	if !ok {
		w.blame("S4: %s loses %v for no reason: %v, %v; the row is %v", n.name(), o.Tenure, o.Cause, o.Err, w.row())
	}
}

// Committed checks that an accepted commit was stored.
func (n *node) Committed(h *virtual.Handler, o engine.Committed) {
	if n.w.story.Sessions == nil || h == nil || o.Err != nil {
		return
	}
	if h.Over {
		n.w.blame("%s reports an accepted commit of %v, but it has lost that tenure", n.name(), h.Tenure)
	}
	if at := h.Script.(int) - int(h.Marks) + int(o.Seq); n.w.stored[h.Tenure] < at {
		n.w.blame("%s reports that position %d of %v is stored, but the table has not stored it", n.name(), at, h.Tenure)
	}
}

// checkSessionWrite checks an accepted write of the row, and remembers what later checks need.
func (w *state) checkSessionWrite(a judge.Accepted) {
	if w.story.Sessions == nil {
		return
	}
	t := engine.Tenure{Shard: a.Before.Shard, Generation: a.Before.Generation}
	if a.Before.Checkpoint != a.After.Checkpoint && !a.After.Removed {
		w.stored[t] = position(a.After.Checkpoint.Position)
	}
	if a.After.Generation == a.Before.Generation {
		return
	}
	if of := a.Before.Reserved; of.For != "" && of.For != a.By {
		ends := a.Before.Last.At.Add(of.Lasts)
		if w.wall().Before(ends) && w.now < w.lastForced.Add(of.Lasts) {
			w.blame("%s claims %v, which is reserved for another session", a.By, a.Before)
		}
	}
	switch a.After.Last.Reason {
	case lease.ReasonForced:
		w.lastForced = w.now
		w.forcedAt[t] = w.now
	case lease.ReasonExpired:
		switch at, deleted := w.deletedAt[a.Before.Owner.Incarnation]; {
		case !deleted:
			w.blame("S4: %v is recovered, but its owner's seat was never deleted", a.Before)
		case w.now < at.Add(a.Before.Owner.LockDelay):
			w.blame("S4: %v is recovered %v after its owner's seat was deleted, and so before the lock delay has passed", a.Before, w.now.Sub(at))
		}
	}
}

// nextOfSessions does the next thing that takes no time, and reports whether there was one: the operator's command
// arrives, or a holder releases the lease because another caller waits for it. So in the end every caller is served.
// In a story with Try no holder has to release the lease: callers get an answer while the holder keeps it.
func (w *state) nextOfSessions() bool {
	if w.command.Op != 0 {
		w.arrive()
		return true
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		for _, h := range n.Handlers {
			if n.up() && !h.Over && n.released != h.Tenure && w.otherWaits(i) && !w.story.Sessions.Try {
				w.release(i, h.Tenure)
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

// callersServed returns the aims of a story of sessions. It returns an error if a caller still waits, or if the row and
// what a living session holds differ.
func (w *state) callersServed() (now aims, missing error) {
	row := w.row()
	now.generations = row.Generation
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.up() {
			continue
		}
		if n.waits > 0 {
			missing = errors.Join(missing, fmt.Errorf("the caller of %s still waits; the row is %v", n.name(), row))
		}
		if row.Owner.Name == n.name() {
			missing = errors.Join(missing, w.serves(wantedLease, row))
		}
		for _, h := range n.Handlers {
			if h.Generation != row.Generation {
				missing = errors.Join(missing, fmt.Errorf("%s holds %v, and has not noticed that it is over; the row is %v", n.name(), h.Tenure, row))
			}
		}
	}
	return now, missing
}
