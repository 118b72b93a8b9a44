package deathwatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// The side of the watcher: a goroutine for each peer, which is in one of these states.
//
//	dialling → reading the answer → confirmed: waiting for the end → dialling
//	    ↓              ↓                  ↓ it has stood for less than a second
//	  pausing: 20 ms, and twice as long each time, up to 30 s → dialling
//	           (up to 1 s if the peer was confirmed)
//
// Called by the owner of the Links: Watch, Knock, Drop and Close. They report nothing themselves, and wait
// until a report that is under way has returned. They wait for nothing else: a user's connection may
// block when it is closed, so it is closed on a goroutine of its own.
//
// Invariant: each attempt is reported once, when its outcome is known. The end of a connection is
// not reported.

const (
	dialTime   = time.Second // how long a dial may take
	readTime   = time.Second // how long the answer may take after the dial
	firstPause = 20 * time.Millisecond
	lastPause  = 30 * time.Second
	settled    = time.Second // a connection that has stood for so long resets the pause
	busyPause  = time.Second // the longest pause after a connection that was confirmed and has ended soon
)

// A Dialer connects to an address of a peer; the network is always tcp. It must return when its
// context ends, because the goroutine of its link waits for it. Its error may wrap ECONNREFUSED only
// if the machine of the peer has refused the connection, and not if a proxy has, or only one of
// several machines.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Links keep one connection to each peer that is watched, and report what each attempt to connect
// has shown.
//
// A link dials, reads the answer, and reports. If the peer is confirmed, the link waits until the
// connection ends, and dials again. Otherwise it dials again after a pause. Pauses start short,
// because a process that is killed may close its connections before its listener: the first dial
// can still be accepted, and then be reset.
type Links struct {
	server *Server // the watcher's own; nil: it has none
	dial   Dialer
	start  func(func())
	report func(Result)

	mu      sync.Mutex
	own     string           // the address of that server; empty: it has none, or has failed
	idle    *sync.Cond       // a report has returned
	links   map[string]*link // by peer, without those that have ended
	reports int              // how many calls of report are under way
	closed  bool
}

// A link is the connection to one peer, or the attempts to connect. One goroutine runs it.
type link struct {
	peer, address string
	ctx           context.Context // ends with the link
	cancel        context.CancelFunc
	host          string // where the peer has answered last, without the port; only its goroutine reads it

	// Guarded by Links.mu:
	ended     bool     // nothing is reported any more
	reporting bool     // a report is under way
	conn      net.Conn // the connection; nil: none
	stands    bool     // the peer is confirmed on it, and nobody has knocked
}

// NewLinks returns links that connect with dial, or with a net.Dialer if dial is nil. The function
// start runs its argument on a goroutine; the caller waits for these goroutines after Close.
//
// The server is the watcher's own, and own its address; nil and empty: the watcher has none. Without them no refusal
// is reported as Refused, because it may come from the watcher's own side: see [Links.Deaf] and doubt.go.
//
// The function report is called on the goroutine of a link. It must return soon. It must neither
// call Watch, Drop or Close nor wait for a goroutine that does: these wait for a report that is
// under way.
func NewLinks(own string, server *Server, dial Dialer, start func(func()), report func(Result)) *Links {
	if dial == nil {
		dial = dialEach
	}
	l := &Links{own: own, server: server, dial: dial, start: start, report: report, links: map[string]*link{}}
	l.idle = sync.NewCond(&l.mu)
	return l
}

// Watch begins to watch a peer, which is an incarnation, at an address. If the peer is already
// watched at another address, that link ends. If it is already watched at this address, nothing changes.
//
// An address without a host, or with the unspecified one, as in "[::]:7070", is never dialled: it
// means the watcher's own machine, whose refusal says nothing about the peer. A loopback address
// means that machine too, but it is dialled, because the peer may run there.
func (l *Links) Watch(peer, address string) {
	k := &link{peer: peer, address: address}
	l.mu.Lock()
	last := l.links[peer]
	if l.closed || last != nil && last.address == address {
		l.mu.Unlock()
		return
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	l.links[peer] = k
	if last != nil {
		l.end(last)
	}
	l.mu.Unlock()
	if last != nil {
		l.await(last)
	}
	// Under the lock, so that nothing is started after Close has returned.
	l.mu.Lock()
	defer l.mu.Unlock()
	if !k.ended {
		l.start(func() { l.run(k) })
	}
}

// Knock closes the connection to a peer. The link then makes another one, which the peer's server reports as a visit.
// If there is no connection, the link is making one already, and Knock does nothing.
func (l *Links) Knock(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.links[peer]; k != nil && k.stands {
		conn := k.conn
		k.stands = false // a connection that blocks when it is closed is closed once
		l.start(func() { hangUp(conn) })
	}
}

// Drop ends the link to a peer. After Drop has returned, nothing is reported about the peer.
func (l *Links) Drop(peer string) {
	l.mu.Lock()
	k := l.links[peer]
	if k != nil {
		delete(l.links, peer)
		l.end(k)
	}
	l.mu.Unlock()
	if k != nil {
		l.await(k)
	}
}

// Close ends all links. After Close has returned, nothing is reported, and all goroutines of the
// links return soon.
func (l *Links) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.links {
		l.end(k)
	}
	l.links, l.closed = map[string]*link{}, true
	for l.reports > 0 { // also those of links that another goroutine is ending
		l.idle.Wait()
	}
}

