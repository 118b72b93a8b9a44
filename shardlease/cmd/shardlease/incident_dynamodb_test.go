package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A local is real workers on a DynamoDB Local, and the terminal of an operator.
type local struct {
	*testing.T
	on    *onDynamoDB
	table string
	stop  context.CancelFunc
	ended chan error
}

// newLocal returns a table without workers.
func newLocal(t *testing.T) *local {
	w, err := newOnDynamoDB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &local{T: t, on: w, ended: make(chan error), table: "leases-" + strings.ToLower(rand.Text()[:8])}
	l.types(0, "table", "create", "--no-deletion-protection", "--no-point-in-time-recovery")
	return l
}

// start runs two workers with four shards, whose lease time is a second.
func (l *local) start() {
	l.Helper()
	var ctx context.Context
	ctx, l.stop = context.WithCancel(l.Context())
	for _, name := range []string{"a", "b"} {
		store, err := l.on.tables.Store(ctx, place{l.table, "orders"}, 0)
		if err != nil {
			l.Fatal(err)
		}
		config := shardlease.Config{Group: "orders", Name: name, TTL: time.Second, AuditEvery: time.Second, Handoff: rebalance.Eager}
		w, err := shardlease.New(store, shardlease.Static("shard-0", "shard-1", "shard-2", "shard-3"), config)
		if err != nil {
			l.Fatal(err)
		}
		go func() { l.ended <- w.Run(ctx, idle) }()
	}
}

// end stops the workers.
func (l *local) end() {
	l.Helper()
	l.stop()
	for range 2 {
		if err := <-l.ended; err != nil {
			l.Error(err)
		}
	}
}

// types types a command that must have that exit code, and returns what it prints.
func (l *local) types(want int, args ...string) string {
	l.Helper()
	var out bytes.Buffer
	if code := l.on.types(l.Context(), l.table, &out, &out, args); code != want {
		l.Errorf("%v: exit code %d, want %d: %s", args, code, want, out.String())
	}
	return out.String()
}

// checks repeats check until it has that exit code and prints all the texts. It takes seconds, or longer if the machine is
// busy: TestIncidents checks how soon that is.
func (l *local) checks(want int, texts ...string) {
	l.Helper()
	const within = 2 * time.Minute
	var out bytes.Buffer
	for began := time.Now(); time.Since(began) < within; time.Sleep(50 * time.Millisecond) {
		out.Reset()
		code := l.on.types(l.Context(), l.table, &out, &out, []string{"check"})
		if code == want && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(out.String(), text) }) {
			return
		}
	}
	l.Fatalf("after %v check does not exit with %d and print %q: %s", within, want, texts, out.String())
}

// change replaces an item by what spoil makes of it, and returns the item as it was.
func (l *local) change(partition, key string, spoil func(map[string]types.AttributeValue)) (before map[string]types.AttributeValue) {
	l.Helper()
	name := map[string]types.AttributeValue{"leaseGroup": &types.AttributeValueMemberS{Value: partition}, "leaseKey": &types.AttributeValueMemberS{Value: key}}
	got, err := l.on.tables.client.GetItem(l.Context(), &dynamodb.GetItemInput{TableName: &l.table, Key: name})
	if err != nil || got.Item == nil {
		l.Fatalf("%s, %s: %v", partition, key, err)
	}
	after := maps.Clone(got.Item)
	spoil(after)
	l.put(after)
	return got.Item
}

func (l *local) put(item map[string]types.AttributeValue) {
	l.Helper()
	if _, err := l.on.tables.client.PutItem(l.Context(), &dynamodb.PutItemInput{TableName: &l.table, Item: item}); err != nil {
		l.Fatal(err)
	}
}

const allHeld = "4 of 4 shards held by 2 workers"

// TestIncidentsOnDynamoDB: real workers get into the states that are about the items of the table itself.
// Check says so, and the commands of docs/operations.md lead out of it.
func TestIncidentsOnDynamoDB(t *testing.T) {
	besideOthers(t)
	t.Run("restored", restoredOnDynamoDB)
	t.Run("unreadable", unreadableOnDynamoDB)
}

// restoredOnDynamoDB: workers that start on a restored table claim nothing. After the adoption they hold all
// shards.
func restoredOnDynamoDB(t *testing.T) {
	l := newLocal(t)
	l.start()
	l.checks(checkOK, allHeld)
	l.end()

	from := l.table
	l.table += "-restored"
	if err := l.on.restore(t.Context(), from, l.table); err != nil {
		t.Fatal(err)
	}
	l.start()
	defer l.end()
	l.checks(checkCritical, "ERROR restored: ", "0 of 4 shards held by 2 workers")
	l.types(exitRefused, "table", "verify")
	l.types(0, "table", "adopt", "--yes")
	l.checks(checkOK, allHeld)
	l.types(0, "table", "verify")
}

// unreadableOnDynamoDB: somebody has spoilt the item of a shard, and that of a seat. The first is repaired,
// and the second is evicted.
func unreadableOnDynamoDB(t *testing.T) {
	l := newLocal(t)
	l.start()
	defer l.end()
	l.checks(checkOK, allHeld)
	for l.look().Workers[0].Held != 2 { // until then shards move, and a worker that takes one replaces what is spoilt here
	}

	l.change("orders/lease", "shard-0", func(item map[string]types.AttributeValue) {
		item["generation"] = &types.AttributeValueMemberS{Value: "seven"}
	})
	l.checks(checkCritical, `ERROR unreadable "shard-0": `)
	if out := l.types(exitError, "get", "shard-0"); !strings.Contains(out, "generation") {
		t.Errorf("get does not name the fault: %s", out)
	}
	l.types(0, "repair", "shard-0", "--yes")
	l.checks(checkOK, allHeld)
	if at := l.look().Tallies(); !slices.Contains(at, inspect.Tally{Reason: lease.ReasonForced, Count: 1}) {
		l.Errorf("the repair of a held shard is not counted: %v", at)
	}

	dead := "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	seat := l.change("orders/seat", string(l.look().Workers[0].Seat.Incarnation), func(map[string]types.AttributeValue) {})
	seat["leaseKey"], seat["beat"] = &types.AttributeValueMemberS{Value: dead}, &types.AttributeValueMemberS{Value: "seven"}
	l.put(seat)
	l.checks(checkWarning, `WARN unreadable "`+dead+`": `)
	l.types(0, "evict", dead, "--yes")
	l.checks(checkOK, allHeld)
}

// look returns what the table says.
func (l *local) look() *inspect.Snapshot {
	l.Helper()
	reader, err := l.on.tables.Reader(l.Context(), place{l.table, "orders"})
	if err != nil {
		l.Fatal(err)
	}
	s, err := inspect.Look(l.Context(), reader, "orders", inspect.Options{})
	if err != nil {
		l.Fatal(err)
	}
	return s
}
