package scale

import (
	"context"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// How dynamostore and the shell make their calls.
const (
	inFlight   = 16                     // dynamostore.Options.InFlight: what its lane grows to, …
	firstFew   = 4                      // … from so many
	timeout    = 2 * time.Second        // dynamostore.Options.Timeout: of one call, from when it is admitted
	silence    = timeout / 4            // of one request of it that is not answered
	firstPause = 20 * time.Millisecond  // before a request is sent again
	longest    = 250 * time.Millisecond // … at most
)

// A client is one worker's way to the table: a lane for calls about lease rows that finds out
// how many the table can take, as dynamostore's does, and any number of calls about seats.
type client struct {
	n      *node
	busy   int
	limit  float64
	pardon int
	queue  []*call // calls that wait for their turn, the latest last; there is one class, because no call commits
}

// note learns from what became of a request.
func (c *client) note(well bool) {
	switch {
	case well:
		c.limit = min(c.limit+1/c.limit, inFlight)
	case c.pardon == 0:
		c.limit = max(c.limit/2, 1)
		c.pardon = c.busy
	}
	c.pardon = max(c.pardon-1, 0)
	c.admit()
}

// A call is one call of dynamostore: requests until one is answered, or the time is up.
type call struct {
	c       *client
	lane    bool
	over    bool
	holds   bool // a lane
	pause   time.Duration
	request func(now time.Duration) (answered bool) // at the table; false: throttled
	size    func() int                              // of the answer, in bytes
	end     func(err error)
}

// do makes a call that has to end by limit as well.
func (c *client) do(lane bool, limit time.Duration, k call) {
	f := c.n.f
	k.c, k.lane, k.pause = c, lane, firstPause
	one := &k
	if limit <= f.now {
		k.end(context.DeadlineExceeded)
		return
	}
	if !lane {
		f.at(min(limit, f.now+timeout), func() { one.finish(context.DeadlineExceeded) })
		one.send()
		return
	}
	f.at(limit, func() {
		if one.holds {
			one.finish(context.DeadlineExceeded)
		} else {
			one.finish(lease.ErrQueued)
		}
	})
	c.queue = append(c.queue, one)
	c.admit()
}

// finish ends the call, once, and lets the next have its lane.
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
	if !k.c.n.dead {
		k.end(err)
	}
}

// admit admits as many calls as there is room for, first in, first out.
func (c *client) admit() {
	for len(c.queue) > 0 && c.busy < int(c.limit) {
		k := c.queue[0]
		c.queue[0], c.queue = nil, c.queue[1:]
		if !k.over {
			k.holds = true
			c.busy++
			c.n.f.after(timeout, func() { k.finish(context.DeadlineExceeded) })
			k.send()
		}
	}
}

// send makes one request.
func (k *call) send() {
	f := k.c.n.f
	if k.over || k.c.n.dead {
		return
	}
	f.after(f.latency(), func() { k.arrive() })
}

// arrive is the request at the table.
func (k *call) arrive() {
	f := k.c.n.f
	if f.table.silent {
		f.after(silence, func() { k.told(false) })
		return
	}
	answered := k.request(f.now)
	back := f.latency()
	if answered && k.size != nil {
		back += transfer(k.size())
	}
	f.after(back, func() { k.told(answered) })
}

// told is what became of a request.
func (k *call) told(answered bool) {
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

// transfer is what a large answer takes longer: 20 ms for a page of 1 MB.
func transfer(size int) time.Duration {
	return time.Duration(size) * 20 * time.Millisecond / pageSize
}

// again sends the request once more, after a pause.
func (k *call) again() {
	f := k.c.n.f
	wait := k.pause/2 + time.Duration(f.chance.Int64N(int64(k.pause/2)))
	k.pause = min(2*k.pause, longest)
	f.after(wait, k.send)
}

// list reads all pages. Each is a call of its own, and all have the shell's limit.
func (c *client) list(o engine.List) {
	f := c.n.f
	limit := f.now + f.ttl/4
	if o.Query.Kind == lease.KindLease {
		limit = f.now + f.ttl
	}
	f.meter.listed(o.Query)
	in, from := engine.Listed{Read: o.Read}, ""
	var page func()
	page = func() {
		next, before := "", len(in.Records)
		c.do(o.Query.Kind == lease.KindLease, limit, call{
			request: func(now time.Duration) (ok bool) {
				in.Records, next, ok = f.table.page(now, o.Query, from, in.Records[:before])
				return ok
			},
			size: func() int { return (len(in.Records) - before) * f.table.of(o.Query.Kind).typical() },
			end: func(err error) {
				if from, in.Err = next, err; err == nil && next != "" {
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
	in := engine.Got{Read: o.Read, Key: o.Key}
	c.do(o.Key.Kind == lease.KindLease, f.now+f.ttl/4, call{
		request: func(now time.Duration) (ok bool) {
			in.Record, ok = f.table.get(now, o.Key)
			return ok
		},
		end: func(err error) {
			if in.Err = err; err != nil {
				in.Record = nil
			}
			c.n.step(in)
		},
	})
}

func (c *client) write(o engine.Send) {
	f := c.n.f
	in := engine.Settled{Write: o.Write}
	var refused error
	c.do(o.Write.Key().Kind == lease.KindLease, f.now+f.ttl/4, call{
		request: func(now time.Duration) (ok bool) {
			in.Record, refused, ok = f.table.write(now, o.Write)
			return ok
		},
		end: func(err error) {
			if in.Err = refused; err != nil {
				in.Record, in.Err = nil, err
			}
			c.n.step(in)
		},
	})
}

// verify is one read of the group's record; the control plane has limits of its own.
func (c *client) verify(o engine.Verify) {
	f := c.n.f
	c.do(false, f.now+f.ttl, call{
		request: func(time.Duration) bool { f.meter.count("verify", 1); return true },
		end:     func(err error) { c.n.step(engine.Verified{Read: o.Read, Err: err}) },
	})
}
