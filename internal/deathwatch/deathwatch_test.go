package deathwatch

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// must ends the test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMain runs the tests, or a process of peers for a test.
func TestMain(m *testing.M) {
	if n := os.Getenv(peersVariable); n != "" {
		runPeers(n)
		return
	}
	if config := os.Getenv(peerVariable); config != "" {
		runPeer(config)
		return
	}
	fixture.SideBySide(16)
	goleak.VerifyTestMain(m)
}

const limit = 20 * time.Second // how long a test waits for an event that must happen; long, because the machine may be busy

// listen returns a listener on a free port of the loopback.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	return l
}

// A served is a server that is being served.
type served struct {
	*Server
	address string
	end     chan error // what Serve has returned
	wg      sync.WaitGroup
	running atomic.Int32 // goroutines that answer
	visits  atomic.Int32
}

// serve runs a server on a listener until the test ends.
func serve(t testing.TB, l net.Listener, incarnation string) *served {
	s := &served{end: make(chan error, 1)}
	s.Server = NewServer(l, func() { s.visits.Add(1) })
	if l.Addr() != nil {
		s.address = l.Addr().String()
	}
	s.Answer(incarnation)
	s.wg.Go(func() { s.end <- s.Serve(counted(&s.wg, &s.running)) })
	t.Cleanup(func() {
		s.Close()
		s.wg.Wait()
	})
	return s
}

// A watcher is a Links that records its reports.
type watcher struct {
	*Links
	wg      sync.WaitGroup
	running atomic.Int32 // goroutines of the links
	results chan Result
}

// watch returns links without a peer, until the test ends. The watcher has no server, so it believes no refusal.
func watch(t testing.TB, dial Dialer) *watcher { return watchFrom(t, nil, dial) }

// watchAsServer does the same for a watcher that has a server.
func watchAsServer(t testing.TB, dial Dialer) *watcher {
	return watchFrom(t, serve(t, listen(t), "w-1"), dial)
}

// watchFrom does the same for a watcher that has this server; nil: none.
func watchFrom(t testing.TB, own *served, dial Dialer) *watcher {
	w := &watcher{results: make(chan Result, 10_000)}
	report := func(r Result) { w.results <- r }
	if own == nil {
		w.Links = NewLinks("", nil, dial, counted(&w.wg, &w.running), report)
	} else {
		w.Links = NewLinks(own.address, own.Server, dial, counted(&w.wg, &w.running), report)
	}
	t.Cleanup(func() {
		w.Close()
		w.wg.Wait()
	})
	return w
}

// counted returns a function that starts goroutines and counts those that run.
func counted(wg *sync.WaitGroup, running *atomic.Int32) func(func()) {
	return func(f func()) {
		running.Add(1)
		wg.Go(func() {
			defer running.Add(-1)
			f()
		})
	}
}

// next returns the next report.
func (w *watcher) next(t testing.TB) Result {
	t.Helper()
	select {
	case r := <-w.results:
		return r
	case <-time.After(limit):
		t.Fatal("no report")
		return Result{}
	}
}

// expect waits for a report of an outcome about a peer. Until then only Silent may be reported.
func (w *watcher) expect(t testing.TB, peer string, want Outcome) Result {
	t.Helper()
	for {
		r := w.next(t)
		if r.Peer == peer && r.Outcome == want {
			return r
		}
		if r.Outcome != Silent {
			t.Fatalf("report %+v, want %s of %s", r, want, peer)
		}
	}
}

// only requires that nothing but an outcome is reported for a time, and at least once.
func (w *watcher) only(t testing.TB, want Outcome, d time.Duration) {
	t.Helper()
	is := func(r Result) {
		t.Helper()
		if r.Outcome != want {
			t.Fatalf("report %+v, want only %s", r, want)
		}
	}
	for some, end := 0, time.After(d); ; some++ {
		select {
		case r := <-w.results:
			is(r)
		case <-end:
			if some == 0 {
				is(w.next(t)) // it is late, because the machine is busy
			}
			return
		}
	}
}

// quiet requires that nothing is reported for a time.
func (w *watcher) quiet(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case r := <-w.results:
		t.Fatalf("report %+v, want none", r)
	case <-time.After(d):
	}
}

// quickest requires that something takes at most a time, once in three tries: the machine may be
// busy with other tests.
func quickest(t *testing.T, most time.Duration, try func() time.Duration) {
	t.Helper()
	var took []time.Duration
	for range 3 {
		took = append(took, try())
		if took[len(took)-1] <= most {
			t.Logf("took %v", took)
			return
		}
	}
	t.Errorf("took %v, at most %v is allowed", took, most)
}
