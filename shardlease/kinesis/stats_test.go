package kinesis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestTotalsNeverFall: whatever shards leave, no count of the total falls, and the shards that have left are in no
// figure but the total.
func TestTotalsNeverFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(300)})
		b.config.Worker.Backoff, b.config.DeadLetter, b.config.Tries, b.config.Attempts = -1, kinesis.Skip, 1, 1
		c := b.consumer()
		w, err := shardlease.New(b.store, c.Source(), c.WorkerConfig())
		if err != nil {
			t.Fatal(err)
		}
		handle := c.Handler(func(_ context.Context, r kinesis.Record) error {
			time.Sleep(10 * time.Millisecond)
			if len(r.Data)%2 == 0 {
				return errPoison
			}
			return nil
		})
		tenures := 0
		end := b.run(func(ctx context.Context) error {
			return w.Run(ctx, func(ctx context.Context, tenure *shardlease.Tenure) error {
				tenures++
				time.AfterFunc(300*time.Millisecond, func() { tenure.Release("for the test") })
				return handle(ctx, tenure)
			})
		})
		last, without := map[string]int64{}, 0
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			now := c.Stats().Figures()
			if now["a"] == nil {
				without++
			}
			for name, n := range now[""] {
				switch name {
				case "behind_ms", "behind_max_ms", "age_ms", "shards", "records_per_second", "bytes_per_second":
					continue
				}
				if n < last[name] {
					t.Fatalf("%s falls from %d to %d", name, last[name], n)
				}
				last[name] = n
			}
		}
		end()
		if tenures < 5 || without == 0 || last["processed"] != 500-last["left_out"] || last["left_out"] == 0 || last["failed"] == 0 {
			t.Errorf("%d tenures, %d times without the shard; figures: %v", tenures, without, last)
		}
		if f := c.Stats().Figures(); len(f) != 1 || f[""]["shards"] != 0 || f[""]["processed"] != last["processed"] {
			t.Errorf("after its end: %v", f)
		}
	})
}

// TestBehindGrows: a shard whose reads are not answered falls behind as the clock goes on, and the requests count as
// failed. So does a shard whose function hangs, since it is not read: its records grow older.
func TestBehindGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a"}, kinesistest.Shard{Name: "b"})
		c := b.consumer()
		free := make(chan struct{})
		end := b.run(func(ctx context.Context) error {
			return c.Run(ctx, func(_ context.Context, r kinesis.Record) error {
				if r.Shard == "b" {
					<-free
				}
				return nil
			})
		})
		figure := func(after time.Duration, shard, name string, from, to time.Duration) {
			t.Helper()
			time.Sleep(after)
			f := c.Stats().Figures()
			if got := time.Duration(f[shard][name]) * time.Millisecond; got < from || got > to {
				t.Errorf("%s of %q is %v, want %v to %v; figures: %v", name, shard, got, from, to, f)
			}
		}
		figure(time.Minute, "", "behind_max_ms", 0, 0)
		b.stream.PutTo("b", "k", []byte("0"))
		figure(time.Minute, "b", "age_ms", 58*time.Second, time.Minute)
		figure(0, "", "age_ms", 58*time.Second, time.Minute)
		figure(0, "a", "age_ms", 0, 0)
		b.server.Fail("GetRecords", kinesistest.ErrSilence, -1)
		figure(5*time.Second, "", "behind_max_ms", 0, 0) // as after a large answer
		figure(55*time.Second, "a", "behind_ms", 58*time.Second, 62*time.Second)
		figure(time.Minute, "", "behind_max_ms", 118*time.Second, 122*time.Second)
		figure(0, "", "behind_ms", 236*time.Second, 244*time.Second)
		if n := c.Stats().Shards["a"].ReadErrors; n < 3 {
			t.Errorf("%d failed requests in two minutes", n)
		}
		b.server.Fail("GetRecords", nil, 0)
		close(free)
		figure(40*time.Second, "", "behind_max_ms", 0, 0)
		figure(0, "", "age_ms", 0, 0)
		end()
	})
}

