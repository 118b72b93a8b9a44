// Package deathwatch shows over sockets that the process of a worker has died, long before the
// worker's lease expires.
//
// When a process is killed, its kernel closes its sockets at once, and from then on the kernel
// refuses connections to the address where the process listened. A worker listens with a [Server].
// Its peers keep one connection each to it, with [Links], and dial again when that connection ends.
// This package holds the connections and reports what each attempt has shown, as a [Result]. It
// decides nothing.
//
// # What proves, and what does not
//
// A refused connection proves that nobody listens at the address. Another incarnation that answers
// proves that the address has passed to another process, or that the worker has started again.
// Nothing else proves anything. A connection that ends proves nothing: a network, a firewall or a
// full [Server] can end it. Silence proves nothing: a process that is paused, a machine that is
// overloaded and a network that is cut are silent too.
//
// A refusal proves the death of the worker only if the address belongs to the worker: an IP address
// and a port of its machine, as the watcher reaches it. A refusal proves nothing if
//
//   - a proxy, a load balancer or a service address stands in between: it refuses on its own behalf,
//   - a firewall rejects the connection with an answer, instead of discarding it,
//   - something on the watcher's side refuses all connections: see doubt.go,
//   - the address means the watcher's own machine: see [Links.Watch],
//   - the worker lives, but its listener is closed: see [Server.Serve],
//   - the worker runs on Windows, which also refuses a connection if too many wait to be accepted.
//
// If the outcome at an address has once been [Confirmed], most of these cases are excluded.
//
// # Invariants
//
//   - Refused and Other are reported only for an attempt that began after the call of [Links.Watch].
//   - A worker that lives and whose listener is open is never Refused by a [Server], however many
//     connections it has: a full one accepts and closes, which is Silent.
//   - Nothing that arrives is stored. A link reads at most 128 bytes. A server reads one byte when it has to know whether a
//     connection has ended: for a visit and for a doubt.
//   - A quiet connection needs no timer. It needs a goroutine at the watcher, and none at the server.
//   - If a listener, a connection or a dialer panics or calls runtime.Goexit, it has failed. That ends nothing else.
//   - A connection that blocks when it is closed delays no caller of this package.
package deathwatch

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"
)

// An Outcome is what one attempt to reach a peer has shown.
type Outcome uint8

const (
	Confirmed Outcome = iota + 1 // the peer answered as the incarnation that was asked for
	Refused                      // the address refuses connections: nobody listens there
	Other                        // another incarnation answered
	Silent                       // anything else: time-outs, resets, unreachable hosts, garbage, an empty answer. It proves nothing
)

func (o Outcome) String() string {
	if o < Confirmed || o > Silent {
		return fmt.Sprintf("outcome %d", uint8(o))
	}
	return [...]string{"confirmed", "refused", "other", "silent"}[o-Confirmed]
}

// A Result is what one attempt to reach one peer has shown.
type Result struct {
	Peer    string  // the incarnation that was asked for
	Address string  // where
	Outcome Outcome // what the attempt has shown
	As      string  // the incarnation that answered, if the outcome is Confirmed or Other
	Err     error   // why there was no answer, if the outcome is Refused or Silent
}

var errExit = errors.New("runtime.Goexit was called")

// guarded calls f, and returns a panic of it as an error. Listeners, connections and dialers may be
// a user's: a fault in them must not end the worker.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// hangUp closes a connection. The caller holds no lock, because closing may take time: a TLS
// connection sends a last message.
func hangUp(conn net.Conn) { _ = guarded(conn.Close) }

// stands reports whether a connection does not end before that time. Nobody else reads it. A byte that was sent is lost,
// and shows that somebody is there.
func stands(conn net.Conn, by time.Time) bool {
	err := guarded(func() error {
		if err := conn.SetReadDeadline(by); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	})
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

// anyStands reports whether one of these connections does not end within endTime.
func anyStands(conns []net.Conn) bool {
	by := time.Now().Add(endTime)
	return slices.ContainsFunc(conns, func(conn net.Conn) bool { return stands(conn, by) })
}

// hostOf returns the host at the other side of a connection; empty: it is not known.
func hostOf(conn net.Conn) (host string) {
	_ = guarded(func() (err error) {
		host, _, err = net.SplitHostPort(conn.RemoteAddr().String())
		return err
	})
	return host
}

// keepAlive makes the kernel probe a quiet connection, with Go's default times, even if a listener
// or a dialer has turned that off. A machine that loses its power or its network closes nothing.
// Without probes the read of a link would wait forever, and a server would keep the connection of a
// watcher that is gone.
func keepAlive(conn net.Conn) {
	if tcp := tcpOf(conn); tcp != nil {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})
	}
}

// tcpOf returns the TCP connection that conn is or wraps, as a TLS connection does, or nil.
func tcpOf(conn net.Conn) *net.TCPConn {
	if wraps, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wraps.NetConn()
	}
	tcp, _ := conn.(*net.TCPConn)
	return tcp
}
