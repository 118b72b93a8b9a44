package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// What callers are told.
var (
	errNoAnswer  = errors.New("no answer")
	errThrottled = errors.New("throttled")
	errSource    = errors.New("the source could not be listed")
)

// A network carries requests to the table: out, served at one instant, and back.
type network struct {
	w       *world
	rates   rates
	slow    time.Duration // how long one way takes at most
	timeout time.Duration // how long a caller waits
	down    bool
	past    []seating // listings of the seats, the latest last
}

// Rates are the chances of what can happen to one request.
type rates struct {
	lost, replyLost, late, twin, lateReply, throttled, readLost, stale float64
}

// A seating is who was there from then on.
type seating struct {
	at    time.Duration
	seats []lease.Record
}

// carry takes one request to the table and its answer back.
func (net *network) carry(n *node, write bool, serve func() engine.Input, silent func(error) engine.Input) {
	w := net.w
	out, back := w.between(time.Millisecond/2, net.slow), w.between(time.Millisecond/2, net.slow)
	none := func() { n.later(net.timeout, func() { n.step(silent(errNoAnswer)) }) }
	if net.down || n.blocked[index(write)] {
		none()
		return
	}
	f, hit := net.fate(write)
	if hit {
		w.stats.Faults[f]++
		w.trace(f.String(), n.name, nil)
	}
	switch {
	case hit && (f == Lost || f == ReadLost):
		none()
		return
	case hit && f == ReplyLost:
		w.after(out, func() { serve() })
		none()
		return
	case hit && f == Late:
		w.after(net.timeout+w.between(0, 3*w.set.ttl), func() { serve() })
		none()
		return
	case hit && f == Throttled:
		n.later(out+back, func() { n.step(silent(errThrottled)) })
		return
	case hit && f == Twin:
		w.after(out+w.between(0, 3*w.set.ttl), func() { serve() })
	case hit && f == LateReply:
		back = w.between(back, max(back, net.timeout-out))
	}
	epoch := n.epoch
	w.after(out, func() {
		in := serve()
		if n.epoch == epoch {
			n.later(back, func() { n.step(in) })
		}
	})
}

func index(write bool) int {
	if write {
		return 1
	}
	return 0
}

// fate draws what happens to a request; false: nothing.
func (net *network) fate(write bool) (Fault, bool) {
	r := &net.rates
	x := net.w.chance.Float64()
	fates := []struct {
		fault Fault
		rate  float64
	}{{Throttled, r.throttled}, {LateReply, r.lateReply}, {ReadLost, r.readLost}}
	if write {
		fates = append(fates[:2], []struct {
			fault Fault
			rate  float64
		}{{Lost, r.lost}, {ReplyLost, r.replyLost}, {Late, r.late}, {Twin, r.twin}}...)
	}
	for _, f := range fates {
		if x -= f.rate; x < 0 {
			return f.fault, true
		}
	}
	return 0, false
}

func (net *network) list(n *node, o engine.List) {
	n.calls++
	serve := func() engine.Input {
		if o.Query.Eventually && net.w.likely(net.rates.stale) {
			if seats, ok := net.earlier(); ok {
				net.w.stats.Faults[Stale]++
				return engine.Listed{Read: o.Read, Records: seats}
			}
		}
		in := engine.Listed{Read: o.Read}
		for r, err := range net.w.store.List(context.Background(), o.Query) {
			if err != nil {
				in.Err = err
				break
			}
			in.Records = append(in.Records, r)
		}
		return in
	}
	net.carry(n, false, serve, func(err error) engine.Input { return engine.Listed{Read: o.Read, Err: err} })
}

// earlier is the seats as they were up to a second ago.
func (net *network) earlier() ([]lease.Record, bool) {
	at := net.w.now - net.w.between(0, time.Second)
	for _, s := range slices.Backward(net.past) {
		if s.at <= at {
			return slices.Clone(s.seats), true
		}
	}
	return nil, false
}

// seatsChanged keeps what a lagging replica may still show.
func (net *network) seatsChanged() {
	if net.rates.stale == 0 {
		net.past = nil
		return
	}
	s := seating{at: net.w.now, seats: net.w.seats()}
	net.past = append(net.past, s)
	for len(net.past) > 1 && net.past[1].at < net.w.now-2*time.Second {
		net.past = net.past[1:]
	}
}

// seats is who is there.
func (w *world) seats() (seats []lease.Record) {
	for r := range w.store.List(context.Background(), lease.Query{Group: group, Kind: lease.KindSeat}) {
		seats = append(seats, r)
	}
	return seats
}

func (net *network) get(n *node, o engine.Get) {
	n.calls++
	serve := func() engine.Input {
		r, err := net.w.store.Get(context.Background(), o.Key)
		if errors.Is(err, lease.ErrNotFound) {
			err = nil
		}
		return engine.Got{Read: o.Read, Key: o.Key, Record: r, Err: err}
	}
	net.carry(n, false, serve, func(err error) engine.Input { return engine.Got{Read: o.Read, Key: o.Key, Err: err} })
}

func (net *network) send(n *node, o engine.Send) {
	from := sender{n, n.epoch}
	serve := func() engine.Input {
		r, err := net.w.judge.write(o.Write, from)
		return engine.Settled{Write: o.Write, Record: r, Err: err}
	}
	net.carry(n, true, serve, func(err error) engine.Input { return engine.Settled{Write: o.Write, Err: err} })
}

func (net *network) verify(n *node) {
	serve := func() engine.Input {
		if net.w.went {
			return engine.Verified{Err: fmt.Errorf("another table: %w", lease.ErrWentBack)}
		}
		return engine.Verified{}
	}
	net.carry(n, false, serve, func(err error) engine.Input { return engine.Verified{Err: err} })
}
