package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// arrive returns n records that arrive now.
func arrive(n int, data string) []kinesistest.Record {
	all := make([]kinesistest.Record, n)
	for i := range all {
		all[i] = kinesistest.Record{Key: "k", Data: []byte(data), Arrived: time.Now()}
	}
	return all
}

// texts reads a closed shard from where the group begins, and joins the data of its records.
func texts(t *testing.T, s *stream.Stream, shard string) (all string) {
	t.Helper()
	for _, e := range entriesOf(t, s, shard) {
		all += string(e.Records[0].Data)
	}
	return all
}

// TestLatestIsStable: "latest" is when the first worker began, for all workers and all later starts,
// whatever their clocks are. A worker that dies before its first checkpoint skips nothing.
func TestLatestIsStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		early := arrive(3, "e")
		time.Sleep(time.Minute)
		server := newFake(kinesistest.Shard{Name: "a", Records: early})
		server.SetRetention(48 * time.Hour)
		server.Ahead = -30 * time.Second // the clock of the first worker is ahead
		store := new(memstore.Store)
		first := &stream.Stream{Client: server.Client(), Name: "orders"}
		if err := first.Begin(t.Context(), store, "g", stream.Start{Latest: true}); err != nil {
			t.Fatal(err)
		}
		if begun := time.Since(first.Start); begun < 30*time.Second || begun > 32*time.Second {
			t.Errorf("the group begins %v ago", begun)
		}
		time.Sleep(time.Minute)
		late := arrive(2, "l")
		parent := kinesistest.Shard{Name: "a", Records: append(early, late...), Closed: true}
		child := kinesistest.Shard{Name: "b", Parents: []string{"a"}, Records: arrive(1, "c"), Closed: true}
		server.Forget("a")
		server.Add(parent, child)
		server.Ahead = 0
		time.Sleep(24 * time.Hour)
		for range 2 {
			again := &stream.Stream{Client: server.Client(), Name: "orders"}
			if err := again.Begin(t.Context(), store, "g", stream.Start{Latest: true}); err != nil {
				t.Fatal(err)
			}
			if a, b := texts(t, again, "a"), texts(t, again, "b"); a != "ll" || b != "c" || !again.Start.Equal(first.Start) {
				t.Errorf("a later worker begins at %v, and reads %q and %q", again.Start, a, b)
			}
		}
		other := &stream.Stream{Client: server.Client(), Name: "orders"}
		if err := other.Begin(t.Context(), store, "h", stream.Start{Latest: true}); err != nil || !other.Start.After(first.Start) {
			t.Errorf("another group begins at %v, %v", other.Start, err)
		}
		for record, err := range store.List(t.Context(), lease.Query{Group: "g", Kind: lease.KindLease}) {
			t.Errorf("the group has the row %v, %v", record, err)
		}
	})
}

// TestLatestHasOneWinner: of many workers that begin at once, all use one time.
func TestLatestHasOneWinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, store := newFake(kinesistest.Shard{Name: "a"}), new(memstore.Store)
		begun := make(chan time.Time)
		for i := range 8 {
			go func() {
				time.Sleep(time.Duration(i) * time.Second)
				s := &stream.Stream{Client: server.Client(), Name: "orders"}
				if err := s.Begin(t.Context(), store, "g", stream.Start{Latest: true}); err != nil {
					t.Error(err)
				}
				begun <- s.Start
			}()
		}
		first := <-begun
		for range 7 {
			if at := <-begun; !at.Equal(first) || at.IsZero() {
				t.Errorf("one worker begins at %v, another one at %v", first, at)
			}
		}
	})
}

// TestStartAtASequenceNumber: shards begin at the given record, those without one at the oldest, and
// a position prevails over both.
func TestStartAtASequenceNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Records: records(5, 1), Closed: true}, kinesistest.Shard{Name: "b", Records: records(5, 1), Closed: true})
		s := &stream.Stream{Client: server.Client(), Name: "orders"}
		if err := s.Begin(t.Context(), new(memstore.Store), "g", stream.Start{Sequence: map[string]string{"a": "3"}}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			shard, after string
			want         int
		}{{"a", "", 3}, {"b", "", 5}, {"a", "4", 1}, {"a", "TRIM_HORIZON", 5}} {
			if got, end := readAll(t.Context(), s, c.shard, c.after); len(got) != c.want || !errors.Is(end, io.EOF) {
				t.Errorf("shard %s after %q: %v, %v", c.shard, c.after, got, end)
			}
		}
	})
}

