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

// A request is one call of the table.
type request struct {
	n         *node
	write     bool
	row       bool                     // it is a write of a lease row
	serve     func() engine.Input      // at the table
	silent    func(error) engine.Input // what the caller makes of no answer
	out, back time.Duration            // how long each way takes
}

// carry takes a request to the table and its answer back, or does to it what may
// happen to requests.
func (net *network) carry(r request) {
	w := net.w
	r.out, r.back = w.between(time.Millisecond/2, net.slow), w.between(time.Millisecond/2, net.slow)
	if net.down || r.n.blocked[index(r.write)] || r.n.mute && r.row {
		net.lose(r)
		return
	}
	f, hit := net.fate(r.write)
	if !hit {
		net.deliver(r)
		return
	}
	w.stats.Faults[f]++
	w.trace(f.String(), r.n.name, nil)
	switch f {
	case Lost, ReadLost:
		net.lose(r)
	case ReplyLost:
		w.after(r.out, func() { r.serve() })
		net.lose(r)
	case Late:
		net.again(r, net.timeout)
		net.lose(r)
	case Throttled:
		r.n.later(r.out+r.back, func() { r.n.step(r.silent(errThrottled)) })
	case Twin:
		net.again(r, r.out)
		net.deliver(r)
	case LateReply:
		r.back = w.between(r.back, max(r.back, net.timeout-r.out))
		net.deliver(r)
	}
}

// again serves a request once more, or late. What was sent to one table does not
// arrive at another.
func (net *network) again(r request, d time.Duration) {
	w, table := net.w, net.w.judge.restored
	w.after(d+w.between(0, 3*w.set.ttl), func() {
		if w.judge.restored == table {
			r.serve()
		}
	})
}

// lose lets the caller wait in vain.
func (net *network) lose(r request) {
	r.n.later(net.timeout, func() { r.n.step(r.silent(errNoAnswer)) })
}

// deliver serves a request, and answers whoever made it if that still runs.
func (net *network) deliver(r request) {
	epoch := r.n.epoch
	net.w.after(r.out, func() {
		in := r.serve()
		if r.n.epoch == epoch {
			r.n.later(r.back, func() { r.n.step(in) })
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
			if seats, ok := net.earlier(); ok && len(net.w.spoilt) == 0 {
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
			if net.w.spoilt[r.Key()] {
				in.Unreadable = append(in.Unreadable, r.Key())
				continue
			}
			in.Records = append(in.Records, r)
		}
		return in
	}
	net.carry(request{n: n, serve: serve, silent: func(err error) engine.Input { return engine.Listed{Read: o.Read, Err: err} }})
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
		switch {
		case net.w.spoilt[o.Key]:
			r, err = nil, lease.ErrMalformed
		case errors.Is(err, lease.ErrNotFound):
			err = nil
		}
		return engine.Got{Read: o.Read, Key: o.Key, Record: r, Err: err}
	}
	net.carry(request{n: n, serve: serve, silent: func(err error) engine.Input { return engine.Got{Read: o.Read, Key: o.Key, Err: err} }})
}

func (net *network) send(n *node, o engine.Send) {
	from := sender{n, n.epoch}
	serve := func() engine.Input {
		r, err := net.w.judge.write(o.Write, from)
		if net.w.spoilt[o.Write.Key()] && (err != nil || o.Write.Op == lease.OpTransfer) {
			r, err = nil, lease.ErrMalformed // the answer would show the record as it stands
		}
		return engine.Settled{Write: o.Write, Record: r, Err: err}
	}
	net.carry(request{n: n, write: true, row: o.Write.Key().Kind == lease.KindLease, serve: serve, silent: func(err error) engine.Input { return engine.Settled{Write: o.Write, Err: err} }})
}

func (net *network) verify(n *node, o engine.Verify) {
	serve := func() engine.Input {
		if net.w.went {
			return engine.Verified{Read: o.Read, Err: fmt.Errorf("another table: %w", lease.ErrWentBack)}
		}
		return engine.Verified{Read: o.Read}
	}
	net.carry(request{n: n, serve: serve, silent: func(err error) engine.Input { return engine.Verified{Read: o.Read, Err: err} }})
}
