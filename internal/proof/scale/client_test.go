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
	ignore int // as in dynamostore
	tempo  tempo
	queue  []*call // calls that wait for admission, oldest first; there is one class of calls, because no call commits
}

// lateness is how much later than the quickest answer one may come without narrowing the lane.
const lateness = timeout / 8

// A tempo is that of dynamostore: how long requests take at present, and how long the quickest one took.
type tempo struct{ took, quickest time.Duration }

// answered returns how much later than the quickest answer this one came.
func (t *tempo) answered(took time.Duration) (late time.Duration) {
	t.took = max(took, t.took-(t.took-took)/8)
	if t.quickest == 0 {
		t.quickest = took
	}
	t.quickest = min(took, t.quickest+(took-t.quickest)/1024)
	return took - t.quickest
}

// limit returns how long a request waits for its answer.
func (t *tempo) limit() time.Duration { return min(max(2*t.took, silence), timeout) }

// note adapts the lane to the result of a request: well is false if it was refused, or not
// answered in time.
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
	from    time.Duration
	until   time.Duration // of a call that goes through the lane
	attempt int           // the number of the present request; 0: nothing takes processor time
	pause   time.Duration
	request func() (answered bool) // the request at the table; false: throttled
	size    func() int             // the size of the answer, in bytes
	records func() int             // how many records it has
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
			one.expire()
		}
	})
	one.from, one.until = f.Now(), limit
	c.queue = append(c.queue, one)
	c.admit()
}

// expire ends a call that was not admitted.
func (k *call) expire() {
	if k.over {
		return
	}
	k.over = true
	k.c.n.f.cpu.run(func() time.Duration {
		if k.c.n.Up() {
			k.end(lease.ErrQueued)
		}
		return givenUp
	})
}

// late reports whether the call has too little time left to be admitted. Only on a slow machine is that looked at.
func (k *call) late() bool {
	left := k.until - k.c.n.f.Now()
	return k.c.n.f.cpu != nil && (left <= 0 || k.c.busy > 0 && left < max(k.c.tempo.took, (k.until-k.from)/2))
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
		switch {
		case k.over:
		case k.late():
			k.expire()
		default:
			k.holds = true
			c.busy++
			c.n.f.After(timeout, func() { k.finish(context.DeadlineExceeded) })
			k.send()
		}
	}
}

// send makes one request, when the call has the processor. On a slow machine its answer may come too late: like
// dynamostore, the call then sends another request.
func (k *call) send() {
	f := k.c.n.f
	f.cpu.run(func() time.Duration {
		if k.over || !k.c.n.Up() {
			return 0
		}
		if f.cpu != nil {
			k.attempt++
			k.cut(k.attempt, k.c.tempo.limit())
		}
		began, mine := f.Now(), k.attempt
		f.After(f.latency(), func() { k.arrive(began, mine) })
		return f.request / 2
	})
}

// cut ends the wait for the answer to this request.
func (k *call) cut(mine int, limit time.Duration) {
	k.c.n.f.After(limit, func() {
		if k.over || k.attempt != mine {
			return
		}
		k.attempt++
		k.c.tempo.took = max(k.c.tempo.took, 2*limit)
		k.c.n.f.cpu.run(func() time.Duration { k.result(false, false); return givenUp })
	})
}

// arrive makes the request at the table.
func (k *call) arrive(began time.Duration, mine int) {
	f := k.c.n.f
	if f.table.silent {
		if f.cpu == nil { // otherwise see cut
			f.After(silence, func() { k.result(false, false) })
		}
		return
	}
	answered := k.request()
	back, price := f.latency(), f.request/2
	if answered && k.size != nil {
		back += transfer(k.size())
		price += time.Duration(k.records()) * recordPrice
	}
	f.After(back, func() {
		f.cpu.run(func() time.Duration {
			if k.attempt != mine { // it waits no longer for this one
				return 0
			}
			if f.cpu != nil {
				k.attempt++
			}
			late := k.c.tempo.answered(f.Now() - began)
			k.result(answered, late <= lateness)
			return price
		})
	})
}

// result handles the result of a request.
func (k *call) result(answered, prompt bool) {
	if k.over {
		return
	}
	if k.lane {
		k.c.note(answered && prompt)
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
			size:    func() int { return (len(in.Records) - before) * f.table.of(o.Query.Kind).typical() },
			records: func() int { return len(in.Records) - before },
			end: func(err error) {
				if from, in.Err = next, err; err == nil && next != "" && (o.Query.Limit == 0 || len(in.Records) < o.Query.Limit) {
					page()
					return
				}
				c.n.put(in, o.Query.Kind == lease.KindSeat)
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
