package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// FuzzPartition: a row has one partition, which is one of those that a listing reads, and its
// item is read back with its own key. The number of buckets concerns lease rows only.
func FuzzPartition(f *testing.F) {
	f.Add("orders", "shard-1", byte(3))
	f.Add("orders/lease", "3", byte(63))
	f.Add("orders/lease/3", "seat", byte(0))
	f.Add("/", "a", byte(9))
	f.Fuzz(func(t *testing.T, group, name string, b byte) {
		k, buckets := lease.Key{Group: group, Kind: lease.KindLease, Name: name}, int(b)%mostBuckets+1
		if k.Validate() != nil {
			return
		}
		at := partition(k, buckets)
		if all := partitions(group, k.Kind, buckets); len(all) != buckets || !slices.Contains(all, at) {
			t.Errorf("%v is in %q, a listing reads %q", k, at, all)
		}
		if one := partition(k, 1); one != group+"/lease" || withoutBucket(at) != one {
			t.Errorf("%v is in %q, without the bucket %q, and alone in %q", k, at, withoutBucket(at), one)
		}
		row := fixture.Write(t)(protocol.Begin(group, name, nil, "a", fixture.Stamp())).Next
		item := encode(row)
		item[attr.Group] = attribute(at)
		if r, err := decode(item); err != nil || r.Key() != k {
			t.Errorf("%v is read as %v, %v", k, r, err)
		}
		for _, kind := range []lease.Kind{lease.KindSeat, lease.KindTarget} {
			k.Kind = kind
			if p := partition(k, buckets); p != attr.Partition(group, kind) || withoutBucket(p) != p {
				t.Errorf("%v is in %q", k, p)
			}
		}
	})
}

// TestBucketIsStored: the bucket of a name is part of the stored format. Names that differ little
// are spread evenly.
func TestBucketIsStored(t *testing.T) {
	for name, want := range map[string]string{"a": "g/lease/44", "foobar": "g/lease/40"} { // published hashes: e40c292c, bf9cf968
		if got := partition(lease.Key{Group: "g", Kind: lease.KindLease, Name: name}, mostBuckets); got != want {
			t.Errorf("%q is in %q, want %q", name, got, want)
		}
	}
	for _, buckets := range []int{2, 3, 8, mostBuckets} {
		count := map[string]int{}
		for i := range 10_000 {
			count[partition(lease.Key{Group: "g", Kind: lease.KindLease, Name: fmt.Sprintf("shardId-%012d", i)}, buckets)]++
		}
		for key, n := range count {
			if mean := 10_000 / buckets; n*4 > mean*5 || n*4 < mean*3 {
				t.Errorf("of %d buckets %s has %d names of 10,000", buckets, key, n)
			}
		}
	}
}

// begin creates lease rows with names from shard-0 on.
func begin(t *testing.T, s *Store, rows int) {
	t.Helper()
	for i := range rows {
		fixture.Must[lease.Row](t, s)(protocol.Begin("orders", fmt.Sprint("shard-", i), nil, "a", fixture.Stamp()))
	}
}

// inOrders are the options of a store of the group orders.
func inOrders(buckets int) Options { return Options{Group: "orders", Buckets: buckets} }

// TestBucketsOfAGroup: the first worker of a group decides the number of buckets. Later workers use
// it, and Open refuses another one.
func TestBucketsOfAGroup(t *testing.T) {
	for stored := range 5 {
		f := newService(0)
		early := f.open(t, f, Options{}) // knows of no number yet
		listsAll(t, early, 0)
		first := f.open(t, f, inOrders(stored))
		if err := first.Verify(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		begin(t, first, 20)
		has := max(stored, 1)
		for option := range 5 {
			s, err := Open(t.Context(), clientOf(f), "leases", inOrders(option))
			wrong, refused := errors.AsType[*BucketsError](err)
			switch {
			case option != 0 && option != has:
				if !refused || *wrong != (BucketsError{"orders", has, option}) {
					t.Errorf("%d instead of %d buckets: %v", option, has, err)
				}
			case err != nil:
				t.Errorf("%d of %d buckets: %v", option, has, err)
			default:
				listsAll(t, s, 20)
			}
		}
		listsAll(t, early, 20)
		k := lease.Key{Group: "orders", Kind: lease.KindLease, Name: "shard-7"}
		fence, err := f.open(t, f, Options{}).Fence(t.Context(), lease.Hold{Key: k})
		if err != nil || f.get(t, fence.ConditionCheck.Key) == nil {
			t.Errorf("the fence is at %v, where there is no row: %v", fence.ConditionCheck.Key, err)
		}
	}
}

// A lister is a Store or a Reader.
type lister interface {
	List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error]
}

