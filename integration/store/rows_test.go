package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// attributes is an item as the service stores it, including items that no store would write.
type attributes = map[string]types.AttributeValue

// byHand reads and writes items without the library.
type byHand struct {
	t      *testing.T
	client *dynamodb.Client
	table  string
}

func (h byHand) key(k lease.Key) attributes {
	return attributes{
		attr.Group: &types.AttributeValueMemberS{Value: attr.Partition(k.Group, k.Kind.Listed())},
		attr.Key:   &types.AttributeValueMemberS{Value: k.Name},
	}
}

func (h byHand) get(k lease.Key) attributes {
	h.t.Helper()
	out, err := h.client.GetItem(h.t.Context(), &dynamodb.GetItemInput{TableName: &h.table, Key: h.key(k), ConsistentRead: aws.Bool(true)})
	if err != nil {
		h.t.Fatal(err)
	}
	return out.Item
}

func (h byHand) put(item attributes) {
	h.t.Helper()
	if _, err := h.client.PutItem(h.t.Context(), &dynamodb.PutItemInput{TableName: &h.table, Item: item}); err != nil {
		h.t.Fatal(err)
	}
}

func (h byHand) remove(k lease.Key) {
	h.t.Helper()
	if _, err := h.client.DeleteItem(h.t.Context(), &dynamodb.DeleteItemInput{TableName: &h.table, Key: h.key(k)}); err != nil {
		h.t.Fatal(err)
	}
}

// A spoiling turns a valid item into one that cannot be read.
type spoiling struct {
	name, attr string
	value      types.AttributeValue // nil: the attribute is removed
	says       string               // the text of the error
}

func (s spoiling) of(item attributes) attributes {
	spoilt := maps.Clone(item)
	delete(spoilt, s.attr)
	if s.value != nil {
		spoilt[s.attr] = s.value
	}
	return spoilt
}

// spoilings returns one spoiling for each way in which an item of a kind can be invalid.
func spoilings(kind lease.Kind) []spoiling {
	null := &types.AttributeValueMemberNULL{Value: true}
	text := &types.AttributeValueMemberS{Value: "seven"}
	huge := &types.AttributeValueMemberN{Value: "9223372036854775808"} // the maximum of int64 plus 1
	nested := &types.AttributeValueMemberM{Value: attributes{"a": text}}
	version := spoiling{"version", attr.Version, &types.AttributeValueMemberN{Value: "2"}, "version"}
	if kind == lease.KindSeat {
		return []spoiling{
			{"missing", attr.Name, nil, "worker name"},
			{"mistyped", attr.Beat, text, attr.Beat},
			{"huge", attr.Beat, huge, attr.Beat},
			{"null", attr.TTL, null, attr.TTL},
			{"nested", attr.Wants, nested, attr.Wants},
			version,
		}
	}
	return []spoiling{
		{"missing", attr.WriteID, nil, "write id"},
		{"mistyped", attr.Generation, text, attr.Generation},
		{"huge", attr.Counter, huge, attr.Counter},
		{"null", attr.Position, null, attr.Position},
		{"nested", attr.State, nested, attr.State},
		version,
	}
}

