package deathwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeathIsSeen: a worker that was confirmed is refused within 200 ms after it has closed its server.
func TestDeathIsSeen(t *testing.T) {
	quickest(t, 200*time.Millisecond, func() time.Duration {
		s, w := serve(t, listen(t), "a-1"), watchAsServer(t, nil)
		w.Watch("a-1", s.address)
		w.expect(t, "a-1", Confirmed)
		w.quiet(t, 50*time.Millisecond)
		began := time.Now()
		s.Close()
		if r := w.expect(t, "a-1", Refused); r.Err == nil {
			t.Error("a refusal without its error")
		}
		took := time.Since(began)
		if err := <-s.end; err != nil {
			t.Errorf("Serve returns %v after Close", err)
		}
		w.only(t, Refused, 200*time.Millisecond)
		return took
	})
}

// TestKnock: a knock at a confirmed peer is a visit there, and the connection stands again. A knock at a peer that does not
// answer, or that is not watched, does nothing.
func TestKnock(t *testing.T) {
	t.Parallel()
	l, visits := listen(t), make(chan struct{}, 100)
	s := NewServer(l, func() { visits <- struct{}{} })
	s.Answer("a-1")
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(wg.Go) })
	t.Cleanup(wg.Wait)
	t.Cleanup(s.Close)
	silent := speak(t, untilClosed)
	mute := watch(t, nil) // after speak, whose end waits for its connections
	mute.Watch("a-2", silent)
	mute.Knock("a-2")
	w := watch(t, nil)
	w.Knock("a-1")
	w.Watch("a-1", l.Addr().String())
	w.expect(t, "a-1", Confirmed)
	<-visits
	for range 3 {
		time.Sleep(2 * visitTime) // visits are told at most once in this time
		w.Knock("a-1")
		w.expect(t, "a-1", Confirmed)
		select {
		case <-visits:
		case <-time.After(limit):
			t.Fatal("no visit after a knock")
		}
	}
	w.quiet(t, 50*time.Millisecond)
	mute.only(t, Silent, 50*time.Millisecond)
}

func TestOtherIncarnation(t *testing.T) {
	t.Parallel()
	s, w := serve(t, listen(t), "a-2"), watch(t, nil)
	w.Watch("a-1", s.address)
	if r := w.expect(t, "a-1", Other); r.As != "a-2" || r.Err != nil {
		t.Errorf("report %+v", r)
	}
	w.only(t, Other, 200*time.Millisecond)
}

// TestAnswerChanges: the peers of a worker that starts again under another incarnation learn of it.
func TestAnswerChanges(t *testing.T) {
	t.Parallel()
	s, w := serve(t, listen(t), "a-1"), watch(t, nil)
	w.Watch("a-1", s.address)
	w.expect(t, "a-1", Confirmed)
	s.Answer("a-1")
	s.Answer("")
	s.Answer("no incarnation")
	s.Answer("a-1")
	w.quiet(t, 50*time.Millisecond)
	s.Answer("a-2")
	if r := w.expect(t, "a-1", Other); r.As != "a-2" {
		t.Errorf("report %+v", r)
	}
	w.Watch("a-2", s.address)
	for r := w.next(t); r.Peer != "a-2"; r = w.next(t) {
		if r.Outcome != Other {
			t.Errorf("report %+v", r)
		}
	}
	w.Drop("a-1")
	s.Answer("")
	w.Drop("a-2")
	w.Watch("a-3", s.address)
	w.expect(t, "a-3", Silent)
	w.only(t, Silent, 100*time.Millisecond)
}

