package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// inside returns how many calls are admitted at once.
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
		l.enters(t, commits)
	}
	if err := l.enter(over, commits, lease.Key{}); !errors.Is(err, context.Canceled) {
		t.Errorf("one more call returned %v, want context.Canceled", err)
	}
	for range n {
		l.leave()
	}
	return n
}

// admits checks how many calls are admitted at once.
func (l *lane) admits(t *testing.T, want int, when string) {
	t.Helper()
	if n := l.inside(t); n != want {
		t.Errorf("%d calls are admitted %s, want %d", n, when, want)
	}
}

// TestLaneFindsItsWidth: the lane admits four calls at first, one more per round of answers,
// and half as many after a failure. Failures of calls that were under way together halve the
// limit once.
func TestLaneFindsItsWidth(t *testing.T) {
	l := newLane(16)
	l.admits(t, firstInFlight, "at first")
	for range 4 {
		l.note(true)
	}
	l.admits(t, firstInFlight, "before the first round is complete")
	for range 300 {
		l.note(true)
	}
	l.admits(t, 16, "after many rounds")
	for range 10 {
		l.enters(t, commits)
	}
	for range 10 {
		l.note(false)
	}
	for range 10 {
		l.leave()
	}
	l.admits(t, 8, "after one failed round")
	for range 100 {
		l.note(false)
	}
	l.admits(t, 1, "while every call fails")
	newLane(2).admits(t, 2, "at first in a lane of two")
}

// enters lets a call be admitted at once.
func (l *lane) enters(t *testing.T, c class) {
	t.Helper()
	if err := l.enter(t.Context(), c, lease.Key{}); err != nil {
		t.Fatal(err)
	}
}

// queueing returns a lane that admits one call, and has admitted it.
func queueing(t *testing.T) *lane {
	l := newLane(1)
	l.enters(t, hands)
	return l
}

// shard is the key of a row.
func shard(name string) lease.Key {
	return lease.Key{Group: "orders", Kind: lease.KindLease, Name: name}
}

// wait queues a call. It sends the name of the call when the call is admitted, and the name
// with a question mark when the call gives up or is sent away.
func (l *lane) wait(ctx context.Context, c class, name string, admitted chan<- string) {
	go func() {
		if l.enter(ctx, c, shard(name)) != nil {
			name += "?"
		}
		admitted <- name
	}()
	synctest.Wait()
}

// drains checks the names of the next calls, in the order in which they are admitted.
func (l *lane) drains(t *testing.T, admitted <-chan string, want ...string) {
	t.Helper()
	var order []string
	for len(order) < len(want) {
		l.leave()
		synctest.Wait()
		for len(admitted) > 0 {
			order = append(order, <-admitted)
		}
	}
	l.leave()
	if l.busy != 0 || len(l.waiting[hands])+len(l.waiting[commits]) != 0 || l.left != 0 {
		t.Errorf("%d calls are under way, %v wait, %d have given up", l.busy, l.waiting, l.left)
	}
	if !slices.Equal(order, want) {
		t.Errorf("admitted: %v, want %v", order, want)
	}
}

// TestLaneWithRoomAllocatesNothing: a call that is admitted at once needs no waiter.
func TestLaneWithRoomAllocatesNothing(t *testing.T) {
	l, ctx := newLane(16), t.Context()
	n := testing.AllocsPerRun(1000, func() {
		if err := l.enter(ctx, commits, lease.Key{}); err != nil {
			t.Error(err)
		}
		l.leave()
	})
	if n != 0 {
		t.Errorf("a call makes %v allocations", n)
	}
}

// TestLaneAdmitsFirstInFirstOut: commits are admitted in the order of their arrival; a
// caller that gives up delays no other.
func TestLaneAdmitsFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admitted := queueing(t), make(chan string, 9)
		ctx, giveUp := context.WithCancel(t.Context())
		l.wait(t.Context(), commits, "a", admitted)
		l.wait(ctx, commits, "b", admitted)
		l.wait(t.Context(), commits, "c", admitted)
		l.wait(t.Context(), commits, "d", admitted)
		giveUp()
		if name := <-admitted; name != "b?" {
			t.Errorf("%s has given up", name)
		}
		l.drains(t, admitted, "a", "c", "d")
	})
}

