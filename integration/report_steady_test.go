package integration

import (
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
)

// List price of on-demand capacity in us-east-1, in dollars, and AWS's own month.
const (
	writePrice = 0.625 / 1e6
	readPrice  = 0.125 / 1e6
	month      = 730 * time.Hour
)

// A cost is what one settled fleet sends, idle or with commits.
type cost struct {
	size
	busy                    bool
	requests, writes, reads float64 // per second
	commits                 float64
}

func (c cost) price() float64 { return (c.writes*writePrice + c.reads*readPrice) * month.Seconds() }

// steady runs the fleets side by side: idle first, and then each shard commits now and
// then, at any moment.
func (r *report) steady() {
	costs := make([][2]cost, len(r.plan.sizes))
	var starting sync.Mutex
	var all []func()
	for i, n := range r.plan.sizes {
		all = append(all, func() {
			s := newSquad(r.T, squadPlan{
				table: r.table, mode: rebalance.Eager, ttl: r.plan.slow, shards: n.shards,
				pace: r.plan.between, commit: checkpoint.Policy{Marks: 1}, metered: true,
			})
			s.marking.Store(false)
			defer s.close()
			func() {
				starting.Lock() // a start is a burst of writes, and the meter reads twice for each
				defer starting.Unlock()
				s.start(n.workers)
			}()
			s.rest()
			costs[i][0] = s.cost(n, r.plan.idle)
			s.marking.Store(true)
			quiet(r.T, r.plan.between)
			costs[i][1] = s.cost(n, r.plan.busy)
			costs[i][1].busy = true
			r.troubled(s)
		})
	}
	together(all...)
	for _, c := range costs {
		r.costs = append(r.costs, c[0], c[1])
	}
}

// cost watches the fleet for so long.
func (s *squad) cost(n size, d time.Duration) cost {
	s.bill()
	before, from := s.sum(), time.Now()
	quiet(s.t, d)
	b, sent, seconds := s.bill(), s.sum().plus(before, -1), time.Since(from).Seconds()
	return cost{
		size: n, requests: float64(b.requests) / seconds, writes: float64(b.writes) / seconds,
		reads: b.reads / seconds, commits: float64(sent.commits) / seconds,
	}
}
