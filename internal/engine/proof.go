package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Proofs of deaths. A kernel closes the sockets of a killed process at once, and then refuses connections to
// its address. So a connection may show a death long before the lease of the worker expires.
//
//	linked → confirmed → proven → the seat is evicted, and the link ends
//	   ↑         ↑__________|  the worker answers after all
//	   |_________|  the worker publishes another address, or the proof has become old
//
// The shell keeps the connections: Link asks for one, and Linked reports each attempt to make it. An attempt
// proves a death only if the address has answered as this worker before, and now refuses connections or
// answers as another incarnation. Everything else proves nothing: a closed connection, silence, an error. Nor does a
// refusal that may come from this worker's own side: the shell looks at another peer before it reports one.
//
// Called by the fleet and the peers: of and any; and by the spine: linked with each attempt, visited with each
// connection of another worker, knock with each plan that this worker has closed, and lapse, adjust, keep and due in each
// step. The spine of a session calls relink in place of adjust: it has links to the holders of leases for which its callers
// wait, and only while they wait.
//
// Invariant: a proof is advice to evict early. The eviction is the same conditional deletion as after the
// lease time, so no promise depends on whether the proof is right.
// Invariant: nobody is evicted on a proof that is older than a heartbeat interval, for example because this worker
// was paused. The next attempt to reach the address renews the proof or ends it.
// Invariant: an address proves nothing before it has answered as the worker whose seat names it. So a forged
// address can cost only the worker that publishes it its seat.

const (
	paceProven = 100 * time.Millisecond // from one watcher to the next until it evicts a worker whose death is proven
	apartProof = 250 * time.Millisecond // between two plans after such an eviction
	proofFor   = time.Second            // a proof counts for so long, or for a heartbeat interval if that is longer
	mostLooks  = 3                      // how often a worker reads in a heartbeat interval because somebody has connected
	hideFor    = 10                     // how many lease times a worker hides its address after an eviction by mistake
)

// Proofs are this worker's connections to its peers, sorted by incarnation.
type proofs struct {
	links []link
	at    order              // the step of the last change of the peers to which the links were adjusted
	scan  Instant            // when to check next which peers cannot be reached
	look  Instant            // when to list the seats or to read the plan, because somebody has connected; 0: not for that
	looks [mostLooks]Instant // when that was due the last times, the earliest first
}

// A link is the connection to one peer.
type link struct {
	inc       lease.Incarnation
	address   string
	confirmed bool    // the address has answered as this peer
	since     Instant // since when it has not answered as this peer; 0: it does
	proven    Instant // when the death of the peer was proven; 0: it was not
	step      order   // the step of the proof
	shown     Instant // when an attempt has last shown the death
	err       error   // what the last failed attempt has shown, or the one that has proven the death
}

// find returns the link to a peer; nil: there is none.
func (p *proofs) find(inc lease.Incarnation) *link {
	return find(p.links, inc, func(l *link) lease.Incarnation { return l.inc })
}

// of returns the link that proves that a peer is dead; nil: none does.
func (p *proofs) of(inc lease.Incarnation) *link {
	if l := p.find(inc); l != nil && l.proven > 0 {
		return l
	}
	return nil
}

// any reports whether the death of a peer is proven. As far as this worker knows, that peer still has its seat.
func (p *proofs) any() bool {
	return slices.ContainsFunc(p.links, func(l link) bool { return l.proven > 0 })
}

// adjust makes one link to each peer whose seat has an address, and ends all other links. A worker that does not
// watch makes no links, and ends those that it has when it forgets its peers. A worker that has lost its seat keeps
// its links until it has listed the seats again.
func (p *proofs) adjust(t *turn, of *peers, former []lease.Incarnation, watches bool) {
	if !watches && len(p.links) == 0 || watches && of.turned == 0 || of.turned != 0 && of.turned == p.at {
		return
	}
	p.at = of.turned
	to := make([]link, 0, len(p.links))
	for i := range of.all {
		q := &of.all[i]
		inc, address := q.seat.Incarnation, q.seat.Address
		if q.unreadable || address == "" || !q.seat.Confirmed() || slices.Contains(former, inc) {
			continue
		}
		to = append(to, link{inc: inc, address: address})
	}
	p.relink(t, to)
}

// relink makes a link to each of these addresses, which are sorted by incarnation, and ends all other links.
func (p *proofs) relink(t *turn, to []link) {
	for i := range to {
		l := &to[i]
		if old := p.find(l.inc); old != nil && old.address == l.address {
			*l = *old
			continue
		}
		l.since = t.now.Mono
		t.do(Link{Peer: l.inc, Address: l.address})
	}
	before := p.links
	p.links = to
	for i := range before {
		if inc := before[i].inc; p.find(inc) == nil {
			t.do(Unlink{Peer: inc})
		}
	}
}