// goodRecords returns a held row and a seat after a heartbeat, as they are stored.
func goodRecords(t *testing.T, s lease.Store, name string) (lease.Row, lease.Seat) {
	t.Helper()
	if err := s.Verify(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	row, seat := fixture.Must[lease.Row](t, s), fixture.Must[lease.Seat](t, s)
	r := row(protocol.Claim(row(protocol.Begin("orders", name, nil, "a", fixture.Stamp())), fixture.Worker("a"), fixture.Stamp()))
	seatRow := seat(protocol.Sit(lease.Seat{Group: "orders", Incarnation: lease.Incarnation(name), Name: "a", TTL: time.Second}, fixture.Stamp()))
	return r, seat(protocol.NextBeat(seatRow, lease.Says{}, fixture.Stamp()))
}

// TestMalformedRowsAreSetAside: a row that cannot be read is reported by name, and does not affect
// the rows next to it.
func TestMalformedRowsAreSetAside(t *testing.T) {
	hand := byHand{t, local.Client(t, nil), local.Table(t)}
	s := local.Open(t, hand.client, hand.table)
	row, seat := goodRecords(t, s, "a-first")
	goodRecords(t, s, "z-last")
	for _, good := range []lease.Record{row, seat} {
		for _, wrong := range spoilings(good.Key().Kind) {
			item := wrong.of(hand.get(good.Key()))
			item[attr.Key] = &types.AttributeValueMemberS{Value: wrong.name}
			hand.put(item)
		}
	}
	for _, kind := range []lease.Kind{lease.KindLease, lease.KindSeat} {
		want := map[string]string{"a-first": "", "z-last": ""} // the error of each row; empty: it can be read
		for _, wrong := range spoilings(kind) {
			want[wrong.name] = wrong.says
		}
		got := map[string]string{}
		for r, err := range s.List(t.Context(), lease.Query{Group: "orders", Kind: kind}) {
			key, said := nameOf(t, r, err)
			if want := (lease.Key{Group: "orders", Kind: kind, Name: key.Name}); key != want {
				t.Errorf("listed %v, want %v", key, want)
			}
			if _, twice := got[key.Name]; twice {
				t.Errorf("%v was listed twice", key)
			}
			if right := want[key.Name]; right != "" && strings.Contains(said, right) {
				said = right
			}
			got[key.Name] = said
		}
		if !maps.Equal(got, want) {
			t.Errorf("the %vs: got %v, want %v", kind, got, want)
		}
		for _, wrong := range spoilings(kind) {
			key := lease.Key{Group: "orders", Kind: kind, Name: wrong.name}
			r, err := s.Get(t.Context(), key)
			if at, said := nameOf(t, r, err); at != key || !strings.Contains(said, wrong.says) {
				t.Errorf("get %v: got %v, %v", key, r, err)
			}
		}
	}
	fixture.Must[lease.Row](t, s)(protocol.Commit(row, fixture.Hold(row), checkpoint.Mark{Position: "1"}, fixture.Stamp()))
	fixture.Must[lease.Seat](t, s)(protocol.NextBeat(seat, lease.Says{}, fixture.Stamp()))
}

// nameOf returns the key of a record from a listing and, if the record cannot be read, the text of
// the error.
func nameOf(t *testing.T, r lease.Record, err error) (lease.Key, string) {
	t.Helper()
	if err == nil {
		return r.Key(), ""
	}
	malformed, ok := errors.AsType[*lease.MalformedError](err)
	if !ok || r != nil || !errors.Is(err, lease.ErrMalformed) {
		t.Fatalf("got %v, %v: want a row, or a MalformedError without a row", r, err)
	}
	return malformed.Key, malformed.Cause.Error()
}

// TestRefusedByAMalformedRow: if the stored row cannot be read, a write is not stored, and the result
// tells its writer nothing about the row.
func TestRefusedByAMalformedRow(t *testing.T) {
	hand := byHand{t, local.Client(t, nil), local.Table(t)}
	s := local.Open(t, hand.client, hand.table)
	row, seat := goodRecords(t, s, "shard-1")
	moved := &types.AttributeValueMemberS{Value: "somebody-else"}
	later := &types.AttributeValueMemberN{Value: fmt.Sprint(row.Generation + 1)}
	write := fixture.Write(t)
	for kind, writes := range map[lease.Kind][]lease.Write{
		lease.KindLease: {
			write(protocol.Begin("orders", "shard-1", nil, "a", fixture.Stamp())),
			write(protocol.Commit(row, fixture.Hold(row), checkpoint.Mark{Position: "1"}, fixture.Stamp())),
			write(protocol.Recover(row, fixture.Worker("b"), fixture.Stamp())),
		},
		lease.KindSeat: {
			write(protocol.Sit(lease.Seat{Group: "orders", Incarnation: seat.Incarnation, Name: "a", TTL: time.Second}, fixture.Stamp())),
			write(protocol.NextBeat(seat, lease.Says{}, fixture.Stamp())),
			write(protocol.Evict(seat)),
		},
	} {
		good := hand.get(writes[0].Key())
		good[attr.WriteID] = moved // so that every condition fails
		if kind == lease.KindLease {
			good[attr.Generation] = later
		}
		for _, wrong := range spoilings(kind) {
			spoilt := wrong.of(good)
			hand.put(spoilt)
			for _, w := range writes {
				reply, err := s.Write(t.Context(), w)
				if !errors.Is(err, lease.ErrMalformed) || errors.Is(err, lease.ErrRefused) {
					t.Errorf("%s: %v: got %v, %v", wrong.name, w, reply, err)
				}
				if verdict, now := protocol.Settle("a-1", w, reply, err); verdict != protocol.Unknown || now != nil {
					t.Errorf("%s: %v: settled as %v, %v", wrong.name, w, verdict, now)
				}
				if now := hand.get(w.Key()); !reflect.DeepEqual(now, spoilt) {
					t.Errorf("%s: %v changed a row that cannot be read: %v", wrong.name, w, now)
				}
			}
		}
	}
}

// TestSpoiltSeatIsEvicted: a seat that cannot be read is deleted on its write id, whatever is wrong with it, and
// not if it was written since. A supervisor does it at once.
func TestSpoiltSeatIsEvicted(t *testing.T) {
	hand := byHand{t, local.Client(t, nil), local.Table(t)}
	s := local.Open(t, hand.client, hand.table)
	_, seat := goodRecords(t, s, "shard-1")
	supervisor := shardlease.Supervisor{Store: s, Group: "orders", By: "ann"}
	wrongs := append(spoilings(lease.KindSeat), noID, numericID, spoiling{"an empty id", attr.WriteID, &types.AttributeValueMemberS{}, ""})
	spoiltIsDeleted(t, hand, s, seat.Key(), wrongs, func(_ spoiling, id lease.WriteID) lease.Write {
		return fixture.Write(t)(protocol.EvictSpoilt(seat.Key(), id))
	}, func() error {
		_, err := supervisor.Evict(t.Context(), seat.Incarnation, "spoilt")
		return err
	})
}

// TestSpoiltWishesAreLifted: wishes that cannot be read are deleted on their write id, whatever is wrong with
// them, and not if they were written since.
func TestSpoiltWishesAreLifted(t *testing.T) {
	hand := byHand{t, local.Client(t, nil), local.Table(t)}
	s := local.Open(t, hand.client, hand.table)
	supervisor := shardlease.Supervisor{Store: s, Group: "orders", By: "ann"}
	if err := supervisor.Pause(t.Context(), 0, "migration"); err != nil {
		t.Fatal(err)
	}
	spoiltIsDeleted(t, hand, s, lease.Wishes{Group: "orders"}.Key(), []spoiling{
		{"another version", attr.Version, &types.AttributeValueMemberN{Value: "9"}, ""},
		{"wishes that are no set", attr.Wishes, &types.AttributeValueMemberS{Value: "pause"}, ""},
		{"a wish without fields", attr.Wishes, &types.AttributeValueMemberSS{Value: []string{"pause"}}, ""},
		noID, numericID,
	}, func(wrong spoiling, id lease.WriteID) lease.Write {
		if err := supervisor.Pause(t.Context(), 0, "again"); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("%s: a wish in a record that cannot be read: %v", wrong.name, err)
		}
		return fixture.Write(t)(protocol.DropWishes("orders", id))
	}, func() error { return supervisor.LiftAll(t.Context(), "done") })
}

