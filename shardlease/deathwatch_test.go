package shardlease_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
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
	must(t, err)
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

// cut closes all connections.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close()
	}
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
	t.Parallel()
	store := new(memstore.Store)
	const workers = 3
	events := make(chan event.Event, 1000)
	gates := make([]*gate, workers)
	all := make([]*member, workers)
	for i := range workers {
		gates[i] = newGate(t)
		all[i] = join(t, store, shardlease.Static("a", "b", "c", "d", "e", "f"), shardlease.Config{
			Name: string(rune('x' + i)), Handoff: rebalance.Cooperative, TTL: 20 * time.Second,
			Deathwatch: shardlease.Deathwatch{Listener: gates[i]},
			Observe:    func(e event.Event) { events <- e },
		}, serve)
	}
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
	if evicted > fixture.Size(10*time.Second, 2*time.Second) { // on a busy machine, it is still long before the lease time
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
	must(t, err)
	defer func() { _ = listener.Close() }()
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	defer func() { _ = socket.Close() }()
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
		"a socket without a port":    {shardlease.Deathwatch{Listener: socket}, "Deathwatch.Listener"},
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
	w := join(t, new(memstore.Store), shardlease.Static("a"), shardlease.Config{Deathwatch: shardlease.Deathwatch{Listen: busy.Addr().String()}}, serve)
	until(t, func() bool { return w.Status().Held == 1 && len(w.of(event.Unwatched)) > 0 })
	if e := w.of(event.Unwatched)[0]; e.Err == nil || !strings.Contains(e.Err.Error(), "in use") {
		t.Errorf("reported: %v", e)
	}
}

// A stuckGate is a listener that blocks when it is closed, and so do its connections.
type stuckGate struct {
	net.Listener
	until chan struct{}
	exits bool // Accept calls runtime.Goexit
}

func (g stuckGate) Accept() (net.Conn, error) {
	if g.exits {
		runtime.Goexit()
	}
	conn, err := g.Listener.Accept()
	return stuckConn{conn, g.until}, err
}

func (g stuckGate) Close() error {
	err := g.Listener.Close()
	<-g.until
	return err
}

type stuckConn struct {
	net.Conn
	until chan struct{}
}

func (c stuckConn) Close() error { <-c.until; return c.Conn.Close() }

// TestStuckListener: a worker whose listener and connections block when they are closed loses its seat. It takes
// another one at once.
func TestStuckListener(t *testing.T) {
	t.Parallel()
	store, free := new(memstore.Store), make(chan struct{})
	l := newGate(t).Listener
	w := watched(t, store, stuckGate{l, free, false})
	t.Cleanup(func() { close(free) })
	until(t, func() bool { return w.Status().Held == 1 })
	conn, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer func() { _ = conn.Close() }()
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		t.Fatalf("answer %q, %v", answer, err)
	}
	time.Sleep(100 * time.Millisecond) // it is kept
	seat, err := store.Get(t.Context(), lease.Key{Group: "orders", Kind: lease.KindSeat, Name: string(w.Status().Incarnation)})
	must(t, err)
	fixture.Must[lease.Record](t, store)(protocol.Evict(seat.(lease.Seat)))
	until(t, func() bool { return len(w.of(event.Joined)) == 2 })
}

// TestStopBeforeListening: a worker whose context has ended before it listens reports no fault.
func TestStopBeforeListening(t *testing.T) {
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("a"), shardlease.Config{
		Group: "g", Handoff: rebalance.Eager, Deathwatch: shardlease.Deathwatch{Listen: "localhost:0", Advertise: "127.0.0.1:0"},
		Observe: func(e event.Event) {
			if e.Kind == event.Unwatched {
				t.Errorf("reported: %v", e)
			}
		},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check(t, w.Run(ctx, func(context.Context, *shardlease.Tenure) error { return nil }))
}

// TestListenerThatExits: a listener that calls runtime.Goexit has failed, and the worker reports that.
func TestListenerThatExits(t *testing.T) {
	free := make(chan struct{})
	close(free)
	w := watched(t, new(memstore.Store), stuckGate{newGate(t).Listener, free, true})
	until(t, func() bool { return len(w.of(event.Unwatched)) > 0 })
}

// watched runs a worker of one shard with this listener.
func watched(t *testing.T, store lease.Store, l net.Listener) *member {
	t.Helper()
	return join(t, store, shardlease.Static("a"), shardlease.Config{TTL: 3 * time.Second, Deathwatch: shardlease.Deathwatch{Listener: l}}, serve)
}

// A proxy forwards connections to a worker. When the worker is dead, the proxy accepts on its behalf, as the sidecar
// of a service mesh does.
type proxy struct {
	net.Listener
	to      string
	running sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	p := &proxy{Listener: newGate(t).Listener, to: to}
	p.running.Go(func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.forward(conn) })
		}
	})
	t.Cleanup(func() {
		_ = p.Close()
		p.running.Wait()
	})
	return p
}

// forward copies what the worker sends, until the worker ends the connection.
func (p *proxy) forward(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	worker, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer func() { _ = worker.Close() }()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(conn, worker)
		_ = conn.Close()
	})
	_, _ = io.Copy(worker, conn)
	_ = worker.Close()
	both.Wait()
}

