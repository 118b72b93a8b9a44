package dynamostore

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// resolved returns a request without placeholders: its condition, and the item that it makes of an item.
func resolved(t *testing.T, in *dynamodb.UpdateItemInput, old lease.Record) (condition []string, item map[string]any) {
	t.Helper()
	used := map[string]bool{}
	read := func(text string) any {
		used[text] = true
		if name, ok := in.ExpressionAttributeNames[text]; ok {
			return name
		}
		if value, ok := in.ExpressionAttributeValues[text]; ok {
			return plain(value)
		}
		t.Fatalf("%q has no meaning in %+v", text, in)
		return nil
	}
	for term := range strings.SplitSeq(*in.ConditionExpression, " AND ") {
		word := strings.Fields(term)
		condition = append(condition, read(word[0]).(string)+word[1]+strconv.Quote(toText(read(word[2]))))
	}
	item = map[string]any{}
	for name, value := range encode(old) {
		item[name] = plain(value)
	}
	sets, removes, removed := strings.Cut(strings.TrimPrefix(*in.UpdateExpression, "SET "), " REMOVE ")
	for clause := range strings.SplitSeq(sets, ", ") {
		word := strings.Fields(clause)
		item[read(word[0]).(string)] = read(word[2])
	}
	for name := range strings.SplitSeq(removes, ", ") {
		if removed {
			delete(item, read(name).(string))
		}
	}
	// DynamoDB refuses placeholders that are not used.
	if n := len(in.ExpressionAttributeNames) + len(in.ExpressionAttributeValues); n != len(used) {
		t.Errorf("%d placeholders, %d are used: %+v", n, len(used), in)
	}
	slices.Sort(condition)
	return condition, item
}

func toText(v any) string {
	if n, ok := v.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return v.(string)
}

// TestCommitIsASwap: the request of a commit has the condition of any swap, and makes the item that the row is
// encoded as.
func TestCommitIsASwap(t *testing.T) {
	s, _ := opened(t, 0)
	mark := func(position, state string) checkpoint.Mark { return checkpoint.Mark{Position: position, State: state} }
	next := fixture.Next(t)
	row := fixture.Held(t, "a")
	commits := 0
	for _, m := range []checkpoint.Mark{
		mark("1", ""), mark("2", ""), mark("3", "state"), mark("4", "state"), mark("4", "another"), mark("5", ""), mark("5", ""),
	} {
		w, err := protocol.Commit(row, fixture.Hold(row), m, fixture.Stamp())
		w = fixture.Write(t)(w, err)
		if isCommit(w.Old.(lease.Row), w.Next.(lease.Row)) {
			commits++
		}
		condition, item := resolved(t, s.swap(w, nil), row)
		wanted, _ := resolved(t, s.anySwap(w, nil), row)
		stored := map[string]any{}
		for name, value := range encode(w.Next) {
			stored[name] = plain(value)
		}
		if !slices.Equal(condition, wanted) || !maps.EqualFunc(item, stored, func(a, b any) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("%v: on condition of %v instead of %v, %v instead of %v", m, condition, wanted, item, stored)
		}
		row = w.Next.(lease.Row)
	}
	if commits != 7 {
		t.Errorf("%d of 7 commits have the request of a commit", commits)
	}
	offer, err := protocol.Offer(row, fixture.Hold(row), "b", mark("6", ""), fixture.Stamp())
	yielded := next(protocol.Yield(row, fixture.Hold(row), fixture.Worker("b"), protocol.End{Reason: lease.ReasonHandoff, Mode: rebalance.Eager}, fixture.Stamp()))
	if fixture.Write(t)(offer, err); isCommit(row, offer.Next.(lease.Row)) || isCommit(row, yielded) {
		t.Error("a move is a commit")
	}
}

// A quick transport answers every write itself, so that a measurement has the client's work alone.
type quick struct {
	*service
	on atomic.Bool
}

func (q *quick) Do(r *http.Request) (*http.Response, error) {
	if _, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); !q.on.Load() || action != "UpdateItem" && action != "PutItem" && action != "DeleteItem" {
		return q.service.Do(r)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Crc32": {"2745614147"}},
		Request: r, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2,
	}, nil
}