var (
	noID      = spoiling{"no id", attr.WriteID, nil, ""}
	numericID = spoiling{"an id that is a number", attr.WriteID, &types.AttributeValueMemberN{Value: "7"}, ""}
)

// spoiltIsDeleted spoils a record in each way. The write deletes the record on the id that the error has, unless it was
// written since, and once. The supervisor deletes it at once, also a second time.
func spoiltIsDeleted(t *testing.T, hand byHand, s lease.Store, key lease.Key, wrongs []spoiling,
	drop func(spoiling, lease.WriteID) lease.Write, supervise func() error) {
	t.Helper()
	good := hand.get(key)
	for _, wrong := range wrongs {
		spoilt := wrong.of(good)
		hand.put(spoilt)
		_, err := s.Get(t.Context(), key)
		malformed, ok := errors.AsType[*lease.MalformedError](err)
		if !ok {
			t.Fatalf("%s: got %v, want a MalformedError", wrong.name, err)
		}
		w := drop(wrong, malformed.WriteID)
		other := maps.Clone(spoilt)
		other[attr.WriteID] = &types.AttributeValueMemberS{Value: "another"}
		hand.put(other)
		if _, err := s.Write(t.Context(), w); err == nil || hand.get(key) == nil {
			t.Errorf("%s: deleted although it was written since: %v", wrong.name, err)
		}
		hand.put(spoilt)
		if _, err := s.Write(t.Context(), w); err != nil {
			t.Errorf("%s: %v", wrong.name, err)
		}
		_, err = s.Write(t.Context(), w)
		if refused, ok := errors.AsType[*lease.RefusedError](err); !ok || refused.Now != nil {
			t.Errorf("%s: repeated: %v", wrong.name, err)
		}
		hand.put(spoilt)
		for range 2 {
			if err := supervise(); err != nil {
				t.Errorf("%s: by a supervisor: %v", wrong.name, err)
			}
		}
		if _, err := s.Get(t.Context(), key); !errors.Is(err, lease.ErrNotFound) {
			t.Errorf("%s: still there: %v", wrong.name, err)
		}
	}
}

