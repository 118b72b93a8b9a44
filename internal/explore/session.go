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

// Stories of sessions, and their judge. Each session has one caller, and all callers want the same lease by name. An
// operator may take the lease from its holder.
//
// Every accepted write is checked as for workers. The judge of sessions also checks what callers can see:
//
//	exclusive  no tenure starts while a living session trusts in an earlier one that no command has ended, and
//	           no session holds a lease longer than it trusts in its seat
//	S4         a lease is recovered only from an owner without a seat, and after its lock delay; a tenure is
//	           lost only to a higher generation, or by a session that was paused
//	commits    a commit that is reported as accepted was stored before, in the same generation, and its holder
//	           has not learnt of a loss
//	answers    a Start answers the caller that waits, and only a caller that tries is refused
//	reserved   a lease that is reserved goes to nobody else until the reservation has ended

// Sessions say what may happen in a story of sessions, and how often.
type Sessions struct {
	Acquires  int           // how often callers begin to wait for the lease
	Forgoes   int           // how often callers stop waiting
	Releases  int           // how often holders release the lease
	Commands  int           // how often an operator takes the lease from its holder
	Reassign  string        // for whom a command reserves the lease; empty: it only releases it
	Lasts     time.Duration // how long it reserves it
	LockDelay time.Duration // of each acquisition
	Try       bool          // the callers do not wait for a holder
}

// the is the name of the lease that all callers want.
const the = "s0"

// A caller is the caller of one session, as far as it tells states apart.
type caller struct {
	waits    uint64        // the ID of its Acquire that is not answered; 0: it does not wait
	asked    uint64        // how many it has made
	released engine.Tenure // the last tenure that it has released
	slept    bool          // its session was paused
}

// A hall is what only the judge of sessions knows, and the operator's command. The command tells states apart; the
// judge's knowledge does not: of two ways to one state, the first counts.
type hall struct {
	command lease.Write                          // under way; zero: none
	forced  map[engine.Tenure]engine.Instant     // when a command ended a tenure
	freed   engine.Instant                       // when the last command ended a tenure
	marked  map[engine.Tenure]int                // the last position that the table has accepted
	gone    map[lease.Incarnation]engine.Instant // when a seat was deleted
}

func newHall() hall {
	return hall{
		forced: map[engine.Tenure]engine.Instant{}, marked: map[engine.Tenure]int{}, gone: map[lease.Incarnation]engine.Instant{},
	}
}

func (h hall) clone() hall {
	h.forced, h.marked, h.gone = maps.Clone(h.forced), maps.Clone(h.marked), maps.Clone(h.gone)
	return h
}

// maker returns what makes the engines of the story.
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
	w.step(i, engine.Acquire{Name: the, ID: n.asked, LockDelay: w.story.Sessions.LockDelay, Try: w.story.Sessions.Try})
}

func (w *state) release(i int, t engine.Tenure) {
	w.nodes[i].released = t
	w.step(i, engine.Marks{Tenure: t, Release: true})
}

// callerMoves are what the caller of a session may do.
func (w *state) callerMoves(i int, add func(allowed bool, name string, do func(*state))) {
	n, left := &w.nodes[i], w.left.Sessions
	add(left.Acquires > 0 && n.waits == 0 && len(n.Handlers) == 0, "acquires "+the, func(w *state) {
		w.spend(func(left *Sessions) { left.Acquires-- })
		w.acquire(i)
	})
	add(left.Forgoes > 0 && n.waits > 0, "stops waiting for "+the, func(w *state) {
		w.spend(func(left *Sessions) { left.Forgoes-- })
		n := &w.nodes[i]
		id := n.waits
		n.waits = 0
		w.step(i, engine.Forgo{Name: the, ID: id})
	})
	for _, h := range n.Handlers {
		t := h.Tenure
		add(left.Releases > 0 && !h.Over && n.released != t, "releases "+the, func(w *state) {
			w.spend(func(left *Sessions) { left.Releases-- })
			w.release(i, t)
		})
	}
}

// spend takes from what may still happen. Other states share it.
func (w *state) spend(from func(left *Sessions)) {
	left := *w.left.Sessions
	from(&left)
	w.left.Sessions = &left
}

// commands are what an operator may do who takes the lease from its holder: decide, and later the write arrives.
// In between the holder may write, and the lease may change hands.
func (w *state) commands() []move {
	switch row := w.row(); {
	case w.left.Sessions == nil:
	case w.command.Op != 0:
		return []move{{"the operator's command arrives", (*state).arrive}}
	case w.left.Sessions.Commands > 0 && !row.Owner.IsZero():
		return []move{{"the operator decides to take " + the, func(w *state) {
			w.spend(func(left *Sessions) { left.Commands-- })
			w.decide(row)
		}}}
	}
	return nil
}

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

// arrive lets the operator's command take effect. If it does, the operator asks the sessions to look at the row.
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
	look := lease.Wish{Kind: protocol.WishLook, Subject: the, By: "operator", Until: w.wall().Add(time.Minute)}
	w.rewish("look-after-"+write.ID(), append(w.wished(), look))
}

