package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// createTable creates a table with these keys, and a stream if the test reads it.
func createTable(t *testing.T, client *dynamodb.Client, name string, stream *types.StreamSpecification, keys ...string) {
	t.Helper()
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest, StreamSpecification: stream}
	for i, key := range keys {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &key, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
	}
	if _, err := client.CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
}

// newSink returns a sink with tables of its own, on DynamoDB Local.
func newSink(t *testing.T) (s *sink, leases string) {
	t.Helper()
	if os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
		t.Skip("no DynamoDB Local: start this with ./run-local")
	}
	sdk, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, leases = &sink{client: connect(sdk), table: "effects-" + rand.Text(), group: "orders"}, "leases-"+rand.Text()
	o := dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}
	createTable(t, s.client, s.table, nil, "id", "part")
	if err := dynamostore.CreateTable(t.Context(), s.client, leases, o); err != nil {
		t.Fatal(err)
	}
	if s.leases, err = dynamostore.Open(t.Context(), s.client, leases, dynamostore.Options{Timeout: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return s, leases
}

// effects returns the effects of an item, in order.
func (s *sink) effects(t *testing.T, item string) (all []string) {
	t.Helper()
	pages := dynamodb.NewQueryPaginator(s.client, &dynamodb.QueryInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("id = :id AND begins_with(part, :effect)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":id": &types.AttributeValueMemberS{Value: s.id(item)}, ":effect": &types.AttributeValueMemberS{Value: "effect/"},
		},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range page.Items {
			all = append(all, string(in["value"].(*types.AttributeValueMemberB).Value))
		}
	}
	return all
}

// hold lets a worker claim shards until the test ends, and returns the holds of its first tenures.
func hold(t *testing.T, s *sink, group string, shards ...string) map[string]lease.Hold {
	t.Helper()
	began := make(chan lease.Hold, 1000)
	w, err := shardlease.New(s.leases, shardlease.Static(shards...), shardlease.Config{Group: group, Handoff: rebalance.Eager})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		err := w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
			began <- t.Hold()
			select {
			case <-over:
			case <-ctx.Done():
			}
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); close(over); running.Wait() })
	holds := map[string]lease.Hold{}
	for range shards {
		h := <-began
		holds[h.Key.Name] = h
	}
	return holds
}

// TestEffectsAreKeptOnce: an effect is stored if it is later than those of its item, and if the
// hold is current; a child shard has marks of its own.
func TestEffectsAreKeptOnce(t *testing.T) {
	s, _ := newSink(t)
	holds := hold(t, s, "orders", "shard-10", "shard-1") // one name is a prefix of the other
	h, next := holds["shard-10"], holds["shard-1"]
	keep := func(h lease.Hold, n int) error {
		sequence := fmt.Sprint(n) // of any length, so that texts and numbers have different orders
		return s.keep(t.Context(), h, effect{h.Key.Name, sequence, "x", []byte(sequence)})
	}
	for _, n := range []int{1, 9, 1, 9, 10, 9} {
		if err := keep(h, n); err != nil {
			t.Error(err)
		}
	}
	boss := shardlease.Supervisor{Store: s.leases, Group: "orders", By: "test"}
	if _, err := boss.ForceRelease(t.Context(), "shard-10", h.Generation, "to fence its holder"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{10, 11} { // an effect that is stored, and a new one
		if err := keep(h, n); !errors.Is(err, checkpoint.ErrStale) {
			t.Errorf("a stale write: %v", err)
		}
	}
	for _, n := range []int{2, 2, 3} {
		if err := keep(next, n); err != nil {
			t.Error(err)
		}
	}
	// Sorted by shard. In DynamoDB the name of a child sorts after its parent; in this test it does not.
	if got := s.effects(t, "x"); !slices.Equal(got, []string{"2", "3", "1", "9", "10"}) {
		t.Errorf("the item has %v", got)
	}
}

// TestGroupsShareATable: each group has effects of its own, and a sink accepts only those of its
// group. When the item was the whole id, the second group stored 0 of 9.
func TestGroupsShareATable(t *testing.T) {
	s, _ := newSink(t)
	for _, group := range []string{"orders", "invoices", "orders/x"} {
		h := hold(t, s, group, "shard")["shard"]
		other := &sink{client: s.client, table: s.table, leases: s.leases, group: group}
		var want []string
		for n := range 9 {
			e := effect{"shard", fmt.Sprint(n), "x", fmt.Append(nil, n, "\xff\x00")} // not valid UTF-8
			if err := other.keep(t.Context(), h, e); err != nil {
				t.Fatal(err)
			}
			want = append(want, string(e.value))
		}
		if got := other.effects(t, "x"); !slices.Equal(got, want) {
			t.Errorf("group %s has %q, want %q", group, got, want)
		}
		if err := s.keep(t.Context(), h, effect{"shard", "10", "x", nil}); (err != nil) != (group != s.group) {
			t.Errorf("the hold of group %s with the sink of %s: %v", group, s.group, err)
		}
	}
}

// TestManyLargeEffects: the effects of one item may be larger in total than a DynamoDB item. When
// they were stored as a list, they blocked their shard at 400 KB.
func TestManyLargeEffects(t *testing.T) {
	s, _ := newSink(t)
	h := hold(t, s, "orders", "shard")["shard"]
	for n := range 5 {
		if err := s.keep(t.Context(), h, effect{"shard", fmt.Sprint(n), "x", make([]byte, 200_000)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.effects(t, "x")); n != 5 {
		t.Errorf("the item has %d effects", n)
	}
}

// TestBegin: a group begins once, and not later than the times of the records that follow.
func TestBegin(t *testing.T) {
	s, _ := newSink(t)
	now := time.Now().Truncate(time.Minute)
	for group, want := range map[string]time.Time{"orders": now, "invoices": now.Add(time.Minute)} {
		s.group = group
		for _, at := range []time.Time{want.Add(59 * time.Second), want.Add(time.Hour)} {
			if got, err := s.begin(t.Context(), at); err != nil || !got.Equal(want) {
				t.Errorf("%s begins at %v, %v, want %v", group, got, err, want)
			}
		}
	}
}