// TestLaneAdmitsChangesOfHandsFirst: changes of hands are admitted before commits, but every
// fourth admission is a commit while one waits.
func TestLaneAdmitsChangesOfHandsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admitted := queueing(t), make(chan string, 20)
		for i := range 3 {
			l.wait(t.Context(), commits, fmt.Sprint("c", i), admitted)
		}
		for i := range 7 {
			l.wait(t.Context(), hands, fmt.Sprint("h", i), admitted)
		}
		// queueing has admitted one change of hands before
		l.drains(t, admitted, "h0", "h1", "c0", "h2", "h3", "h4", "c1", "h5", "h6", "c2")
	})
}

// TestLaneSendsAwayWhoIsTooLate: a caller with less time left than a request takes receives a
// QueuedError at once. If no other call is under way it is admitted nevertheless, to measure
// how long a request takes now.
func TestLaneSendsAwayWhoIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admitted := queueing(t), make(chan string, 9)
		l.limit = 2
		l.enters(t, hands)
		l.tempo.answered(100*time.Millisecond, false) // a caller with 250 ms may wait for 125
		short, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		l.wait(short, hands, "late", admitted)
		l.wait(t.Context(), hands, "next", admitted)
		time.Sleep(200 * time.Millisecond)
		l.leave()
		synctest.Wait()
		if len(admitted) != 2 {
			t.Fatalf("%d calls have returned; one should be admitted and one sent away", len(admitted))
		}
		if first, second := <-admitted, <-admitted; first+second != "late?next" && first+second != "nextlate?" {
			t.Errorf("%s, %s", first, second)
		}
		err := newLane(0).enter(short, hands, lease.Key{})
		if queued, ok := errors.AsType[*lease.QueuedError](err); !ok || queued.Waited != 50*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that was never admitted returned %v", err)
		}
		l.leave()
		l.leave()
		short, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := l.enter(short, hands, lease.Key{}); err != nil {
			t.Errorf("no other call is under way, and this one returned %v", err)
		}
		if err := l.enter(short, hands, lease.Key{}); !errors.Is(err, lease.ErrQueued) || short.Err() != nil {
			t.Errorf("another call is under way, and there is room for this one, which has too little time: %v", err)
		}
	})
}