// speak serves each connection to an address with a function, until the test ends.
func speak(t testing.TB, how func(net.Conn)) (address string) {
	l := listen(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				how(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// untilClosed waits until the other side has closed a connection.
func untilClosed(conn net.Conn) { io.Copy(io.Discard, conn) }

// TestWhatProvesNothing: whatever a peer, a dialer or a connection does, it is Silent, and costs one
// goroutine.
func TestWhatProvesNothing(t *testing.T) {
	t.Parallel()
	says := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			io.WriteString(conn, text)
			untilClosed(conn)
		}
	}
	returns := func(conn net.Conn, err error) Dialer {
		return func(context.Context, string, string) (net.Conn, error) { return conn, err }
	}
	watchers := map[string]*watcher{}
	for name, tc := range map[string]struct {
		speak func(net.Conn)
		dial  Dialer
	}{
		"nothing":        {speak: untilClosed},
		"the end":        {speak: func(net.Conn) {}},
		"half an answer": {speak: says("shardlease a-")},
		"another word":   {speak: says("HTTP/1.1 400 Bad Request\r\n\r\n")},
		"no incarnation": {speak: says("shardlease \n")},
		"two words":      {speak: says("shardlease a-1 \n")},
		"a long one":     {speak: says("shardlease " + strings.Repeat("a", 97) + "\n")},
		"two lines":      {speak: says("shardlease a-1\nshardlease a-1\n")},
		"an endless line": {speak: func(conn net.Conn) {
			for line := strings.Repeat("a", 4096); ; {
				if _, err := io.WriteString(conn, line); err != nil {
					return
				}
			}
		}},
		"a reset": {speak: func(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0) }},
		"a black hole": {dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"a dialer that panics":     {dial: func(context.Context, string, string) (net.Conn, error) { panic("dialer") }},
		"neither":                  {dial: returns(nil, nil)},
		"a nil connection":         {dial: returns((*net.TCPConn)(nil), nil)},
		"a connection that panics": {dial: returns(panics{}, nil)},
		"reads of nothing":         {dial: returns(empty{}, nil)},
		"an unreachable host":      {dial: returns(nil, syscall.EHOSTUNREACH)},
		"an error that panics":     {dial: returns(nil, fault{})},
		"a server of names that refuses": {dial: returns(nil, &net.OpError{Op: "dial", Err: &net.DNSError{
			Err: "refused", UnwrapErr: syscall.ECONNREFUSED}})},
	} {
		address := "peer"
		if tc.speak != nil {
			address = speak(t, tc.speak)
		}
		w := watch(t, tc.dial) // after speak, whose end waits for its connections
		w.Watch("a-1", address)
		watchers[name] = w
	}
	time.Sleep(1300 * time.Millisecond) // longer than the time limits of a dial and of an answer
	for name, w := range watchers {
		t.Run(name, func(t *testing.T) {
			w.only(t, Silent, 10*time.Millisecond)
			if n := w.running.Load(); n != 1 {
				t.Errorf("%d goroutines for one link", n)
			}
		})
	}
}

// A panics is a connection whose methods panic.
type panics struct{ net.Conn }

// A fault is an error that panics when it is asked what it is.
type fault struct{}

func (fault) Error() string   { panic("error") }
func (fault) Is(error) bool   { panic("is") }
func (fault) Temporary() bool { panic("temporary") }

// An empty is a connection that has nothing to read, and does not say so.
type empty struct{ net.Conn }

func (empty) SetDeadline(time.Time) error { return nil }
func (empty) Read([]byte) (int, error)    { return 0, nil }
func (empty) Close() error                { return nil }

// TestAddressOfNoMachine: an address that every machine understands as its own is not dialled.
func TestAddressOfNoMachine(t *testing.T) {
	for _, address := range []string{":7070", "0.0.0.0:7070", "[::]:7070", "[::ffff:0.0.0.0]:7070"} {
		w := watch(t, func(context.Context, string, string) (net.Conn, error) {
			t.Errorf("%s is dialled", address)
			return nil, syscall.ECONNREFUSED
		})
		w.Watch("a-1", address)
		w.expect(t, "a-1", Silent)
	}
}

// TestNameWithSeveralAddresses: only the refusal of every address is a refusal.
func TestNameWithSeveralAddresses(t *testing.T) {
	down := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	dial := func(answers ...error) (net.Conn, error) {
		tried := 0
		var ips []string
		for range answers {
			ips = append(ips, "127.0.0.1")
		}
		return dialAll(t.Context(), func(context.Context, string, string) (net.Conn, error) {
			tried++
			if answers[tried-1] == nil {
				return empty{}, nil
			}
			return nil, answers[tried-1]
		}, "tcp", ips, "1")
	}
	if _, err := dial(down, down); !refuses(err) {
		t.Errorf("all addresses refuse: %v", err)
	}
	for _, other := range []error{context.DeadlineExceeded, syscall.ECONNRESET} {
		for _, answers := range [][]error{{down, other}, {other, down}} {
			if _, err := dial(answers...); err == nil || refuses(err) {
				t.Errorf("one of two addresses refuses: %v", err)
			}
		}
	}
	if conn, err := dial(down, nil); conn == nil || err != nil {
		t.Errorf("the second address answers: %v", err)
	}
	for _, ip := range []string{"0.0.0.0", "::"} {
		_, err := dialAll(t.Context(), func(context.Context, string, string) (net.Conn, error) { return nil, down }, "tcp", []string{ip}, "1")
		if err == nil || refuses(err) {
			t.Errorf("a name of no machine: %v", err)
		}
	}
	if _, err := dial(); err == nil || refuses(err) {
		t.Errorf("no address: %v", err)
	}
}

func TestHostName(t *testing.T) {
	s, w := serve(t, listen(t), "a-1"), watchAsServer(t, nil)
	_, port, _ := net.SplitHostPort(s.address)
	w.Watch("a-1", "localhost:"+port)
	w.expect(t, "a-1", Confirmed)
	s.Close()
	w.expect(t, "a-1", Refused)
}

// TestAnotherAddress: a peer that is watched at another address is reported from there only.
func TestAnotherAddress(t *testing.T) {
	a, b, w := serve(t, listen(t), "a-1"), serve(t, listen(t), "b-1"), watch(t, nil)
	w.Watch("a-1", b.address)
	w.expect(t, "a-1", Other)
	w.Watch("a-1", a.address)
	for w.next(t).Outcome == Other {
	}
	w.Watch("a-1", a.address)
	w.quiet(t, 50*time.Millisecond)
	if n := w.running.Load(); n != 1 {
		t.Errorf("%d goroutines for one link", n)
	}
}

// TestEnd: a link ends in each of its phases, and at once.
func TestEnd(t *testing.T) {
	says := func(text []byte) Dialer {
		return func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			if text != nil {
				go there.Write(text)
			}
			return here, nil
		}
	}
	for name, tc := range map[string]struct {
		dial    Dialer
		address string
		first   Outcome // what is reported before the end; 0: nothing
	}{
		"dialling": {dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"reading": {dial: says(nil)},
		"waiting": {dial: says(answerOf("a-1")), first: Confirmed},
		"pausing": {address: "0.0.0.0:1", first: Silent},
	} {
		for how, end := range map[string]func(*watcher){
			"drop":  func(w *watcher) { w.Drop("a-1"); w.Drop("a-2") },
			"close": func(w *watcher) { w.Close(); w.Watch("a-3", "x"); w.Close() },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := watch(t, tc.dial)
					w.Watch("a-1", cmp.Or(tc.address, "peer"))
					if tc.first != 0 {
						w.expect(t, "a-1", tc.first)
					}
					time.Sleep(100 * time.Millisecond)
					began := time.Now()
					end(w)
					for len(w.results) > 0 {
						<-w.results
					}
					w.wg.Wait()
					if took := time.Since(began); took > 0 {
						t.Errorf("the link has ended after %v", took)
					}
					w.quiet(t, 20*time.Millisecond)
				})
			})
		}
	}
}

