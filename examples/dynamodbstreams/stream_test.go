package main

import (
	"context"
	"errors"
	"io"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestSource: a listing has all pages, closed shards, and the parent of each shard. If a listing
// fails, it returns an error and no shards.
func TestSource(t *testing.T) {
	f := &fake{shards: []*fakeShard{{id: "a", closed: true}, {id: "b", parent: "a", closed: true}, {id: "c", parent: "b"}, {id: "d", parent: "b"}, {id: "e", parent: "forgotten"}}}
	s := f.streams()
	got, err := s.Shards(t.Context())
	want := []shardlease.Shard{
		{Name: "orders/stream/1/a"}, {Name: "orders/stream/1/b", Parents: []string{"orders/stream/1/a"}}, {Name: "orders/stream/1/c", Parents: []string{"orders/stream/1/b"}},
		{Name: "orders/stream/1/d", Parents: []string{"orders/stream/1/b"}}, {Name: "orders/stream/1/e", Parents: []string{"orders/stream/1/forgotten"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) || f.pages != 3 {
		t.Errorf("got %v, %v in %d pages", got, err, f.pages)
	}
	f.fail = map[string]string{"DescribeStream": "ResourceNotFoundException"}
	if got, err := s.Shards(t.Context()); err == nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// readAll reads until an error, and returns the error. After each read with records it calls
// the function of the test.
func readAll(ctx context.Context, s *streams, after string, between func()) (numbers []int, end error) {
	for records, err := range s.read(ctx, "orders/stream/1/a", after) {
		if err != nil {
			return numbers, err
		}
		for _, r := range records {
			n, _ := strconv.Atoi(*r.Dynamodb.SequenceNumber)
			numbers = append(numbers, n)
		}
		if len(records) > 0 && between != nil {
			between()
		}
	}
	return numbers, nil
}

// until returns the numbers from the first to the last.
func until(from, to int) (numbers []int) {
	for n := from; n <= to; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

// TestRead: a closed shard is read to its end from any checkpoint; after an iterator has
// expired, without loss; after records were trimmed, without repetition.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		name    string
		shard   fakeShard
		after   string
		between func(*fakeShard)
		want    []int
		asked   []string
	}{
		{name: "from the beginning", want: until(1, 25), asked: []string{"TRIM_HORIZON"}},
		{name: "from a checkpoint", after: number(7), want: until(8, 25), asked: []string{"AFTER_SEQUENCE_NUMBER" + number(7)}},
		{name: "from the end", after: number(25), asked: []string{"AFTER_SEQUENCE_NUMBER" + number(25)}},
		{
			name: "iterators expire", between: func(*fakeShard) { <-time.After(16 * time.Minute) }, want: until(1, 25),
			asked: []string{"TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER" + number(10), "AFTER_SEQUENCE_NUMBER" + number(20)},
		},
		{
			name: "the checkpoint is trimmed", shard: fakeShard{from: 9}, after: number(7), want: until(10, 25),
			asked: []string{"AFTER_SEQUENCE_NUMBER" + number(7), "TRIM_HORIZON"},
		},
		{
			name: "trimmed while it is read", between: func(s *fakeShard) { s.from = 15 }, want: slices.Concat(until(1, 10), until(16, 25)),
			asked: []string{"TRIM_HORIZON", "TRIM_HORIZON"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shard := c.shard
				shard.id, shard.to, shard.closed = "a", 25, true
				f := &fake{shards: []*fakeShard{&shard}}
				got, end := readAll(t.Context(), f.streams(), c.after, func() {
					if c.between != nil {
						f.change(func() { c.between(&shard) })
					}
				})
				if !slices.Equal(got, c.want) || !errors.Is(end, io.EOF) || !slices.Equal(f.asked, c.asked) {
					t.Errorf("read %v, %v; asked for %v", got, end, f.asked)
				}
			})
		})
	}
}

// TestNothingIsReadTwice: no record is read twice if the service reports records as trimmed that
// still exist, as DynamoDB Local does.
func TestNothingIsReadTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{shards: []*fakeShard{{id: "a", to: 25, closed: true}}}
		wrong := 0
		got, end := readAll(t.Context(), f.streams(), "", func() {
			if wrong++; wrong == 1 {
				f.change(func() { f.fail = map[string]string{"GetRecords": "TrimmedDataAccessException"} })
				time.AfterFunc(time.Second, func() { f.change(func() { f.fail = nil }) })
			}
		})
		if !slices.Equal(got, until(1, 25)) || !errors.Is(end, io.EOF) {
			t.Errorf("read %v, %v", got, end)
		}
	})
}

