package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// createTable makes a table with the key "id", and with a stream if it is to be read.
func createTable(t *testing.T, client *dynamodb.Client, name string, stream *types.StreamSpecification) {
	t.Helper()
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest, StreamSpecification: stream,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// newSink is a sink with tables of its own, on DynamoDB Local.
func newSink(t *testing.T) (s *sink, leases string) {
	t.Helper()
	if os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
		t.Skip("no DynamoDB Local: start this with ./run-local")
	}
	sdk, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, leases = &sink{client: dynamodb.NewFromConfig(sdk), table: "effects-" + rand.Text()}, "leases-"+rand.Text()
	o := dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}
	createTable(t, s.client, s.table, nil)
	if err := dynamostore.CreateTable(t.Context(), s.client, leases, o); err != nil {
		t.Fatal(err)
	}
	if s.leases, err = dynamostore.Open(t.Context(), s.client, leases, dynamostore.Options{Timeout: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return s, leases
}

// effects gives what the sink has of an item, in the order in which it was kept.
func (s *sink) effects(t *testing.T, item string) []string {
	t.Helper()
	out, err := s.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &s.table, Key: id(item), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return texts(out.Item["effects"])
}

// texts gives the texts of a list.
func texts(list types.AttributeValue) (all []string) {
	if list, ok := list.(*types.AttributeValueMemberL); ok {
		for _, v := range list.Value {
			all = append(all, v.(*types.AttributeValueMemberS).Value)
		}
	}
	return all
}

// write makes a write to the lease table that must succeed.
func write(t *testing.T, s *sink) func(w lease.Write, err error) (lease.Row, lease.Hold) {
	return func(w lease.Write, err error) (lease.Row, lease.Hold) {
		t.Helper()
		var got lease.Record
		if err == nil {
			got, err = s.leases.Write(t.Context(), w)
		}
		if err != nil {
			t.Fatal(err)
		}
		r := got.(lease.Row)
		return r, lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation}
	}
}

func stamp() lease.Stamp { return lease.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()} }

func owner(name string) lease.Owner {
	return lease.Owner{Name: name, Incarnation: lease.Incarnation(name + "-1")}
}

// TestEffectsAreKeptOnce: an effect is kept if it is later than what its item has, and
// under the hold that stands; a shard that follows has marks of its own.
func TestEffectsAreKeptOnce(t *testing.T) {
	s, _ := newSink(t)
	row := write(t, s)
	free, _ := row(lease.Begin("orders", "shard-10", nil, "a", stamp()))
	mine, h := row(free.Claim(owner("a"), stamp()))
	child, _ := row(lease.Begin("orders", "shard-1", nil, "a", stamp())) // the other's name begins as this
	_, next := row(child.Claim(owner("a"), stamp()))
	keep := func(h lease.Hold, n int) error {
		sequence := fmt.Sprint(n) // of any length, so that texts have another order
		return s.keep(t.Context(), h, effect{h.Key.Name, sequence, "x", sequence})
	}
	for _, n := range []int{1, 9, 1, 9, 10, 9} {
		if err := keep(h, n); err != nil {
			t.Error(err)
		}
	}
	row(mine.Recover(owner("b"), stamp()))
	for _, n := range []int{10, 11} { // what is known, and what is new
		if err := keep(h, n); !errors.Is(err, checkpoint.ErrStale) {
			t.Errorf("a stale write: %v", err)
		}
	}
	for _, n := range []int{2, 2, 3} {
		if err := keep(next, n); err != nil {
			t.Error(err)
		}
	}
	if got := s.effects(t, "x"); !slices.Equal(got, []string{"1", "9", "10", "2", "3"}) {
		t.Errorf("it has %v", got)
	}
}

// TestBegin: a group begins once, and not later than the records that follow are said to be.
func TestBegin(t *testing.T) {
	s, _ := newSink(t)
	now := time.Now().Truncate(time.Minute)
	for group, want := range map[string]time.Time{"orders": now, "invoices": now.Add(time.Minute)} {
		for _, at := range []time.Time{want.Add(59 * time.Second), want.Add(time.Hour)} {
			if got, err := s.begin(t.Context(), group, at); err != nil || !got.Equal(want) {
				t.Errorf("%s begins at %v, %v, want %v", group, got, err, want)
			}
		}
	}
}
