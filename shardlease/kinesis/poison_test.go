package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

var errPoison = errors.New("no order")

// bad reports whether a record is the one that fails: the last record of entry 100.
func bad(r kinesis.Record) bool { return r.Sequence == "100" && r.Index == 2 }

// poisoned is the key and the data of the record that fails.
const poisoned = "k1 24"

func newPoisoned(t *testing.T) *bench {
	return newBench(t, kinesistest.Shard{Name: "a", Records: numbered(300), Closed: true})
}

// failing processes all records but the bad one, which fails with an error or a panic.
func (b *bench) failing(panics bool) func(context.Context, kinesis.Record) error {
	return func(ctx context.Context, r kinesis.Record) error {
		switch {
		case bad(r) && panics:
			b.sink.called(r)
			panic(errPoison)
		case bad(r):
			b.sink.called(r)
			return errPoison
		}
		return b.slowly(ctx, r)
	}
}

// TestPoisonStops: without DeadLetter the shard is quarantined right before the record, after Attempts
// tenures with Tries calls each, and the error says what to do. Records before it are processed, and
// no later record of its key is, because of their order.
func TestPoisonStops(t *testing.T) {
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprint("panic ", panics), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newPoisoned(t)
				reads := 0
				b.stream.Empty = func() bool { reads++; return reads%2 == 1 }
				b.runFor(time.Minute, b.failing(panics))
				row := b.row("a")
				if !row.Quarantined || row.Last.Reason != lease.ReasonFailed || row.Checkpoint.Position != "100/1" {
					t.Errorf("quarantined %t (%v), position %s", row.Quarantined, row.Last, row.Checkpoint.Position)
				}
				if n := b.sink.calls["100/2"]; n != 15 {
					t.Errorf("the record was tried %d times, want 15", n)
				}
				b.sink.total(t)
				if n := len(b.sink.effects["k1"]); n != 24 {
					t.Errorf("%d effects of the key, want 24", n)
				}
				var last *kinesis.PoisonError
				for _, e := range b.told(event.Ended) {
					if poison, ok := errors.AsType[*kinesis.PoisonError](e.Err); ok {
						last = poison
					}
				}
				if last == nil || last.Attempts != 3 || last.Record.Shard != "a" || last.Record.Sequence != "100" {
					t.Fatalf("the last error: %v", last)
				}
				for _, want := range []string{"shard a", "record 100/2", "attempt 3 of 3", "no order", "quarantined", "Config.DeadLetter", "kinesis.Skip"} {
					if !strings.Contains(last.Error(), want) {
						t.Errorf("%q lacks %q", last, want)
					}
				}
			})
		})
	}
}

// TestNothingIsProcessedInVain: when a record fails, what the other lanes have queued behind it is not
// processed, and the tenures that follow begin with the record alone.
func TestNothingIsProcessedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPoisoned(t)
		b.config.Worker.MaxAttempts = -1
		b.runFor(10*time.Minute, b.failing(false))
		if n := b.sink.calls["100/2"]; n < 50 {
			t.Fatalf("the record was tried %d times, want more", n)
		}
		for of, n := range b.sink.calls {
			if n > 1 && of != "100/2" {
				t.Errorf("record %s was processed %d times", of, n)
			}
		}
	})
}

// TestDeadLetter: the record is passed to DeadLetter in the last attempt, and nothing else is left out. The
// shard is seconds behind.
func TestDeadLetter(t *testing.T) {
	for _, batches := range []bool{false, true} {
		t.Run(fmt.Sprint("batches ", batches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newPoisoned(t)
				var letters []string
				b.config.DeadLetter = func(_ context.Context, r kinesis.Record, err error) error {
					letters = append(letters, fmt.Sprint(r.Key, " ", string(r.Data), ": ", err, " after ", b.sink.calls["100/2"]))
					return nil
				}
				begun := time.Now()
				c := b.consumer()
				end := b.run(func(ctx context.Context) error {
					if !batches {
						return c.Run(ctx, b.failing(false))
					}
					return c.RunBatch(ctx, func(ctx context.Context, batch []kinesis.Record) (int, error) {
						if slices.ContainsFunc(batch, bad) {
							if len(batch) == 1 {
								b.sink.called(batch[0])
							}
							return 0, errPoison
						}
						return len(batch), b.sink.write(ctx, batch...)
					})
				})
				for !b.perhaps("a").Finished {
					time.Sleep(time.Second)
					if time.Since(begun) > 10*time.Minute {
						t.Fatal("the shard is not finished")
					}
				}
				end()
				if took := time.Since(begun); took > time.Minute {
					t.Errorf("it took %v", took)
				}
				if n := b.sink.total(t, poisoned); n != 499 {
					t.Errorf("%d effects, want 499", n)
				}
				if want := []string{poisoned + ": no order after 15"}; !slices.Equal(letters, want) {
					t.Errorf("dead letters: %q, want %q", letters, want)
				}
				if s := c.Stats().Total; s.LeftOut != 1 || s.Failed < 15 {
					t.Errorf("figures: %+v", s)
				}
			})
		})
	}
}

