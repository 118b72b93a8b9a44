package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// fanOut is newBench with fan-out, on a stream with some shards.
func fanOut(t *testing.T, shards int) *bench {
	b := newBench(t)
	b.server.Limits = true
	b.stream = b.server.Create("orders", shards)
	b.config.Read = kinesis.FanOut
	return b
}

// produce puts numbered records of some keys, each after a pause, until the returned function is called, which returns
// how many there are.
func (b *bench) produce(pause time.Duration) (end func() int) {
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				done <- n
				return
			case <-time.After(pause):
			}
			b.stream.Put(fmt.Sprint("k", n%keys), fmt.Append(nil, n/keys))
		}
	}()
	return func() int { close(stop); return <-done }
}

// settled checks that all of n records were processed in order, and that no subscription stays.
func (b *bench) settled(n int) {
	b.Helper()
	if got := b.sink.total(b.T); got != n {
		b.Errorf("%d effects, want %d", got, n)
	}
	for _, sh := range b.stream.Shards() {
		if open := b.stream.Subscriptions(sh.Name); open != 0 {
			b.Errorf("%d subscriptions of %s stay", open, sh.Name)
		}
	}
}

func (b *bench) calls(op string) int { return len(b.server.Calls(op)) }

// logged reports whether a line was logged.
func (b *bench) logged(line string) bool { return strings.Contains(b.log.String(), line) }

// quick stores records at once.
func (b *bench) quick(ctx context.Context, r kinesis.Record) error { return b.sink.write(ctx, r) }

// TestFanOut: a fleet that reads by fan-out loses no record, keeps the order of each key, and polls nothing, while shards are
// split and merged, subscriptions break, workers join and leave, and one of them is cut off from the table and works on.
func TestFanOut(t *testing.T) {
	for name, handoff := range map[string]rebalance.Handoff{"eager": rebalance.Eager, "cooperative": rebalance.Cooperative} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fanOut(t, 2)
				b.config.Handoff = handoff
				produced := b.produce(200 * time.Millisecond)
				var ends []func()
				join := func() *storetest.Link {
					link := storetest.NewLink(b.store)
					c := b.on(link)
					ends = append(ends, b.run(func(ctx context.Context) error { return c.Run(ctx, b.quick) }))
					time.Sleep(30 * time.Second)
					return link
				}
				first := join()
				join()
				_, upper := b.stream.Split("shardId-000000000000")
				time.Sleep(20 * time.Second)
				join()
				b.stream.Break(upper, kinesistest.ErrTorn)
				first.Cut() // its functions and subscriptions go on
				time.Sleep(30 * time.Second)
				first.Heal()
				time.Sleep(30 * time.Second)
				b.stream.Merge(upper, "shardId-000000000001")
				time.Sleep(20 * time.Second)
				b.stream.Break(upper, kinesistest.ErrSilence)
				ends[1]() // leaves
				time.Sleep(7 * time.Minute)
				n := produced()
				time.Sleep(time.Minute)
				for _, i := range []int{0, 2} {
					ends[i]()
				}
				b.settled(n)
				for _, shard := range []string{"shardId-000000000000", "shardId-000000000001", upper} {
					if !b.row(shard).Finished {
						t.Errorf("%s is not finished", shard)
					}
				}
				if n := b.calls("GetRecords"); n != 0 {
					t.Errorf("%d requests for records", n)
				}
				if n := b.calls("RegisterStreamConsumer"); n != 1 {
					t.Errorf("%d registrations", n)
				}
			})
		})
	}
}

// TestAuto: the default polls without a consumer, and registers none. It notices a consumer that somebody registers, and one
// that is deregistered: then it is told, and no record is lost. It asks once in 5 minutes for all shards.
func TestAuto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fanOut(t, 2)
		b.config.Read = kinesis.Auto
		produced := b.produce(time.Second)
		c := b.consumer()
		end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.quick) })
		time.Sleep(21 * time.Minute)
		if asked := b.calls("DescribeStreamConsumer"); asked != 5 || b.calls("RegisterStreamConsumer") != 0 || b.calls("SubscribeToShard") != 0 {
			t.Errorf("asked %d times; %d registrations, %d subscriptions", asked, b.calls("RegisterStreamConsumer"), b.calls("SubscribeToShard"))
		}
		if err := b.consumer().Register(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(6 * time.Minute)
		polled := b.calls("GetRecords")
		time.Sleep(21 * time.Minute)
		s := c.Stats().Total
		if more := b.calls("GetRecords") - polled; more != 0 || s.FanOut != 2 || s.Subscriptions < 2*4 || s.Fallbacks != 0 {
			t.Errorf("%d requests for records beside a consumer that is ACTIVE: %+v", more, s)
		}
		if err := b.consumer().Deregister(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		s = c.Stats().Total
		if s.FanOut != 0 || s.Fallbacks != 2 || !b.logged("fan-out failed: the shard is polled") || b.calls("GetRecords") == polled {
			t.Errorf("after the consumer was deregistered: %+v", s)
		}
		time.Sleep(10 * time.Minute)
		n := produced()
		time.Sleep(time.Minute)
		end()
		b.settled(n)
		if n := b.calls("RegisterStreamConsumer"); n != 1 { // that of Register
			t.Errorf("%d registrations", n)
		}
	})
}

