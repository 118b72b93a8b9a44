package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A writer has the method of a lease.Store that a Reader lacks. A deepWriter has it one level of
// embedding further down.
type (
	writer interface {
		Write(ctx context.Context, w lease.Write) (lease.Record, error)
	}
	deepWriter struct{ writer }
)

// A Reader is no lease.Store: it has no Write, neither of its own nor from what it embeds. If it had
// one, Write would be ambiguous in one of these types, and this file would not compile.
var (
	_ lease.Store = struct {
		*Reader
		writer
	}{}
	_ lease.Store = struct {
		*Reader
		deepWriter
	}{}
)

// TestReaderHasNoWrite: a Reader has three methods and no field that would lead to others.
func TestReaderHasNoWrite(t *testing.T) {
	var methods []string
	for m := range reflect.TypeFor[*Reader]().Methods() {
		methods = append(methods, m.Name)
	}
	if want := []string{"Get", "List", "Verify"}; !slices.Equal(methods, want) {
		t.Errorf("the methods are %q, want %q", methods, want)
	}
	for f := range reflect.TypeFor[Reader]().Fields() {
		if f.IsExported() {
			t.Errorf("the field %s is exported", f.Name)
		}
	}
	if _, writes := any(&Reader{}).(writer); writes {
		t.Error("a Reader can be asserted to write")
	}
}

// reader returns a Reader on f, and begins to count requests.
func (f *service) reader(t *testing.T, o Options) *Reader {
	t.Helper()
	f.mu.Lock()
	f.calls = map[string]int{}
	f.mu.Unlock()
	r, err := OpenReader(t.Context(), clientOf(f), "leases", o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// onlyReads checks the numbers of requests since reader was called.
func (f *service) onlyReads(t *testing.T, describe, get, query int) {
	t.Helper()
	want := map[string]int{"DescribeTable": describe, "GetItem": get, "Query": query}
	if !maps.Equal(f.calls, want) {
		t.Errorf("the requests are %v, want %v", f.calls, want)
	}
}

// TestReaderOnlyReads: a Reader uses the number of buckets that the group has recorded, reads what a
// Store reads, and sends DescribeTable, GetItem and Query only.
func TestReaderOnlyReads(t *testing.T) {
	for _, buckets := range []int{1, 4} {
		for _, option := range []int{0, buckets} {
			f := newService(0)
			s := f.open(t, f, inOrders(buckets))
			begin(t, s, 20)
			before := maps.Clone(f.items)
			r := f.reader(t, inOrders(option))
			opened := min(option, 1) // OpenReader compares the option with what is recorded
			f.onlyReads(t, 1+opened, 2+opened, 2)
			listsAll(t, r, 20)
			f.onlyReads(t, 1+opened, 3, 2+buckets) // it has read the record of the group by now
			for i := range 20 {
				k := lease.Key{Group: "orders", Kind: lease.KindLease, Name: fmt.Sprint("shard-", i)}
				if got, err := r.Get(t.Context(), k); err != nil || got.Key() != k {
					t.Errorf("%d buckets: %v: %v, %v", buckets, k, got, err)
				}
			}
			f.onlyReads(t, 1+opened, 23, 2+buckets)
			if err := r.Verify(t.Context(), "orders"); err != nil {
				t.Error(err)
			}
			f.onlyReads(t, 2+opened, 24, 2+buckets)
			if !reflect.DeepEqual(f.items, before) {
				t.Errorf("%d buckets: the table has changed", buckets)
			}
		}
	}
}

// TestReaderOfANewGroup: a group that was never used appears empty, also if Options.Buckets is given,
// and the Reader stores nothing. It sees the group when its first worker begins.
func TestReaderOfANewGroup(t *testing.T) {
	for _, option := range []int{0, 4} {
		f := newService(0)
		r := f.reader(t, inOrders(option))
		if err := r.Verify(t.Context(), "orders"); err != nil {
			t.Error(err)
		}
		listsAll(t, r, 0)
		k := lease.Key{Group: "orders", Kind: lease.KindLease, Name: "shard-7"}
		if got, err := r.Get(t.Context(), k); !errors.Is(err, lease.ErrNotFound) {
			t.Errorf("%v, %v", got, err)
		}
		for action := range f.calls {
			if !slices.Contains([]string{"DescribeTable", "GetItem", "Query"}, action) {
				t.Errorf("the reader has sent %s", action)
			}
		}
		if len(f.items) > 0 {
			t.Errorf("the reader has stored %v", f.items)
		}
		begin(t, f.open(t, f, inOrders(4)), 20)
		listsAll(t, r, 20)
		if got, err := r.Get(t.Context(), k); err != nil || got.Key() != k {
			t.Errorf("%v, %v", got, err)
		}
		_, err := OpenReader(t.Context(), clientOf(f), "leases", inOrders(3))
		if wrong, refused := errors.AsType[*BucketsError](err); !refused || *wrong != (BucketsError{"orders", 4, 3}) {
			t.Errorf("3 instead of 4 buckets: %v", err)
		}
	}
}

// TestReaderOfARestoredTable: Verify of a Reader returns what Verify of a Store returns, for a group
// that has recorded another table, and for one that has rows and no record. Neither is repaired.
func TestReaderOfARestoredTable(t *testing.T) {
	for _, recorded := range []string{"another table", ""} {
		for _, option := range []int{0, 4} {
			f := newService(0)
			begin(t, f.open(t, f, inOrders(4)), 20)
			item := keyOf("orders/table", identityKey)
			item[attrTableID], item[attrBuckets] = attribute(recorded), attribute(int64(4))
			f.put(t, item)
			if recorded == "" {
				delete(f.items, "orders/table\x00identity")
			}
			before := maps.Clone(f.items)
			r := f.reader(t, inOrders(option))
			for range 2 {
				err := r.Verify(t.Context(), "orders")
				restored, _ := errors.AsType[*RestoredError](err)
				if !errors.Is(err, lease.ErrWentBack) || restored == nil || *restored != (RestoredError{"orders", recorded, "the-table"}) {
					t.Errorf("recorded %q: %v", recorded, err)
				}
			}
			if recorded != "" {
				listsAll(t, r, 20)
			}
			if !reflect.DeepEqual(f.items, before) {
				t.Errorf("recorded %q: the table has changed", recorded)
			}
		}
	}
}
