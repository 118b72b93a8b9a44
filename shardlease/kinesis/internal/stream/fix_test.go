package stream_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestStartIsFixed: where the first worker begins, the group begins for good. A worker with another Start is not refused:
// a program may compute the time. It logs that its Start has no effect.
func TestStartIsFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		at := time.Now().Add(-time.Minute)
		server := newFake(kinesistest.Shard{Name: "a", Records: records(5, 1), Closed: true, ClosedAt: time.Now().Add(-30 * time.Second)})
		for name, first := range map[string]stream.Start{
			"oldest": {}, "latest": {Latest: true}, "time": {At: at}, "sequence": {Sequence: map[string]string{"a": "3"}},
		} {
			store, was := new(memstore.Store), ""
			for other, start := range map[string]stream.Start{
				name: first, "later": {At: time.Now().Add(time.Second)}, "oldest": {}, "latest": {Latest: true}, "sequence": {Sequence: map[string]string{"a": "5"}},
			} {
				if other == "sequence" && name == other {
					continue
				}
				var log bytes.Buffer
				begin := func(start stream.Start) *stream.Stream {
					s := &stream.Stream{Client: server.Client(), Name: "orders", Logger: slog.New(slog.NewTextHandler(&log, nil))}
					if err := s.Begin(t.Context(), store, "g", start); err != nil {
						t.Fatal(err)
					}
					return s
				}
				begin(first)
				log.Reset()
				time.Sleep(time.Minute)
				s := begin(start)
				got, _ := readAll(t.Context(), s, "a", "")
				if text := s.Start.String() + strings.Join(got, " "); was != "" && text != was {
					t.Errorf("begun at %s, then %s: %s, and was %s", name, other, text, was)
				} else {
					was = text
				}
				same := name == other || other == "latest" && name == "time" // a time may be that of a latest record
				if told := strings.Contains(log.String(), "no effect"); told == same {
					t.Errorf("begun at %s, then %s, logged: %s", name, other, log.String())
				}
			}
			if name == "sequence" && was != (time.Time{}).String()+"3 4 5" {
				t.Errorf("begun at a sequence number: %s", was)
			}
		}
	})
}

// TestImportedGroupHasClosedShards: a group that has leases before its first worker begins was imported. Its listings have
// the shards that were closed before Start, because it may not have read them to their end.
func TestImportedGroupHasClosedShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := time.Now()
		time.Sleep(time.Hour)
		server := newFake(kinesistest.Shard{Name: "a", Records: records(5, 1), Closed: true, ClosedAt: closed},
			kinesistest.Shard{Name: "b", Parents: []string{"a"}, Records: records(5, 1), Closed: true, ClosedAt: closed},
			kinesistest.Shard{Name: "c", Parents: []string{"b"}})
		for imported, want := range map[bool]int{true: 3, false: 1} {
			store := new(memstore.Store)
			if imported {
				fixture.Must[lease.Row](t, store)(protocol.Begin("g", "a", nil, "import", fixture.Stamp()))
			}
			for range 2 {
				s := &stream.Stream{Client: server.Client(), Name: "orders"}
				if err := s.Begin(t.Context(), store, "g", stream.Start{Latest: true}); err != nil {
					t.Fatal(err)
				}
				if listed, err := s.Shards(t.Context()); err != nil || len(listed) != want {
					t.Errorf("imported %t: listed %v, %v", imported, listed, err)
				}
				if got, end := readAll(t.Context(), s, "b", ""); imported && len(got) != 5 || !errors.Is(end, io.EOF) {
					t.Errorf("imported %t: the child has %v, %v", imported, got, end)
				}
				time.Sleep(time.Minute)
			}
		}
	})
}

// A door changes answers of a server.
type door struct {
	*kinesistest.Server
	change func(op string, answer *http.Response)
}

func (d door) Do(r *http.Request) (*http.Response, error) {
	answer, err := d.Server.Do(r)
	if err == nil {
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		d.change(op, answer)
	}
	return answer, err
}

// TestEmptyAnswersEndNoShard: an answer without anything in it lacks the next iterator too. An open shard is read on, and a
// closed one to its end. Nor does such an answer to another request end a reader, or the process.
func TestEmptyAnswersEndNoShard(t *testing.T) {
	for _, op := range []string{"GetRecords", "GetShardIterator", "ListShards", "DescribeStreamSummary"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1)})
				healed := time.Now().Add(time.Minute)
				client := kinesis.New(server.Client().Options(), func(o *kinesis.Options) {
					o.HTTPClient = door{server.Server, func(of string, answer *http.Response) {
						if of == op && time.Now().Before(healed) {
							answer.Body = io.NopCloser(strings.NewReader("{}"))
						}
					}}
				})
				time.AfterFunc(2*time.Minute, func() {
					server.PutTo("a", "k", []byte("late"))
					server.Split("a")
				})
				s := &stream.Stream{Client: client, Name: "orders"}
				if err := s.Begin(t.Context(), new(memstore.Store), "g", stream.Start{}); (err != nil) != (op == "DescribeStreamSummary") {
					t.Error(err)
				}
				if got, end := readAll(t.Context(), s, "a", ""); len(got) != 4 || !errors.Is(end, io.EOF) {
					t.Errorf("got %v, %v", got, end)
				}
			})
		})
	}
}

// TestBriefAbsenceIsNoEnd: what Kinesis knows of a shard may be late in one of its places. Only a shard that it does not have
// for a while has expired.
func TestBriefAbsenceIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1), Closed: true}, kinesistest.Shard{Name: "b"})
		away := func() bool {
			d := time.Since(begun)
			return d < 30*time.Second || d > time.Minute && d < 100*time.Second
		}
		server.Omit = func(name string) bool { return name == "a" && away() }
		server.Intercept = func(c kinesistest.Call) error {
			if c.Shard == "a" && away() {
				return code("ResourceNotFoundException")
			}
			if c.Op == "GetRecords" && time.Since(begun) < 70*time.Second {
				return code("ProvisionedThroughputExceededException")
			}
			return nil
		}
		s := &stream.Stream{Client: server.Client(), Name: "orders"}
		if got, end := readAll(t.Context(), s, "a", ""); len(got) != 3 || !errors.Is(end, io.EOF) {
			t.Errorf("got %v, %v", got, end)
		}
	})
}