// TestAutoUsesAnActiveConsumer: a consumer that is ACTIVE when a worker begins is used for everything. One that is
// CREATING, or that has another name, is not.
func TestAutoUsesAnActiveConsumer(t *testing.T) {
	for name, c := range map[string]struct {
		consumer string
		age      time.Duration
		pushed   bool
	}{"active": {"orders", time.Minute, true}, "creating": {"orders", 0, false}, "another group's": {"bills", time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(300), Closed: true}, kinesistest.Shard{Name: "b", Parents: []string{"a"}})
				_, err := b.server.Client().RegisterStreamConsumer(t.Context(), &awskinesis.RegisterStreamConsumerInput{
					StreamARN: new(b.stream.ARN()), ConsumerName: &c.consumer,
				})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.age)
				b.runFor(time.Minute, b.slowly)
				b.settled(500)
				if pushed := b.calls("GetRecords") == 0; pushed != c.pushed || !b.row("a").Finished {
					t.Errorf("%d requests for records, %d subscriptions; finished %t", b.calls("GetRecords"), b.calls("SubscribeToShard"), b.row("a").Finished)
				}
			})
		})
	}
}

// TestAutoWithoutPermission: a worker that may not ask polls. That is logged once.
func TestAutoWithoutPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(30)})
		b.server.Fail("DescribeStreamConsumer", &types.AccessDeniedException{Message: new("no")}, -1)
		b.runFor(16*time.Minute, b.slowly)
		b.settled(50)
		if n := strings.Count(b.log.String(), "cannot find out whether there is a consumer"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		b.config.Read = kinesis.Poll
		asked := b.calls("DescribeStreamConsumer")
		b.runFor(16*time.Minute, b.slowly)
		if b.calls("DescribeStreamConsumer") != asked {
			t.Error("a worker that polls has asked")
		}
	})
}

// TestFanOutAtStart: a worker with FanOut does not start without its consumer, and the error says what to do.
func TestFanOutAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fanOut(t, 1)
		b.server.Fail("RegisterStreamConsumer", &types.AccessDeniedException{Message: new("no")}, 1)
		err := b.consumer().Run(t.Context(), b.quick)
		if denied, ok := errors.AsType[*kinesis.DeniedError](err); !ok || denied.Resource != b.stream.ARN() {
			t.Errorf("without permission: %v", err)
		}
		b.server.Fail("RegisterStreamConsumer", &types.InternalFailureException{Message: new("oops")}, -1)
		err = b.consumer().Begin(t.Context())
		if late, ok := errors.AsType[*kinesis.RegistrationWaitError](err); !ok || late.Group != "orders" {
			t.Errorf("without an answer: %v", err)
		}
		b.server.Fail("RegisterStreamConsumer", nil, 0)
		for i := range 20 {
			b.config.Group = fmt.Sprint("group-", i)
			if err := b.consumer().Register(t.Context()); err != nil {
				t.Error(err)
			}
		}
		b.config.Group = "orders"
		err = b.consumer().Run(t.Context(), b.quick)
		if full, ok := errors.AsType[*kinesis.RegistrationLimitError](err); !ok || len(full.Consumers) != 20 {
			t.Errorf("without room: %v", err)
		}
		b.config.Group = "orders/eu"
		if _, err := kinesis.New(b.server.Client(), b.store, b.config); err == nil {
			t.Error("a group that cannot be the name of a consumer")
		}
	})
}

