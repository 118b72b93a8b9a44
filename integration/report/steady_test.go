package report

import (
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// List prices of on-demand capacity in us-east-1, in dollars, and the month that AWS uses.
const (
	writePrice = 0.625 / 1e6
	readPrice  = 0.125 / 1e6
	month      = 730 * time.Hour
)

// A cost is the traffic of one settled fleet, idle or with commits.
type cost struct {
	size
	busy                    bool
	requests, writes, reads float64 // per second
	commits                 float64
}

func (c cost) price() float64 { return (c.writes*writePrice + c.reads*readPrice) * month.Seconds() }

// steady measures the fleets side by side: first idle, and then with commits of each shard at random
// moments.
func (r *report) steady() {
	costs := make([][2]cost, len(r.plan.sizes))
	var starting sync.Mutex
	var all []func()
	for i, n := range r.plan.sizes {
		all = append(all, func() {
			s := newFleet(r.T, fleetPlan{
				table: r.table, mode: rebalance.Eager, ttl: r.plan.slow, shards: n.shards,
				pace: r.plan.between, commit: checkpoint.Policy{Marks: 1}, audit: r.plan.audit, metered: true,
			})
			s.Idle.Store(true)
			defer s.Close()
			func() {
				starting.Lock() // a start makes many writes at once, and the meter two reads for each
				defer starting.Unlock()
				s.start(n.workers)
			}()
			s.rest()
			fixture.Sleep(r.T, r.plan.audit/3) // all workers audit at about the same time; this moves both ends of the window between two audits
			costs[i][0] = s.cost(n, r.plan.idle)
			s.Idle.Store(false)
			fixture.Sleep(r.T, r.plan.between)
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

// auditPeriod is the average time between two audits of a worker, which shortens each wait by up to a
// tenth.
func (p fleetPlan) auditPeriod() time.Duration { return p.audit * 19 / 20 }

// cost measures the fleet for so many audit periods. Most reads of a fleet with many shards are audits,
// so a window that misses some audits would give a wrong figure.
func (s *measured) cost(n size, periods int) cost {
	s.bill()
	before, trouble, from := s.sum(), s.Trouble.Load(), time.Now()
	fixture.Sleep(s.T, time.Duration(periods)*s.plan.auditPeriod())
	b, sent, seconds := s.bill(), s.sum().plus(before, -1), time.Since(from).Seconds()
	due := periods
	if n.workers <= lease.MaxWatchers { // in a larger fleet only the first watcher audits
		due *= n.workers
	}
	if 10*sent.listings < 9*due && s.Trouble.Load() == trouble {
		s.Errorf("%d × %d: the rows were listed %d times in %.0f s, want %d audits", n.shards, n.workers, sent.listings, seconds, due)
	}
	return cost{
		size: n, requests: float64(b.requests) / seconds, writes: float64(b.writes) / seconds,
		reads: b.reads / seconds, commits: float64(sent.commits) / seconds,
	}
}
