package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Moves that operators have ordered: wishes of the kind "move".
//
//	workers:  wished → planned like a pin → the row names the worker: done → swap of the wishes without it
//	sessions: wished → read by the holder → its soft context ends → released or cut → reserved for the named sessions
//	          → one of them holds the lease: done → swap of the wishes without it
//
// Called by the spine of a session: ordered for each held lease, done for each wish. Called by its tenures: reserve
// when they give the lease up. Called by the spine of a worker, if it is the first watcher: keep in each step, arrived
// for each wish.
//
// Its write is that of tenure.reserve, which stores the last mark, ends the generation and reserves the lease
// in one write. A crash before it leaves a row in the name of the holder, which is recovered like any other, by any
// session. A crash after it leaves a free row. If none of the named sessions comes, any session acquires it when the
// time is over.
//
// Invariant: a move of a lease by name ends only the generation that the operator has seen. If the lease changes hands
// in another way, the wish has no effect.
// Invariant: a lease by name never has two holders: it is reserved only when its holder has returned or was cut off. A
// holder that was cut off leaves its lock delay.

// ordered returns the move that stands for a lease that this session holds under that generation; nil: there is none.
func (d *heed) ordered(t *turn, name string, generation int64) *lease.Wish {
	at, found := slices.BinarySearchFunc(d.now.List, lease.Wish{Kind: lease.WishMove, Subject: name}, lease.Wish.Compare)
	if !found {
		return nil
	}
	w := &d.now.List[at]
	if w.Generation != generation || w.To == t.cfg.Name || !w.Stands(t.now.Wall) {
		return nil
	}
	return w
}

// done reports whether w is a move of a lease that this session holds under a later generation than the operator has
// seen.
func (l *shards) done(w lease.Wish) bool {
	s := l.find(w.Subject)
	return w.Kind == lease.WishMove && s != nil && s.t != nil && s.t.generation > w.Generation
}

// reserve gives up the lease of a holder whose soft context has ended for a move. It does so also if the wish has ended
// or was lifted since then: the holder has stopped, and the named session waits.
func (of *tenure) reserve(t *turn, r *row, end protocol.End) {
	move := of.wind.move
	if end.Note = move.Why; end.Reason != lease.ReasonDrainTimeout {
		end.Reason = lease.ReasonHandoff
	}
	to := lease.Reservation{For: move.To, Lasts: move.Lasts}
	wr, err := protocol.Reserve(r.copy.Row(), of.hold(t, r), to, move.By, end, t.stamp())
	of.sendMark(t, r, givingUp, wr, err)
}

// A moves is how the first watcher finds out that moves are done: it reads the rows of the shards that are to move.
type moves struct {
	next Instant // when the rows are read again
}

// keep reads these rows once per heartbeat interval while there are such wishes, except the rows of the shards that
// this worker holds: it knows them.
func (m *moves) keep(t *turn, me lease.Incarnation, now lease.Wishes, l *shards) {
	if !slices.ContainsFunc(now.List, isMove) {
		m.next = 0
		return
	}
	if t.before(m.next) {
		return
	}
	m.next = t.now.Mono.Add(t.beat)
	for _, w := range now.List {
		if s := l.find(w.Subject); isMove(w) && (s == nil || s.t == nil) {
			l.know(w.Subject, t.cfg.Group, me).get(t)
		}
	}
	t.at(m.next)
}

func isMove(w lease.Wish) bool { return w.Kind == lease.WishMove }

// arrived reports whether a shard is held by the worker to which an operator moves it, as this worker last read the
// row.
func (l *shards) arrived(w lease.Wish) bool {
	s := l.find(w.Subject)
	if !isMove(w) || s == nil {
		return false
	}
	at := s.row.copy.Row()
	return at.Generation > w.Generation && at.Owner.Name == w.To
}
