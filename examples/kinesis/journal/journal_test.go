package journal_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/journal"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// newJournal returns a journal with tables of its own, on DynamoDB Local.
func newJournal(t *testing.T) *journal.Journal {
	t.Helper()
	if os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
		t.Skip("no DynamoDB Local: start this with ../run-local")
	}
	c, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	j := &journal.Journal{Client: dynamodb.NewFromConfig(c), Table: "journal-" + rand.Text(), Stream: "orders-stream", Group: "orders"}
	leases := "leases-" + rand.Text()
	o := dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}
	if err := errors.Join(journal.CreateTable(t.Context(), j.Client, j.Table), dynamostore.CreateTable(t.Context(), j.Client, leases, o)); err != nil {
		t.Fatal(err)
	}
	if j.Leases, err = dynamostore.Open(t.Context(), j.Client, leases, dynamostore.Options{Timeout: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return j
}

// write makes a write to the lease table that must succeed.
func write(t *testing.T, j *journal.Journal) func(w lease.Write, err error) lease.Row {
	return fixture.Must[lease.Row](t, j.Leases)
}

// held creates the row of a shard in the journal's group, held by a.
func held(t *testing.T, j *journal.Journal, shard string) (lease.Row, lease.Hold) {
	t.Helper()
	row := write(t, j)
	r := row(protocol.Claim(row(protocol.Begin(j.Group, shard, nil, "a", fixture.Stamp())), fixture.Worker("a"), fixture.Stamp()))
	return r, fixture.Hold(r)
}

// effects returns effects of a shard and key whose values are their sequence numbers.
func effects(shard, key string, sequences ...int) []consumer.Effect {
	var all []consumer.Effect
	for _, n := range sequences {
		r := stream.Record{Shard: shard, Sequence: fmt.Sprint(n), Key: key}
		all = append(all, consumer.Effect{Record: r, Value: fmt.Append(nil, n)})
	}
	return all
}

// keep writes effects that the journal must accept.
func keep(t *testing.T, j *journal.Journal, h lease.Hold, all []consumer.Effect) {
	t.Helper()
	if err := j.Write(t.Context(), h, all); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, j *journal.Journal, key string, want ...string) {
	t.Helper()
	var got []string
	values, err := j.Effects(t.Context(), key)
	for _, value := range values {
		got = append(got, string(value))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("key %q has %.100q, %v; want %.100q", key, got, err, want)
	}
}

// TestEffectsAreKeptOnce: effects that are written again are left out, in any combination.
func TestEffectsAreKeptOnce(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	for _, batch := range [][]consumer.Effect{
		effects("a", "x", 1, 3),
		slices.Concat(effects("a", "y", 4), effects("a", "x", 3, 5)),                          // some of x
		slices.Concat(effects("a", "x", 1, 3, 5), effects("a", "y", 4), effects("a", "z", 6)), // all except z
		effects("a", "x", 1, 3, 5), // all
		effects("a", "x", 10),      // 10 is after 9, and before it as a text
	} {
		keep(t, j, h, batch)
	}
	expect(t, j, "x", "1", "3", "5", "10")
	expect(t, j, "y", "4")
	expect(t, j, "z", "6")
	if kept, known, stale := j.Stats(); kept != 6 || known != 8 || stale != 0 {
		t.Errorf("kept %d, left out %d, stale %d", kept, known, stale)
	}
}

// TestMarkNeverGoesBackInAWrite: effects that occur twice in one write are stored once, and the
// mark stays at the last one. Before, 1 to 3 were stored twice and the mark moved back to 3, so
// that the next write stored 4 and 5 again: 11 effects of 6 records.
func TestMarkNeverGoesBackInAWrite(t *testing.T) {
	j := newJournal(t)
	_, hold := held(t, j, "a")
	for _, sequences := range [][]int{{1, 2, 3, 4, 5, 1, 2, 3}, {4, 5, 6}} {
		keep(t, j, hold, effects("a", "k", sequences...))
	}
	expect(t, j, "k", "1", "2", "3", "4", "5", "6")
	if kept, known, _ := j.Stats(); kept != 6 || known != 5 {
		t.Errorf("kept %d, known %d", kept, known)
	}
}

// TestManyKeys: a write may have more keys than a transaction.
func TestManyKeys(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	var all []consumer.Effect
	for i := range 230 {
		all = append(all, effects("a", fmt.Sprint(i%115), i)...)
	}
	keep(t, j, h, all)
	for i := range 115 {
		expect(t, j, fmt.Sprint(i), fmt.Sprint(i), fmt.Sprint(i+115))
	}
}

// TestLargeEffects: a write may have more bytes than a transaction.
func TestLargeEffects(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	var all []consumer.Effect
	for i := range 14 {
		e := effects("a", fmt.Sprint(i), i)
		e[0].Value = bytes.Repeat([]byte("x"), 350_000)
		all = append(all, e...)
	}
	keep(t, j, h, all)
	if kept, known, _ := j.Stats(); kept != 14 || known != 0 {
		t.Errorf("kept %d, known %d", kept, known)
	}
}

// TestShardsHaveMarksOfTheirOwn: records of another shard are not compared with the mark of the
// first shard, and that mark stays.
func TestShardsHaveMarksOfTheirOwn(t *testing.T) {
	j := newJournal(t)
	_, a := held(t, j, "a")
	_, b := held(t, j, "b")
	for _, err := range []error{
		j.Write(t.Context(), a, effects("a", "x", 8, 9)),
		j.Write(t.Context(), b, effects("b", "x", 2)),
		j.Write(t.Context(), a, effects("a", "x", 9)),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	expect(t, j, "x", "8", "9", "2")
}

// TestStaleEffectsAreRefused: a holder that was replaced stores nothing, not even new effects.
func TestStaleEffectsAreRefused(t *testing.T) {
	j := newJournal(t)
	r, h := held(t, j, "a")
	keep(t, j, h, effects("a", "x", 1))
	write(t, j)(protocol.Recover(r, fixture.Worker("b"), fixture.Stamp()))
	if err := j.Write(t.Context(), h, effects("a", "x", 2)); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("a stale write: %v", err)
	}
	if err := j.Write(t.Context(), h, effects("a", "x", 1)); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("a stale write of stored effects: %v", err)
	}
	expect(t, j, "x", "1")
}