// TestNoReportAfterDrop: even a report that is just about to begin is either over before Drop returns,
// or does not happen.
func TestNoReportAfterDrop(t *testing.T) {
	var wg sync.WaitGroup
	var watched atomic.Bool
	var late atomic.Int32
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }
	l := NewLinks("", nil, dial, wg.Go, func(Result) {
		if !watched.Load() {
			late.Add(1)
		}
	})
	for i := range 2000 {
		watched.Store(true)
		l.Watch("a-1", "peer")
		for range i % 50 {
			l.Drop("a-2")
		}
		if i%2 == 0 {
			l.Drop("a-1")
		} else {
			l.Watch("a-1", "other")
			l.Drop("a-1")
		}
		watched.Store(false)
	}
	l.Close()
	wg.Wait()
	if n := late.Load(); n > 0 {
		t.Errorf("%d reports after Drop", n)
	}
}

// TestEndWaitsForReports: whatever ends a link waits for its report that is under way.
func TestEndWaitsForReports(t *testing.T) {
	for name, end := range map[string]func(*Links){
		"drop":            func(l *Links) { l.Drop("a-1") },
		"close":           func(l *Links) { l.Close() },
		"another address": func(l *Links) { l.Watch("a-1", "other") },
		"both at once": func(l *Links) {
			go l.Drop("a-1")
			synctest.Wait()
			l.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wg sync.WaitGroup
				over := false
				dial := func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }
				l := NewLinks("", nil, dial, wg.Go, func(Result) {
					time.Sleep(time.Minute)
					over = true
				})
				l.Watch("a-1", "peer")
				time.Sleep(time.Second)
				end(l)
				if !over {
					t.Error("a report is under way")
				}
				l.Close()
				wg.Wait()
			})
		})
	}
}

