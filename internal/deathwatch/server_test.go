package deathwatch

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A script is a listener in memory. It returns what is sent to it.
type script struct {
	next chan func() (net.Conn, error)
	done chan struct{}
	once sync.Once
}

func newScript() *script {
	return &script{next: make(chan func() (net.Conn, error)), done: make(chan struct{})}
}

func (s *script) Accept() (net.Conn, error) {
	select {
	case next := <-s.next:
		return next()
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *script) Close() error   { s.once.Do(func() { close(s.done) }); return nil }
func (s *script) Addr() net.Addr { return nil }

// connect makes the listener return a connection, and returns the other side of it.
func (s *script) connect() net.Conn {
	here, there := net.Pipe()
	s.next <- func() (net.Conn, error) { return there, nil }
	return here
}

// fail makes the listener return an error.
func (s *script) fail(err error) { s.next <- func() (net.Conn, error) { return nil, err } }

// closed reports whether the other side closes a connection within a time.
func closed(conn net.Conn, within time.Duration) bool {
	conn.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, conn)
	return err == nil
}

// TestListenerFails: temporary errors are retried. After an error that lasts, Serve returns it, and
// the kept connections stay open until Close.
func TestListenerFails(t *testing.T) {
	broken := errors.New("broken")
	for name, last := range map[string]func() (net.Conn, error){
		"an error":   func() (net.Conn, error) { return nil, broken },
		"a panic":    func() (net.Conn, error) { panic("accept") },
		"neither":    func() (net.Conn, error) { return nil, nil },
		"its end":    func() (net.Conn, error) { return nil, net.ErrClosed },
		"a fault":    func() (net.Conn, error) { return nil, fault{} },
		"a bad file": func() (net.Conn, error) { return nil, &net.OpError{Op: "accept", Err: syscall.EBADF} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newScript()
				s := serve(t, l, "a-1")
				began := time.Now()
				temporary := append(passing(), syscall.EMFILE)
				for i := range 12 {
					l.fail(&net.OpError{Op: "accept", Err: temporary[i%len(temporary)]})
				}
				conn := l.connect()
				if took := time.Since(began); took < 2*lastRetry || took > 8*lastRetry {
					t.Errorf("accepts again after %v", took)
				}
				if as, err := readAnswer(conn); as != "a-1" || err != nil {
					t.Errorf("answer %q, %v", as, err)
				}
				synctest.Wait()
				l.next <- last
				err := <-s.end
				if err == nil || name == "an error" && !errors.Is(err, broken) {
					t.Errorf("Serve returns %v", err)
				}
				if closed(conn, time.Hour) {
					t.Error("a kept connection is closed before Close")
				}
				select {
				case <-l.done:
					t.Error("the listener is closed before Close, so the kernel would refuse connections")
				default:
				}
				s.Close()
				if !closed(conn, time.Second) {
					t.Error("a kept connection is open after Close")
				}
			})
		})
	}
}

// TestCloseDuringRetry: Serve returns at once, also while it waits after an error.
func TestCloseDuringRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newScript()
		s := serve(t, l, "a-1")
		for range 11 {
			l.fail(&net.OpError{Op: "accept", Err: syscall.EMFILE})
		}
		synctest.Wait()
		began := time.Now()
		s.Close()
		s.Close()
		if err := <-s.end; err != nil || time.Since(began) > 0 {
			t.Errorf("Serve returns %v after %v", err, time.Since(began))
		}
		if err := s.Serve(s.wg.Go); err != nil {
			t.Errorf("Serve after Close: %v", err)
		}
	})
}

// TestFullServer: the oldest of 128 kept connections is closed for a new one.
func TestFullServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newScript()
		s := serve(t, l, "a-1")
		var conns []net.Conn
		for range maxKept + 1 {
			conn := l.connect()
			if as, err := readAnswer(conn); as != "a-1" || err != nil {
				t.Fatalf("answer %q, %v", as, err)
			}
			synctest.Wait()
			conns = append(conns, conn)
		}
		for i, conn := range conns {
			if gone := closed(conn, time.Millisecond); gone != (i == 0) {
				t.Errorf("connection %d: closed %v", i, gone)
			}
		}
		time.Sleep(2 * visitTime) // until the server has looked for visitors
		if n := s.running.Load(); n != 0 {
			t.Errorf("%d goroutines for kept connections", n)
		}
	})
}

