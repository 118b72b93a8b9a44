package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestReadsHideNoHang: while the function hangs, an open shard is read on. Neither empty answers nor the records of other
// keys, which are processed, are progress: the silence is told after 5 minutes, and the shard moves within StallAfter and
// a lease time.
func TestReadsHideNoHang(t *testing.T) {
	for name, arrive := range map[string]bool{"empty answers": false, "records of other keys": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10)})
				var hung, again time.Time
				process := func(ctx context.Context, r kinesis.Record) error {
					if r.Sequence == "5" {
						if b.sink.called(r) == 1 {
							hung = time.Now()
							<-ctx.Done()
							return ctx.Err()
						}
						again = time.Now()
					}
					return b.sink.write(ctx, r)
				}
				var ends []func()
				for range 2 {
					c := b.consumer()
					ends = append(ends, b.run(func(ctx context.Context) error { return c.Run(ctx, process) }))
					time.Sleep(time.Second)
				}
				want := 18
				for minute := range 17 {
					time.Sleep(time.Minute)
					if silent := b.told(event.Silent); minute == 6 && (len(silent) == 0 || silent[0].Shards[0] != "a") {
						t.Errorf("told after 6 minutes: %v", silent)
					}
					if arrive { // k1 has another lane than the record that hangs
						b.stream.PutTo("a", "k1", fmt.Append(nil, 2+minute))
						want++
					}
				}
				time.Sleep(time.Minute)
				b.countsNoAttempt()
				for _, end := range ends {
					end()
				}
				if took := again.Sub(hung); took < 15*time.Minute || took > 15*time.Minute+10*time.Second {
					t.Errorf("the shard moved %v after the function hung", took)
				}
				if n := b.sink.total(t); n != want {
					t.Errorf("%d effects, want %d", n, want)
				}
			})
		})
	}
}

// TestAnswersAreLife: as long as Kinesis answers, a shard without records is no stall, and neither is one whose answers are
// empty but come nearer to the next record, also after a failure.
func TestAnswersAreLife(t *testing.T) {
	notUnderRace(t)
	for name, c := range map[string]struct{ records, failures int }{
		"idle": {0, 0}, "empty answers": {10, 0}, "empty answers after a failure": {10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(c.records)})
				b.config.Tries = 1
				quiet := time.Now().Add(time.Duration(c.failures)*time.Minute - 1) // after it all answers are empty for 20 minutes
				if c.records > 0 {
					b.behind = func() time.Duration { return max(0, 20*time.Minute-time.Since(quiet)) }
				}
				b.stream.Empty = func() bool { return time.Now().After(quiet) && time.Since(quiet) < 20*time.Minute }
				failed := 0
				consumer := b.runFor(25*time.Minute, func(ctx context.Context, r kinesis.Record) error {
					if r.Sequence == "5" && failed < c.failures {
						failed++
						time.Sleep(time.Until(quiet)) // so that the next tenure begins with empty answers
						return errPoison
					}
					return b.slowly(ctx, r)
				})
				if s := consumer.Stats().Total; s.Stalls != 0 || len(b.told(event.Silent)) != 0 || len(b.told(event.Started)) != 1+c.failures {
					t.Errorf("%d stalls, %d tenures, told: %v", s.Stalls, len(b.told(event.Started)), b.told(event.Silent))
				}
				if n, want := b.sink.total(t), len(numbered(c.records))*9/5; n != want {
					t.Errorf("%d effects, want %d", n, want)
				}
			})
		})
	}
}

// TestEndOfACallIsLife: a call that has just ended, even by an error, is a sign of life. The reader waits for it, so there
// has been no answer for longer than StallAfter.
func TestEndOfACallIsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(9)})
		b.config.Lanes, b.config.InFlight = 1, 1
		b.runFor(time.Hour, func(ctx context.Context, r kinesis.Record) error {
			if r.Sequence != "2" {
				return b.sink.write(ctx, r)
			}
			switch b.sink.called(r) {
			case 1:
				time.Sleep(5 * time.Minute)
				return errPoison
			case 2: // StallAfter has passed since it began when the pause before the next call has
				time.Sleep(15*time.Minute - 50*time.Millisecond)
				return errPoison
			}
			return b.sink.write(ctx, r)
		})
		for _, e := range b.told(event.Ended) {
			if stall, ok := errors.AsType[*kinesis.StallError](e.Err); ok {
				t.Errorf("a stall: %v", stall)
			}
		}
		if n := b.sink.total(t); n != 15 || b.sink.times("2/0") != 3 {
			t.Errorf("%d effects, %d calls", n, b.sink.times("2/0"))
		}
	})
}
