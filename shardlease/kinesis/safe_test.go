package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// generations returns three shards, each the child of the one before. The first two are closed, and were so an hour ago.
func generations() []kinesistest.Shard {
	closed := time.Now()
	time.Sleep(time.Hour)
	all := numbered(120)
	return []kinesistest.Shard{
		{Name: "a", Records: all[:60], Closed: true, ClosedAt: closed},
		{Name: "b", Parents: []string{"a"}, Records: all[60:90], Closed: true, ClosedAt: closed},
		{Name: "c", Parents: []string{"b"}, Records: all[90:]},
	}
}

// TestChangedStart: a group that has begun reads closed shards to their end, and those that it has not begun yet, whatever
// Start is now.
func TestChangedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, generations()...)
		b.config.InFlight = 10
		slower := func(ctx context.Context, r kinesis.Record) error {
			time.Sleep(50 * time.Millisecond)
			return b.slowly(ctx, r)
		}
		b.runFor(500*time.Millisecond, slower)
		if row := b.row("a"); row.Finished {
			t.Fatalf("the test should begin with an unfinished shard: %v", row)
		}
		for _, start := range []kinesis.Start{{Latest: true}, {At: time.Now()}, {Sequence: map[string]string{"c": "29"}}} {
			b.config.Start = start
			b.runFor(700*time.Millisecond, slower)
		}
		b.runFor(5*time.Minute, b.slowly)
		if n := b.sink.total(t); n != 200 {
			t.Errorf("%d effects, want 200", n)
		}
		if n := len(b.told(event.Unlisted)); n != 0 {
			t.Errorf("%d shards were given up: %v", n, b.told(event.Unlisted))
		}
	})
}

// TestImportBeforeStart: an import leaves a position in a shard that was closed before Start. The shard is read to its end, and
// then the child, of which the group had no lease.
func TestImportBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, generations()...)
		row := fixture.Must[lease.Row](t, b.store)(protocol.Begin("orders", "a", nil, "import", fixture.Stamp()))
		c := protocol.Command{Seen: row.Generation, By: "import"}
		fixture.Must[lease.Row](t, b.store)(protocol.Rewind(row, c, checkpoint.Mark{Position: "30"}, fixture.Stamp()))
		b.config.Start = kinesis.Start{Latest: true}
		var records sync.Map
		b.runFor(15*time.Minute, func(_ context.Context, r kinesis.Record) error {
			n, _ := records.LoadOrStore(r.Shard, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			time.Sleep(4 * time.Second) // longer than two listings
			return nil
		})
		of := func(shard string) int64 {
			n, _ := records.LoadOrStore(shard, new(atomic.Int64))
			return n.(*atomic.Int64).Load()
		}
		if of("a") != 50 || of("b") != 50 || of("c") == 0 {
			t.Errorf("%d, %d and %d records", of("a"), of("b"), of("c"))
		}
	})
}

// TestDeniedReads: while Kinesis refuses reads, for a permission, a key or credentials, the figures show it, the worker tells
// it within 6 minutes, and after StallAfter the shard moves. Nothing counts as an attempt, and the shard goes on when
// the policy is right again.
func TestDeniedReads(t *testing.T) {
	notUnderRace(t)
	for _, op := range []string{"GetRecords", "GetShardIterator"} {
		for _, code := range []string{"AccessDeniedException", "KMSDisabledException", "UnrecognizedClientException", "ExpiredTokenException", "RequestTimeoutException"} {
			t.Run(op+" "+code, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true})
					begun := time.Now()
					b.refuse(op, code, func() bool { return time.Since(begun) < 20*time.Minute })
					c := b.consumer()
					end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.slowly) })
					time.Sleep(6 * time.Minute)
					if s := c.Stats().Shards["a"]; s.ReadErrors < 30 || len(b.told(event.Silent)) == 0 {
						t.Errorf("after 6 minutes: figures %+v, told %v", s, b.told(event.Silent))
					}
					time.Sleep(24 * time.Minute)
					end()
					if s := c.Stats().Total; s.Stalls != 1 {
						t.Errorf("figures: %+v", s)
					}
					b.done(c)
				})
			})
		}
	}
}

