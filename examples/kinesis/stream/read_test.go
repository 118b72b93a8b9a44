package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/examples/kinesis/internal/fakekinesis"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
)

// records returns n records of a size.
func records(n, size int) []fakekinesis.Record {
	all := make([]fakekinesis.Record, n)
	for i := range all {
		all[i] = fakekinesis.Record{Key: fmt.Sprint(i), Data: strings.Repeat("x", size)}
	}
	return all
}

// readAll reads until the end, and returns the error that ends it.
func readAll(ctx context.Context, s *stream.Stream, shard, after string) (sequences []string, end error) {
	for batch, err := range s.Read(ctx, shard, after, nil) {
		if err != nil {
			return sequences, err
		}
		for _, e := range batch.Entries {
			sequences = append(sequences, e.Sequence)
		}
	}
	return sequences, nil
}

// TestReadToTheEnd: a closed shard is read to its end from any checkpoint, and the end is
// reported once.
func TestReadToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakekinesis.New(fakekinesis.Shard{Name: "a", Records: records(25, 1), Closed: true})
		s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 10}
		for after, want := range map[string]int{"": 25, "7": 18, "25": 0} {
			got, end := readAll(t.Context(), s, "a", after)
			if len(got) != want || !errors.Is(end, io.EOF) {
				t.Errorf("after %q: %d records and %v, want %d and the end", after, len(got), end, want)
			}
		}
	})
}

// TestWhereAShardBegins: a shard begins at its checkpoint; without one where the group begins; and
// a child at its beginning.
func TestWhereAShardBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakekinesis.New(
			fakekinesis.Shard{Name: "parent", Closed: true},
			fakekinesis.Shard{Name: "child", Closed: true, Parents: []string{"parent"}},
			fakekinesis.Shard{Name: "orphan", Closed: true, Parents: []string{"older than the listing"}},
		)
		for _, c := range []struct {
			shard, after, want string
			begun              bool // whether the group begins at a time
		}{
			{"parent", "", "TRIM_HORIZON", false},
			{"child", "", "TRIM_HORIZON", false},
			{"parent", "", "AT_TIMESTAMP", true},
			{"child", "", "TRIM_HORIZON", true},
			{"orphan", "", "AT_TIMESTAMP", true},
			{"parent", "3", "AFTER_SEQUENCE_NUMBER", true},
			{"child", "3", "AFTER_SEQUENCE_NUMBER", false},
		} {
			s := &stream.Stream{Client: server.Client(), Name: "orders"}
			if c.begun {
				s.Start = time.Now()
			}
			for range s.Read(t.Context(), c.shard, c.after, nil) {
				break
			}
			calls := server.Calls("GetShardIterator")
			if got := calls[len(calls)-1].Fields["ShardIteratorType"]; got != c.want {
				t.Errorf("%+v: begins at %v", c, got)
			}
		}
	})
}

// gaps returns the times between requests.
func gaps(calls []fakekinesis.Call) []time.Duration {
	var all []time.Duration
	for i := 1; i < len(calls); i++ {
		all = append(all, calls[i].At.Sub(calls[i-1].At))
	}
	return all
}

// TestReadKeepsTheLimits: a reader makes at most four of the five reads a second and reads at most
// two megabytes a second, and makes few reads if there are no records.
func TestReadKeepsTheLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		size  int
		limit int
		want  []time.Duration
	}{
		{"behind", 1, 1, []time.Duration{time.Second / 4, time.Second / 4, time.Second}},
		{"two megabytes each", 2<<20 - 1, 1, []time.Duration{time.Second, time.Second, time.Second}},
		{"six megabytes", 2<<20 - 1, 3, []time.Duration{3 * time.Second, time.Second, time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fakekinesis.New(fakekinesis.Shard{Name: "a", Records: records(3, c.size)})
				s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: c.limit}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				n := 0
				for range s.Read(ctx, "a", "", nil) {
					if n++; n == 4 {
						break
					}
				}
				for i, got := range gaps(server.Calls("GetRecords")) {
					if got != c.want[i] {
						t.Errorf("gap %d is %v, want %v", i, got, c.want[i])
					}
				}
			})
		})
	}
}