// listsAll checks that a listing has the rows of begin, in order.
func listsAll(t *testing.T, s lister, rows int) {
	t.Helper()
	var got, want []string
	for r, err := range s.List(t.Context(), lease.Query{Group: "orders", Kind: lease.KindLease}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.Key().Name)
	}
	for i := range rows {
		want = append(want, fmt.Sprint("shard-", i))
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// TestFirstWorkersRace: of workers that begin a group at once, with different options, all that have
// one of these options succeed, and the others are refused.
func TestFirstWorkersRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newService(5 * time.Millisecond)
		errs := make([]error, 12)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = Open(t.Context(), clientOf(f), "leases", inOrders(4+i%3)) })
		}
		all.Wait()
		r, err := f.open(t, f, Options{}).recorded(t.Context(), "orders")
		if err != nil || r.buckets < 4 || r.buckets > 6 {
			t.Fatalf("%d buckets are stored: %v", r.buckets, err)
		}
		for i, err := range errs {
			wrong, refused := errors.AsType[*BucketsError](err)
			if option := 4 + i%3; refused != (option != r.buckets) || refused && wrong.Stored != r.buckets || !refused && err != nil {
				t.Errorf("%d buckets are stored, and a worker with %d got %v", r.buckets, option, err)
			}
		}
	})
}

// TestLostRecordOfBuckets: if somebody deletes the record of a group, nothing is claimed, and the
// rows are adopted only with the number of buckets that they have.
func TestLostRecordOfBuckets(t *testing.T) {
	for _, c := range []struct{ stored, option int }{{4, 0}, {4, 1}, {4, 3}, {4, 8}, {4, 4}, {1, 4}, {1, 0}, {8, 4}, {mostBuckets, 63}} {
		f := newService(0)
		begin(t, f.open(t, f, inOrders(c.stored)), 20)
		f.mu.Lock()
		delete(f.items, "orders/table\x00identity")
		f.mu.Unlock()
		s := f.open(t, f, inOrders(c.option))
		if err := s.Verify(t.Context(), "orders"); !errors.Is(err, ErrRestored) {
			t.Errorf("%v: %v", c, err)
		}
		n, err := s.Adopt(t.Context(), "orders", "operator")
		if right := max(c.option, 1) == c.stored; (err == nil) != right || right && n != 20 {
			t.Errorf("%v: adopted %d: %v", c, n, err)
		}
		if err == nil {
			listsAll(t, f.open(t, f, Options{}), 20)
			continue
		}
		if err := s.Verify(t.Context(), "orders"); !errors.Is(err, ErrRestored) {
			t.Errorf("%v: after an adoption that failed: %v", c, err)
		}
	}
}

// TestRecordOfAGroupThatCannotBeRead: a number that no store has written is reported, and no row is
// looked for.
func TestRecordOfAGroupThatCannotBeRead(t *testing.T) {
	for name, buckets := range map[string]types.AttributeValue{
		"none": attribute(int64(0)), "too many": attribute(int64(mostBuckets + 1)), "a text": attribute("4"), "huge": attribute(int64(1)<<32 + 1),
	} {
		s, f := opened(t, 0)
		item := keyOf("orders/table", identityKey)
		item[attrTableID], item[attrBuckets] = attribute("the-table"), buckets
		f.put(t, item)
		if err := s.Verify(t.Context(), "orders"); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("%s: Verify: %v", name, err)
		}
		if _, err := s.Get(t.Context(), lease.Key{Group: "orders", Kind: lease.KindLease, Name: "s"}); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("%s: Get: %v", name, err)
		}
	}
}