// TestForgottenShard: a shard that DynamoDB no longer has is at its end, whether it is listed or
// not. A shard that is listed as open is not at its end, nor is one whose stream is missing.
func TestForgottenShard(t *testing.T) {
	for _, c := range []struct {
		name    string
		shard   fakeShard
		fail    string
		wantEnd bool
	}{
		{"not listed", fakeShard{id: "b"}, "", true},
		{"listed, and closed", fakeShard{id: "a", closed: true, forgotten: true}, "", true},
		{"listed as open", fakeShard{id: "a", forgotten: true}, "", false},
		{"the stream is gone", fakeShard{id: "b"}, "DescribeStream", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{shards: []*fakeShard{&c.shard}, fail: map[string]string{c.fail: "ResourceNotFoundException"}}
				if _, end := readAll(t.Context(), f.streams(), "", nil); end == nil || errors.Is(end, io.EOF) != c.wantEnd {
					t.Errorf("the read ends with %v", end)
				}
			})
		})
	}
}

// TestShardsOfAnotherStream: a worker that was started with an older or newer stream of the table
// can read a shard of this stream, and does not treat it as forgotten.
func TestShardsOfAnotherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{shards: []*fakeShard{{id: "a", to: 25, closed: true}}}
		s := f.streams()
		s.arns = []string{strings.Replace(fakeArn, "stream/1", "stream/2", 1)}
		if got, end := readAll(t.Context(), s, "", nil); !slices.Equal(got, until(1, 25)) || !errors.Is(end, io.EOF) {
			t.Errorf("read %v, %v", got, end)
		}
	})
}

// TestReadEnds: a read ends at once with its context, and with an error that would come again.
func TestReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{shards: []*fakeShard{{id: "a"}}}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second+time.Second/8)
		defer cancel()
		begun := time.Now()
		_, end := readAll(ctx, f.streams(), "", nil)
		if took := time.Since(begun); !errors.Is(end, context.DeadlineExceeded) || took != 90*time.Second+time.Second/8 {
			t.Errorf("the read ends with %v after %v", end, took)
		}
		f.fail = map[string]string{"GetRecords": "AccessDeniedException"}
		if _, end := readAll(t.Context(), f.streams(), "", nil); end == nil || !strings.Contains(end.Error(), "AccessDenied") {
			t.Errorf("the read ends with %v", end)
		}
	})
}

// TestParentsFirst: a worker reads the parents of a shard to their end before the shard, each
// once and from its beginning. Records from before the group's beginning have no effect, but
// are marked.
func TestParentsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Truncate(time.Second)
		f := &fake{shards: []*fakeShard{
			{id: "c", parent: "b", from: 40, to: 60, since: began}, {id: "b", parent: "a", from: 20, to: 40, closed: true, since: began},
			{id: "a", parent: "forgotten", to: 20, closed: true, since: began},
		}}
		var mu sync.Mutex
		var got []string
		source := f.streams()
		c := consumer{
			streams: source, start: began.Add(5 * time.Second),
			process: func(_ context.Context, table string, r types.Record) ([]byte, error) { return []byte(table), nil },
			keep: func(_ context.Context, _ lease.Hold, all []effects.Effect) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, path.Base(all[0].ID))
				return 0, nil
			},
		}
		rows := after(t, source, 20*time.Second, c.handle)
		var want []string
		for _, n := range until(6, 60) {
			want = append(want, number(n))
		}
		if !slices.Equal(got, want) {
			t.Errorf("effects of %v", got)
		}
		for i, row := range rows {
			if want := number(20 * (i + 1)); row.Checkpoint.Position != want || row.Finished != (i < 2) {
				t.Errorf("%s: at %q, finished %t", row.Shard, row.Checkpoint.Position, row.Finished)
			}
		}
		if len(rows) != 3 {
			t.Errorf("%d rows", len(rows))
		}
	})
}

// A poison counts how often the change 50 was tried, which cannot be processed, and how many
// changes were kept.
type poison struct{ tries, kept int }

