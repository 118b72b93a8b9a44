package shardlease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/internal/deathwatch"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Deathwatch lets the workers of a group notice at once that the process of one of them has died, whatever the
// lease time is. The kernel of a killed process closes its sockets and refuses connections from then on. So each
// worker listens on an address and publishes it in its seat. Each worker keeps one connection to the address of every
// other worker; in a group of more than eight workers, only eight of them do. A worker answers a connection with its
// incarnation and reads nothing.
//
// A death is proven if an address that has answered as a worker then refuses a connection or answers as another
// incarnation. A refusal counts only if the watcher then reaches another worker; if there is no other, only if no
// connection from the refused worker to the watcher stands. The other workers then evict that worker by the same
// conditional write as after the lease time. Silence proves nothing: frozen processes, dead machines and cut networks
// are noticed only after the lease time.
//
// A proof may be wrong, for example if a proxy refuses connections to a worker that lives. That costs a move and
// breaks no promise. The evicted worker reports [event.Misjudged] and publishes no address for ten lease times.
//
// A worker has a deathwatch if Listener or Listen is set. A worker without one watches nobody, and nobody watches it.
type Deathwatch struct {
	// Listener accepts the connections. Run closes it. If it is a TLS listener, Dial has to be a TLS dialer.
	Listener net.Listener
	// Listen is the address on which Run listens if Listener is nil, such as ":7946" or "10.0.0.7:0". If Run cannot
	// listen there, for example because the port is in use, the worker reports [event.Unwatched], publishes no
	// address, and believes no refusal of the others, because its own machine may refuse all connections.
	Listen string
	// Advertise is the address at which the other workers reach this one, such as "10.0.0.7:7946". It must be an
	// address of this machine or container, and not of a proxy or a load balancer. Port 0 stands for the port of the
	// listener. Default: the address of the listener. Required if that address names no machine, as ":7946" does.
	Advertise string
	// Dial connects to the address of another worker; network is "tcp". It must return when ctx ends. Its error
	// should wrap the error of the kernel, because only syscall.ECONNREFUSED counts as a refusal. Default: the
	// dialer of package net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (d *Deathwatch) on() bool { return d.Listener != nil || d.Listen != "" }

// deathwatch adds the faults of Config.Deathwatch to f.
func (c *Config) deathwatch(f *faults) {
	d := &c.Deathwatch
	switch {
	case d.Listener != nil && isNil(d.Listener):
		f.add("Deathwatch.Listener", "must be given, or left out"+nilOf(d.Listener))
		return
	case d.Listener != nil && d.Listen != "":
		f.add("Deathwatch.Listen", "must not be set if there is a Listener")
	case !d.on() && (d.Advertise != "" || d.Dial != nil):
		f.add("Deathwatch.Listen", "must be set if Advertise or Dial is set, unless there is a Listener")
		return
	case !d.on():
		return
	}
	at, field := d.Listen, "Deathwatch.Listen"
	if d.Listener != nil {
		field = "Deathwatch.Listener"
		if err := apart(func() { at = d.Listener.Addr().String() }); err != nil {
			f.wrap("Deathwatch.Listener", fmt.Errorf("calling Addr: %w", err))
			return
		}
	}
	if _, _, err := net.SplitHostPort(at); err != nil {
		f.wrap(field, err)
		return
	}
	address, err := d.address(at)
	if err == nil {
		says := lease.Says{Address: address}
		err = lease.Seat{Group: "-", Incarnation: "-", WriteID: "-", Name: "-", TTL: time.Second, Says: says}.Validate()
	}
	f.wrap("Deathwatch.Advertise", err)
}

// address returns the address to advertise if the listener has the address at.
func (d *Deathwatch) address(at string) (string, error) {
	host, port, err := net.SplitHostPort(cmp.Or(d.Advertise, at))
	if err != nil {
		return "", err
	}
	if !deathwatch.NamesMachine(host) {
		return "", fmt.Errorf("must be the address at which other workers reach this one, such as \"10.0.0.7:7946\": %q names no machine",
			cmp.Or(d.Advertise, at))
	}
	if port == "0" || port == "" {
		if _, port, err = net.SplitHostPort(at); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

// A deafError says that the listener of this worker has failed.
type deafError struct{ err error }

func (e *deafError) Error() string {
	return "the listener of this worker's deathwatch has failed, so this worker's death is noticed only after its lease time: " + e.err.Error()
}

func (e *deafError) Unwrap() error { return e.err }

// listen begins to listen, and returns the address to advertise. Without a listener it returns none. It may have to
// look up a name, until ctx ends.
func (r *run) listen(ctx context.Context) (address string) {
	d := r.config.Deathwatch
	listener, err := d.Listener, error(nil)
	if listener == nil {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", d.Listen)
	}
	if err == nil {
		r.answers = deathwatch.NewServer(listener, func() { r.inbox.put(arrival{input: engine.Visited{}}) })
		if fault := apart(func() { address, err = d.address(listener.Addr().String()) }); fault != nil {
			err = fmt.Errorf("the address of the listener: %w", fault)
		}
	}
	if err != nil && ctx.Err() == nil { // a worker that has to stop needs no address
		r.inbox.put(arrival{input: engine.Deaf{Err: &deafError{err}}})
	}
	return address
}

// watch begins to answer connections, and prepares the links for which the engine will ask. own is the address at
// which the others reach this worker; empty: none.
func (r *run) watch(own string) {
	var nextReport atomic.Int64 // not before, it is reported again that this worker does not reach its own address
	r.links = deathwatch.NewLinks(own, r.answers, r.config.Deathwatch.Dial, r.do, func(found deathwatch.Result) {
		in := engine.Linked{Peer: lease.Incarnation(found.Peer), Address: found.Address, Err: found.Err}
		switch found.Outcome {
		case deathwatch.Confirmed:
			in.Shows = engine.Answers
		case deathwatch.Refused:
			in.Shows = engine.Refuses
		case deathwatch.Other:
			in.Shows = engine.Replies
			in.Err = fmt.Errorf("another incarnation answers at %s: %s", found.Address, found.As)
		}
		if next := nextReport.Load(); errors.Is(found.Err, deathwatch.ErrSelf) && r.mono() >= engine.Instant(next) &&
			nextReport.CompareAndSwap(next, int64(r.mono().Add(r.config.TTL))) {
			r.emit(event.Event{Kind: event.Unwatched, Err: found.Err})
		}
		r.inbox.put(arrival{input: in})
	})
	if r.answers != nil {
		r.do(func() {
			err := error(&panicError{}) // if Accept calls runtime.Goexit
			defer func() {
				if err != nil {
					r.links.Deaf()
					r.inbox.put(arrival{input: engine.Deaf{Err: &deafError{err}}})
				}
			}()
			err = r.answers.Serve(r.do)
		})
	}
}

// endWatch closes the listener and all connections of the deathwatch. By now the seat is gone, or nobody renews it:
// before, the other workers would take the closed listener for a death. It has a goroutine of its own, because a
// user's listener may block when it is closed.
func (r *run) endWatch() {
	if r.links != nil {
		r.links.Close()
	}
	if r.answers != nil {
		r.answers.Close()
	}
}