// TestSkip: the record is left out, and the log says so.
func TestSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPoisoned(t)
		b.config.DeadLetter = kinesis.Skip
		b.runFor(5*time.Minute, b.failing(true))
		if n := b.sink.total(t, poisoned); n != 499 || !b.row("a").Finished {
			t.Errorf("%d effects, want 499", n)
		}
		if text := b.log.String(); strings.Count(text, "record left out") != 1 || !strings.Contains(text, "sequence=100 index=2") {
			t.Error("the log does not say that the record was left out")
		}
	})
}

// TestDeadLetterFails: a record whose DeadLetter fails is not left out, and the shard is not quarantined: it goes on
// when DeadLetter works again.
func TestDeadLetterFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPoisoned(t)
		begun := time.Now()
		b.config.DeadLetter = func(context.Context, kinesis.Record, error) error {
			if time.Since(begun) < 10*time.Minute {
				panic("the queue does not answer")
			}
			return nil
		}
		c := b.consumer()
		end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.failing(false)) })
		time.Sleep(9 * time.Minute)
		if row := b.row("a"); row.Quarantined || row.Checkpoint.Position != "100/1" || c.Stats().Total.LeftOut != 0 {
			t.Errorf("quarantined %t, position %s", row.Quarantined, row.Checkpoint.Position)
		}
		time.Sleep(10 * time.Minute)
		end()
		if n := b.sink.total(t, poisoned); n != 499 {
			t.Errorf("%d effects, want 499", n)
		}
	})
}

// TestPassingFaultsBurnNoTenure: a record that fails a few times in a row is processed in the same tenure.
func TestPassingFaultsBurnNoTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPoisoned(t)
		b.runFor(time.Minute, func(ctx context.Context, r kinesis.Record) error {
			if bad(r) && b.sink.called(r) < 5 {
				return errPoison
			}
			return b.slowly(ctx, r)
		})
		if n := b.sink.total(t); n != 500 || len(b.told(event.Started)) != 1 {
			t.Errorf("%d effects, %d tenures", n, len(b.told(event.Started)))
		}
	})
}

// TestEachRecordHasItsAttempts: two records fail, each with its own count. A record that is not at the front of
// the shard when it fails is left out only when it has been there as often as the first one.
func TestEachRecordHasItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPoisoned(t)
		b.config.Tries = 1
		var letters []string
		b.config.DeadLetter = func(_ context.Context, r kinesis.Record, _ error) error {
			letters = append(letters, fmt.Sprint(r.Sequence, " after ", b.sink.calls[r.Sequence+"/0"]))
			return nil
		}
		b.runFor(10*time.Minute, func(ctx context.Context, r kinesis.Record) error {
			if r.Sequence == "102" || r.Sequence == "104" {
				b.sink.called(r)
				time.Sleep(30 * time.Millisecond)
				return errPoison
			}
			return b.slowly(ctx, r)
		})
		if len(letters) != 2 || letters[0] != "102 after 3" || !strings.HasPrefix(letters[1], "104 after ") || b.sink.calls["104/0"] < 3 {
			t.Errorf("dead letters: %q", letters)
		}
	})
}

// TestDeathsOfOtherTimesDoNotCount: catching up restarts the count, so an idle shard whose workers die, ten minutes apart,
// is not quarantined.
func TestDeathsOfOtherTimesDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(30)})
		for range 7 {
			link := storetest.NewLink(b.store)
			c := b.on(link)
			end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.slowly) })
			time.Sleep(10 * time.Minute)
			if row := b.row("a"); row.Quarantined || row.Attempts() != 0 || row.Owner.IsZero() {
				t.Errorf("quarantined %t, %d attempts counted, owner %v", row.Quarantined, row.Attempts(), row.Owner)
			}
			link.Cut()
			end()
		}
	})
}

// TestPoisonBehindEmptyReads: the policy applies too if a long series of empty reads, which every tenure repeats,
// precedes the record.
func TestPoisonBehindEmptyReads(t *testing.T) {
	notUnderRace(t)
	synctest.Test(t, func(t *testing.T) {
		b := newPoisoned(t)
		b.config.DeadLetter = kinesis.Skip
		tenure, begun := 0, time.Now()
		b.stream.Empty = func() bool {
			if n := len(b.told(event.Started)); n != tenure {
				tenure, begun = n, time.Now()
			}
			return time.Since(begun) < 10*time.Minute
		}
		b.runFor(time.Hour, b.failing(false))
		if n := b.sink.calls["100/2"]; n != 15 || !b.row("a").Finished {
			t.Errorf("the record was tried %d times, want 15", n)
		}
	})
}