// TestWhatIsAdmittedFirst: every write queues in its class. Commits and progress are admitted
// second, because no other worker waits for their shard.
func TestWhatIsAdmittedFirst(t *testing.T) {
	check := func(name string, want class) func(w lease.Write, err error) lease.Row {
		return func(w lease.Write, err error) lease.Row {
			t.Helper()
			if got := classOf(w); err != nil || got != want {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			row, _ := w.Next.(lease.Row)
			return row
		}
	}
	b := fixture.Worker("b")
	row := check("begin", hands)(protocol.Begin("orders", "1", nil, "a", fixture.Stamp()))
	row = check("claim", hands)(protocol.Claim(row, fixture.Worker("a"), fixture.Stamp()))
	hold := fixture.Hold(row)
	row = check("commit", commits)(protocol.Commit(row, hold, checkpoint.Mark{Position: "1"}, fixture.Stamp()))
	row = check("progress", commits)(protocol.Progress(row, hold, fixture.Stamp()))
	check("finish", hands)(protocol.Finish(row, hold, checkpoint.Mark{}, fixture.Stamp()))
	check("release", hands)(protocol.Release(row, hold, protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
	check("yield", hands)(protocol.Yield(row, hold, b, protocol.End{Reason: lease.ReasonHandoff}, fixture.Stamp()))
	check("recover", hands)(protocol.Recover(row, b, fixture.Stamp()))
	row = check("offer", hands)(protocol.Offer(row, hold, b.Incarnation, checkpoint.Mark{}, fixture.Stamp()))
	check("commit while it is offered", commits)(protocol.Commit(row, hold, checkpoint.Mark{Position: "2"}, fixture.Stamp()))
	check("withdraw", hands)(protocol.Withdraw(row, hold, fixture.Stamp()))
	check("take", hands)(protocol.Take(row, b, fixture.Stamp()))
	seat := lease.Seat{Group: "orders", Incarnation: "a-1", Name: "a", TTL: time.Second}
	check("seat", bypass)(protocol.Sit(seat, fixture.Stamp()))
	plan := protocol.Opening{By: fixture.Worker("a")}
	check("plan", bypass)(protocol.OpenPlan(lease.Plan{Group: "orders"}, plan, fixture.Stamp()))
	check("wishes", bypass)(protocol.SetWishes(lease.Wishes{Group: "orders"}, nil, fixture.Stamp()))
	hour := lease.Ends{Group: "orders", Hour: protocol.HourOf(time.Now())}
	check("ends", bypass)(protocol.AddEnds(hour, map[lease.Reason]int64{lease.ReasonReleased: 1}, fixture.Stamp()))
	target := lease.Target{Group: "orders", Incarnation: "a-1", Pages: 1, Revision: 7}
	check("target", hands)(protocol.WriteTarget(lease.Target{}, target, fixture.Stamp()))
	for k, want := range map[lease.Key]class{
		row.Key(): hands, target.Key(): hands, seat.Key(): bypass, lease.Plan{Group: "orders"}.Key(): bypass, lease.Wishes{Group: "orders"}.Key(): bypass,
		hour.Key(): bypass,
	} {
		if got := classOfRead(k); got != want {
			t.Errorf("a read of %v is of the class %v, want %v", k, got, want)
		}
	}
}

// compete lets callers commit without pause, each to its own shard. A caller waits for an answer
// for as long as its patience, and then calls again. compete returns how many commits the slowest
// caller made, and the callers on average, and how long callers waited for a commit, sorted.
func compete(t *testing.T, callers int, lasts, patience time.Duration, request func(context.Context) (struct{}, error)) (slowest, average int, waits []time.Duration) {
	s := newReading(nil, "leases", Options{}.withDefaults())
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	counts, took := make([]int, callers), make([][]time.Duration, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			last := time.Now()
			for ctx.Err() == nil {
				limited, cancel := context.WithTimeout(ctx, patience)
				_, err := callAs(limited, s, commits, shard(fmt.Sprint(i)), request)
				cancel()
				if err != nil {
					wait(ctx, 100*time.Millisecond)
					continue
				}
				counts[i]++
				took[i] = append(took[i], time.Since(last))
				last = time.Now()
			}
			took[i] = append(took[i], time.Since(last))
		})
	}
	all.Wait()
	for _, n := range counts {
		average += n
	}
	slowest, average, waits = slices.Min(counts), average/callers, slices.Sorted(slices.Values(slices.Concat(took...)))
	t.Logf("commits: slowest shard %d, average %d; median wait %v, longest %v", slowest, average, waits[len(waits)/2], waits[len(waits)-1])
	return slowest, average, waits
}

// TestLaneIsFair: 64 shards commit without pause, and the table serves 16 requests at a time.
// When the last caller was admitted first, 48 shards made at most one commit in 15 s. First
// in, first out, each shard makes 750, and each commit takes 20 ms. A sample lasts 4 s.
func TestLaneIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each request takes 5 ms on average.
		slowest, average, waits := compete(t, 64, fixture.Size(4*time.Second, 15*time.Second), 10*time.Second, func(ctx context.Context) (struct{}, error) {
			wait(ctx, 6666*time.Microsecond)
			return struct{}{}, ctx.Err()
		})
		median, p99 := waits[len(waits)/2], waits[len(waits)*99/100]
		if 2*slowest < average || p99 > 4*median {
			t.Errorf("commits: slowest shard %d, average %d; median %v, p99 %v", slowest, average, median, p99)
		}
	})
}

// TestLaneKeepsPlaces: if a call gives up or is sent away, the next call of its class for the
// same row has its place, and only one such call.
func TestLaneKeepsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admitted := queueing(t), make(chan string, 9)
		l.tempo.answered(time.Second, false)
		briefly, giveUp := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer giveUp()
		l.wait(briefly, commits, "a", admitted)
		time.Sleep(10 * time.Millisecond)
		l.wait(t.Context(), commits, "b", admitted)
		l.wait(t.Context(), hands, "c", admitted)
		time.Sleep(100 * time.Millisecond)
		if name := <-admitted; name != "a?" {
			t.Errorf("%s has given up", name)
		}
		l.wait(t.Context(), hands, "a", admitted)
		l.wait(t.Context(), commits, "a", admitted)
		l.wait(t.Context(), commits, "a", admitted)
		l.drains(t, admitted, "c", "a", "a", "b", "a")
	})
}

