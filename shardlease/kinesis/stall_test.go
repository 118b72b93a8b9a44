package kinesis_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestStallMoves: a function that hangs, whether it heeds its context or not, is told after 5 minutes, and its shard moves to
// the other worker within StallAfter and a lease time. That is no failed attempt, although the other lanes work, and
// Kinesis answers.
func TestStallMoves(t *testing.T) {
	for name, heeds := range map[string]bool{"heeds its context": true, "heeds nothing": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(100), Closed: true})
				b.config.InFlight = 10_000
				b.config.DeadLetter = func(context.Context, kinesis.Record, error) error {
					t.Error("a slow record is left out")
					return nil
				}
				free := make(chan struct{})
				var hung, again time.Time
				process := func(ctx context.Context, r kinesis.Record) error {
					if r.Sequence == "50" {
						if n := b.sink.called(r); n == 1 {
							hung = time.Now()
							if heeds {
								<-ctx.Done()
								return ctx.Err()
							}
							<-free
							return errors.New("late")
						}
						again = time.Now()
					}
					time.Sleep(time.Millisecond)
					return b.sink.write(ctx, r)
				}
				var ends []func()
				for range 2 {
					c := b.consumer()
					ends = append(ends, b.run(func(ctx context.Context) error { return c.Run(ctx, process) }))
					time.Sleep(time.Second)
				}
				time.Sleep(6 * time.Minute)
				if silent := b.told(event.Silent); len(silent) == 0 || silent[0].Shards[0] != "a" {
					t.Errorf("told after 6 minutes: %v", silent)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if took := again.Sub(hung); took < 15*time.Minute || took > 15*time.Minute+10*time.Second {
					t.Errorf("the shard moved %v after the function hung", took)
				}
				if row := b.row("a"); row.Attempts() != 0 || !row.Finished {
					t.Errorf("%d attempts, finished %t", row.Attempts(), row.Finished)
				}
				stalled := 0
				for _, e := range b.told(event.Ended) {
					if stall, ok := errors.AsType[*kinesis.StallError](e.Err); ok {
						stalled++
						if stall.Record.Sequence != "50" || e.Cause != event.CauseGivenUp {
							t.Errorf("told: %v", e)
						}
					}
				}
				if stalled != 1 {
					t.Errorf("%d stalls are told", stalled)
				}
				b.countsNoAttempt()
				close(free)
				for _, end := range ends {
					end()
				}
				if n := b.sink.total(t); n < 166 {
					t.Errorf("%d effects", n)
				}
			})
		})
	}
}

// countsNoAttempt checks that no tenure has begun after a failed attempt.
func (b *bench) countsNoAttempt() {
	b.Helper()
	for _, e := range b.told(event.Started) {
		if e.Attempt != 0 {
			b.Errorf("the stall counts as an attempt: %v", e)
		}
	}
}

// TestAlive: a record that needs longer than StallAfter and says so is processed, once and in one tenure.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(100), Closed: true})
		b.runFor(time.Hour, func(ctx context.Context, r kinesis.Record) error {
			for range 20 {
				if r.Sequence != "50" {
					break
				}
				kinesis.Alive(ctx)
				time.Sleep(time.Minute)
			}
			b.sink.called(r)
			return b.sink.write(ctx, r)
		})
		if n := b.sink.total(t); n != 166 && n != 168 || b.sink.calls["50/0"] != 1 || len(b.told(event.Started)) != 1 || len(b.told(event.Silent)) != 0 {
			t.Errorf("%d effects, %d tenures, told %v", n, len(b.told(event.Started)), b.told(event.Silent))
		}
		kinesis.Alive(t.Context()) // does nothing
	})
}

// TestOneWorkerWaitsForItsFunction: without another worker, the function is not called for a shard
// again before the call that has stalled has returned.
func TestOneWorkerWaitsForItsFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true})
		b.config.StallAfter = time.Minute
		running := false
		b.runFor(time.Hour, func(ctx context.Context, r kinesis.Record) error {
			if r.Sequence != "5" {
				return b.sink.write(ctx, r)
			}
			if running {
				t.Error("the function is called twice at a time")
			}
			running = true
			if b.sink.called(r) == 1 {
				time.Sleep(30 * time.Minute)
			}
			running = false
			return b.sink.write(ctx, r)
		})
		if n := b.sink.total(t); n != 18 {
			t.Errorf("%d effects", n)
		}
	})
}

// TestHangingFunctionHoldsNoShard: the function hangs for good, and its shard has moved to another worker. That one stops, and
// the first worker gets the shard again. It gives the shard back, so a third worker processes it.
func TestHangingFunctionHoldsNoShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10)})
		b.config.StallAfter = time.Minute
		free := make(chan struct{})
		hangs := func(_ context.Context, r kinesis.Record) error {
			if r.Sequence == "5" {
				<-free
			}
			return nil
		}
		start := func(process func(context.Context, kinesis.Record) error) (end func()) {
			c := b.consumer()
			end = b.run(func(ctx context.Context) error { return c.Run(ctx, process) })
			time.Sleep(20 * time.Second)
			return end
		}
		first := start(hangs)
		second := start(b.slowly)
		time.Sleep(2 * time.Minute)
		if b.sink.times("10/2") != 1 {
			t.Errorf("it has not moved: %v", b.row("a"))
		}
		second()
		time.Sleep(time.Minute)
		b.stream.PutTo("a", "k0", []byte("4"))
		third := start(b.slowly)
		time.Sleep(time.Minute)
		if row := b.row("a"); b.sink.times("11/0") != 1 || row.Attempts() != 0 {
			t.Errorf("nobody processes it: %v", row)
		}
		close(free)
		first()
		third()
	})
}

// TestSilentKinesis: a shard that cannot be read moves to another worker, and that is no failed attempt either.
func TestSilentKinesis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true})
		begun := time.Now()
		b.refuse("GetRecords", "ProvisionedThroughputExceededException", func() bool { return time.Since(begun) < 20*time.Minute })
		c := b.runFor(time.Hour, b.slowly)
		if s := c.Stats().Total; s.Throttles < 50 || s.Stalls != 1 || b.row("a").Attempts() != 0 {
			t.Errorf("figures: %+v", s)
		}
		if n := b.sink.total(t); n != 18 {
			t.Errorf("%d effects", n)
		}
	})
}

// TestSlowRecordsAreNoStall: a shard whose records each need some minutes, so that Kinesis is not read for
// hours, is processed in one tenure.
func TestSlowRecordsAreNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(15), Closed: true})
		b.config.Lanes, b.config.InFlight = 1, 20
		b.runFor(2*time.Hour, func(ctx context.Context, r kinesis.Record) error {
			if b.sink.called(r) == 1 && r.Index == 0 {
				return errPoison // the next try comes after a pause, in which there is no call
			}
			time.Sleep(4 * time.Minute)
			return b.sink.write(ctx, r)
		})
		if n := b.sink.total(t); n != 25 || len(b.told(event.Started)) != 1 {
			t.Errorf("%d effects, %d tenures", n, len(b.told(event.Started)))
		}
	})
}