// TestReadToItsEnd: a closed shard that was read to its end is not behind, however long its last records take.
func TestReadToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Closed: true, Records: []kinesistest.Record{{Key: "k", Arrived: time.Now()}}})
		c := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return c.Run(ctx, func(context.Context, kinesis.Record) error { time.Sleep(3 * time.Minute); return nil })
		})
		time.Sleep(2 * time.Minute)
		if s := c.Stats(); s.Behind != 0 || s.Total.Age < time.Minute || len(s.Shards) != 1 {
			t.Errorf("figures: %+v", s)
		}
		time.Sleep(2 * time.Minute)
		end()
		if s := c.Stats(); s.Total.Age != 0 || len(s.Shards) != 0 || s.Total.Processed != 1 {
			t.Errorf("figures: %+v", s)
		}
	})
}

// TestWaitingRecordsGrowOlder: a record that waits for its batch to become full is not processed yet.
func TestWaitingRecordsGrowOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a"})
		b.config.Window = time.Minute
		c := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return c.RunBatch(ctx, func(_ context.Context, batch []kinesis.Record) (int, error) { return len(batch), nil })
		})
		time.Sleep(time.Minute)
		b.stream.PutTo("a", "k", nil)
		time.Sleep(30 * time.Second)
		if age := c.Stats().Total.Age; age != 30*time.Second {
			t.Errorf("its age is %v", age)
		}
		end()
	})
}

// TestLostShardIsNotHeld: a shard that has moved is not among those that are held, although the function that hangs has
// not returned, and its counts stay.
func TestLostShardIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(10)})
		b.config.StallAfter = time.Minute
		free := make(chan struct{})
		first := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return first.Run(ctx, func(_ context.Context, r kinesis.Record) error {
				if r.Sequence == "5" {
					<-free
				}
				return nil
			})
		})
		time.Sleep(20 * time.Second)
		second := b.consumer()
		stop := b.run(func(ctx context.Context) error { return second.Run(ctx, b.slowly) })
		time.Sleep(2 * time.Minute)
		s, other := first.Stats(), second.Stats()
		if len(s.Shards) != 0 || s.Behind != 0 || s.Total.Age != 0 || s.Total.Stalls != 1 || s.Total.Records == 0 || len(other.Shards) != 1 {
			t.Errorf("figures: %+v and %+v", s, other)
		}
		close(free)
		stop()
		end()
	})
}

// TestForeignAndLostAreCounted: packed records of other shards that are left out, and records that have expired before
// they were read.
func TestForeignAndLostAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := new(big.Int).Lsh(big.NewInt(1), 127)
		b := newBench(t, kinesistest.Shard{Name: "a", From: "0", To: new(big.Int).Sub(half, big.NewInt(1)).String()})
		packed := kpl.Pack(kpl.Record{Key: "ours", Hash: "0", Data: "x"}, kpl.Record{Key: "other", Hash: half.String(), Data: "y"})
		read := func() kinesis.ShardStats {
			return b.runFor(time.Minute, func(context.Context, kinesis.Record) error { return nil }).Stats().Total
		}
		b.stream.PutTo("a", "outer", packed)
		if s := read(); s.Foreign != 1 || s.Records != 1 || s.Bytes != int64(len("ours")+1) || s.Lost != 0 {
			t.Errorf("figures: %+v", s)
		}
		b.stream.PutTo("a", "k", []byte("expires"))
		time.Sleep(12 * time.Hour)
		b.stream.PutTo("a", "k", []byte("stays"))
		time.Sleep(13 * time.Hour)
		if s := read(); s.Lost != 1 || s.Records != 1 || s.Foreign != 0 {
			t.Errorf("figures: %+v", s)
		}
	})
}

