package report

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A fleet is a set of workers that is measured: a group of its own in a table that many groups share.
type fleet struct {
	t     *testing.T
	plan  fleetPlan
	group string
	names []string // the names of the shards
	*book

	marking atomic.Bool  // whether handlers process and mark records
	trouble atomic.Int64 // missed heartbeats, lost seats and unanswered calls of running workers
	late    atomic.Int64 // those of trouble that were writes of lease rows
	entered int          // number of names in use

	mu  sync.Mutex
	all []*member
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

// A member is a worker in this process, with a network of its own.
type member struct {
	name         string
	wire         *wire
	meter        *meter // nil if units are not counted
	client       *dynamodb.Client
	cancel       context.CancelFunc
	done         chan struct{}
	began, ended time.Time
}

func newFleet(t *testing.T, p fleetPlan) *fleet {
	s := &fleet{t: t, plan: p, group: "fleet-" + rand.Text()[:8], book: newBook(p.shards)}
	for i := range p.shards {
		s.names = append(s.names, fmt.Sprintf("shardId-%012d", i))
	}
	s.marking.Store(true)
	return s
}

// name returns the next name: a to z, and then longer ones.
func (s *fleet) name() string {
	s.entered++
	if s.entered <= 26 {
		return string(rune('a' + s.entered - 1))
	}
	return "w" + strconv.Itoa(s.entered)
}

// enlist starts n workers at once, and returns their names.
func (s *fleet) enlist(n int) []string {
	var names []string
	for range n {
		names = append(names, s.name())
		s.enter(names[len(names)-1])
	}
	return names
}

// enter starts a worker.
func (s *fleet) enter(name string) {
	m := s.recruit(name)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	s.mu.Lock()
	s.all = append(s.all, m)
	s.mu.Unlock()
	go func() {
		defer close(m.done)
		if err := s.serve(ctx, m); err != nil {
			s.t.Errorf("%s: %v", m.name, err)
		}
		m.ended = time.Now()
	}()
}

// recruit creates the network of a worker. It keeps connections like the SDK's own client.
func (s *fleet) recruit(name string) *member {
	m := &member{name: name, done: make(chan struct{}), began: time.Now()}
	plain := &http.Transport{MaxIdleConnsPerHost: 10}
	s.t.Cleanup(plain.CloseIdleConnections)
	m.wire = &wire{next: plain}
	if s.plan.metered {
		m.meter = newMeter(s.t)
		m.wire.next = m.meter.over(plain)
	}
	m.client = local.NewClient(local.Endpoint(s.t), m.wire)
	return m
}

// serve runs a worker, as the main function of a program does.
func (s *fleet) serve(ctx context.Context, m *member) error {
	store, err := dynamostore.Open(ctx, m.client, s.plan.table, dynamostore.Options{Group: s.group, Buckets: s.plan.buckets})
	if err != nil {
		return err
	}
	w, err := shardlease.New(store, shardlease.Static(s.names...), shardlease.Config{
		Group: s.group, Name: m.name, Handoff: s.plan.mode, TTL: s.plan.ttl,
		Order: checkpoint.Decimal, Commit: s.plan.commit, AuditEvery: s.plan.audit,
		Observe: func(e event.Event) { s.observe(m, e) },
	})
	if err != nil {
		return err
	}
	return w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		s.handle(ctx, m, t)
		return nil
	})
}

// observe counts events that should not happen in a fleet on a machine that is not busy.
func (s *fleet) observe(m *member, e event.Event) {
	if m.wire.dead.Load() {
		return
	}
	switch e.Kind {
	case event.Lost, event.StoreFault, event.PeerSuspect, event.PeerEvicted:
		s.trouble.Add(1)
		if e.Shard != "" {
			s.late.Add(1)
		}
	}
}

// handle processes a record now and then, until its context ends.
func (s *fleet) handle(ctx context.Context, m *member, t *shardlease.Tenure) {
	start, _ := strconv.Atoi(t.Checkpoint().Position)
	st := s.begin(m.name, t.Shard().Name, start)
	defer s.end(st)
	if s.plan.pace == 0 {
		<-ctx.Done()
		return
	}
	next := time.NewTimer(mrand.N(s.plan.pace)) // a random start, so that the shards do not process at the same times
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		next.Reset(s.plan.pace)
		if !s.marking.Load() {
			continue
		}
		if record, alive := s.process(st); alive {
			_ = t.Mark(strconv.Itoa(record)) // refused if the tenure has just ended; the record is then processed again
		}
	}
}

// must waits until w is notified, and ends this goroutine if that takes too long.
func (s *fleet) must(w *waiting, limit time.Duration, what string) time.Time {
	select {
	case at := <-w.met:
		return at
	case <-time.After(limit):
	}
	_, held := s.counts()
	s.t.Errorf("%d shards, %v, lease time %v: not within %v: %s; %s", s.plan.shards, s.plan.mode, s.plan.ttl, limit, what, held)
	runtime.Goexit()
	return time.Time{}
}

// rest lets the fleet settle, and ends at a random moment between two heartbeats.
func (s *fleet) rest() {
	fixture.Sleep(s.t, s.plan.beat()+time.Second+mrand.N(s.plan.beat()))
}

// quiet waits until nobody has listed the rows for a heartbeat: on a slow machine the last listing of a
// change rests for longer than rest does.
func (s *fleet) quiet() {
	for range 20 {
		before := s.sum().listings
		fixture.Sleep(s.t, s.plan.beat())
		if s.sum().listings == before {
			return
		}
	}
	s.t.Error("the rows are listed again and again")
}

// audited waits until all workers have listed the rows once more: the next audits are most of a period away.
func (s *fleet) audited(workers int) {
	due := s.sum().listings + workers
	for from := time.Now(); s.sum().listings < due && time.Since(from) < 2*s.plan.audit; {
		fixture.Sleep(s.t, s.plan.beat())
	}
	s.quiet()
}

// find returns the member of that name.
func (s *fleet) find(name string) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.all, func(m *member) bool { return m.name == name })
	return s.all[i]
}

// retire shuts a worker down gracefully and waits until its Run has returned.
func (s *fleet) retire(name string) {
	m := s.find(name)
	m.cancel()
	<-m.done
}

// crash simulates a kill -9: from one instant on no request leaves the worker, and its handlers no longer
// count.
func (s *fleet) crash(name string) time.Time {
	m := s.find(name)
	at := s.kill(name, func() { m.wire.dead.Store(true) })
	m.cancel() // so that the worker ends later, unnoticed by the others
	return at
}

// close stops all workers and waits.
func (s *fleet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		m.cancel()
	}
	for _, m := range s.all {
		<-m.done
	}
}

// sum returns the traffic of all members, including those that have left.
func (s *fleet) sum() traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum traffic
	for _, m := range s.all {
		sum = sum.plus(m.wire.traffic(), 1)
	}
	return sum
}

// bill returns what the meters of all members have counted since the last call.
func (s *fleet) bill() bill {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum bill
	for _, m := range s.all {
		b := total(m.meter.since())
		sum = bill{sum.requests + b.requests, sum.writes + b.writes, sum.reads + b.reads}
	}
	return sum
}
