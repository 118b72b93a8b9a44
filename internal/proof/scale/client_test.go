package scale

import (
	"context"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Constants of dynamostore's calls.
const (
	inFlight   = 16                     // dynamostore.Options.InFlight: the most calls that its lane admits at a time
	firstFew   = 4                      // how many calls the lane admits at first
	timeout    = 2 * time.Second        // dynamostore.Options.Timeout: the time limit of one call, from when it is admitted
	silence    = timeout / 4            // how long one request of a call waits for an answer
	firstPause = 20 * time.Millisecond  // the first pause before a request is sent again
	longest    = 250 * time.Millisecond // the longest such pause
)

// A client makes the calls of one worker. Calls about lease rows go through a lane that
// adapts to the load that the table can serve, as dynamostore's does. The number of calls
// about seats is not limited.
type client struct {
	n      *node
	busy   int
	limit  float64
	ignore int     // as in dynamostore
	queue  []*call // calls that wait for admission, oldest first; there is one class of calls, because no call commits
}

// note adapts the lane to the result of a request: well is false if it was refused or not
// answered.
func (c *client) note(well bool) {
	switch {
	case well:
		c.limit = min(c.limit+1/c.limit, inFlight)
	case c.ignore == 0:
		c.limit = max(c.limit/2, 1)
		c.ignore = c.busy
	}
	c.ignore = max(c.ignore-1, 0)
	c.admit()
}

// A call is one call of dynamostore: it makes requests until one is answered, or its time
// is over.
type call struct {
	c       *client
	lane    bool
	over    bool
	holds   bool // the call has a place in the lane
	pause   time.Duration
	request func() (answered bool) // the request at the table; false: throttled
	size    func() int             // the size of the answer, in bytes
	end     func(err error)
}

// do makes a call, which ends at limit at the latest.
func (c *client) do(lane bool, limit time.Duration, k call) {
	f := c.n.f
	k.c, k.lane, k.pause = c, lane, firstPause
	one := &k
	if limit <= f.Now() {
		k.end(context.DeadlineExceeded)
		return
	}
	if !lane {
		f.At(min(limit, f.Now()+timeout), func() { one.finish(context.DeadlineExceeded) })
		one.send()
		return
	}
	f.At(limit, func() {
		if one.holds {
			one.finish(context.DeadlineExceeded)
		} else {
			one.finish(lease.ErrQueued)
		}
	})
	c.queue = append(c.queue, one)
	c.admit()
}

// finish ends the call, once, and admits the next call to the lane.
func (k *call) finish(err error) {
	if k.over {
		return
	}
	k.over = true
	if k.holds {
		k.holds = false
		k.c.busy--
		k.c.admit()
	}
	if k.c.n.Up() {
		k.end(err)
	}
}

// admit admits calls while there is room, first in, first out.
func (c *client) admit() {
	for len(c.queue) > 0 && c.busy < int(c.limit) {
		k := c.queue[0]
		c.queue[0], c.queue = nil, c.queue[1:]
		if !k.over {
			k.holds = true
			c.busy++
			c.n.f.After(timeout, func() { k.finish(context.DeadlineExceeded) })
			k.send()
		}
	}
}

// send makes one request.
func (k *call) send() {
	f := k.c.n.f
	if k.over || !k.c.n.Up() {
		return
	}
	f.After(f.latency(), func() { k.arrive() })
}

// arrive makes the request at the table.
func (k *call) arrive() {
	f := k.c.n.f
	if f.table.silent {
		f.After(silence, func() { k.result(false) })
		return
	}
	answered := k.request()
	back := f.latency()
	if answered && k.size != nil {
		back += transfer(k.size())
	}
	f.After(back, func() { k.result(answered) })
}

// result handles the result of a request.
func (k *call) result(answered bool) {
	if k.over {
		return
	}
	if k.lane {
		k.c.note(answered)
	}
	if answered {
		k.finish(nil)
	} else {
		k.again()
	}
}

// transfer returns the additional time for a large answer: 20 ms for a page of 1 MB.
func transfer(size int) time.Duration {
	return time.Duration(size) * 20 * time.Millisecond / pageSize
}

// again sends the request again, after a pause.
func (k *call) again() {
	f := k.c.n.f
	wait := k.pause/2 + time.Duration(f.chance.Int64N(int64(k.pause/2)))
	k.pause = min(2*k.pause, longest)
	f.After(wait, k.send)
}

// list reads all pages. Each page is a call; the time limit of the shell is for all of them
// together.
func (c *client) list(o engine.List) {
	f := c.n.f
	limit := f.Now() + f.ttl/4
	if o.Query.Kind == lease.KindLease {
		limit = f.Now() + f.ttl
	}
	f.meter.listed(o.Query)
	in, from := engine.Listed{Read: o.Read}, o.Query.After
	var page func()
	page = func() {
		next, before := "", len(in.Records)
		c.do(o.Query.Kind == lease.KindLease, limit, call{
			request: func() (ok bool) {
				in.Records, next, ok = f.table.page(f.Now(), o.Query, from, in.Records[:before])
				return ok
			},
			size: func() int { return (len(in.Records) - before) * f.table.of(o.Query.Kind).typical() },
			end: func(err error) {
				if from, in.Err = next, err; err == nil && next != "" && (o.Query.Limit == 0 || len(in.Records) < o.Query.Limit) {
					page()
					return
				}
				c.n.step(in)
			},
		})
	}
	page()
}

func (c *client) get(o engine.Get) {
	f := c.n.f
	c.once(o, o.Key.Kind == lease.KindLease, f.ttl/4, func() (engine.Input, bool) {
		r, ok := f.table.get(f.Now(), o.Key)
		return engine.Got{Read: o.Read, Key: o.Key, Record: r}, ok
	})
}

func (c *client) write(o engine.Send) {
	f := c.n.f
	c.once(o, o.Write.Key().Kind == lease.KindLease, f.ttl/4, func() (engine.Input, bool) {
		r, refused, ok := f.table.write(f.Now(), o.Write)
		return engine.Settled{Write: o.Write, Record: r, Err: refused}, ok
	})
}

// verify reads the group's record; requests to the control plane are not modelled.
func (c *client) verify(o engine.Verify) {
	f := c.n.f
	c.once(o, false, f.ttl, func() (engine.Input, bool) {
		f.meter.count("verify", 1)
		return engine.Verified{Read: o.Read}, true
	})
}

// once makes a call of one request, which returns the answer or is refused.
func (c *client) once(o engine.Output, lane bool, patience time.Duration, request func() (engine.Input, bool)) {
	var in engine.Input
	c.do(lane, c.n.f.Now()+patience, call{
		request: func() (ok bool) {
			in, ok = request()
			return ok
		},
		end: func(err error) {
			if err != nil {
				in = virtual.Unanswered(o, err)
			}
			c.n.step(in)
		},
	})
}
