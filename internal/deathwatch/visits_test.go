package deathwatch

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestVisits: a connection that stands is a visit, also if it comes soon after another one. A connection that ends after
// the answer is none: so looks the dial of a peer that doubts a refusal.
func TestVisits(t *testing.T) {
	connect := func(t *testing.T, l *script) net.Conn {
		conn := l.connect()
		if as, err := ask(conn); as != "a-1" || err != nil {
			t.Fatal(as, err)
		}
		return conn
	}
	for name, tc := range map[string]struct {
		visit func(*testing.T, *script)
		want  int32
	}{
		"it stands": {func(t *testing.T, l *script) { connect(t, l) }, 1},
		"it ends":   {func(t *testing.T, l *script) { connect(t, l).Close() }, 0},
		"two at once": {func(t *testing.T, l *script) {
			connect(t, l)
			synctest.Wait() // until the first one is looked at
			connect(t, l)
		}, 2},
		"one soon after another": {func(t *testing.T, l *script) {
			connect(t, l)
			time.Sleep(visitTime - time.Millisecond)
			connect(t, l)
		}, 2},
		"one stands after one that ends": {func(t *testing.T, l *script) {
			connect(t, l).Close()
			time.Sleep(time.Millisecond)
			connect(t, l)
		}, 1},
		"many in a second": {func(t *testing.T, l *script) {
			for range 950 {
				connect(t, l)
				time.Sleep(time.Millisecond)
			}
		}, 11},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newScript()
				s := serve(t, l, "a-1")
				tc.visit(t, l)
				if n := s.running.Load(); n > 3 {
					t.Errorf("%d goroutines: one answers, one looks, and one waits for the next look", n)
				}
				time.Sleep(2 * visitTime)
				if n := s.visits.Load(); n != tc.want {
					t.Errorf("%d visits, want %d", n, tc.want)
				}
			})
		})
	}
}

// TestKnocksAtAStuckConnection: a connection that blocks when it is closed is closed once, however often somebody knocks.
func TestKnocksAtAStuckConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newScript()
		serve(t, l, "a-1")
		until, closes := make(chan struct{}), new(atomic.Int32)
		w := watch(t, func(context.Context, string, string) (net.Conn, error) {
			return endless{l.connect(), until, closes}, nil
		})
		w.Watch("a-1", "peer")
		w.expect(t, "a-1", Confirmed)
		synctest.Wait()
		for range 10 {
			w.Knock("a-1")
			synctest.Wait()
		}
		if n := closes.Load(); n != 1 {
			t.Errorf("%d goroutines close the connection", n)
		}
		close(until)
	})
}

// An endless connection blocks when it is closed, and stands until then.
type endless struct {
	net.Conn
	until  <-chan struct{}
	closes *atomic.Int32
}

func (c endless) Close() error {
	c.closes.Add(1)
	<-c.until
	return c.Conn.Close()
}
