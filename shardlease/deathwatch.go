package shardlease

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/shardlease/shardlease-go/internal/deathwatch"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Deathwatch lets workers see at once that the process of another worker has died, whatever the lease time is.
// The kernel of a killed process closes its sockets and refuses connections from then on. So each worker listens on
// an address, publishes it in its seat, and keeps one connection to each worker that it watches (up to eight workers
// of a group watch). It answers a connection with its incarnation, and reads nothing.
//
// A death is proven when the address of a worker has answered before, and then refuses a connection or answers as
// another incarnation. The seat is then evicted by the same conditional write as after the lease time. Silence proves
// nothing: the lease time decides about frozen processes, dead machines and cut networks. A proof that is wrong, for
// example because a proxy refuses connections to a worker that lives, costs a move and breaks no promise. The worker
// that was evicted by mistake publishes no address for ten lease times ([event.Misjudged]).
//
// The zero value means no deathwatch. It is used if Listener or Listen is set.
type Deathwatch struct {
	// Listener accepts the connections. It may be a TLS listener; Dial must fit to it. Run closes it.
	Listener net.Listener
	// Listen is the address on which Run listens if there is no Listener, such as ":7946" or "10.0.0.7:0". If that
	// fails, the worker runs without an address, and reports [event.Unwatched].
	Listen string
	// Advertise is the address at which the other workers reach this one, such as "10.0.0.7:7946". It must be an
	// address of this machine or container, and not of a proxy or a load balancer. If its port is 0, it is that of
	// the listener. Default: the address of the listener. Required if that names no machine, as ":7946" does.
	Advertise string
	// Dial connects to the address of another worker; network is "tcp". Default: as a net.Dialer does. Its error
	// should wrap the error of the kernel: only syscall.ECONNREFUSED proves a death. It must return when ctx ends.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (d *Deathwatch) on() bool { return d.Listener != nil || d.Listen != "" }

// deathwatch checks Config.Deathwatch.
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
	at := d.Listen
	if d.Listener != nil {
		if err := apart(func() { at = d.Listener.Addr().String() }); err != nil {
			f.wrap("Deathwatch.Listener", fmt.Errorf("Addr: %w", err))
			return
		}
	}
	if _, _, err := net.SplitHostPort(at); err != nil {
		f.wrap("Deathwatch.Listen", err)
		return
	}
	address, err := d.address(at)
	if err == nil {
		says := lease.Says{Address: address}
		err = lease.Seat{Group: "-", Incarnation: "-", WriteID: "-", Name: "-", TTL: time.Second, Says: says}.Validate()
	}
	f.wrap("Deathwatch.Advertise", err)
}

// address returns the address to advertise for a listener at that address.
func (d *Deathwatch) address(at string) (string, error) {
	host, port, err := net.SplitHostPort(cmp.Or(d.Advertise, at))
	if err != nil {
		return "", err
	}
	if ip, _ := netip.ParseAddr(host); host == "" || ip.IsValid() && ip.Unmap().IsUnspecified() {
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
	return "the listener of this worker's deathwatch has failed, so the death of this worker is noticed only after its lease time: " + e.err.Error()
}

func (e *deafError) Unwrap() error { return e.err }

// listen begins to listen, and returns the address to advertise.
func (r *run) listen() (address string) {
	d := r.config.Deathwatch
	listener, err := d.Listener, error(nil)
	if listener == nil {
		listener, err = new(net.ListenConfig).Listen(r.values, "tcp", d.Listen)
	}
	if err == nil {
		r.answers = deathwatch.NewServer(listener)
		address, err = d.address(listener.Addr().String())
	}
	if err != nil {
		r.inbox.put(arrival{input: engine.Deaf{Err: &deafError{err}}})
	}
	return address
}

// watch begins to answer connections, and makes the links possible that the engine asks for.
func (r *run) watch() {
	if r.answers != nil {
		r.do(func() {
			if err := r.answers.Serve(r.do); err != nil {
				r.inbox.put(arrival{input: engine.Deaf{Err: &deafError{err}}})
			}
		})
	}
	r.links = deathwatch.NewLinks(r.config.Deathwatch.Dial, r.do, func(found deathwatch.Result) {
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
		r.inbox.put(arrival{input: in})
	})
}

// endWatch closes all connections of the deathwatch. The seat is gone by now, or nobody renews it any more.
func (r *run) endWatch() {
	if r.links != nil {
		r.links.Close()
	}
	if r.answers != nil {
		r.answers.Close()
	}
}
