package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestRestoredTableIsNotTrusted: Verify reports that a group is in another table until its rows are
// adopted; writes of the old holders are refused then.
func TestRestoredTableIsNotTrusted(t *testing.T) {
	for _, buckets := range []int{1, 4} {
		t.Run(fmt.Sprint(buckets, " buckets"), func(t *testing.T) { testRestoredTable(t, buckets) })
	}
}

func testRestoredTable(t *testing.T, buckets int) {
	local.Endpoint(t)
	id := "table-1"
	f := network.NewFaulty(func(action string, _ []byte) network.Fault {
		if action != "DescribeTable" {
			return network.Fault{}
		}
		return network.Fault{EditReply: func(body map[string]any) { body["Table"].(map[string]any)["TableId"] = id }}
	})
	s := local.Open(t, local.Client(t, f.Over), local.Table(t), inOrders(buckets))
	row := fixture.Must[lease.Row](t, s)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := s.Verify(t.Context(), "orders"); err != nil {
				t.Errorf("a new group: %v", err)
			}
		})
	}
	all.Wait()
	var held []lease.Row
	for i := range 5 {
		r := row(protocol.Begin("orders", fmt.Sprint("shard-", i), nil, "a", fixture.Stamp()))
		held = append(held, row(protocol.Claim(r, fixture.Worker("a"), fixture.Stamp())))
	}
	if n, err := s.Adopt(t.Context(), "orders", "operator"); n != 0 || err != nil {
		t.Errorf("%d rows of a group in its own table were adopted: %v", n, err)
	}
	row(protocol.Begin("lost its record", "shard", nil, "a", fixture.Stamp()))
	if err := s.Verify(t.Context(), "lost its record"); !errors.Is(err, dynamostore.ErrRestored) {
		t.Errorf("a group with rows and no record: got %v", err)
	}

	id = "table-2"
	err := s.Verify(t.Context(), "orders")
	restored, ok := errors.AsType[*dynamostore.RestoredError](err)
	if !ok || !errors.Is(err, dynamostore.ErrRestored) || restored.Recorded != "table-1" || restored.Now != "table-2" {
		t.Fatalf("got %v", err)
	}
	if err := s.Verify(t.Context(), "another group"); err != nil {
		t.Errorf("a new group in the other table: %v", err)
	}
	n, err := s.Adopt(t.Context(), "orders", "operator")
	if err != nil || n != len(held) {
		t.Fatalf("adopted %d rows: %v", n, err)
	}
	if err := s.Verify(t.Context(), "orders"); err != nil {
		t.Errorf("after the adoption: %v", err)
	}
	for _, r := range held {
		w, err := protocol.Commit(r, fixture.Hold(r), checkpoint.Mark{Position: "1"}, fixture.Stamp())
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Write(t.Context(), w)
		refused, ok := errors.AsType[*lease.RefusedError](err)
		if !ok {
			t.Fatalf("a write of an old holder: got %v", err)
		}
		now := refused.Now.(lease.Row)
		if !now.Owner.IsZero() || now.Last.Reason != lease.ReasonAdopted || now.Generation < generation.First(now.Last.At) {
			t.Errorf("adopted row is %v", now)
		}
	}
}

// TestFence: a caller's own transaction takes effect only while the hold is current.
func TestFence(t *testing.T) {
	for _, buckets := range []int{1, 4} {
		t.Run(fmt.Sprint(buckets, " buckets"), func(t *testing.T) { testFence(t, buckets) })
	}
}

func testFence(t *testing.T, buckets int) {
	client := local.Client(t, nil)
	table := local.Table(t)
	s := local.Open(t, client, table, inOrders(buckets))
	effects := local.OtherTable(t, "id")
	row := fixture.Must[lease.Row](t, s)
	r := row(protocol.Claim(row(protocol.Begin("orders", "shard-1", nil, "a", fixture.Stamp())), fixture.Worker("a"), fixture.Stamp()))
	write := func(h lease.Hold, id string) error {
		fence, err := s.Fence(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			fence,
			{Put: &types.Put{TableName: &effects, Item: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}}}},
		}})
		return dynamostore.Fenced(err, h)
	}
	h := fixture.Hold(r)
	if err := write(h, "one"); err != nil {
		t.Fatal(err)
	}
	r = row(protocol.Commit(r, h, checkpoint.Mark{Position: "1"}, fixture.Stamp()))
	if err := write(h, "two"); err != nil {
		t.Errorf("a commit moved the fence: %v", err)
	}
	r = row(protocol.Recover(r, fixture.Worker("b"), fixture.Stamp()))
	stale, ok := errors.AsType[*checkpoint.StaleError](write(h, "three"))
	if !ok || stale.Mine != h.Generation || stale.Observed != r.Generation || stale.Owner != "b" {
		t.Errorf("a stale effect: got %v", stale)
	}
	if n := items(t, effects); n != 2 {
		t.Errorf("%d effects, want the two before the recovery", n)
	}
	if err := dynamostore.Fenced(lease.ErrNotFound, h); errors.Is(err, checkpoint.ErrStale) {
		t.Error("Fenced turned another error into a StaleError")
	}
}
