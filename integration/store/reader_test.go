package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// observed returns a transport that denies what the policy of an observer does not allow. The test
// fails if a request was denied.
func observed(t *testing.T, p policy) *network.Faulty {
	return network.NewFaulty(func(action string, body []byte) network.Fault {
		partition := partitionIn(t, body)
		if p.allows(action, partition) {
			return network.Fault{}
		}
		t.Errorf("the policy does not allow %s of %q", action, partition)
		return network.Fault{Code: "AccessDeniedException"}
	})
}

// patient are the options of inOrders with time for a busy server: these tests are not about requests
// that are repeated because no answer arrived in time.
func patient(buckets int) dynamostore.Options {
	o := inOrders(buckets)
	o.Timeout = time.Minute
	return o
}

// TestReader: a Reader lists and gets all records of a group that a Store does, verifies the table,
// and changes nothing. It makes no request that docs/iam.md does not allow an observer, of all groups
// or of one, and needs all the actions that are allowed there.
func TestReader(t *testing.T) {
	local.Endpoint(t)
	roles := policies(t, "Observer")
	if len(roles) != 2 {
		t.Fatalf("%d policies of observers, want one for all groups and one for one group", len(roles))
	}
	for i, p := range roles {
		for _, buckets := range []int{1, 4} {
			t.Run(fmt.Sprint("policy ", i+1, ", ", buckets, " buckets"), func(t *testing.T) { testReader(t, p, buckets) })
		}
	}
}

func testReader(t *testing.T, p policy, buckets int) {
	table, f := local.Table(t), observed(t, p)
	r, err := dynamostore.OpenReader(t.Context(), local.Client(t, f.Over), table, patient(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(t.Context(), "orders"); err != nil {
		t.Errorf("a group that was never used: %v", err)
	}
	if records := recordsOf(t, r); len(records) > 0 || items(t, table) != 0 {
		t.Errorf("a group that was never used has %v, and the table %d items", records, items(t, table))
	}

	s := local.Open(t, local.Client(t, nil), table, patient(buckets))
	writeAll(t, s)
	before := items(t, table)
	want := recordsOf(t, s)
	if got := recordsOf(t, r); !reflect.DeepEqual(got, want) || len(got) != 24 {
		t.Errorf("a reader lists %d records, a store %d", len(got), len(want))
	}
	for _, w := range want {
		if got, err := r.Get(t.Context(), w.Key()); err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("get %v: %v, %v", w.Key(), got, err)
		}
	}
	if err := r.Verify(t.Context(), "orders"); err != nil {
		t.Error(err)
	}
	if after := items(t, table); after != before {
		t.Errorf("the table had %d items, and has %d", before, after)
	}
	for _, s := range p {
		for _, action := range s.Action {
			if f.Calls[strings.TrimPrefix(action, "dynamodb:")] == 0 {
				t.Errorf("the policy allows %s, which a reader does not use", action)
			}
		}
	}
}

// writeAll writes records of each kind: twenty rows, and those of advice.
func writeAll(t *testing.T, s lease.Store) {
	t.Helper()
	for i := range 20 {
		fixture.Must[lease.Row](t, s)(protocol.Begin("orders", fmt.Sprint("shard-", i), nil, "a", fixture.Stamp()))
	}
	advice(t, s)
}

// A lister is a store or a reader.
type lister interface {
	List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error]
}

// recordsOf lists all records of a group.
func recordsOf(t *testing.T, from lister) (records []lease.Record) {
	t.Helper()
	for _, kind := range []lease.Kind{lease.KindLease, lease.KindSeat, lease.KindTarget} {
		for r, err := range from.List(t.Context(), lease.Query{Group: "orders", Kind: kind}) {
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
	}
	return records
}

// TestReaderNeedsNoMore: OpenReader succeeds if every write is denied, and otherwise names each
// action that is denied. Open refuses the client of an observer.
func TestReaderNeedsNoMore(t *testing.T) {
	local.Endpoint(t)
	table := local.Table(t)
	var denied []string
	f := network.NewFaulty(func(action string, _ []byte) network.Fault {
		if slices.Contains(denied, action) {
			return network.Fault{Code: "AccessDeniedException"}
		}
		return network.Fault{}
	})
	client := local.Client(t, f.Over)
	for _, needed := range []string{"DescribeTable", "GetItem", "Query", ""} {
		denied = []string{needed, "PutItem", "UpdateItem", "DeleteItem"}
		if _, err := dynamostore.Open(t.Context(), client, table, patient(0)); !errors.Is(err, dynamostore.ErrDenied) {
			t.Errorf("Open with %q denied: got %v", denied, err)
		}
		_, err := dynamostore.OpenReader(t.Context(), client, table, patient(0))
		if needed == "" {
			if err != nil {
				t.Errorf("every write denied: got %v", err)
			}
			continue
		}
		if !errors.Is(err, dynamostore.ErrDenied) || !strings.Contains(err.Error(), needed+": ") {
			t.Errorf("%s denied: got %v", needed, err)
		}
	}
}
