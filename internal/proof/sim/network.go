package sim

import (
	"errors"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The errors that callers get.
var (
	errNoAnswer  = errors.New("no answer")
	errThrottled = errors.New("throttled")
	errSource    = errors.New("the source could not be listed")
)

// A network carries requests to the table, which serves each at one instant, and carries the answers back.
type network struct {
	w       *world
	rates   rates
	slow    time.Duration // how long one way takes at most
	timeout time.Duration // how long a caller waits
	down    bool
}

// Rates are the chances of what can happen to one request.
type rates struct {
	lost, replyLost, late, twin, lateReply, throttled, readLost, stale float64
}

// times returns the rates multiplied by x.
func (r rates) times(x float64) rates {
	return rates{
		lost: r.lost * x, replyLost: r.replyLost * x, late: r.late * x, twin: r.twin * x, lateReply: r.lateReply * x,
		throttled: r.throttled * x, readLost: r.readLost * x, stale: r.stale * x,
	}
}

// set sets the rates.
func (net *network) set(r rates) {
	net.rates, net.w.table.Stale = r, nil
	if r.stale > 0 {
		net.w.table.Stale = func() (time.Duration, bool) {
			if !net.w.likely(net.rates.stale) {
				return 0, false
			}
			return net.w.between(0, lag), true
		}
	}
}

// lag is how far listings lag behind at most.
const lag = 3 * time.Second

// A request is one call of the table.
type request struct {
	n         *node
	call      engine.Output
	from      virtual.Sender
	out, back time.Duration // how long each way takes
}

// serve lets the table serve the request.
func (r request) serve() engine.Input { return r.n.w.table.Serve(r.from, r.call) }

// carry carries a call to the table and its answer back, unless the request has a fault.
func (net *network) carry(n *node, call engine.Output) {
	w := net.w
	r := request{n: n, call: call, from: n.Sender()}
	r.out, r.back = w.between(time.Millisecond/2, net.slow), w.between(time.Millisecond/2, net.slow)
	send, write := call.(engine.Send)
	if net.down || n.blocked[index(write)] || n.denied != nil && !w.peace && n.denied(call) || n.mute && write && send.Write.Key().Kind == lease.KindLease {
		net.lose(r)
		return
	}
	f, hit := net.fate(write)
	if !hit {
		n.Deliver(r.out, r.back, r.serve)
		return
	}
	w.stats.Faults[f]++
	w.trace(f.String(), n.Name, nil)
	switch f {
	case Lost, ReadLost:
		net.lose(r)
	case ReplyLost:
		w.After(r.out, func() { r.serve() })
		net.lose(r)
	case Late:
		net.again(r, net.timeout)
		net.lose(r)
	case Throttled:
		n.Answer(r.out+r.back, virtual.Unanswered(call, errThrottled))
	case Twin:
		net.again(r, r.out)
		n.Deliver(r.out, r.back, r.serve)
	case LateReply:
		n.Deliver(r.out, w.between(r.back, max(r.back, net.timeout-r.out)), r.serve)
	}
}

// again serves a request once more, or late. A request that was sent before a restore does not arrive at
// the restored table.
func (net *network) again(r request, d time.Duration) {
	w, table := net.w, net.w.faults.backup.restored
	w.After(d+w.between(0, 3*w.set.ttl), func() {
		if w.faults.backup.restored == table {
			r.serve()
		}
	})
}

// lose leaves the caller without an answer until its timeout.
func (net *network) lose(r request) {
	r.n.Answer(net.timeout, virtual.Unanswered(r.call, errNoAnswer))
}

func index(write bool) int {
	if write {
		return 1
	}
	return 0
}

// fate draws the fault of a request; false: it has none.
func (net *network) fate(write bool) (Fault, bool) {
	r := &net.rates
	x := net.w.Float64()
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
