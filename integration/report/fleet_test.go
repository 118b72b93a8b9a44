package report

import (
	mrand "math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/fleet"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

// A measured is a fleet whose requests are counted.
type measured struct {
	*fleet.Fleet
	plan fleetPlan

	mu    sync.Mutex
	wires []*wire
}

// A fleetPlan configures a fleet.
type fleetPlan struct {
	table   string
	mode    rebalance.Mode
	ttl     time.Duration
	shards  int
	pace    time.Duration // the time between two records of a shard; 0: none are processed
	commit  checkpoint.Policy
	audit   time.Duration // Config.AuditEvery; 0: its default
	buckets int           // dynamostore.Options.Buckets
	metered bool          // count units too, which costs two additional reads for each write
}

func (p fleetPlan) beat() time.Duration { return p.ttl / 3 }

func newFleet(t *testing.T, p fleetPlan) *measured {
	s := &measured{plan: p}
	s.Fleet = fleet.New(t, fleet.Config{
		Table: p.table, Shards: p.shards, Store: dynamostore.Options{Buckets: p.buckets}, Pace: p.pace, Through: s.wired,
		Members: shardlease.Config{Handoff: p.mode, TTL: p.ttl, Commit: p.commit, AuditEvery: p.audit},
	})
	return s
}

// wired adds counters to the network of a worker.
func (s *measured) wired(worker *fleet.Worker, next http.RoundTripper) http.RoundTripper {
	w := &wire{worker: worker, next: next}
	if s.plan.metered {
		w.meter = newMeter(s.T)
		w.next = w.meter.over(next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wires = append(s.wires, w)
	return w
}

// must waits until w is notified, and ends this goroutine if that takes too long.
func (s *measured) must(w *fleet.Waiting, limit time.Duration, what string) time.Time {
	at, ok := w.Within(limit)
	if !ok {
		s.Errorf("%d shards, %v, lease time %v: not within %v: %s; %s", s.plan.shards, s.plan.mode, s.plan.ttl, limit, what, s.Held())
		runtime.Goexit()
	}
	return at
}

// rest lets the fleet settle, and ends at a random moment between two heartbeats.
func (s *measured) rest() {
	fixture.Sleep(s.T, s.plan.beat()+time.Second+mrand.N(s.plan.beat()))
}

// quiet waits until nobody has listed the rows for a heartbeat: on a slow machine the last listing of a
// change rests for longer than rest does.
func (s *measured) quiet() {
	for range 20 {
		before := s.sum().listings
		fixture.Sleep(s.T, s.plan.beat())
		if s.sum().listings == before {
			return
		}
	}
	s.Error("the rows are listed again and again")
}

// audited waits until all workers have listed the rows once more: the next audits are most of a period away.
func (s *measured) audited(workers int) {
	due := s.sum().listings + workers
	for from := time.Now(); s.sum().listings < due && time.Since(from) < 2*s.plan.audit; {
		fixture.Sleep(s.T, s.plan.beat())
	}
	s.quiet()
}

// sum returns the traffic of all workers, including those that have left.
func (s *measured) sum() traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum traffic
	for _, w := range s.wires {
		sum = sum.plus(w.traffic(), 1)
	}
	return sum
}

// bill returns what the meters of all workers have counted since the last call.
func (s *measured) bill() bill {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum bill
	for _, w := range s.wires {
		b := total(w.meter.since())
		sum = bill{sum.requests + b.requests, sum.writes + b.writes, sum.reads + b.reads}
	}
	return sum
}