// TestLateConnection: a connection that a dialer returns after the link has ended is closed at once.
func TestLateConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		w := watch(t, func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(time.Minute)
			return here, nil
		})
		w.Watch("a-1", "peer")
		time.Sleep(time.Second)
		w.Drop("a-1")
		began := time.Now()
		if !closed(there, time.Hour) || time.Since(began) != 59*time.Second {
			t.Errorf("closed after %v", time.Since(began))
		}
	})
}

// A stuck is a connection that blocks when it is closed.
type stuck struct {
	net.Conn
	until <-chan struct{}
}

func (s stuck) Close() error {
	err := s.Conn.Close()
	<-s.until
	return err
}

// TestStuckConnections: connections that block when they are closed delay neither side.
func TestStuckConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, until := newScript(), make(chan struct{})
		s := serve(t, l, "a-1")
		w := watch(t, func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			l.next <- func() (net.Conn, error) { return stuck{there, until}, nil }
			return stuck{here, until}, nil
		})
		began := time.Now()
		for _, peer := range []string{"a", "b", "c"} {
			s.Answer(peer)
			w.Watch(peer, "peer")
			w.expect(t, peer, Confirmed)
			synctest.Wait()
		}
		w.Drop("a")
		w.Watch("b", "other")
		w.Close()
		s.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
		close(until)
	})
}

// TestDialerThatExits: a dialer that calls runtime.Goexit is one that fails, and the link goes on.
func TestDialerThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dials := newScript(), 0
		serve(t, l, "a-1")
		w := watch(t, func(context.Context, string, string) (net.Conn, error) {
			if dials++; dials < 3 {
				runtime.Goexit()
			}
			return l.connect(), nil
		})
		w.Watch("a-1", "peer")
		for range 2 {
			if r := <-w.results; r.Outcome != Silent || r.Err == nil {
				t.Errorf("report %+v", r)
			}
		}
		if r := <-w.results; r.Outcome != Confirmed {
			t.Errorf("report %+v", r)
		}
	})
}

