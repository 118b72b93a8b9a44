package dynamostore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// inside is how many calls get in at once.
func (l *lane) inside(t *testing.T) (n int) {
	t.Helper()
	over, stop := context.WithCancel(t.Context())
	stop()
	for n = 0; n < 1000; n++ {
		l.mu.Lock()
		full := l.busy >= int(l.limit)
		l.mu.Unlock()
		if full {
			break
		}
		if err := l.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.enter(over); !errors.Is(err, context.Canceled) {
		t.Errorf("one more is told %v", err)
	}
	for range n {
		l.leave()
	}
	return n
}

// TestLaneFindsItsWidth: few at first, one more a round while all goes well, half as many
// when something goes wrong, once for all that was under way then.
func TestLaneFindsItsWidth(t *testing.T) {
	l := newLane(16)
	if n := l.inside(t); n != firstInFlight {
		t.Errorf("%d get in at first", n)
	}
	for range 4 {
		l.note(true)
	}
	if n := l.inside(t); n != firstInFlight {
		t.Errorf("%d get in after most of a round", n)
	}
	for range 300 {
		l.note(true)
	}
	if n := l.inside(t); n != 16 {
		t.Errorf("%d get in after many rounds, 16 may", n)
	}
	for range 10 {
		if err := l.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		l.note(false)
	}
	for range 10 {
		l.leave()
	}
	if n := l.inside(t); n != 8 {
		t.Errorf("%d get in after one bad round", n)
	}
	for range 100 {
		l.note(false)
	}
	if n := l.inside(t); n != 1 {
		t.Errorf("%d get in when nothing works; one has to try", n)
	}
	if n := newLane(2).inside(t); n != 2 {
		t.Errorf("%d get in where 2 may", n)
	}
}

// TestLaneServesWhoCameLast: who came last has the most time left; who gives up waiting holds
// nobody up.
func TestLaneServesWhoCameLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(1)
		if err := l.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		enter := func(ctx context.Context) chan error {
			in := make(chan error, 1)
			go func() { in <- l.enter(ctx) }()
			synctest.Wait()
			return in
		}
		first, second, third := enter(t.Context()), enter(t.Context()), enter(ctx)
		giveUp()
		if err := <-third; !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up is told %v", err)
		}
		l.leave()
		if err := <-second; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(first) > 0 {
			t.Error("both are in")
		}
		l.leave()
		if err := <-first; err != nil {
			t.Error(err)
		}
		l.leave()
		if l.busy != 0 || len(l.waiting) != 0 || l.left != 0 {
			t.Errorf("%d are in, %d wait, %d have left", l.busy, len(l.waiting), l.left)
		}
	})
}

// TestLaneRecovers: two thousand shards commit every five seconds, on a table that takes 20 ms or so
// for each request and is away for two seconds. When it is back all goes on as before.
func TestLaneRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{options: Options{Timeout: 2 * time.Second}, rows: newLane(16)}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var down atomic.Bool
		request := func(ctx context.Context) (struct{}, error) {
			if !wait(ctx, 26*time.Millisecond) || down.Load() {
				return struct{}{}, errors.New("connection refused")
			}
			return struct{}{}, nil
		}
		var well, failed atomic.Int64
		for range 2000 {
			go func() {
				for wait(ctx, 5*time.Second) {
					for ctx.Err() == nil {
						patience, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
						_, err := call(patience, s, lease.KindLease, request)
						cancel()
						if err == nil {
							well.Add(1)
							break
						}
						failed.Add(1)
						wait(ctx, 200*time.Millisecond)
					}
				}
			}()
		}
		time.Sleep(10 * time.Second)
		before := well.Swap(0)
		down.Store(true)
		time.Sleep(2 * time.Second)
		down.Store(false)
		time.Sleep(10 * time.Second)
		well.Store(0)
		failed.Store(0)
		time.Sleep(10 * time.Second)
		if after := well.Load(); after < before*8/10 || failed.Load() > after/10 {
			t.Errorf("%d in ten seconds before; after the outage %d, and %d in vain", before, after, failed.Load())
		}
		stop()
		synctest.Wait()
	})
}
