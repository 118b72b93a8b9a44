// Package telemetry records real fleets with the real SDK of OpenTelemetry, and checks the alerts and the dashboard of docs/deploy
// with a real Prometheus.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/otelshardlease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const group = "orders"

// program returns the path of a program of Prometheus.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("SHARDLEASE_REQUIRE_PROMETHEUS") == "1":
		t.Fatalf("SHARDLEASE_REQUIRE_PROMETHEUS is 1: %v", err)
	default:
		t.Skipf("integration/provide-prometheus installs it: %v", err)
	}
	return path
}

// A scene is a fleet on a table in memory, and what it reports.
type scene struct {
	t         testing.TB
	registry  *prometheus.Registry
	telemetry *otelshardlease.Telemetry
	store     *memstore.Store
	watcher   *storetest.Link
	all       sync.WaitGroup // what ends when the test ends

	mu      sync.Mutex // guards members
	members map[string]*member
}

// A member is a worker or a session.
type member struct {
	link   *storetest.Link
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
}

func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{t: t, registry: prometheus.NewRegistry(), store: new(memstore.Store), members: map[string]*member{}}
	reader, err := exporter.New(exporter.WithRegisterer(s.registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		t.Fatal(err)
	}
	s.telemetry, err = otelshardlease.New(otelshardlease.Options{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// watch watches a group until ctx ends.
func (s *scene) watch(ctx context.Context, group string, o inspect.WatchOptions) {
	link := storetest.NewLink(s.store)
	s.watcher = link
	s.all.Go(func() {
		if err := s.telemetry.Watch(ctx, link, group, o); err != nil {
			s.t.Error(err)
		}
	})
}

var shards = shardlease.Static("shard-1", "shard-2", "shard-3", "shard-4", "shard-5", "shard-6")

// start starts a worker. Fields of c that are zero get the usual values of this test.
func (s *scene) start(name string, c shardlease.Config, handler shardlease.Handler) {
	s.t.Helper()
	s.startOn(name, shards, c, handler)
}

func (s *scene) startOn(name string, source shardlease.Source, c shardlease.Config, handler shardlease.Handler) {
	s.t.Helper()
	if c.Group == "" {
		c.Group = group
	}
	if c.Handoff == nil {
		c.Handoff = rebalance.Cooperative
	}
	c.Name = name
	m := s.member(name)
	w, err := s.telemetry.Worker(m.link, source, c)
	if err != nil {
		close(m.ended)
		s.t.Error(err)
		return
	}
	s.run(m, func(ctx context.Context) error { return w.Run(ctx, handler) })
}

// session starts a session.
func (s *scene) session(name, group string) *shardlease.Session {
	s.t.Helper()
	m := s.member(name)
	session, err := s.telemetry.Session(m.link, shardlease.SessionConfig{Group: group, Name: name, TTL: time.Second, Drain: time.Second})
	if err != nil {
		close(m.ended)
		s.t.Error(err)
		return nil
	}
	s.run(m, session.Run)
	return session
}

func (s *scene) member(name string) *member {
	m := &member{link: storetest.NewLink(s.store), ended: make(chan struct{})}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[name] = m
	return m
}

func (s *scene) run(m *member, run func(context.Context) error) {
	s.all.Go(func() {
		defer close(m.ended)
		if err := run(m.ctx); err != nil {
			s.t.Error(err)
		}
	})
}

// stop stops a member gracefully.
func (s *scene) stop(name string) {
	m := s.of(name)
	m.cancel()
	<-m.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, name)
}

// of returns a member.
func (s *scene) of(name string) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[name]
}

// kill cuts a member off and ends it, as if its process had died.
func (s *scene) kill(name string) {
	s.of(name).link.Cut()
	s.stop(name)
}

// end stops everything that runs.
func (s *scene) end() {
	s.mu.Lock()
	for _, m := range s.members {
		m.link.Heal()
		m.cancel()
	}
	s.mu.Unlock()
	s.all.Wait()
}

// process marks at an interval.
func process(every time.Duration) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		for n := 0; ; n++ {
			if err := t.Mark(fmt.Sprint(n)); err != nil {
				if errors.Is(err, checkpoint.ErrStale) || ctx.Err() != nil {
					return nil
				}
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(every):
			}
		}
	}
}