// TestFanOutFallsBack: whatever keeps fan-out from working, the shard is polled meanwhile, and that is told. Later fan-out
// is tried again. That is no failed attempt.
func TestFanOutFallsBack(t *testing.T) {
	for name, c := range map[string]struct {
		fault error
		after time.Duration // until the shard is polled, at most
	}{
		"not allowed": {&types.AccessDeniedException{Message: new("no")}, time.Second},
		"not valid":   {&types.InvalidArgumentException{Message: new("no")}, time.Second},
		"no answer":   {kinesistest.ErrSilence, 5 * time.Minute},
		"in use":      {&types.ResourceInUseException{Message: new("busy")}, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fanOut(t, 1)
				if err := b.consumer().Register(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.server.Fail("SubscribeToShard", c.fault, -1)
				w := b.consumer()
				produced := b.produce(time.Second)
				end := b.run(func(ctx context.Context) error { return w.Run(ctx, b.quick) })
				time.Sleep(c.after + 10*time.Second)
				if s := w.Stats().Total; s.Fallbacks != 1 || s.FanOut != 0 || s.Processed == 0 || !b.logged("fan-out failed") {
					t.Errorf("told: %+v", s)
				}
				b.server.Fail("SubscribeToShard", nil, 0)
				time.Sleep(6 * time.Minute)
				if s := w.Stats().Total; s.FanOut != 1 {
					t.Errorf("it is not tried again: %+v", s)
				}
				n := produced()
				time.Sleep(time.Minute)
				end()
				b.settled(n)
				b.countsNoAttempt()
			})
		})
	}
}

// TestFanOutFallsBackBeforeAStall: a shard whose subscriptions are accepted and stay silent is polled before it counts as
// stalled. Otherwise it would be so again at each worker, and nobody would read it.
func TestFanOutFallsBackBeforeAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fanOut(t, 1)
		b.config.StallAfter = time.Minute // the least
		b.server.Fail("SubscribeToShard", kinesistest.ErrSilence, -1)
		b.stream.Put("k", []byte("0"))
		c := b.consumer()
		end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.quick) })
		time.Sleep(30 * time.Minute)
		if s := c.Stats().Total; s.Processed != 1 || s.Stalls != 0 {
			t.Errorf("%d records, %d stalls", s.Processed, s.Stalls)
		}
		end()
	})
}

// TestShardWithoutChildren: polling decides about the end of a shard for which a subscription names no children.
func TestShardWithoutChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(300), Closed: true})
		b.config.Read = kinesis.FanOut
		b.runFor(time.Minute, b.slowly)
		b.settled(500)
		if !b.row("a").Finished || b.calls("GetRecords") == 0 {
			t.Errorf("finished %t, after %d requests", b.row("a").Finished, b.calls("GetRecords"))
		}
	})
}

// A caller counts the subscriptions of one worker.
type caller struct {
	*kinesistest.Server
	subscriptions atomic.Int64
}

func (c *caller) Do(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".SubscribeToShard") {
		c.subscriptions.Add(1)
	}
	return c.Server.Do(r)
}

// calling returns a consumer, the counter of its subscriptions and its way to the table.
func (b *bench) calling() (*kinesis.Consumer, *caller, *storetest.Link) {
	b.Helper()
	calls, link := &caller{Server: b.server}, storetest.NewLink(b.store)
	client := awskinesis.New(b.server.Client().Options(), func(o *awskinesis.Options) { o.HTTPClient = calls })
	c, err := kinesis.New(client, link, b.config)
	if err != nil {
		b.Fatal(err)
	}
	return c, calls, link
}

// TestLostShardIsNotSubscribedTo: a worker that does not know whether it still has its shard, or that has lost it without
// knowing, does not subscribe again when its subscription ends: that would take the records from the successor.
func TestLostShardIsNotSubscribedTo(t *testing.T) {
	for name, lose := range map[string]func(b *bench, link *storetest.Link){
		"cut off": func(_ *bench, link *storetest.Link) { link.Cut() },
		"taken away": func(b *bench, link *storetest.Link) {
			link.OnList(func(context.Context, lease.Query, func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
				return func(yield func(lease.Record, error) bool) {
					yield(nil, errors.New("so that the worker does not see it"))
				}
			})
			_, err := shardlease.Supervisor{Store: b.store, Group: "orders", By: "test"}.Quarantine(b.Context(), "shardId-000000000000", b.row("shardId-000000000000").Generation, "for the test")
			if err != nil {
				b.Error(err)
			}
		},
		"not at all": func(*bench, *storetest.Link) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fanOut(t, 1)
				c, calls, link := b.calling()
				end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.quick) })
				time.Sleep(2 * time.Minute)
				before := calls.subscriptions.Load()
				lose(b, link)
				b.stream.Break("shardId-000000000000", io.EOF)
				time.Sleep(30 * time.Second)
				if again := calls.subscriptions.Load() != before; before != 1 || again != (name == "not at all") {
					t.Errorf("%d subscriptions, later %d", before, calls.subscriptions.Load())
				}
				link.Heal()
				end()
			})
		})
	}
}

