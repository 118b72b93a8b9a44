package journal_test

import (
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
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/journal"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// newJournal is a journal with tables of its own, on DynamoDB Local.
func newJournal(t *testing.T) *journal.Journal {
	t.Helper()
	if os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
		t.Skip("no DynamoDB Local: start this with ../run-local")
	}
	c, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	j := &journal.Journal{Client: dynamodb.NewFromConfig(c), Table: "journal-" + rand.Text()}
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
	return func(w lease.Write, err error) lease.Row {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		got, err := j.Leases.Write(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		return got.(lease.Row)
	}
}

func stamp() lease.Stamp { return lease.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()} }

func owner(name string) lease.Owner {
	return lease.Owner{Name: name, Incarnation: lease.Incarnation(name + "-1")}
}

// held makes the row of a shard, held by a.
func held(t *testing.T, j *journal.Journal, shard string) (lease.Row, lease.Hold) {
	t.Helper()
	row := write(t, j)
	r := row(row(lease.Begin("orders", shard, nil, "a", stamp())).Claim(owner("a"), stamp()))
	return r, lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation, Order: checkpoint.Decimal}
}

// effects are those of records of a shard: each has its sequence number as its value.
func effects(shard, key string, sequences ...int) []consumer.Effect {
	var all []consumer.Effect
	for _, n := range sequences {
		r := stream.Record{Shard: shard, Sequence: fmt.Sprint(n), Key: key}
		all = append(all, consumer.Effect{Record: r, Value: fmt.Sprint(n)})
	}
	return all
}

func expect(t *testing.T, j *journal.Journal, key string, want ...string) {
	t.Helper()
	if got, err := j.Effects(t.Context(), key); err != nil || !slices.Equal(got, want) {
		t.Errorf("key %s has %v, %v; want %v", key, got, err, want)
	}
}

// TestEffectsAreKeptOnce: what is written again is known, whatever else comes with it.
func TestEffectsAreKeptOnce(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	for _, batch := range [][]consumer.Effect{
		effects("a", "x", 1, 3),
		slices.Concat(effects("a", "y", 4), effects("a", "x", 3, 5)),                          // x in part
		slices.Concat(effects("a", "x", 1, 3, 5), effects("a", "y", 4), effects("a", "z", 6)), // all but z
		effects("a", "x", 1, 3, 5), // all
		effects("a", "x", 10),      // 10 is after 9, and before it as a text
	} {
		if err := j.Write(t.Context(), h, batch); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, j, "x", "1", "3", "5", "10")
	expect(t, j, "y", "4")
	expect(t, j, "z", "6")
	if kept, known, stale := j.Stats(); kept != 6 || known != 8 || stale != 0 {
		t.Errorf("kept %d, known %d, stale %d", kept, known, stale)
	}
}

// TestManyKeys: more keys than a transaction may have.
func TestManyKeys(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	var all []consumer.Effect
	for i := range 230 {
		all = append(all, effects("a", fmt.Sprint(i%115), i)...)
	}
	if err := j.Write(t.Context(), h, all); err != nil {
		t.Fatal(err)
	}
	for i := range 115 {
		expect(t, j, fmt.Sprint(i), fmt.Sprint(i), fmt.Sprint(i+115))
	}
}

// TestLargeEffects: more bytes than a transaction may have.
func TestLargeEffects(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	var all []consumer.Effect
	for i := range 14 {
		e := effects("a", fmt.Sprint(i), i)
		e[0].Value = strings.Repeat("x", 350_000)
		all = append(all, e...)
	}
	if err := j.Write(t.Context(), h, all); err != nil {
		t.Fatal(err)
	}
	if kept, known, _ := j.Stats(); kept != 14 || known != 0 {
		t.Errorf("kept %d, known %d", kept, known)
	}
}

// TestShardsHaveMarksOfTheirOwn: a key that comes from another shard is not measured
// against the first one, and the first one's mark stays.
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

// TestStaleEffectsAreRefused: a holder that was replaced keeps nothing, not even what
// nobody else has kept.
func TestStaleEffectsAreRefused(t *testing.T) {
	j := newJournal(t)
	r, h := held(t, j, "a")
	if err := j.Write(t.Context(), h, effects("a", "x", 1)); err != nil {
		t.Fatal(err)
	}
	write(t, j)(r.Recover(owner("b"), stamp()))
	if err := j.Write(t.Context(), h, effects("a", "x", 2)); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("a stale write: %v", err)
	}
	if err := j.Write(t.Context(), h, effects("a", "x", 1)); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("a stale write of what is known: %v", err)
	}
	expect(t, j, "x", "1")
}

// TestBegin: a group begins once.
func TestBegin(t *testing.T) {
	j := newJournal(t)
	now := time.Now()
	begin := func(group string, at time.Time) time.Time {
		got, err := journal.Begin(context.Background(), j.Client, j.Table, group, at)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first, second := begin("orders", now), begin("orders", now.Add(time.Hour))
	if !first.Equal(now) || !second.Equal(now) {
		t.Errorf("it begins at %v and at %v, want %v", first, second, now)
	}
	if other := begin("invoices", now.Add(time.Minute)); !other.Equal(now.Add(time.Minute)) {
		t.Errorf("another group begins at %v", other)
	}
}