// lapse drops the proofs that are old. Their addresses are still believed.
func (p *proofs) lapse(t *turn) {
	for i := range p.links {
		if l := &p.links[i]; l.proven > 0 && t.now.Mono >= l.shown.Add(max(t.beat, proofFor)) {
			l.proven = 0
		}
	}
}

// linked takes an attempt to reach a peer, and reports whether it has proven the peer's death.
func (p *proofs) linked(t *turn, in Linked) (proven bool) {
	l := p.find(in.Peer)
	if l == nil || l.address != in.Address {
		return false
	}
	if in.Shows == Answers {
		l.confirmed, l.since, l.proven, l.err = true, 0, 0, nil
		return false
	}
	if l.since == 0 {
		l.since = t.now.Mono
	}
	shows := in.Shows != Silent && l.confirmed
	if shows {
		l.shown = t.now.Mono
	}
	if l.proven > 0 {
		return false // the event of the eviction says what has proven the death, and not what came later
	}
	if l.err = in.Err; !shows {
		return false
	}
	l.proven, l.step = t.now.Mono, t.step
	return true
}

// visited notes that somebody has connected. A newcomer connects to all workers as soon as it has listed the seats.
// The watchers list the seats then, and connect to the newcomer in their turn, so that its death is noticed too. The other
// workers read the plan, because a planner may have knocked. A hostile client causes three such reads in a heartbeat
// interval at most: those of the seats at equal distances, because newcomers may come at any time, but those of the plan
// at once, because one plan may soon follow another.
func (p *proofs) visited(t *turn, watching bool) {
	if p.look > 0 {
		return
	}
	p.look = t.now.Mono
	switch {
	case watching:
		p.look = max(p.look, p.looks[mostLooks-1].Add(t.beat/mostLooks))
	case p.looks[0] > 0:
		p.look = max(p.look, p.looks[0].Add(t.beat))
	}
	copy(p.looks[:], p.looks[1:])
	p.looks[mostLooks-1] = p.look
}

// knock connects once more to the workers of a large fleet whose targets a plan has changed, so that they read the plan
// now. Workers that do not watch read it only once per heartbeat interval otherwise, and the shards that a dead worker has
// left to them would wait for that.
func (p *proofs) knock(t *turn, next []lease.Target) {
	for i := range next {
		if l := p.find(next[i].Incarnation); t.large && l != nil && l.confirmed && next[i].Revision == 0 {
			t.do(Knock{Peer: l.inc})
		}
	}
}

// due reports whether to list the seats, or to read the plan, because somebody has connected.
func (p *proofs) due(t *turn) bool {
	if p.look == 0 || t.before(p.look) {
		return false
	}
	p.look = 0
	return true
}

// keep reports the peers that have not answered for a lease time. name returns the name of a peer.
func (p *proofs) keep(t *turn, name func(lease.Incarnation) string, unwatched *fault) {
	if len(p.links) == 0 && !unwatched.on || t.before(p.scan) {
		return
	}
	p.scan = t.now.Mono.Add(t.beat)
	t.at(p.scan)
	first, count := (*link)(nil), 0
	for i := range p.links {
		if l := &p.links[i]; l.since > 0 && l.proven == 0 && t.now.Mono >= l.since.Add(t.cfg.TTL) {
			if count++; first == nil {
				first = l
			}
		}
	}
	if count == 0 {
		unwatched.lower(t)
		return
	}
	unwatched.raise(t, first.since, "", unreachable(count, name(first.inc), first.address, first.err))
}

// unreachable returns the error that count workers do not answer at their addresses. It names the first of them.
func unreachable(count int, name, address string, err error) error {
	all := ""
	if count > 1 {
		all = fmt.Sprintf(" (one of %d such workers)", count)
	}
	text := fmt.Sprintf("worker %q%s does not answer at %s, so its death is noticed only after its lease time", name, all, address)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return errors.New(text)
}

// proof returns the proof of the peer's death, for the event of its eviction.
func (l *link) proof() error { return fmt.Errorf("death proven: %w", l.err) }

// A misjudgedError says that this worker was evicted although its lease was valid.
type misjudgedError struct{ address string }

func (e *misjudgedError) Error() string {
	return fmt.Sprintf("this worker was evicted although its lease was valid: by an operator, or because %s "+
		"refused a connection or answered as another worker", e.address)
}