// TestUnreadableShardIsGivenBack: a shard for which Kinesis refuses a request as invalid goes from worker to worker, each
// time after a longer rest, and each end is told. No attempt is counted, and the shard is not quarantined.
func TestUnreadableShardIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true})
		begun := time.Now()
		b.refuse("GetShardIterator", "InvalidArgumentException", func() bool { return time.Since(begun) < 10*time.Minute })
		c := b.runFor(20*time.Minute, b.slowly)
		ends := 0
		for _, e := range b.told(event.Ended) {
			if e.Err != nil && e.Cause == event.CauseGivenUp && strings.Contains(e.Err.Error(), "InvalidArgument") {
				ends++
			}
		}
		if ends < 5 || ends > 20 {
			t.Errorf("told of %d ends: %v", ends, b.told(event.Ended))
		}
		b.done(c)
	})
}

// done checks that all records of the shard a are processed, without a failed attempt.
func (b *bench) done(c *kinesis.Consumer) {
	b.Helper()
	b.countsNoAttempt()
	row := b.row("a")
	if n := b.sink.total(b.T); n != 18 || c.Stats().Total.LeftOut != 0 || row.Attempts() != 0 || !row.Finished {
		b.Errorf("%d effects, figures %+v, %v", n, c.Stats().Total, row)
	}
}

// TestBeginIsTold: a consumer that cannot begin says so at once, then at growing intervals, and when it has begun.
func TestBeginIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true})
		begun := time.Now()
		b.server.Intercept = func(kinesistest.Call) error {
			if time.Since(begun) < time.Hour {
				return errors.New("no connection")
			}
			return nil
		}
		b.config.Observe = func(e event.Event) {
			b.observe(e)
			if e.Kind == event.SourceFault && e.Err != nil {
				panic("of the test")
			}
		}
		c := b.consumer()
		end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.slowly) })
		time.Sleep(time.Second)
		if n := len(b.told(event.SourceFault)); n != 1 {
			t.Errorf("told %d times at once", n)
		}
		time.Sleep(2 * time.Hour)
		end()
		told := b.told(event.SourceFault)
		if n := len(told); n < 5 || n > 15 || told[0].Over || told[0].Err == nil || !told[n-1].Over || told[n-1].Lasted < time.Hour {
			t.Errorf("told: %v", told)
		}
		b.done(c)
	})
}

// TestBeginIsToldToNobody: an Observe that does not return keeps a consumer neither from beginning nor from ending.
func TestBeginIsToldToNobody(t *testing.T) {
	for name, down := range map[string]time.Duration{"it begins": time.Minute, "it ends": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10), Closed: true})
				begun, stuck := time.Now(), make(chan struct{})
				b.server.Intercept = func(kinesistest.Call) error {
					if time.Since(begun) < down {
						return errors.New("no connection")
					}
					return nil
				}
				b.config.Observe = func(event.Event) { <-stuck }
				c := b.consumer()
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- c.Run(ctx, b.slowly) }()
				time.Sleep(10 * time.Minute)
				if got := c.Stats().Total.Processed > 0; got != (name == "it begins") {
					t.Errorf("processes records: %t", got)
				}
				stop()
				if name == "it begins" {
					close(stuck) // the worker delivers its events before it returns
				}
				select {
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Error("Run does not return")
				}
				if name != "it begins" {
					close(stuck)
				}
			})
		})
	}
}