// TestReadBacksOff: after faults that may pass, requests are repeated at growing intervals, and the
// shard is read to its end afterwards.
func TestReadBacksOff(t *testing.T) {
	for _, fault := range []fakekinesis.Fault{
		{Status: 400, Code: "ProvisionedThroughputExceededException"},
		{Status: 400, Code: "KMSThrottlingException"},
		{Status: 500, Code: "InternalFailureException"},
		{Status: 503},
	} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fakekinesis.New(fakekinesis.Shard{Name: "a", Records: records(3, 1), Closed: true})
				failures := 0
				server.Fail = func(op string) fakekinesis.Fault {
					if failures++; op != "GetRecords" || failures > 12 {
						return fakekinesis.Fault{}
					}
					return fault
				}
				s := &stream.Stream{Client: server.Client(), Name: "orders"}
				got, end := readAll(t.Context(), s, "a", "")
				if len(got) != 3 || !errors.Is(end, io.EOF) {
					t.Errorf("got %d records and %v", len(got), end)
				}
				pauses := gaps(server.Calls("GetRecords"))
				if first, last := pauses[0], pauses[8]; first > time.Second/5 || last < 5*time.Second || last > 10*time.Second {
					t.Errorf("the pauses are %v", pauses)
				}
			})
		})
	}
}

// TestSilenceIsNoEnd: a request that is never answered is cancelled and repeated.
func TestSilenceIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakekinesis.New(fakekinesis.Shard{Name: "a", Records: records(3, 1), Closed: true})
		silent := 3
		server.Silent = func(op string) bool { silent--; return op == "GetRecords" && silent >= 0 }
		got, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders"}, "a", "")
		if len(got) != 3 || !errors.Is(end, io.EOF) {
			t.Errorf("got %d records and %v", len(got), end)
		}
	})
}

// TestReadGivesUp: a request that would be refused again is not repeated.
func TestReadGivesUp(t *testing.T) {
	for _, code := range []string{"AccessDeniedException", "InvalidArgumentException", "KMSDisabledException"} {
		synctest.Test(t, func(t *testing.T) {
			server := fakekinesis.New(fakekinesis.Shard{Name: "a"})
			server.Fail = func(op string) fakekinesis.Fault {
				if op == "GetRecords" {
					return fakekinesis.Fault{Status: 400, Code: code}
				}
				return fakekinesis.Fault{}
			}
			_, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders"}, "a", "")
			if n := len(server.Calls("GetRecords")); n != 1 || end == nil || !strings.Contains(end.Error(), code) {
				t.Errorf("%s: %d requests, %v", code, n, end)
			}
		})
	}
}

// TestExpiredIterator: a reader that was busy for longer than an iterator lasts continues after its
// last record, and skips none.
func TestExpiredIterator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakekinesis.New(fakekinesis.Shard{Name: "a", Records: records(20, 1), Closed: true})
		s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 10}
		var got []string
		for batch, err := range s.Read(t.Context(), "a", "", nil) {
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range batch.Entries {
				got = append(got, e.Sequence)
			}
			<-time.After(6 * time.Minute)
		}
		if len(got) != 20 || got[10] != "11" {
			t.Errorf("got %v", got)
		}
		calls := server.Calls("GetShardIterator")
		if len(calls) != 2 || calls[1].Fields["StartingSequenceNumber"] != "10" {
			t.Errorf("asked for iterators: %v", calls)
		}
	})
}

// TestForgottenShard: a shard that Kinesis no longer has is at its end. A shard that it still lists
// is not at its end, nor is one whose stream is missing.
func TestForgottenShard(t *testing.T) {
	for _, c := range []struct {
		name       string
		fail       string // the operation that fails with ResourceNotFoundException
		forgotten  bool
		wantFinish bool
	}{
		{"forgotten while it is read", "", true, true},
		{"still listed", "GetRecords", false, false},
		{"the stream is gone", "ListShards", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fakekinesis.New(fakekinesis.Shard{Name: "a", Records: records(1, 1)}, fakekinesis.Shard{Name: "b"})
				s := &stream.Stream{Client: server.Client(), Name: "orders"}
				if _, err := s.Shards(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c.forgotten {
					server.Shards(fakekinesis.Shard{Name: "b"})
				}
				server.Fail = func(op string) fakekinesis.Fault {
					if op == c.fail {
						return fakekinesis.Fault{Status: 400, Code: "ResourceNotFoundException"}
					}
					return fakekinesis.Fault{}
				}
				_, end := readAll(t.Context(), s, "a", "")
				if errors.Is(end, io.EOF) != c.wantFinish || end == nil {
					t.Errorf("the read ends with %v", end)
				}
			})
		})
	}
}

// TestReadEndsWithItsContext: a read ends at once with its context, and returns the cause.
func TestReadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakekinesis.New(fakekinesis.Shard{Name: "a"})
		s := &stream.Stream{Client: server.Client(), Name: "orders", Idle: time.Hour}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("handed off")
		begun := time.Now()
		time.AfterFunc(90*time.Second, func() { cancel(cause) })
		_, end := readAll(ctx, s, "a", "")
		if took := time.Since(begun); !errors.Is(end, cause) || took != 90*time.Second {
			t.Errorf("the read ends with %v after %v", end, took)
		}
	})
}