// TestPauses: a link that gets no confirmation dials after 20 ms, then after twice as long each time, up
// to 30 s. A confirmation that lasts resets the pause, and one that does not is followed by a pause of at most a second.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials []time.Time
		dial := func(context.Context, string, string) (net.Conn, error) {
			dials = append(dials, time.Now())
			// A TCP connection that the other end has closed still takes a deadline, and a pipe does not. So the pipe is
			// closed when the answer has been read.
			stands, confirms := map[int]time.Duration{15: time.Nanosecond, 31: settled}[len(dials)]
			if !confirms {
				return nil, syscall.ECONNREFUSED
			}
			here, there := net.Pipe()
			go func() {
				there.Write(answerOf("a-1"))
				time.Sleep(stands)
				there.Close()
			}()
			return here, nil
		}
		w := watch(t, dial)
		w.Watch("a-1", "peer")
		for range 33 {
			<-w.results
		}
		w.Close()
		w.wg.Wait()
		between := func(i int, least, most time.Duration) {
			t.Helper()
			if d := dials[i+1].Sub(dials[i]); d < least || d > most {
				t.Errorf("pause %d: %v, want %v to %v", i, d, least, most)
			}
		}
		pause := firstPause
		for i := range 29 {
			if i == 14 { // after the first confirmation
				pause = busyPause
			}
			between(i, pause*3/4, pause)
			pause = min(2*pause, lastPause)
		}
		between(30, settled, settled) // the second confirmation has lasted
		between(31, firstPause*3/4, firstPause)
	})
}

// TestNeverInALoop: servers that have more watchers than they keep connections, or that close every
// connection after the answer, are not dialled in a loop.
func TestNeverInALoop(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	address := speak(t, func(conn net.Conn) {
		dials.Add(1)
		conn.Write(answerOf("a-1"))
	})
	w := watch(t, nil)
	w.Watch("a-1", address)
	w.only(t, Confirmed, 500*time.Millisecond)
	if n := dials.Load(); n > 8 {
		t.Errorf("%d dials in 500 ms", n)
	}
}

// TestManyPeers: results name their peers.
func TestManyPeers(t *testing.T) {
	w := watch(t, nil)
	for i := range 50 {
		peer := fmt.Sprintf("a-%d", i)
		w.Watch(peer, serve(t, listen(t), peer).address)
	}
	seen := map[string]bool{}
	for len(seen) < 50 {
		r := w.next(t)
		if r.Outcome != Confirmed || r.As != r.Peer || seen[r.Peer] {
			t.Fatalf("report %+v", r)
		}
		seen[r.Peer] = true
	}
}

func TestOutcomeNames(t *testing.T) {
	for o, want := range map[Outcome]string{
		Confirmed: "confirmed", Refused: "refused", Other: "other", Silent: "silent", 0: "outcome 0", 9: "outcome 9",
	} {
		if o.String() != want {
			t.Errorf("%d: %s, want %s", o, o, want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	long := "shardlease " + strings.Repeat("a", 96) + "\n"
	for _, text := range []string{"shardlease a-1\n", "shardlease \n", "shardlease a\nb\n", "shardlease a b\n", "", "\n", long} {
		f.Add([]byte(text))
	}
	f.Add([]byte("shardlease a-1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		here, there := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() {
			there.Write(text)
			there.Close()
		})
		as, err := readAnswer(here)
		here.Close()
		wg.Wait()
		alone, failed := parseAnswer(text)
		switch {
		case err == nil && (as != alone || failed != nil):
			t.Errorf("%q: read %q, parsed %q (%v)", text, as, alone, failed)
		case failed == nil && string(answerOf(alone)) != string(text):
			t.Errorf("%q: the answer of %q is %q", text, alone, answerOf(alone))
		case failed == nil && (!valid(alone) || err != nil):
			t.Errorf("%q: %q is invalid, or was not read: %v", text, alone, err)
		case failed != nil && (alone != "" || as != "" || errors.Is(failed, io.EOF)):
			t.Errorf("%q: %q, %q and %v", text, alone, as, failed)
		}
	})
}