// TestForeign: packed records of other shards are left out, which is counted, and logged once in a tenure. With Keep they
// are processed.
func TestForeign(t *testing.T) {
	for foreign, want := range map[kinesis.Foreign]int64{kinesis.Drop: 20, kinesis.Keep: 40} {
		synctest.Test(t, func(t *testing.T) {
			half := new(big.Int).Lsh(big.NewInt(1), 127)
			shard := kinesistest.Shard{Name: "a", Closed: true, From: "0", To: new(big.Int).Sub(half, big.NewInt(1)).String()}
			for range 20 {
				data := kpl.Pack(kpl.Record{Key: "ours", Hash: "0", Data: "x"}, kpl.Record{Key: "other", Hash: half.String(), Data: "y"})
				shard.Records = append(shard.Records, kinesistest.Record{Key: "outer", Data: data})
			}
			b := newBench(t, shard)
			b.config.Foreign, b.config.InFlight = foreign, 5 // several reads
			c := b.runFor(time.Minute, func(context.Context, kinesis.Record) error { return nil })
			lines := strings.Count(b.log.String(), "packed records are left out")
			if s := c.Stats().Total; s.Processed != want || s.Foreign != 40-want || lines != int(40-want)/20 {
				t.Errorf("%d: figures %+v, %d lines in the log", foreign, s, lines)
			}
		})
	}
}

// TestAgeByTheClockOfKinesis: a wrong clock of this machine makes no record too old, and no old one young.
func TestAgeByTheClockOfKinesis(t *testing.T) {
	for ahead, old := range map[time.Duration]int64{-2 * time.Hour: 0, 2 * time.Hour: 18} {
		synctest.Test(t, func(t *testing.T) {
			records := numbered(10)
			for i := range records {
				records[i].Arrived = time.Now().Add(ahead) // the present time of Kinesis
				if old > 0 {
					records[i].Arrived = records[i].Arrived.Add(-90 * time.Minute)
				}
			}
			b := newBench(t, kinesistest.Shard{Name: "a", Records: records, Closed: true})
			b.server.Ahead, b.config.MaxAge, b.config.DeadLetter = ahead, time.Hour, kinesis.Skip
			c := b.runFor(time.Minute, b.slowly)
			if s := c.Stats().Total; s.LeftOut != old || s.Processed != 18-old {
				t.Errorf("Kinesis is %v ahead: figures %+v", ahead, s)
			}
		})
	}
}

// TestGoexit: a function that calls runtime.Goexit for a record has failed for it, as with a panic. So has a DeadLetter.
func TestGoexit(t *testing.T) {
	for _, batches := range []bool{false, true} {
		t.Run(fmt.Sprint("batches ", batches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newPoisoned(t)
				letters := 0
				b.config.DeadLetter = func(_ context.Context, _ kinesis.Record, err error) error {
					if letters++; letters == 1 {
						runtime.Goexit()
					}
					if !strings.Contains(err.Error(), "Goexit") {
						t.Errorf("the record has failed with %v", err)
					}
					return nil
				}
				c := b.consumer()
				end := b.run(func(ctx context.Context) error {
					if !batches {
						return c.Run(ctx, func(ctx context.Context, r kinesis.Record) error {
							if bad(r) {
								b.sink.called(r)
								runtime.Goexit()
							}
							return b.slowly(ctx, r)
						})
					}
					return c.RunBatch(ctx, func(ctx context.Context, batch []kinesis.Record) (int, error) {
						if slices.ContainsFunc(batch, bad) {
							if len(batch) == 1 {
								b.sink.called(batch[0])
							}
							runtime.Goexit()
						}
						return len(batch), b.sink.write(ctx, batch...)
					})
				})
				time.Sleep(5 * time.Minute)
				end()
				if n := b.sink.total(t, poisoned); n != 499 || letters != 2 || b.sink.times("100/2") != 20 || !b.row("a").Finished {
					t.Errorf("%d effects, want 499; %d dead letters, %d calls, %v", n, letters, b.sink.times("100/2"), b.row("a"))
				}
			})
		})
	}
}