// TestLoad: the rates are those of the last minute or so, also for a shard that was far behind at first.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, kinesistest.Shard{Name: "a", Records: numbered(3000)})
		c := b.consumer()
		end := b.run(func(ctx context.Context) error {
			return c.Run(ctx, func(context.Context, kinesis.Record) error { return nil })
		})
		about := func(want float64) {
			t.Helper()
			s := c.Stats()
			one := s.Shards["a"]
			if math.Abs(one.RecordRate-want) > 1 || math.Abs(one.ByteRate-5*want) > 5 || s.Total.RecordRate != one.RecordRate || s.Total.ByteRate != one.ByteRate {
				t.Errorf("rates: %+v, want about %v", one, want)
			}
		}
		put := func(seconds int) {
			for range seconds {
				for range 20 {
					b.stream.PutTo("a", "k", []byte("1234"))
				}
				time.Sleep(time.Second)
			}
		}
		put(10 * 60)
		about(20)
		time.Sleep(10 * time.Minute)
		about(0)
		end()
		c = b.consumer() // one that has just begun
		end = b.run(func(ctx context.Context) error {
			return c.Run(ctx, func(context.Context, kinesis.Record) error { return nil })
		})
		put(30)
		about(20)
		end()
	})
}

// An answering client changes how far behind the answers to GetRecords are.
type answering struct {
	*kinesistest.Server
	behind func() time.Duration
}

func (a answering) Do(r *http.Request) (*http.Response, error) {
	out, err := a.Server.Do(r)
	if err != nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetRecords") {
		return out, err
	}
	var body map[string]any
	if err := errors.Join(json.NewDecoder(out.Body).Decode(&body), out.Body.Close()); err != nil {
		return nil, err
	}
	body["MillisBehindLatest"] = a.behind().Milliseconds()
	text, err := json.Marshal(body)
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return out, err
}

// TestReadsInVainAreTold: after 5 minutes the worker reports a shard whose reads are not answered, and one that is behind
// although its reads return nothing. It reports none that is idle, or that gets nearer to its end.
func TestReadsInVainAreTold(t *testing.T) {
	notUnderRace(t)
	for name, c := range map[string]struct {
		answers bool
		behind  func(since time.Duration) time.Duration
		told    bool
	}{
		"no answer":                   {false, func(time.Duration) time.Duration { return 0 }, true},
		"no record, although behind":  {true, func(time.Duration) time.Duration { return time.Hour }, true},
		"no record, and falls behind": {true, func(since time.Duration) time.Duration { return time.Hour + since }, true},
		"no record, but nearer":       {true, func(since time.Duration) time.Duration { return time.Hour - since }, false},
		"idle":                        {true, func(time.Duration) time.Duration { return 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, kinesistest.Shard{Name: "a"})
				b.config.StallAfter = -1
				begun := time.Now()
				if !c.answers {
					b.server.Fail("GetRecords", kinesistest.ErrSilence, -1)
				}
				b.behind = func() time.Duration { return c.behind(time.Since(begun)) }
				consumer := b.consumer()
				end := b.run(func(ctx context.Context) error {
					return consumer.Run(ctx, func(context.Context, kinesis.Record) error { return nil })
				})
				time.Sleep(4 * time.Minute)
				if told := b.told(event.Silent); len(told) != 0 {
					t.Errorf("told after 4 minutes: %v", told)
				}
				time.Sleep(2 * time.Minute)
				if told := b.told(event.Silent); (len(told) > 0) != c.told || c.told && told[0].Shards[0] != "a" {
					t.Errorf("told after 6 minutes: %v", told)
				}
				end()
			})
		})
	}
}

// The figures are numbers with names, which expvar publishes as JSON at /debug/vars.
func ExampleStats_Figures() {
	_ = func(c *kinesis.Consumer) {
		expvar.Publish("orders", expvar.Func(func() any { return c.Stats().Figures() }))
	}
	s := kinesis.Stats{
		Shards: map[string]kinesis.ShardStats{"shardId-000000000000": {Behind: 1500 * time.Millisecond}},
		Behind: 1500 * time.Millisecond,
	}
	fmt.Println(s.Figures()[""]["behind_max_ms"], s.Figures()["shardId-000000000000"]["behind_ms"])
	// Output: 1500 1500
}