// TestSlowReaders: at most 64 connections are being answered, and each for at most one second.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newScript()
		s := serve(t, l, "a-1")
		for range maxAnswering {
			l.connect()
		}
		if extra := l.connect(); !closed(extra, time.Millisecond) {
			t.Error("one more connection is not closed")
		}
		synctest.Wait()
		if n := s.running.Load(); n != maxAnswering {
			t.Errorf("%d goroutines", n)
		}
		time.Sleep(answerTime)
		synctest.Wait()
		if n := s.running.Load(); n != 0 {
			t.Errorf("%d goroutines after a second", n)
		}
		conn := l.connect()
		if as, err := readAnswer(conn); as != "a-1" || err != nil {
			t.Errorf("answer %q, %v", as, err)
		}
	})
}

// TestCloseDuringAnswer: Close ends the answers that are under way.
func TestCloseDuringAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newScript()
		s := serve(t, l, "a-1")
		conn := l.connect()
		synctest.Wait()
		s.Close()
		synctest.Wait()
		if n := s.running.Load(); n != 0 || !closed(conn, 0) {
			t.Errorf("%d goroutines after Close", n)
		}
	})
}

// TestAnswerChangesMeanwhile: a connection that was answered as an incarnation that has since ended
// is not kept.
func TestAnswerChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newScript()
		s := serve(t, l, "a-1")
		old := l.connect()
		synctest.Wait()
		s.Answer("a-2")
		if as, err := readAnswer(old); as != "a-1" || err != nil {
			t.Errorf("answer %q, %v", as, err)
		}
		if !closed(old, time.Millisecond) {
			t.Error("the connection is kept")
		}
		s.Answer("")
		if quiet := l.connect(); !closed(quiet, time.Millisecond) {
			t.Error("a connection without an answer is kept")
		}
	})
}

// An odd is a connection of a type that cannot be compared, with a method that panics.
type odd struct {
	net.Conn
	methods []string
}

func (o odd) Write(b []byte) (int, error) {
	switch {
	case len(o.methods) > 1:
		runtime.Goexit()
	case len(o.methods) > 0:
		panic("write")
	}
	return o.Conn.Write(b)
}

func TestOddConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newScript()
		s := serve(t, l, "a-1")
		here, there := net.Pipe()
		l.next <- func() (net.Conn, error) { return odd{there, nil}, nil }
		if as, err := readAnswer(here); as != "a-1" || err != nil {
			t.Errorf("answer %q, %v", as, err)
		}
		broken, there := net.Pipe()
		l.next <- func() (net.Conn, error) { return odd{there, []string{"write"}}, nil }
		if !closed(broken, time.Millisecond) {
			t.Error("a connection that panics is kept")
		}
		for range maxAnswering + 1 {
			exits, there := net.Pipe()
			l.next <- func() (net.Conn, error) { return odd{there, []string{"write", "exit"}}, nil }
			if !closed(exits, time.Millisecond) {
				t.Error("a connection that exits is kept")
			}
		}
		late := l.connect()
		if as, err := readAnswer(late); as != "a-1" || err != nil {
			t.Errorf("answer %q, %v", as, err)
		}
		l.next <- func() (net.Conn, error) { return (*net.TCPConn)(nil), nil }
		l.next <- func() (net.Conn, error) { return panics{}, nil }
		time.Sleep(2 * visitTime)
		if n := s.running.Load(); n != 0 || closed(here, time.Millisecond) {
			t.Errorf("%d goroutines", n)
		}
	})
}

// A timed is a connection that remembers its time limit.
type timed struct {
	net.Conn
	limit *time.Time
}

func (c timed) SetDeadline(limit time.Time) error {
	*c.limit = limit
	return c.Conn.SetDeadline(limit)
}

// TestQuietConnectionsHaveNoTimer: neither side of a connection has a time limit after the answer.
func TestQuietConnectionsHaveNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newScript()
		s := serve(t, l, "a-1")
		var server, peer time.Time
		here, there := net.Pipe()
		w := watch(t, func(context.Context, string, string) (net.Conn, error) {
			l.next <- func() (net.Conn, error) { return timed{there, &server}, nil }
			return timed{here, &peer}, nil
		})
		w.Watch("a-1", "peer")
		w.expect(t, "a-1", Confirmed)
		synctest.Wait()
		if !server.IsZero() || !peer.IsZero() {
			t.Errorf("time limits %v and %v", server, peer)
		}
		time.Sleep(24 * time.Hour)
		if len(w.results) > 0 || w.running.Load() != 1 || s.running.Load() != 0 {
			t.Errorf("%d reports in a quiet day, %d and %d goroutines", len(w.results), w.running.Load(), s.running.Load())
		}
	})
}