// TestStartsThatCannotBe: a new group is refused with an error that says what to do. A group that
// has begun is not: its shards have positions.
func TestStartsThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 24 * time.Hour)
		server := newFake(kinesistest.Shard{Name: "a", Records: records(5, 1)})
		begun := new(memstore.Store)
		fixture.Must[lease.Row](t, begun)(protocol.Begin("g", "a", nil, "w", fixture.Stamp()))
		for _, c := range []struct {
			start stream.Start
			want  string
			begun bool // whether a group that has begun is refused too
		}{
			{stream.Start{At: time.Now().Add(-25 * time.Hour)}, "trim-horizon", false},
			{stream.Start{Sequence: map[string]string{"b": "3"}}, "no such shard", false},
			{stream.Start{Sequence: map[string]string{"a": "99"}}, "no record with the sequence number 99", false},
			{stream.Start{Latest: true, At: time.Now()}, "only one", true},
		} {
			for store, refused := range map[*memstore.Store]bool{new(memstore.Store): true, begun: c.begun} {
				err := (&stream.Stream{Client: server.Client(), Name: "orders"}).Begin(t.Context(), store, "g", c.start)
				if wrong, ok := errors.AsType[*stream.StartError](err); ok != refused || ok && !strings.Contains(wrong.Error(), c.want) {
					t.Errorf("%+v: %v", c.start, err)
				}
			}
		}
		s := &stream.Stream{Client: server.Client(), Name: "orders"}
		if err := s.Begin(t.Context(), new(memstore.Store), "g", stream.Start{At: time.Now().Add(-23 * time.Hour)}); err != nil {
			t.Error(err)
		}
	})
}

// TestStreamsThatCannotBeRead: each reason has its error at the start, and while the stream is read.
func TestStreamsThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		name, op, code string
		identity       bool // whether the worker has seen the stream before
		want           error
		text           string
	}{
		{"no stream", "DescribeStreamSummary", "ResourceNotFoundException", false, stream.ErrNoStream, "ARN of a stream of another account"},
		{"deleted", "DescribeStreamSummary", "ResourceNotFoundException", true, stream.ErrDeleted, "was deleted"},
		{"deleted while it is listed", "ListShards", "ResourceNotFoundException", true, stream.ErrDeleted, "was deleted"},
		{"no permission", "DescribeStreamSummary", "AccessDeniedException", false, nil,
			`{"Effect":"Allow","Action":["kinesis:DescribeStreamSummary"],"Resource":"arn:aws:kinesis:eu-central-1:*:stream/orders"}`},
		{"no permission to list", "ListShards", "AccessDeniedException", true, nil,
			`{"Effect":"Allow","Action":["kinesis:ListShards"],"Resource":"arn:aws:kinesis:eu-central-1:000000000000:stream/orders"}`},
		{"no permission for the key", "GetRecords", "KMSAccessDeniedException", true, nil, `"Action":["kms:Decrypt"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFake(kinesistest.Shard{Name: "a"})
				s := &stream.Stream{Client: server.Client(), Name: "orders"}
				if c.identity {
					if _, err := s.Identity(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Hour)
				server.Fail(c.op, code(c.code), -1)
				end := first(t, s)
				if end == nil || errors.Is(end, io.EOF) || c.want != nil && !errors.Is(end, c.want) || !strings.Contains(end.Error(), c.text) {
					t.Errorf("the reader ends with %v", end)
				}
				if _, ok := errors.AsType[*stream.DeniedError](end); ok != (c.want == nil) {
					t.Errorf("the reader ends with %v", end)
				}
			})
		})
	}
}

// first returns the error that ends a reader, or the first one that it logs.
func first(t *testing.T, s *stream.Stream) error {
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	s.Logger = slog.New(logged(stop))
	_, end := readAll(ctx, s, "a", "")
	return end
}

// A logged handler passes on errors.
type logged func(error)

func (l logged) Enabled(context.Context, slog.Level) bool { return true }
func (l logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l logged) WithGroup(string) slog.Handler            { return l }
func (l logged) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			l(err)
		}
		return true
	})
	return nil
}

// TestDeletingStream: while a stream is deleted, its shards are not at their end.
func TestDeletingStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Records: records(1, 1)})
		time.AfterFunc(time.Minute, func() { server.SetStatus(types.StreamStatusDeleting); server.Forget("a") })
		_, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders"}, "a", "")
		if !errors.Is(end, stream.ErrDeleted) {
			t.Errorf("the reader ends with %v", end)
		}
	})
}

// TestStreamByARN: with an ARN every request has it, except the next pages of a listing, and none has
// the name.
func TestStreamByARN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const arn = "arn:aws:kinesis:eu-central-1:111122223333:stream/orders"
		server := kinesistest.New()
		server.Create(arn, 0).Add(kinesistest.Shard{Name: "a", Records: records(3, 1), Closed: true}, kinesistest.Shard{Name: "b"})
		server.PageSize = 1
		s := &stream.Stream{Client: server.Client(), Name: arn}
		if got, end := readAll(t.Context(), s, "a", ""); len(got) != 3 || !errors.Is(end, io.EOF) {
			t.Errorf("got %v, %v", got, end)
		}
		for _, op := range []string{"DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"} {
			for _, call := range server.Calls(op) {
				_, token := call.Fields["NextToken"]
				if address := call.Fields["StreamARN"]; (address == arn) == token || call.Fields["StreamName"] != nil {
					t.Errorf("%s has %v", op, call.Fields)
				}
			}
		}
	})
}

func ExampleStart_UnmarshalText() {
	var s stream.Start
	fmt.Println(s.UnmarshalText([]byte("shardId-000000000000=49,shardId-000000000001=50")), len(s.Sequence))
	// Output: <nil> 2
}