// end ends a link, and wakes its goroutine. It is called under the lock, so that nothing is started after
// Close has returned.
func (l *Links) end(k *link) {
	k.ended = true
	k.cancel()
	if conn := k.conn; conn != nil {
		l.start(func() { hangUp(conn) })
	}
}

// await waits for a report of a link that has ended.
func (l *Links) await(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k.reporting {
		l.idle.Wait()
	}
}

// run is the goroutine of a link.
func (l *Links) run(k *link) {
	defer l.left(k)
	for pause := firstPause; k.ctx.Err() == nil; {
		conn, result := l.attempt(k)
		l.deliver(k, result)
		stood := time.Duration(0)
		if conn != nil {
			stood = wait(conn)
			l.release(k, conn)
		}
		if stood >= settled {
			pause = firstPause
			continue
		}
		// A connection that has ended soon is followed by a pause too. Otherwise, if a server had more
		// watchers than it keeps connections, they would push each other out without end. The pause is
		// short, because a hostile client may push out all others: the next dial shows whether the peer is dead.
		if conn != nil {
			pause = min(pause, busyPause)
		}
		if !sleep(k.ctx, jittered(pause)) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// left is called at the end of the goroutine of a link. If the link has not ended, a dialer or a connection
// has called runtime.Goexit: the link goes on after the longest pause. Otherwise nobody would watch the peer, and
// nothing would say so.
func (l *Links) left(k *link) {
	l.mu.Lock()
	conn := k.conn
	k.conn, k.stands = nil, false
	ended := k.ended
	if !ended {
		l.start(func() {
			l.deliver(k, Result{Peer: k.peer, Address: k.address, Outcome: Silent, Err: errExit})
			if sleep(k.ctx, lastPause) {
				l.run(k)
			}
		})
	}
	l.mu.Unlock()
	if conn != nil && !ended {
		hangUp(conn)
	}
}

// attempt dials a peer and reads its answer. It returns the connection if the peer is confirmed.
func (l *Links) attempt(k *link) (net.Conn, Result) {
	conn, err := l.connect(k, k.address)
	if refuses(err) {
		if doubt := l.doubt(k); doubt != nil {
			err = fmt.Errorf("%w, so this proves nothing: %w", doubt, err)
			return nil, Result{Peer: k.peer, Address: k.address, Outcome: Silent, Err: err}
		}
		conn, err = l.connect(k, k.address)
		if refuses(err) {
			return nil, Result{Peer: k.peer, Address: k.address, Outcome: Refused, Err: err}
		}
	}
	if err != nil {
		return nil, Result{Peer: k.peer, Address: k.address, Outcome: Silent, Err: err}
	}
	as, err := ask(conn)
	switch {
	case err != nil:
		l.release(k, conn)
		return nil, Result{Peer: k.peer, Address: k.address, Outcome: Silent, Err: err}
	case as != k.peer:
		l.release(k, conn)
		return nil, Result{Peer: k.peer, Address: k.address, Outcome: Other, As: as}
	}
	k.host = hostOf(conn)
	l.mu.Lock()
	k.stands = true
	l.mu.Unlock()
	return conn, Result{Peer: k.peer, Address: k.address, Outcome: Confirmed, As: as}
}

// connect dials an address. The connection belongs to the link from then on.
func (l *Links) connect(k *link, address string) (conn net.Conn, err error) {
	if err := elsewhere(address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(k.ctx, dialTime)
	defer cancel()
	err = guarded(func() (err error) {
		conn, err = l.dial(ctx, "tcp", address)
		return err
	})
	if err == nil && conn == nil {
		err = errors.New("the dialer returned no connection")
	}
	if err != nil {
		return nil, fmt.Errorf("no connection: %w", err)
	}
	l.mu.Lock()
	ended := k.ended
	k.conn = conn
	l.mu.Unlock()
	if ended {
		l.release(k, conn)
		return nil, net.ErrClosed
	}
	return conn, nil
}

// release closes the connection of a link.
func (l *Links) release(k *link, conn net.Conn) {
	l.mu.Lock()
	k.conn, k.stands = nil, false
	l.mu.Unlock()
	hangUp(conn)
}

// deliver reports a result, unless the link has ended. The lock is not held during the report, so
// that the report may take its time; end waits until it has returned.
func (l *Links) deliver(k *link, r Result) {
	if !l.begin(k) {
		return
	}
	l.report(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	k.reporting, l.reports = false, l.reports-1
	l.idle.Broadcast()
}

// begin begins a report, unless the link has ended.
func (l *Links) begin(k *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.ended {
		return false
	}
	k.reporting, l.reports = true, l.reports+1
	return true
}

// ask reads the answer of a peer within readTime. From then on the connection has no time limit.
func ask(conn net.Conn) (as string, err error) {
	err = guarded(func() (err error) {
		if err = conn.SetDeadline(time.Now().Add(readTime)); err != nil {
			return err
		}
		if as, err = readAnswer(conn); err != nil {
			return err
		}
		keepAlive(conn)
		return conn.SetDeadline(time.Time{})
	})
	return as, err
}

// wait waits until a connection ends or the peer sends anything, and returns how long that took.
func wait(conn net.Conn) time.Duration {
	began := time.Now()
	_ = guarded(func() error {
		_, err := conn.Read(make([]byte, 1))
		return err
	})
	return time.Since(began)
}

// sleep waits for a time, and reports whether the context has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jittered returns three quarters of a pause up to the whole of it, so that many watchers of one
// peer do not dial at the same moment.
func jittered(pause time.Duration) time.Duration { return pause - rand.N(pause/4) }