// manyRows creates n rows at once and returns their names in the order of their bytes.
func manyRows(t *testing.T, s lease.Store, n int) []string {
	t.Helper()
	// In UTF-16, the order of some other systems, "𝄞" is before "ﬀ". If one name begins with
	// another, the shorter one comes first.
	heads := []string{" ", "A", "a", "a ", "~", "é", "日本", "ﬀ", "𝄞"}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", heads[i%len(heads)], i)
	}
	queue := make(chan string)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			row := fixture.Must[lease.Row](t, s)
			for name := range queue {
				row(protocol.Begin("orders", name, nil, "a", fixture.Stamp()))
			}
		})
	}
	for _, name := range names {
		queue <- name
	}
	close(queue)
	all.Wait()
	return slices.Sorted(slices.Values(names))
}

func listed(ctx context.Context, t *testing.T, s lease.Store) []string {
	t.Helper()
	var names []string
	for r, err := range s.List(ctx, lease.Query{Group: "orders", Kind: lease.KindLease}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Key().Name)
	}
	return names
}

// inOrders are the options of a store of the group orders with that many buckets.
func inOrders(buckets int) dynamostore.Options {
	return dynamostore.Options{Group: "orders", Buckets: buckets}
}

// TestPagesOfOne: a listing in hundreds of pages returns all rows in order, also those of four buckets.
func TestPagesOfOne(t *testing.T) {
	for _, buckets := range []int{1, 4} {
		t.Run(fmt.Sprint(buckets, " buckets"), func(t *testing.T) { testPagesOfOne(t, buckets) })
	}
}

func testPagesOfOne(t *testing.T, buckets int) {
	table := local.Table(t)
	want := manyRows(t, local.Open(t, local.Client(t, nil), table, inOrders(buckets)), fixture.Size(100, 1000))
	f := network.NewFaulty(func(action string, _ []byte) network.Fault {
		if action != "Query" {
			return network.Fault{}
		}
		return network.Fault{Edit: func(query map[string]any) { query["Limit"] = 1 }}
	})
	s := local.Open(t, local.Client(t, f.Over), table)
	if got := listed(t.Context(), t, s); !slices.Equal(got, want) {
		t.Errorf("got %d rows %q, want %d %q", len(got), got, len(want), want)
	}
	if pages := f.Calls["Query"]; pages < len(want) {
		t.Errorf("the listing had %d pages: they had more than one row", pages)
	}
}

// TestEmptyPages: an empty page is the last one only if the service returns no key to continue from.
func TestEmptyPages(t *testing.T) {
	table := local.Table(t)
	want := manyRows(t, local.Open(t, local.Client(t, nil), table), 100)
	queries, empty := 0, 0
	f := network.NewFaulty(func(action string, body []byte) network.Fault {
		if action != "Query" || !strings.Contains(string(body), "orders/lease") {
			return network.Fault{}
		}
		ten := network.Fault{Edit: func(query map[string]any) { query["Limit"] = 10 }}
		if queries++; queries%2 == 1 { // including the first page
			empty++
			ten.EditReply = func(reply map[string]any) { emptyPage(body, reply) }
		}
		return ten
	})
	if got := listed(t.Context(), t, local.Open(t, local.Client(t, f.Over), table)); !slices.Equal(got, want) {
		t.Errorf("got %d rows %q, want %d %q", len(got), got, len(want), want)
	}
	if empty < 10 || queries < 2*empty-1 {
		t.Errorf("of %d pages %d were empty", queries, empty)
	}
}

// emptyPage turns a page into an empty one that continues where the query began. A name of one
// control character sorts before all others, because no name contains one.
func emptyPage(query []byte, reply map[string]any) {
	var request struct{ ExclusiveStartKey map[string]any }
	if json.Unmarshal(query, &request) == nil && request.ExclusiveStartKey == nil {
		request.ExclusiveStartKey = map[string]any{
			attr.Group: map[string]string{"S": "orders/lease"},
			attr.Key:   map[string]string{"S": "\x01"},
		}
	}
	reply["Items"], reply["Count"], reply["ScannedCount"] = []any{}, 0, 0
	reply["LastEvaluatedKey"] = request.ExclusiveStartKey
}