// sharing returns the journal of another group or stream in the same tables.
func sharing(j *journal.Journal, stream, group string) *journal.Journal {
	return &journal.Journal{Client: j.Client, Table: j.Table, Leases: j.Leases, Stream: stream, Group: group}
}

// TestGroupsShareATable: groups and streams in one journal table do not affect each other, even if
// one name ends like another begins. When the id was only key and shard, the second group lost 70
// of 70 effects, because they counted as stored.
func TestGroupsShareATable(t *testing.T) {
	first := newJournal(t)
	for i, of := range [][2]string{{"s", "g"}, {"s", "g/x"}, {"s/g", "x"}, {"s", "g%2Fx"}} {
		j := sharing(first, of[0], of[1])
		_, h := held(t, j, fmt.Sprint("shard-", i)) // lease rows do not name their stream
		for n := range 70 {
			e := effects("a", fmt.Sprint("x/", n%7), n)
			keep(t, j, h, e)
		}
		if kept, known, _ := j.Stats(); kept != 70 || known != 0 {
			t.Errorf("stream %s, group %s: kept %d, known %d, want 70 and 0", of[0], of[1], kept, known)
		}
		expect(t, j, "x/0", "0", "7", "14", "21", "28", "35", "42", "49", "56", "63")
		expect(t, j, "0")
	}
}

// TestScope: a journal accepts only holds of its own group, and requires stream and group.
func TestScope(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	for _, other := range []*journal.Journal{sharing(j, j.Stream, "invoices"), sharing(j, "", j.Group), sharing(j, j.Stream, "")} {
		if err := other.Write(t.Context(), h, effects("a", "x", 1)); !errors.Is(err, journal.ErrScope) {
			t.Errorf("stream %q, group %q: %v", other.Stream, other.Group, err)
		}
		if _, err := other.Begin(t.Context(), time.Now()); (other.Stream == "" || other.Group == "") != errors.Is(err, journal.ErrScope) {
			t.Errorf("stream %q, group %q: Begin: %v", other.Stream, other.Group, err)
		}
	}
}