// row returns the row of the lease as it stands.
func (w *state) row() (row lease.Row) {
	for _, r := range w.stands {
		if r, ok := r.(lease.Row); ok {
			row = r
		}
	}
	return row
}

// answered notes that callers were refused.
func (n *node) answered(out []engine.Output) {
	for _, o := range out {
		if o, ok := o.(engine.Unavailable); ok {
			if o.ID != n.waits || !n.w.story.Sessions.Try {
				n.w.blame("%s refuses acquisition %d, and its caller waits with %d", n.name(), o.ID, n.waits)
			}
			n.waits = 0
		}
	}
}

// trusts checks that a session holds nothing that it must not trust in any more.
func (n *node) trusts() {
	for _, h := range n.Handlers {
		if n.w.story.Sessions != nil && !h.Over && n.w.now >= n.Engine.Status().Trust {
			n.w.blame("%s holds %v, and does not trust in its seat any more", n.name(), h.Tenure)
		}
	}
}

// begins checks the start of a tenure.
func (n *node) begins(o engine.Start) {
	w := n.w
	if w.story.Sessions == nil {
		return
	}
	if o.Acquire != n.waits {
		w.blame("%s starts %v for acquisition %d, and its caller waits with %d", n.name(), o.Tenure, o.Acquire, n.waits)
	}
	n.waits = 0
	if w.now >= n.Engine.Status().Trust {
		w.blame("%s starts %v without trust", n.name(), o.Tenure)
	}
	for i := range w.nodes {
		other := &w.nodes[i]
		if other.dead || other.paused || other.Engine == nil {
			continue
		}
		for _, h := range other.Handlers {
			if !h.Over && w.now < other.Engine.Status().Trust && w.forced[h.Tenure] == 0 {
				w.blame("%s starts %v while %s trusts in %v", n.name(), o.Tenure, other.name(), h.Tenure)
			}
		}
	}
}

// loses checks the end of a tenure.
func (n *node) loses(o engine.Over) {
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
		n.w.blame("%s reports an accepted commit of %v, which it has lost", n.name(), h.Tenure)
	}
	if at := h.Script.(int) - int(h.Marks) + int(o.Seq); n.w.marked[h.Tenure] < at {
		n.w.blame("%s reports that position %d of %v is stored, and it is not", n.name(), at, h.Tenure)
	}
}

// witness checks an accepted write of the row.
func (w *state) witness(a judge.Accepted) {
	if w.story.Sessions == nil {
		return
	}
	t := engine.Tenure{Shard: a.Before.Shard, Generation: a.Before.Generation}
	if a.Before.Checkpoint != a.After.Checkpoint && !a.After.Removed {
		w.marked[t] = position(a.After.Checkpoint.Position)
	}
	if a.After.Generation == a.Before.Generation {
		return
	}
	if of := a.Before.Reserved; of.For != "" && of.For != a.By {
		ends := a.Before.Last.At.Add(of.Lasts)
		if w.wall().Before(ends) && w.now < w.freed.Add(of.Lasts) {
			w.blame("%s claims %v, which is reserved", a.By, a.Before)
		}
	}
	switch a.After.Last.Reason {
	case lease.ReasonForced:
		w.freed = w.now
		w.forced[t] = w.now
	case lease.ReasonExpired:
		switch at, gone := w.gone[a.Before.Owner.Incarnation]; {
		case !gone:
			w.blame("S4: %v is recovered, and its owner's seat was never deleted", a.Before)
		case w.now < at.Add(a.Before.Owner.LockDelay):
			w.blame("%v is recovered %v after its owner's seat was deleted: before the lock delay", a.Before, w.now.Sub(at))
		}
	}
}

// nextOfSessions lets happen what takes no time: the operator's command arrives, and a holder releases the lease
// if another caller waits for it. So in the end every caller is served. One that only tries is answered although the
// holder keeps the lease.
func (w *state) nextOfSessions() bool {
	if w.command.Op != 0 {
		w.arrive()
		return true
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		for _, h := range n.Handlers {
			if n.up() && !h.Over && n.released != h.Tenure && w.waits(i) && !w.story.Sessions.Try {
				w.release(i, h.Tenure)
				return true
			}
		}
	}
	return false
}

// waits reports whether the caller of another living session waits for the lease.
func (w *state) waits(besides int) bool {
	for i := range w.nodes {
		if n := &w.nodes[i]; i != besides && n.up() && n.waits > 0 {
			return true
		}
	}
	return false
}

// callersServed returns what must not change any more, and an error if a caller waits, or if the row and
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
			missing = errors.Join(missing, fmt.Errorf("the caller of %s waits: %v", n.name(), row))
		}
		if row.Owner.Name == n.name() {
			missing = errors.Join(missing, w.serves(the, row))
		}
		for _, h := range n.Handlers {
			if h.Generation != row.Generation {
				missing = errors.Join(missing, fmt.Errorf("%s holds %v, and has not noticed that it is over: %v", n.name(), h.Tenure, row))
			}
		}
	}
	return now, missing
}
