package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// alternating returns n records of two keys, k0 and k1, which have different lanes.
func alternating(n int) (all []kinesistest.Record) {
	for i := range n {
		all = append(all, kinesistest.Record{Key: fmt.Sprintf("k%d", i%2), Data: fmt.Append(nil, i/2)})
	}
	return all
}

// TestFinishedWhenProcessed: a shard is finished when all its records are processed and marked, and not before.
func TestFinishedWhenProcessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(60), Closed: true})
		c := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return c.Run(ctx, func(ctx context.Context, r kinesis.Record) error {
				time.Sleep(200 * time.Millisecond)
				return b.sink.write(ctx, r)
			})
		})
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			if b.perhaps("a").Finished {
				break
			}
		}
		if row, n := b.row("a"), b.sink.total(t); !row.Finished || row.Checkpoint.Position != "60" || n != 100 {
			t.Errorf("finished %t at %s, after %d effects of 100", row.Finished, row.Checkpoint.Position, n)
		}
		end()
	})
}

// TestFinishedWhenMarked: a shard is not finished if its last record is processed, but its mark is refused.
func TestFinishedWhenMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(60), Closed: true})
		c := b.consumer()
		config := c.WorkerConfig()
		config.Order = func(x, y string) (int, error) {
			if y == "60" {
				return 0, errors.New("refused")
			}
			return stream.Order(x, y)
		}
		w, err := shardlease.New(b.store, c.Source(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		end := b.run(func(ctx context.Context) error { return w.Run(ctx, c.Handler(b.slowly)) })
		time.Sleep(5 * time.Minute)
		end()
		if row := b.row("a"); row.Finished || b.sink.times("60/0") == 0 {
			t.Errorf("finished %t at %s; the last record was processed %d times", row.Finished, row.Checkpoint.Position, b.sink.times("60/0"))
		}
	})
}

// TestNothingBehindAFailedRecord: behind a record that fails, no record of its lane is processed, also while it is tried
// again. When it has failed for good, no record of the other lanes is any more. Those before it are, and the shard stops
// right before it, although others behind it were processed meanwhile.
func TestNothingBehindAFailedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPoisoned(t)
		b.config.Attempts, b.config.InFlight = 1, 10_000
		var mu sync.Mutex
		var failed time.Time // when it was called last
		meanwhile, before := 0, 0
		b.runFor(time.Minute, func(ctx context.Context, r kinesis.Record) error {
			mu.Lock()
			n, _ := strconv.Atoi(r.Sequence)
			switch {
			case bad(r):
				if b.sink.called(r) == 5 {
					failed = time.Now()
				}
				mu.Unlock()
				return errPoison
			case n <= 100:
				before++
			case r.Key == "k1" || r.Key == "k5":
				t.Errorf("record %s has the lane of the one that fails", r.Sequence)
			case !failed.IsZero() && time.Now().After(failed):
				t.Errorf("record %s is processed behind the one that has failed", r.Sequence)
			default:
				meanwhile++
			}
			mu.Unlock()
			time.Sleep(30 * time.Millisecond)
			return b.sink.write(ctx, r)
		})
		if before != 167 || meanwhile < 10 || meanwhile > 250 {
			t.Errorf("%d records before it are processed, and %d behind it while it is tried", before, meanwhile)
		}
		if row := b.row("a"); !row.Quarantined || row.Checkpoint.Position != "100/1" {
			t.Errorf("quarantined %t, position %s", row.Quarantined, row.Checkpoint.Position)
		}
	})
}

// TestBatchEndsBeforeAFailedRecord: a batch that was gathered before a record of another lane failed ends before it.
func TestBatchEndsBeforeAFailedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: alternating(8), Closed: true})
		b.config.Batch, b.config.Window, b.config.Tries, b.config.Attempts = 4, time.Second, 1, 1
		var mu sync.Mutex
		var batches []string // of k0
		c := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return c.RunBatch(ctx, func(ctx context.Context, batch []kinesis.Record) (int, error) {
				if batch[0].Key == "k1" {
					return 0, errPoison // the first of them is record 2
				}
				text := ""
				for _, r := range batch {
					text += r.Sequence
				}
				mu.Lock()
				batches = append(batches, text)
				first := len(batches) == 1
				mu.Unlock()
				if first {
					time.Sleep(time.Second)
					return 0, errPoison
				}
				return len(batch), b.sink.write(ctx, batch...)
			})
		})
		time.Sleep(time.Minute)
		end()
		if row := b.row("a"); !slices.Equal(batches, []string{"1357", "1"}) || !row.Quarantined || row.Checkpoint.Position != "1" {
			t.Errorf("batches %q, quarantined %t, position %s", batches, row.Quarantined, row.Checkpoint.Position)
		}
	})
}

// TestFirstFailureCounts: when two records fail, the first of them in the shard is named, and its attempts count,
// whichever fails first.
func TestFirstFailureCounts(t *testing.T) {
	const slow, fast = 500 * time.Millisecond, 50 * time.Millisecond
	for name, after := range map[string]map[string]time.Duration{
		"the second record fails first": {"3": slow, "6": fast}, "the second record fails later": {"3": fast, "6": slow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, kinesistest.Shard{Name: "a", Records: alternating(20), Closed: true})
				b.config.Tries = 1
				var letters []string
				b.config.DeadLetter = func(_ context.Context, r kinesis.Record, _ error) error {
					letters = append(letters, fmt.Sprint(r.Sequence, " after ", b.sink.times(r.Sequence+"/0")))
					return nil
				}
				b.runFor(10*time.Minute, func(ctx context.Context, r kinesis.Record) error {
					if d := after[r.Sequence]; d > 0 {
						b.sink.called(r)
						time.Sleep(d)
						return errPoison
					}
					return b.sink.write(ctx, r)
				})
				var named []string
				for _, e := range b.told(event.Ended) {
					if poison, ok := errors.AsType[*kinesis.PoisonError](e.Err); ok {
						named = append(named, fmt.Sprint(poison.Record.Sequence, " in attempt ", poison.Attempts))
					}
				}
				if len(named) < 2 || !slices.Equal(named[:2], []string{"3 in attempt 1", "3 in attempt 2"}) || len(letters) != 2 || letters[0] != "3 after 3" {
					t.Errorf("named: %q; dead letters: %q", named, letters)
				}
				if n := b.sink.total(t, "k0 1", "k1 2"); n != 18 {
					t.Errorf("%d effects, want 18", n)
				}
			})
		})
	}
}