// TestUnknownAttributesSurvive: attributes of a newer version in a row or a seat survive every write
// of this version.
func TestUnknownAttributesSurvive(t *testing.T) {
	hand := byHand{t, local.Client(t, nil), local.Table(t)}
	s := local.Open(t, hand.client, hand.table)
	r, seatRow := goodRecords(t, s, "shard-1")
	news := attributes{
		"fromTheFuture": &types.AttributeValueMemberM{Value: attributes{
			"number": &types.AttributeValueMemberN{Value: "123456789012345678901234567890"},
			"list":   &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberNULL{Value: true}}},
		}},
		"alsoNew": &types.AttributeValueMemberS{Value: "kept"},
	}
	for _, k := range []lease.Key{r.Key(), seatRow.Key()} {
		item := hand.get(k)
		maps.Copy(item, news)
		hand.put(item)
	}
	row := func(w lease.Write, err error) lease.Row {
		t.Helper()
		after := fixture.Must[lease.Record](t, s)(w, err)
		item := hand.get(after.Key())
		for attr, want := range news {
			if !reflect.DeepEqual(item[attr], want) {
				t.Errorf("after %v, %s is %v, want %v", w, attr, item[attr], want)
			}
		}
		r, _ := after.(lease.Row)
		return r
	}
	r = row(protocol.Commit(r, fixture.Hold(r), checkpoint.Mark{Position: "1", State: "s"}, fixture.Stamp()))
	r = row(protocol.Offer(r, fixture.Hold(r), fixture.Worker("b").Incarnation, fixture.At("2"), fixture.Stamp()))
	r = row(protocol.Take(r, fixture.Worker("b"), fixture.Stamp()))
	r = row(protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
	r = row(protocol.Remove(r, protocol.Command{Seen: r.Generation, By: "an operator"}, fixture.Stamp()))
	row(protocol.Revive(r, nil, "a", fixture.Stamp()))
	row(protocol.NextBeat(seatRow, lease.Says{Leaving: true}, fixture.Stamp()))
}

// TestRefusalWithoutItem: if a server refuses a write and does not return the row, the store reads it
// consistently.
func TestRefusalWithoutItem(t *testing.T) {
	hand := byHand{t, local.Client(t, nil), local.Table(t)}
	stripped, asked := 0, 0
	f := network.NewFaulty(func(action string, body []byte) network.Fault {
		if action == "GetItem" && strings.Contains(string(body), `"ConsistentRead":true`) {
			asked++
		}
		return network.Fault{EditReply: func(reply map[string]any) {
			if kind, _ := reply["__type"].(string); strings.HasSuffix(kind, "#ConditionalCheckFailedException") && reply["Item"] != nil {
				stripped++
				delete(reply, "Item")
			}
		}}
	})
	s := local.Open(t, local.Client(t, f.Over), hand.table)
	r, seatRow := goodRecords(t, s, "shard-1")
	now := fixture.Must[lease.Row](t, s)(protocol.Commit(r, fixture.Hold(r), checkpoint.Mark{Position: "1"}, fixture.Stamp()))
	later := fixture.Must[lease.Row](t, s)(protocol.Recover(now, fixture.Worker("b"), fixture.Stamp()))
	beaten := fixture.Must[lease.Seat](t, s)(protocol.NextBeat(seatRow, lease.Says{}, fixture.Stamp()))
	refused := func(want lease.Record) func(lease.Write, error) {
		return func(w lease.Write, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			before := asked
			_, err = s.Write(t.Context(), w)
			answer, ok := errors.AsType[*lease.RefusedError](err)
			if !ok || !reflect.DeepEqual(answer.Now, want) || answer.Retried {
				t.Errorf("%v: got %v, want a refusal with %v", w, err, want)
			}
			if asked != before+1 {
				t.Errorf("%v: the row was read %d times, want once", w, asked-before)
			}
		}
	}
	all := func(row, seat lease.Record) {
		t.Helper()
		refused(row)(protocol.Commit(r, fixture.Hold(r), fixture.At("2"), fixture.Stamp()))
		refused(row)(protocol.Recover(r, fixture.Worker("c"), fixture.Stamp()))
		refused(seat)(protocol.NextBeat(seatRow, lease.Says{}, fixture.Stamp()))
		refused(seat)(protocol.Evict(seatRow))
	}
	all(later, beaten)
	refused(later)(protocol.Begin("orders", "shard-1", nil, "a", fixture.Stamp()))
	if stripped != 5 {
		t.Errorf("%d refusals lost their item, want 5", stripped)
	}
	hand.remove(r.Key())
	hand.remove(seatRow.Key())
	all(nil, nil)
}