// TestListingOfBuckets: a listing asks for the first pages of four buckets at a time, or fewer if
// the lane admits fewer. If one bucket cannot be read, it ends with an error.
func TestListingOfBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 10 * time.Millisecond
		for inFlight, together := range map[int]int{16: 4, 1: 1} {
			f := newService(takes)
			o := inOrders(16)
			o.InFlight = inFlight
			s := f.open(t, f, o)
			begin(t, s, 20)
			f.most = 0
			from := time.Now()
			listsAll(t, s, 20)
			if took := time.Since(from); f.most != together || took != 16*takes/time.Duration(together) {
				t.Errorf("%d calls at a time, %v for 16 buckets; want %d at a time", f.most, took, together)
			}
		}
	})
	f := newService(0)
	begin(t, f.open(t, f, inOrders(4)), 20)
	s := f.open(t, f, Options{Attempts: 1})
	f.deny = "orders/lease/2"
	var failed error
	for _, err := range s.List(t.Context(), lease.Query{Group: "orders", Kind: lease.KindLease}) {
		if failed != nil {
			t.Error("the listing goes on after its error")
		}
		failed = err
	}
	if failed == nil {
		t.Error("a listing without one of its buckets is complete")
	}
}

// TestShare: a bucket is asked for its share, for the rest of it if a page has ended before, then for the square root
// of the share, and from then on each time for as many as all times before.
func TestShare(t *testing.T) {
	for _, c := range []struct{ rows, read, want int }{{100, 0, 100}, {100, 40, 60}, {100, 100, 10}, {100, 110, 10}, {100, 120, 20}, {1, 1, 1}, {2, 2, 1}} {
		if got := (share{rows: c.rows, read: c.read}).next(); got != c.want {
			t.Errorf("after %d rows of %d a request asks for %d, want %d", c.read, c.rows, got, c.want)
		}
	}
}

// TestPagesOfBuckets: a listing of eight buckets in pages of 80 rows reads 1.3 rows for each.
func TestPagesOfBuckets(t *testing.T) {
	const rows = 800
	f := newService(0)
	s := f.open(t, f, inOrders(8))
	begin(t, s, rows)
	f.read = 0
	listed := 0
	for q := (lease.Query{Group: "orders", Kind: lease.KindLease, Limit: 80}); listed < rows; {
		page := 0
		for r, err := range s.List(t.Context(), q) {
			if err != nil || r.Key().Name <= q.After {
				t.Fatalf("%v after %s: %v", r, q.After, err)
			}
			q.After = r.Key().Name
			page++
		}
		if listed += page; page != q.Limit {
			t.Fatalf("a page of %d rows, %d in all", page, listed)
		}
	}
	if t.Logf("%d rows read", f.read); f.read > rows*13/10 {
		t.Errorf("%d rows were read for a listing of %d", f.read, rows)
	}
}

// TestAPageIsOneRequest: a listing with a limit reads no more records than it lists, in one request. In a large fleet each
// worker lists one record per heartbeat interval: the plan.
func TestAPageIsOneRequest(t *testing.T) {
	const seats = 20
	s, f := opened(t, 0)
	for i := range seats {
		seat := lease.Seat{Group: "orders", Incarnation: lease.Incarnation(fmt.Sprint("w-", i)), Name: "w", TTL: time.Second}
		fixture.Must[lease.Seat](t, s)(protocol.Sit(seat, fixture.Stamp()))
	}
	for _, limit := range []int{1, 2, seats - 1, seats, seats + 1} {
		f.read, f.calls["Query"] = 0, 0
		listed := 0
		for _, err := range s.List(t.Context(), lease.Query{Group: "orders", Kind: lease.KindSeat, Eventually: true, Limit: limit}) {
			if listed++; err != nil {
				t.Fatal(err)
			}
		}
		if want := min(limit, seats); listed != want || f.read != want || f.calls["Query"] != 1 {
			t.Errorf("limit %d: %d records listed, %d read in %d requests", limit, listed, f.read, f.calls["Query"])
		}
	}
}

// TestOptionsAreChecked: Open reports all invalid options at once, and explains them.
func TestOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    []string
	}{
		{Options{Timeout: -1, Attempts: -1, InFlight: -1, Buckets: -1}, []string{"Timeout", "Attempts", "InFlight", "Buckets must be from 1 to 64"}},
		{inOrders(mostBuckets + 1), []string{"or 0 for the number that the group has"}},
		{Options{Buckets: 4}, []string{"Group must be given with Buckets"}},
	} {
		_, err := Open(t.Context(), nil, "leases", c.options)
		for _, text := range c.want {
			if !errors.Is(err, checkpoint.ErrInvalid) || !strings.Contains(err.Error(), text) {
				t.Errorf("%+v: %v, want %q", c.options, err, text)
			}
		}
	}
}
