package dynamostore

import (
	"context"
	"errors"
	"testing"
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

// TestLaneIsFair: who waits longest is next, and who gives up waiting holds nobody up.
func TestLaneIsFair(t *testing.T) {
	l := newLane(1)
	if err := l.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	enter := func(ctx context.Context) chan error {
		before := l.queue()
		in := make(chan error, 1)
		go func() { in <- l.enter(ctx) }()
		for l.queue() == before {
			select {
			case err := <-in:
				t.Fatalf("let in: %v", err)
			default:
			}
		}
		return in
	}
	first, second, third := enter(ctx), enter(t.Context()), enter(t.Context())
	giveUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first is told %v", err)
	}
	l.leave()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if len(third) > 0 {
		t.Error("both are in")
	}
	l.leave()
	if err := <-third; err != nil {
		t.Error(err)
	}
	l.leave()
	if l.busy != 0 || len(l.waiting) != 0 {
		t.Errorf("%d are in and %d wait", l.busy, len(l.waiting))
	}
}

func (l *lane) queue() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}