// TestPlacesAreForgotten: a place is remembered for at least half a minute and at most a
// minute. If there are too many, the latest are remembered.
func TestPlacesAreForgotten(t *testing.T) {
	start := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	a, other := placeKey{commits, shard("a")}, placeKey{commits, shard("b")}
	for left := range 90 { // seconds after the first use
		for _, c := range []struct {
			after int
			kept  bool
		}{{29, true}, {60, false}} {
			var p places
			now := start
			for s := range left + c.after + 1 {
				now = start.Add(time.Duration(s) * time.Second)
				if s == left {
					p.keep(a, start, now)
				}
				p.take(other, now)
			}
			if arrived := p.take(a, now); arrived.Equal(start) != c.kept {
				t.Errorf("%d s after a call left at %d s, its place is from %v", c.after, left, arrived)
			}
		}
	}
	var p places
	for i := range 3 * mostPlaces {
		p.keep(placeKey{commits, shard(fmt.Sprint(i))}, start, start)
	}
	if n := len(p.newer) + len(p.older); n > 2*mostPlaces {
		t.Errorf("%d places are remembered", n)
	}
	if last := p.take(placeKey{commits, shard(fmt.Sprint(3*mostPlaces - 1))}, start.Add(time.Second)); last != start {
		t.Error("the latest of many is forgotten")
	}
}

// TestRepeatedCallsKeepTheirPlace: 256 shards commit without pause on a table that takes 300 ms
// and serves 16 requests at a time. In turn, each shard commits every 4.8 s, which is longer
// than a worker waits for a commit before it repeats it (7/30 of 10 s). When a repeated call
// queued at the back, a shard waited for up to 2 min 57 s in ten minutes, and the slowest shard
// made 70 commits, with an average of 125. With places kept, the longest wait is 7.8 s and the
// slowest shard makes 123 commits.
func TestRepeatedCallsKeepTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, takes, patience = 256, 300 * time.Millisecond, 10 * time.Second * 7 / 30
		const inTurn = callers / 16 * takes
		slowest, average, waits := compete(t, callers, fixture.Size(2*time.Minute, 4*time.Minute), patience, func(context.Context) (struct{}, error) {
			time.Sleep(takes)
			return struct{}{}, nil
		})
		if longest := waits[len(waits)-1]; 2*slowest < average || longest > 3*inTurn+patience {
			t.Errorf("commits: slowest shard %d, average %d; a shard waited for %v, in turn it would be %v", slowest, average, longest, inTurn)
		}
	})
}

// TestNarrowLane: a lane that admits one call is narrow when the calls of the time before are answered.
func TestNarrowLane(t *testing.T) {
	l := newLane(16)
	for range firstInFlight {
		l.enters(t, commits)
	}
	for n := 1; n <= 2*firstInFlight; n++ { // the first halves the lane, and the first of those that were not under way then
		if l.note(false); l.narrow() != (n == 2*firstInFlight) {
			t.Errorf("after %d failures it is narrow: %v", n, l.narrow())
		}
	}
	for range firstInFlight {
		l.leave()
	}
}

// TestLateAnswersNarrowTheLane: answers that come a quarter of a second later than the quickest one halve the lane, as
// refusals do, but answers of a table that is far away do not. A table that stays slow while the lane is narrow counts as
// far away after some answers, and the lane widens again as it does at first.
func TestLateAnswersNarrowTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &reading{options: Options{Timeout: 2 * time.Second}, rows: newLane(16)}
		for _, c := range []struct {
			key   lease.Key
			takes time.Duration
			calls int
			limit int
		}{
			{shard("0"), 200 * time.Millisecond, 200, 16}, {shard("0"), 440 * time.Millisecond, 200, 16}, {shard("0"), 520 * time.Millisecond, 5, 1},
			{shard("0"), 520 * time.Millisecond, 150, 16}, {lease.Key{Kind: lease.KindLease}, time.Second, 10, 16}, // the last are pages of a listing
		} {
			for range c.calls {
				_, err := call(t.Context(), s, c.key, func(context.Context) (struct{}, error) {
					time.Sleep(c.takes)
					return struct{}{}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			s.rows.admits(t, c.limit, fmt.Sprintf("after %d answers that took %v", c.calls, c.takes))
		}
	})
}

// TestLaneRecovers: two thousand shards commit every five seconds, on a table that takes about
// 20 ms for each request. After an outage of two seconds, the shards commit as often as before.
func TestLaneRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &reading{options: Options{Timeout: 2 * time.Second}, rows: newLane(16)}
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
		for i := range 2000 {
			go func() {
				for wait(ctx, 5*time.Second) {
					for ctx.Err() == nil {
						patience, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
						_, err := call(patience, s, shard(fmt.Sprint(i)), request)
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
			t.Errorf("%d commits in ten seconds before the outage; after it %d, and %d failures", before, after, failed.Load())
		}
		stop()
		synctest.Wait()
	})
}