func (p *poison) consumer(source *streams) *consumer {
	return &consumer{
		streams: source,
		process: func(_ context.Context, _ string, r types.Record) ([]byte, error) {
			if *r.Dynamodb.SequenceNumber == number(50) {
				p.tries++
				return nil, errors.New("no order")
			}
			return nil, nil
		},
		keep: func(context.Context, lease.Hold, []effects.Effect) (int, error) { p.kept++; return 0, nil },
	}
}

// TestPoisonIsQuarantined: a change that cannot be processed stops its shard right before it,
// and after MaxAttempts the shard is quarantined. When each read was progress, the change was
// tried 72 times in a minute, and forever.
func TestPoisonIsQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := &fake{shards: []*fakeShard{{id: "a", to: 60, closed: true, since: time.Now()}}}, poison{}
		source := f.streams()
		row := after(t, source, time.Minute, p.consumer(source).handle)[0]
		if !row.Quarantined || row.Last.Reason != lease.ReasonFailed || row.Checkpoint.Position != number(49) || p != (poison{3, 49}) {
			t.Errorf("%v: tried %d times, kept %d", row, p.tries, p.kept)
		}
	})
}

// TestPoisonBehindEmptyReads: the shard is quarantined too if ten minutes of empty reads, which
// every tenure repeats, precede the change, and these reads are no stall. When a minute of them
// was progress, the change failed 11 times in two hours, and its shard was not quarantined.
func TestPoisonBehindEmptyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, p := time.Now(), poison{}
		f := &fake{shards: []*fakeShard{{id: "a", to: 60, closed: true, since: begun}}}
		f.empty = func() bool { return time.Since(begun) < 10*time.Minute }
		source := f.streams()
		row := after(t, source, 2*time.Hour, func(ctx context.Context, tn *shardlease.Tenure) error {
			begun = time.Now()
			return p.consumer(source).handle(ctx, tn)
		})[0]
		if !row.Quarantined || row.Last.Reason != lease.ReasonFailed || p.tries != 3 {
			t.Errorf("%v: tried %d times, want 3", row, p.tries)
		}
	})
}

// TestIdleShardForgetsFailures: the failures of an idle shard do not add up from day to day, and
// the shard does not count as stalled.
func TestIdleShardForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{shards: []*fakeShard{{id: "a", since: time.Now()}}}
		source := f.streams()
		source.pace = time.Minute
		c, tenures := consumer{streams: source}, 0
		row := after(t, source, 149*time.Hour, func(ctx context.Context, tn *shardlease.Tenure) error {
			tenures++
			fail := map[string]string{"GetRecords": "AccessDeniedException"}
			f.change(func() { f.fail = nil })
			time.AfterFunc(25*time.Hour, func() { f.change(func() { f.fail = fail }) })
			return c.handle(ctx, tn)
		})[0]
		if row.Quarantined || tenures != 6 {
			t.Errorf("%v: %d tenures, want 6", row, tenures)
		}
	})
}

// after runs a worker for a while, and returns the rows of its shards, of which there is at
// least one.
func after(t *testing.T, source *streams, d time.Duration, handler shardlease.Handler) []lease.Row {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	store := new(memstore.Store)
	w, err := shardlease.New(store, source, shardlease.Config{
		Group: "orders", Handoff: rebalance.Eager, Order: checkpoint.Decimal, PollEvery: time.Hour, MaxAttempts: 3, Backoff: -1, StallAfter: 2 * time.Minute,
		TTL: 3 * time.Minute, Drain: 2 * time.Minute, // heartbeats take most of the time of a test of days
	})
	if err == nil {
		err = w.Run(ctx, handler)
	}
	if err != nil {
		t.Error(err)
	}
	rows, err := shardlease.Supervisor{Store: store, Group: "orders"}.List(t.Context())
	if err != nil || len(rows) == 0 {
		t.Fatalf("%v, %v", rows, err)
	}
	return rows
}

// TestKeyText: different keys of any type have different texts.
func TestKeyText(t *testing.T) {
	s := func(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
	for want, keys := range map[string]map[string]types.AttributeValue{
		`id="a"`:          {"id": s("a")},
		`id="a",to="b"`:   {"to": s("b"), "id": s("a")},
		`id="a\",to=\"b"`: {"id": s(`a",to="b`)},
		`at=7,id=ff`:      {"at": &types.AttributeValueMemberN{Value: "7"}, "id": &types.AttributeValueMemberB{Value: []byte{255}}},
	} {
		if got := keyText(keys); got != want {
			t.Errorf("%v is %s, want %s", keys, got, want)
		}
	}
}