// TestTooOld: records that are older than MaxAge go to DeadLetter and not to the function.
func TestTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := numbered(60)
		for i := range records {
			records[i].Arrived = time.Now()
			if i < 30 {
				records[i].Arrived = time.Now().Add(-2 * time.Hour)
			}
		}
		b := newBench(t, kinesistest.Shard{Name: "a", Records: records, Closed: true})
		old := 0
		b.config.MaxAge, b.config.Lanes = time.Hour, 1
		b.config.DeadLetter = func(_ context.Context, r kinesis.Record, err error) error {
			if !errors.Is(err, kinesis.ErrTooOld) {
				t.Error(err)
			}
			old++
			return nil
		}
		c := b.runFor(time.Minute, func(_ context.Context, r kinesis.Record) error {
			if time.Since(r.Arrived) > time.Hour {
				t.Errorf("record %s is too old", r.Sequence)
			}
			return nil
		})
		if s := c.Stats().Total; old != 50 || s.LeftOut != 50 || s.Processed != 50 {
			t.Errorf("%d records are too old, want 50; figures %+v", old, s)
		}
	})
}

// TestBatches: a batch has the records of a lane in order; what the function reports as done is not
// passed again; and after an error the batches become smaller.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(300), Closed: true})
		b.config.Batch, b.config.Window, b.config.Lanes = 20, time.Second, 1
		var sizes []int
		calls := 0
		c := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return c.RunBatch(ctx, func(ctx context.Context, batch []kinesis.Record) (int, error) {
				calls++
				sizes = append(sizes, len(batch))
				done := len(batch)
				if calls%5 == 4 {
					done /= 2
				}
				if err := b.sink.write(ctx, batch[:done]...); err != nil {
					return 0, err
				}
				if done < len(batch) {
					return done, errPoison
				}
				return done, nil
			})
		})
		time.Sleep(time.Minute)
		end()
		if n := b.sink.total(t); n != 500 || b.sink.repeats != 0 || !b.row("a").Finished {
			t.Errorf("%d effects, want 500; %d repeats", n, b.sink.repeats)
		}
		if want := []int{20, 20, 20, 20, 5, 5}; !slices.Equal(sizes[:6], want) {
			t.Errorf("sizes of the first batches: %v, want %v", sizes[:6], want)
		}
	})
}

// TestWindow: a batch waits for its window, and not longer.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(1)})
		b.config.Window = 10 * time.Second
		begun := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		c := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return c.RunBatch(ctx, func(_ context.Context, batch []kinesis.Record) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(begun).Truncate(time.Second))
				return len(batch), nil
			})
		})
		time.Sleep(5 * time.Second)
		for _, r := range numbered(7)[1:] {
			b.stream.PutTo("a", r.Key, r.Data)
		}
		time.Sleep(time.Minute)
		end()
		if len(at) == 0 || at[0] < 10*time.Second || at[0] > 13*time.Second {
			t.Errorf("batches at %v", at)
		}
	})
}

func TestConfigErrors(t *testing.T) {
	b := newBench(t)
	for want, edit := range map[string]func(*kinesis.Config){
		"Stream: must be given":                 func(c *kinesis.Config) { c.Stream = "" },
		"Streams: must be empty":                func(c *kinesis.Config) { c.Streams = []string{"x"} },
		"two streams of the name \"x\"":         func(c *kinesis.Config) { c.Stream, c.Streams = "", []string{"x", "arn:aws:kinesis:r:1:stream/x"} },
		"Lanes: must be at least 1":             func(c *kinesis.Config) { c.Lanes = -1 },
		"Window: must be between":               func(c *kinesis.Config) { c.Window = time.Hour },
		"MaxAge: needs DeadLetter":              func(c *kinesis.Config) { c.MaxAge = time.Hour },
		"StallAfter: must be at least":          func(c *kinesis.Config) { c.StallAfter = 1 },
		"Worker.Group: must not be set":         func(c *kinesis.Config) { c.Worker.Group = "x" },
		"Worker.MaxAttempts: must be more than": func(c *kinesis.Config) { c.DeadLetter, c.Worker.MaxAttempts = kinesis.Skip, 3 },
		"Handoff: ":                             func(c *kinesis.Config) { c.Handoff = rebalance.Mode(0) },
		"Group: ":                               func(c *kinesis.Config) { c.Group = "" },
	} {
		config := b.config
		edit(&config)
		if _, err := kinesis.New(b.server.Client(), b.store, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := kinesis.New(nil, nil, kinesis.Config{}); err == nil || strings.Count(err.Error(), "\n") < 4 {
		t.Errorf("not all faults at once: %v", err)
	}
}

// TestAnErrorIsAboutARecord: a function that returns an error and says that all records are done gets the last of them
// again.
func TestAnErrorIsAboutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(9), Closed: true})
		calls, passed := 0, 0
		c := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return c.RunBatch(ctx, func(ctx context.Context, batch []kinesis.Record) (int, error) {
				b.sink.mu.Lock()
				calls++
				passed += len(batch)
				failed := calls == 1
				b.sink.mu.Unlock()
				if failed {
					return len(batch), errPoison
				}
				return len(batch), b.sink.write(ctx, batch...)
			})
		})
		time.Sleep(time.Minute)
		end()
		if s := c.Stats().Total; s.Processed != 15 || s.Failed != 1 || passed != 16 {
			t.Errorf("%d records are passed; figures: %+v", passed, s)
		}
	})
}