// TestLostShardIsNotSubscribedToAfterPolling: nor does it subscribe after it has polled.
func TestLostShardIsNotSubscribedToAfterPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fanOut(t, 1)
		c, calls, link := b.calling()
		b.server.Fail("SubscribeToShard", &types.InvalidArgumentException{Message: new("no")}, 1)
		end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.quick) })
		for c.Stats().Total.Fallbacks == 0 {
			time.Sleep(time.Second)
		}
		time.Sleep(5*time.Minute - 5*time.Second)
		link.Cut()
		time.Sleep(15 * time.Second)
		if n := calls.subscriptions.Load(); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		link.Heal()
		time.Sleep(6 * time.Minute)
		if n := calls.subscriptions.Load(); n == 1 {
			t.Error("it does not subscribe again")
		}
		end()
	})
}

// TestDeniedRowsArePolled: a worker that may write its lease, but not read it, polls a shard whose subscription has ended.
// It keeps the shard, and nothing waits.
func TestDeniedRowsArePolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fanOut(t, 1)
		c, calls, link := b.calling()
		end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.quick) })
		time.Sleep(time.Minute)
		link.OnGet(func(context.Context, lease.Key, func() (lease.Record, error)) (lease.Record, error) {
			return nil, errors.New("denied")
		})
		b.stream.Break("shardId-000000000000", io.EOF)
		produced := b.produce(time.Second)
		time.Sleep(time.Minute)
		if s := c.Stats().Total; s.Fallbacks != 1 || s.Processed < 30 || s.Stalls != 0 || calls.subscriptions.Load() != 1 {
			t.Errorf("%+v, %d subscriptions", s, calls.subscriptions.Load())
		}
		n := produced()
		time.Sleep(10 * time.Second)
		end()
		b.settled(n)
		b.countsNoAttempt()
	})
}

// TestFanOutMemoryIsBounded: a function that does not return stops the receiving at the bound, and nothing is lost.
func TestFanOutMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fanOut(t, 1)
		b.config.ShardMemory, b.config.InFlight, b.config.Lanes = 3<<20, 10_000, 300 // lanes have room for all
		for i := range 2000 {
			b.stream.Put(fmt.Sprint("k", i), fmt.Appendf(nil, "%09000d", i))
		}
		c := b.consumer()
		stuck := make(chan struct{})
		var n atomic.Int64
		end := b.run(func(ctx context.Context) error {
			return c.Run(ctx, func(context.Context, kinesis.Record) error { <-stuck; n.Add(1); return nil })
		})
		time.Sleep(8 * time.Minute)
		if s := c.Stats().Total; s.Bytes > 3<<20 || s.Records == 0 {
			t.Errorf("%d bytes of %d records are read", s.Bytes, s.Records)
		}
		close(stuck)
		time.Sleep(time.Minute)
		end()
		if n.Load() != 2000 {
			t.Errorf("%d records", n.Load())
		}
	})
}

// TestCheckFanOut: what fan-out needs is found by dry runs, also before the consumer exists.
func TestCheckFanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fanOut(t, 1)
		denied := func(op string) string {
			b.server.Fail(op, &types.AccessDeniedException{Message: new("no")}, -1)
			defer b.server.Fail(op, nil, 0)
			err := b.consumer().Check(t.Context())
			one, ok := errors.AsType[*kinesis.DeniedError](err)
			if !ok || one.Actions[0] != "kinesis:"+op || len(one.Actions) != 1 {
				t.Errorf("%s: %v", op, err)
				return ""
			}
			return one.Resource
		}
		for _, registered := range []bool{false, true} {
			if registered {
				if err := b.consumer().Register(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.consumer().Check(t.Context()); err != nil {
				t.Errorf("registered %t: %v", registered, err)
			}
			for _, op := range []string{"SubscribeToShard", "DescribeStreamConsumer"} {
				if r := denied(op); r != b.stream.ARN()+"/consumer/orders:*" {
					t.Errorf("registered %t: %s is denied for %s", registered, op, r)
				}
			}
		}
		if b.stream.Subscriptions("shardId-000000000000") != 0 {
			t.Error("it has subscribed")
		}
	})
}

// TestRecreatedStreamIsNotRead: when a stream was deleted and created again, a worker that has read no record of a shard
// does not go on in the other stream, neither in the same tenure nor in later ones.
func TestRecreatedStreamIsNotRead(t *testing.T) {
	for _, read := range []kinesis.Read{kinesis.Poll, kinesis.FanOut} {
		t.Run(read.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fanOut(t, 1)
				b.config.Read = read
				c := b.consumer()
				end := b.run(func(ctx context.Context) error { return c.Run(ctx, b.quick) })
				time.Sleep(time.Minute)
				b.stream.Delete()
				b.stream = b.server.Create("orders", 1)
				b.stream.Put("k", []byte("0"))
				time.Sleep(10 * time.Minute)
				if s := c.Stats().Total; s.Records != 0 || s.Reads == 0 {
					t.Errorf("%d records of the other stream, %d reads", s.Records, s.Reads)
				}
				end()
			})
		})
	}
}