// bareCommit makes the request of a commit without this package, as a program would that has no lane, no limits and no
// other attempts.
func bareCommit(ctx context.Context, c *dynamodb.Client, n int) error {
	number := func(n int) types.AttributeValue { return &types.AttributeValueMemberN{Value: strconv.Itoa(n)} }
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	_, err := c.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           aws.String("leases"),
		Key:                 map[string]types.AttributeValue{attr.Group: text("orders/lease"), attr.Key: text("shard-1")},
		ConditionExpression: aws.String(commitCondition), UpdateExpression: aws.String(commitUpdate),
		ExpressionAttributeNames: map[string]string{
			"#writeId": attr.WriteID, "#leaseCounter": attr.Counter, "#checkpoint": attr.Position, "#checkpointAt": attr.CheckpointAt,
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":was": text("4VQ6RSJN2SVLEFVR7V3CBQDSAZ"), ":read": number(n), ":id": text("EFVR7V3CBQDSAZ4VQ6RSJN2SVL"),
			":counter": number(n + 1), ":position": text(strconv.Itoa(n)), ":at": number(1764331200000 + n),
		},
		ReturnValuesOnConditionCheckFailure: returnItem,
	}, once)
	return err
}

// holding calls f with a tenure on a store whose requests are answered at once, and with the client of that store.
func holding(t testing.TB, f func(*shardlease.Tenure, *dynamodb.Client)) {
	q := &quick{service: newService(0)}
	client := clientOf(q)
	s, err := Open(t.Context(), client, "leases", Options{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := shardlease.New(s, shardlease.Static("shard-1"), shardlease.Config{Group: "orders", TTL: time.Hour, Handoff: rebalance.Eager})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	err = w.Run(ctx, func(_ context.Context, tn *shardlease.Tenure) error {
		defer stop()
		time.Sleep(100 * time.Millisecond)
		q.on.Store(true)
		f(tn, client)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestCommitAllocates: a commit allocates hardly more than the request that it consists of.
func TestCommitAllocates(t *testing.T) {
	if fixture.UnderRace {
		t.Skip("the race detector allocates")
	}
	holding(t, func(tn *shardlease.Tenure, client *dynamodb.Client) {
		n := 0
		measure := func(commit func() error) float64 {
			return testing.AllocsPerRun(300, func() {
				n++
				if err := commit(); err != nil {
					t.Error(err)
				}
			})
		}
		bare := measure(func() error { return bareCommit(t.Context(), client, n) })
		whole := measure(func() error { return tn.Commit(t.Context(), strconv.Itoa(n)) })
		t.Logf("allocations: %v, and %v of the bare request", whole, bare)
		if whole > bare+24 {
			t.Errorf("a commit makes %v allocations, and the bare request %v", whole, bare)
		}
	})
}

// BenchmarkCommit measures a commit with all that a client does, and the bare request beside it.
func BenchmarkCommit(b *testing.B) {
	holding(b, func(tn *shardlease.Tenure, client *dynamodb.Client) {
		b.Run("whole", func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if err := tn.Commit(b.Context(), strconv.Itoa(n)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("bare", func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if err := bareCommit(b.Context(), client, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// TestCallEndsInTime: a call ends with Options.Timeout, in the middle of an attempt and between two.
func TestCallEndsInTime(t *testing.T) {
	for name, request := range map[string]func(context.Context) (int, error){
		"no answer": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
		"busy":      func(context.Context) (int, error) { return 0, io.ErrUnexpectedEOF },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, began := &reading{options: Options{Timeout: 2 * time.Second}, rows: newLane(16)}, time.Now()
			_, err := callAs(t.Context(), s, commits, shard("1"), request)
			if took := time.Since(began); took != s.options.Timeout || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
}

// BenchmarkWrite measures other writes.
func BenchmarkWrite(b *testing.B) {
	q := &quick{service: newService(0)}
	s, err := Open(b.Context(), clientOf(q), "leases", Options{})
	if err != nil {
		b.Fatal(err)
	}
	row := fixture.Held(b, "a")
	seat := fixture.Write(b)(protocol.Sit(lease.Seat{Group: "orders", Incarnation: "i", Name: "a", TTL: time.Second}, fixture.Stamp())).Next.(lease.Seat)
	q.on.Store(true)
	for _, c := range []struct {
		name  string
		write func() (lease.Write, error)
	}{
		{"create", func() (lease.Write, error) { return protocol.Begin("orders", "s", nil, "a", fixture.Stamp()) }},
		{"heartbeat", func() (lease.Write, error) { return protocol.NextBeat(seat, lease.Says{}, fixture.Stamp()) }},
		{"release", func() (lease.Write, error) {
			return protocol.Release(row, fixture.Hold(row), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp())
		}},
		{"evict", func() (lease.Write, error) { return protocol.Evict(seat) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			w := fixture.Write(b)(c.write())
			for b.Loop() {
				if _, err := s.Write(b.Context(), w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