// TestBytesAreKept: values are read as they were written, for any bytes in them and in the key.
// When they were text in JSON, 208 of 300 random values of 1 to 3 bytes changed.
func TestBytesAreKept(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	var all []consumer.Effect
	want := map[string][]string{}
	for i := range 300 {
		e := effects("a", []string{"x", "", "\xff", "\xfe", "key/\x00/ü", strings.Repeat("k", 3000)}[i%6], i+1)[0]
		e.Value = nil
		if i%4 > 0 {
			e.Value = make([]byte, i%4)
			_, _ = rand.Read(e.Value)
		}
		all, want[e.Record.Key] = append(all, e), append(want[e.Record.Key], string(e.Value))
	}
	keep(t, j, h, all)
	for key, values := range want {
		expect(t, j, key, values...)
	}
}

// TestLargePayloads: an effect may be larger than an item, which has 400 KB, and than a
// transaction, which has 4 MB; the small effects in the same write are stored too. When an effect
// was one value, one of 450 KB failed its whole batch, each time.
func TestLargePayloads(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	var want []string
	var all []consumer.Effect
	for i, size := range []int{10, 299 << 10, 300 << 10, 300<<10 + 1, 5, 450_000, 7, 1 << 20, 10 << 20, 3} {
		e := effects("a", "x", i+1)[0]
		e.Value = make([]byte, size)
		_, _ = rand.Read(e.Value)
		all, want = append(all, e), append(want, string(e.Value))
	}
	for range 2 {
		keep(t, j, h, all)
		expect(t, j, "x", want...)
	}
	if kept, known, _ := j.Stats(); kept != 10 || known != 10 {
		t.Errorf("kept %d, known %d", kept, known)
	}
}

// TestPartsOfAnotherTry: a worker that was replaced while it wrote a large effect has left parts
// without a page; the effect of its successor is different, and shorter.
func TestPartsOfAnotherTry(t *testing.T) {
	j := newJournal(t)
	r, h := held(t, j, "a")
	long, short := effects("a", "x", 7)[0], effects("a", "x", 7)[0]
	long.Value, short.Value = bytes.Repeat([]byte("l"), 9<<20), bytes.Repeat([]byte("s"), 1<<20)
	transactions := 0
	j.Client = dynamodb.New(j.Client.Options(), func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, before(func() {
			if transactions++; transactions == 3 {
				r = write(t, j)(protocol.Recover(r, fixture.Worker("b"), fixture.Stamp()))
			}
		}))
	})
	if err := j.Write(t.Context(), h, []consumer.Effect{long}); !errors.Is(err, checkpoint.ErrStale) || transactions != 3 {
		t.Fatalf("replaced in its transaction %d: %v", transactions, err)
	}
	expect(t, j, "x")
	h.Incarnation, h.Generation = r.Owner.Incarnation, r.Generation
	keep(t, j, h, []consumer.Effect{short})
	expect(t, j, "x", string(short.Value))
	// A stored effect stays, even if it is computed again and differs.
	keep(t, j, h, []consumer.Effect{long})
	expect(t, j, "x", string(short.Value))
}

// before calls a function before each request.
func before(call func()) func(*middleware.Stack) error {
	return func(s *middleware.Stack) error {
		return s.Initialize.Add(middleware.InitializeMiddlewareFunc("before", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			call()
			return next.HandleInitialize(ctx, in)
		}), middleware.Before)
	}
}

// TestBegin: a group begins once.
func TestBegin(t *testing.T) {
	j := newJournal(t)
	now := time.Now()
	begin := func(stream, group string, at time.Time) time.Time {
		got, err := sharing(j, stream, group).Begin(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first, second := begin("s", "orders", now), begin("s", "orders", now.Add(time.Hour))
	if !first.Equal(now) || !second.Equal(now) {
		t.Errorf("the group begins at %v and at %v, want %v", first, second, now)
	}
	for i, of := range [][2]string{{"s", "invoices"}, {"other", "orders"}} {
		at := now.Add(time.Duration(i+1) * time.Minute)
		if got := begin(of[0], of[1], at); !got.Equal(at) {
			t.Errorf("%v begins at %v", of, got)
		}
	}
}
