package deathwatch

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Whether a refusal counts. It may come from the watcher's own side: from its machine, from a sidecar that restarts,
// or from a firewall that rejects connections. So a link looks further before it reports a refusal:
//
//  1. It dials the watcher's own address. If that fails, the watcher's machine refuses connections to everybody. If
//     it succeeds, that alone shows little: the dial does not leave the machine, so rules for the network pass it by.
//  2. It dials another peer, which has to answer as itself.
//  3. If there is no other peer, no connection that the peer has made to the watcher's server may stand any more.
//  4. It dials the peer again, and has to be refused again: what refused the first dial may have ended before the looks.
//
// If one of these looks fails, the refusal proves nothing: the outcome is Silent, and the link dials again.
//
// Called by attempt, after a refusal: doubt does steps 1 to 3, and attempt step 4.
//
// Invariant: each of these dials begins after the first refusal, and the dial of step 4 after steps 1 to 3 have
// succeeded. A connection that was made before the refusal shows nothing, because rules that refuse new connections let
// it stand.

// ErrSelf means that a watcher does not reach its own address, so no refusal proves anything.
var ErrSelf = errors.New("this worker does not reach its own address")

var (
	errNoneOwn = errors.New("it has none")
	errOther   = errors.New("another worker does not answer either")
	errVisits  = errors.New("a connection from there to this worker still stands")
)

// Deaf takes the watcher's own address away, because its server has failed. From then on it believes no refusal.
func (l *Links) Deaf() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = ""
}

// doubt returns why the refusal of a peer proves nothing; nil: nobody listens at its address.
func (l *Links) doubt(k *link) error {
	if err := l.reachesItself(k); err != nil {
		return fmt.Errorf("%w (%w)", ErrSelf, err)
	}
	other := l.another(k)
	switch {
	case other != nil:
		return l.reachesOther(k, other)
	case l.server.hears(k.host):
		return errVisits
	}
	return nil
}

// reachesItself returns an error if the watcher does not reach its own server, also if it has none: then nothing shows
// that its machine makes connections at all.
func (l *Links) reachesItself(k *link) error {
	l.mu.Lock()
	own := l.own
	l.mu.Unlock()
	if own == "" {
		return errNoneOwn
	}
	_, err := l.answer(k, own)
	return err
}

// another returns the link of another peer, drawn from those that have a connection, if there are any: a peer that has
// died with the first one has none. Nil: the watcher has no other peer.
func (l *Links) another(k *link) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	var connected, others []*link
	for _, o := range l.links {
		switch {
		case o.peer == k.peer:
		case o.conn != nil:
			connected = append(connected, o)
		default:
			others = append(others, o)
		}
	}
	if len(connected) > 0 {
		others = connected
	}
	if len(others) == 0 {
		return nil
	}
	return others[rand.N(len(others))]
}

// reachesOther returns an error if another peer does not answer as itself.
func (l *Links) reachesOther(k, other *link) error {
	as, err := l.answer(k, other.address)
	switch {
	case err != nil:
		return fmt.Errorf("%w (%s: %w)", errOther, other.address, err)
	case as != other.peer:
		return fmt.Errorf("%w (another incarnation does at %s: %s)", errOther, other.address, as)
	}
	return nil
}

// answer dials an address, and returns the incarnation that answers there.
func (l *Links) answer(k *link, address string) (string, error) {
	conn, err := l.connect(k, address)
	if err != nil {
		return "", err
	}
	defer l.release(k, conn)
	return ask(conn)
}
