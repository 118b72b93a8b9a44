package shardlease_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A gate is a listener that can be killed: its address refuses connections from then on, and Accept waits.
type gate struct {
	net.Listener
	over  chan struct{}
	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

func newGate(t *testing.T) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &gate{Listener: l, over: make(chan struct{})}
}

func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	g.mu.Lock()
	dead := g.dead
	if err == nil {
		g.conns = append(g.conns, conn)
	}
	g.mu.Unlock()
	if dead {
		<-g.over
	}
	return conn, err
}

func (g *gate) Close() error {
	close(g.over)
	return g.Listener.Close()
}

// count returns how many connections were accepted.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

// kill closes the listener and all connections.
func (g *gate) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
	_ = g.Listener.Close()
	for _, c := range g.conns {
		_ = c.Close()
	}
}

// TestDeathwatch: the process of a worker seems to be gone: its listener and its connections are closed at once.
// The other workers evict it in a moment, although its lease time is 20 seconds. It lives, so it takes another seat
// without an address, and reports that it was misjudged.
func TestDeathwatch(t *testing.T) {
	store := new(memstore.Store)
	const workers = 3
	events := make(chan event.Event, 1000)
	gates := make([]*gate, workers)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	all := make([]*shardlease.Worker, workers)
	for i := range workers {
		gates[i] = newGate(t)
		w, err := shardlease.New(store, shardlease.Static("a", "b", "c", "d", "e", "f"), shardlease.Config{
			Group: "g", Name: string(rune('x' + i)), Handoff: rebalance.Cooperative, TTL: 20 * time.Second,
			Deathwatch: shardlease.Deathwatch{Listener: gates[i]},
			Observe:    func(e event.Event) { events <- e },
		})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = w
		running.Go(func() {
			_ = w.Run(ctx, func(ctx context.Context, _ *shardlease.Tenure) error { <-ctx.Done(); return nil })
		})
	}
	defer running.Wait()
	defer cancel()
	until(t, func() bool {
		for _, w := range all {
			if w.Status().Held != 2 {
				return false
			}
		}
		return true
	})
	until(t, func() bool { return gates[1].count() == workers-1 }) // they are made with the next listing of the seats
	time.Sleep(100 * time.Millisecond)                             // and then answered
	gates[1].kill()
	began := time.Now()
	evicted, misjudged := time.Duration(0), false
	for evicted == 0 || !misjudged {
		select {
		case e := <-events:
			if e.Kind == event.PeerEvicted {
				evicted = time.Since(began)
				if e.Peer != "y" || e.Err == nil {
					t.Errorf("evicted: %v", e)
				}
			}
			misjudged = misjudged || e.Kind == event.Misjudged && e.Worker == "y"
		case <-time.After(30 * time.Second):
			t.Fatalf("evicted after %v, misjudged: %t", evicted, misjudged)
		}
	}
	if evicted > 2*time.Second {
		t.Errorf("evicted after %v", evicted)
	}
}

// until waits until cond holds.
func until(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time")
		}
	}
}

// TestDeathwatchConfig: a mistake in the configuration is reported with the rule it breaks.
func TestDeathwatchConfig(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dial := new(net.Dialer).DialContext
	for name, tc := range map[string]struct {
		of    shardlease.Deathwatch
		field string // of the fault; empty: there is none
	}{
		"off":                        {},
		"an address of its own":      {of: shardlease.Deathwatch{Listen: "10.0.0.7:7946"}},
		"any port":                   {of: shardlease.Deathwatch{Listen: "10.0.0.7:0"}},
		"a listener":                 {of: shardlease.Deathwatch{Listener: listener}},
		"an advertised host":         {of: shardlease.Deathwatch{Listen: ":0", Advertise: "10.0.0.7:0"}},
		"a name":                     {of: shardlease.Deathwatch{Listen: ":7946", Advertise: "worker-1.orders:7946"}},
		"both":                       {shardlease.Deathwatch{Listener: listener, Listen: ":7946"}, "Deathwatch.Listen"},
		"only a dialer":              {shardlease.Deathwatch{Dial: dial}, "Deathwatch.Listen"},
		"only an address":            {shardlease.Deathwatch{Advertise: "10.0.0.7:1"}, "Deathwatch.Listen"},
		"a nil listener":             {shardlease.Deathwatch{Listener: (*net.TCPListener)(nil)}, "Deathwatch.Listener"},
		"no port":                    {shardlease.Deathwatch{Listen: "10.0.0.7"}, "Deathwatch.Listen"},
		"nothing to advertise":       {shardlease.Deathwatch{Listen: ":7946"}, "Deathwatch.Advertise"},
		"any address":                {shardlease.Deathwatch{Listen: "0.0.0.0:7946"}, "Deathwatch.Advertise"},
		"any address is advertised":  {shardlease.Deathwatch{Listen: ":7946", Advertise: "[::]:7946"}, "Deathwatch.Advertise"},
		"an address without a port":  {shardlease.Deathwatch{Listen: ":7946", Advertise: "10.0.0.7"}, "Deathwatch.Advertise"},
		"an address that is no text": {shardlease.Deathwatch{Listen: ":7946", Advertise: "a\nb:7946"}, "Deathwatch.Advertise"},
		"an address that is long":    {shardlease.Deathwatch{Listen: ":7946", Advertise: strings.Repeat("a", 300) + ":7946"}, "Deathwatch.Advertise"},
	} {
		_, err := shardlease.New(new(memstore.Store), shardlease.Static("a"), shardlease.Config{Group: "g", Handoff: rebalance.Eager, Deathwatch: tc.of})
		fault, _ := errors.AsType[*shardlease.ConfigError](err)
		if tc.field == "" && err != nil || tc.field != "" && (fault == nil || fault.Field != tc.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDeathwatchWithoutAPort: the address is in use. The worker runs without it, and reports that.
func TestDeathwatchWithoutAPort(t *testing.T) {
	busy := newGate(t)
	defer func() { _ = busy.Close() }()
	told := make(chan event.Event, 100)
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("a"), shardlease.Config{
		Group: "g", Handoff: rebalance.Eager, Deathwatch: shardlease.Deathwatch{Listen: busy.Addr().String()},
		Observe: func(e event.Event) { told <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		_ = w.Run(ctx, func(ctx context.Context, _ *shardlease.Tenure) error { <-ctx.Done(); return nil })
	})
	until(t, func() bool { return w.Status().Held == 1 })
	for e := range told {
		if e.Kind == event.Unwatched {
			if e.Err == nil || !strings.Contains(e.Err.Error(), "in use") {
				t.Errorf("reported: %v", e)
			}
			return
		}
	}
}