// TestProxyAcceptsForTheDead: the address of a dead worker is that of a proxy, which accepts connections. Nothing
// is proven, and the lease time decides, as without a deathwatch.
func TestProxyAcceptsForTheDead(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	store := new(memstore.Store)
	cut := storetest.NewLink(store)
	dead := newGate(t)
	behind := newProxy(t, dead.Addr().String())
	evicted := make(chan event.Event, 100)
	start := func(name string, store lease.Store, d shardlease.Deathwatch) *member {
		return join(t, store, shardlease.Static("a", "b"), shardlease.Config{
			Name: name, TTL: ttl, Deathwatch: d,
			Observe: func(e event.Event) {
				if e.Kind == event.PeerEvicted {
					evicted <- e
				}
			},
		}, serve)
	}
	x := start("x", store, shardlease.Deathwatch{Listener: newGate(t)})
	y := start("y", cut, shardlease.Deathwatch{Listener: dead, Advertise: behind.Addr().String()})
	until(t, func() bool { return x.Status().Held == 1 && y.Status().Held == 1 && dead.count() == 1 })
	cut.Silence()
	dead.kill()
	began := time.Now()
	e := <-evicted
	for e.Peer != "y" { // on a busy machine x has lost its seat, and evicts its former self
		e = <-evicted
	}
	if time.Since(began) < ttl*6/10 || e.Err != nil {
		t.Errorf("evicted after %v: %v", time.Since(began), e)
	}
	cut.Heal()
}

// TestHostileClientsDelayNoHeartbeat: thousands of connections of a client that never reads, or sends without end.
// Every heartbeat is on time meanwhile, and the other worker stays confirmed.
func TestHostileClientsDelayNoHeartbeat(t *testing.T) {
	p, store := new(pulse), storetest.NewLink(new(memstore.Store))
	p.over(store)
	gate := newGate(t)
	w := watched(t, store, gate.Listener)
	until(t, func() bool { return w.Status().Held == 1 })
	junk := make([]byte, 64<<10)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			var open []net.Conn
			for n := range fixture.Size(250, 2500) {
				conn, err := net.Dial("tcp", gate.Addr().String())
				if err != nil {
					continue
				}
				if n%2 == 0 {
					_ = conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
					_, _ = conn.Write(junk)
				}
				if open = append(open, conn); len(open) == 100 {
					for _, conn := range open {
						_ = conn.Close()
					}
					open = open[:0]
				}
			}
			for _, conn := range open {
				_ = conn.Close()
			}
		})
	}
	clients.Wait()
	p.note(time.Now())
	if longest := p.slowest(); longest == 0 || longest > fixture.Size(3*time.Second*9/10, 2*time.Second) { // on a busy machine, the lease stays valid
		t.Errorf("%v between two heartbeats", longest)
	}
}

// TestRefusalsOfOnesOwnMachine: the machine of worker a, or a sidecar or a firewall on it, refuses all connections. The
// worker evicts nobody, and reports why the refusals prove nothing.
func TestRefusalsOfOnesOwnMachine(t *testing.T) {
	t.Parallel()
	busy := newGate(t)
	t.Cleanup(func() { _ = busy.Close() })
	for name, tc := range map[string]struct {
		listens bool
		passes  bool // the connection to its own address passes
		peers   int
		reports string
	}{
		"its own address as well": {true, false, 2, "does not reach its own address"},
		"it has no address":       {false, false, 2, "does not reach its own address (it has none)"},
		"all others":              {true, true, 2, "another worker does not answer either"},
		"the only other":          {true, true, 1, "a connection from there to this worker still stands"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gates, refuses := []*gate{newGate(t)}, new(atomic.Bool)
			own := gates[0].Addr().String()
			dial := func(ctx context.Context, network, address string) (net.Conn, error) {
				if refuses.Load() && !(tc.passes && address == own) {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
				}
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			all := []shardlease.Deathwatch{{Listener: gates[0], Dial: dial}}
			if !tc.listens {
				_ = gates[0].Close()
				gates, all[0] = nil, shardlease.Deathwatch{Listen: busy.Addr().String(), Dial: dial}
			}
			for range tc.peers {
				g := newGate(t)
				gates, all = append(gates, g), append(all, shardlease.Deathwatch{Listener: g})
			}
			told := fleetOf(t, 3*time.Second, all...)
			for _, g := range gates {
				until(t, func() bool { return g.count() == tc.peers }) // also if a has no address: then the others do not connect to it
			}
			time.Sleep(100 * time.Millisecond) // the connections are answered
			refuses.Store(true)
			for _, g := range gates[len(gates)-tc.peers:] {
				g.cut()
			}
			for end := time.After(20 * time.Second); ; {
				select {
				case e := <-told:
					if e.Kind == event.PeerEvicted {
						t.Fatalf("evicted: %v", e)
					}
					if e.Kind == event.Unwatched && e.Worker == "a" && strings.Contains(e.String(), tc.reports) {
						return
					}
				case <-end:
					t.Fatal("not reported")
				}
			}
		})
	}
}

// fleetOf runs a worker with each deathwatch, called a, b and so on, until the test ends. It returns their events.
func fleetOf(t *testing.T, ttl time.Duration, each ...shardlease.Deathwatch) <-chan event.Event {
	t.Helper()
	store, told := new(memstore.Store), make(chan event.Event, 1000)
	for i, d := range each {
		config := shardlease.Config{Name: string(rune('a' + i)), TTL: ttl, Deathwatch: d, Observe: func(e event.Event) { told <- e }}
		join(t, store, shardlease.Static("a", "b", "c", "d", "e", "f"), config, serve)
	}
	return told
}
