package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// records returns n records of a size.
func records(n, size int) []kinesistest.Record {
	all := make([]kinesistest.Record, n)
	for i := range all {
		all[i] = kinesistest.Record{Key: fmt.Sprint(i), Data: bytes.Repeat([]byte("x"), size)}
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
		server := newFake(kinesistest.Shard{Name: "a", Records: records(25, 1), Closed: true})
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
		server := newFake(
			kinesistest.Shard{Name: "parent", Closed: true},
			kinesistest.Shard{Name: "child", Closed: true, Parents: []string{"parent"}},
			kinesistest.Shard{Name: "orphan", Closed: true, Parents: []string{"older than the listing"}},
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
func gaps(calls []kinesistest.Call) []time.Duration {
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
				server := newFake(kinesistest.Shard{Name: "a", Records: records(3, c.size)})
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
	for _, fault := range []error{
		code("ProvisionedThroughputExceededException"),
		code("KMSThrottlingException"),
		&types.InternalFailureException{Message: new("oops")},
		&smithy.GenericAPIError{Code: "Unknown", Fault: smithy.FaultServer},
	} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1), Closed: true})
				server.Fail("GetRecords", fault, 9)
				s := &stream.Stream{Client: server.Client(), Name: "orders"}
				records, throttles := 0, 0
				var end error
				for batch, err := range s.Read(t.Context(), "a", "", nil) {
					records, throttles, end = records+len(batch.Entries), throttles+batch.Throttles, err
				}
				if records != 3 || !errors.Is(end, io.EOF) {
					t.Errorf("got %d records and %v", records, end)
				}
				throttled := strings.Contains(fault.Error(), "Through") || strings.Contains(fault.Error(), "Throttling")
				if throttled && throttles != 9 || !throttled && throttles != 0 {
					t.Errorf("%d throttles are counted of 9 failures", throttles)
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
		server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1), Closed: true})
		server.Fail("GetRecords", kinesistest.ErrSilence, 3)
		got, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders"}, "a", "")
		if len(got) != 3 || !errors.Is(end, io.EOF) {
			t.Errorf("got %d records and %v", len(got), end)
		}
	})
}

// TestReadGivesUp: a request that would be refused again is not repeated.
func TestReadGivesUp(t *testing.T) {
	for _, refused := range []string{"InvalidArgumentException", "ValidationException"} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(kinesistest.Shard{Name: "a"})
			server.Fail("GetRecords", code(refused), -1)
			_, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders"}, "a", "")
			if n := len(server.Calls("GetRecords")); n != 1 || end == nil || !strings.Contains(end.Error(), refused) {
				t.Errorf("%s: %d requests, %v", refused, n, end)
			}
		})
	}
}

// TestExpiredIterator: a reader that was busy for longer than an iterator lasts continues after its
// last record, and skips none.
func TestExpiredIterator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Records: records(30, 1), Closed: true})
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
		if len(got) != 30 || got[20] != "21" {
			t.Errorf("got %v", got)
		}
		calls := server.Calls("GetShardIterator")
		if len(calls) != 2 || calls[1].Fields["StartingSequenceNumber"] != "20" {
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
				server := newFake(kinesistest.Shard{Name: "a", Records: records(1, 1)}, kinesistest.Shard{Name: "b"})
				s := &stream.Stream{Client: server.Client(), Name: "orders"}
				if _, err := s.Shards(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c.forgotten {
					server.Forget("a")
				}
				server.Fail(c.fail, code("ResourceNotFoundException"), -1)
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
		server := newFake(kinesistest.Shard{Name: "a"})
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

// TestOneAnswerIsReadAhead: while the consumer uses one answer, the next one is read, and no other.
func TestOneAnswerIsReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Records: records(40, 1), Closed: true})
		s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 10}
		batches := 0
		for batch, err := range s.Read(t.Context(), "a", "", nil) {
			if errors.Is(err, io.EOF) {
				break
			}
			time.Sleep(time.Minute)
			batches++
			if want, got := min(batches+1, 4), len(server.Calls("GetRecords")); got != want || len(batch.Entries) != 10 {
				t.Errorf("%d reads while batch %d of %d entries is used, want %d", got, batches, len(batch.Entries), want)
			}
		}
	})
}

// TestReadAheadReturnsItsMemory: a consumer that leaves, or whose context ends, gets the memory back
// of the answer that was read ahead, and no goroutine stays.
func TestReadAheadReturnsItsMemory(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(kinesistest.Shard{Name: "a", Records: records(40, 1)})
			memory := new(stream.Memory)
			room := memory.Room()
			s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 10}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for batch, err := range s.Read(ctx, "a", "", room) {
				for _, e := range batch.Entries {
					room.Give(e.Bytes)
				}
				if err == nil && batch.Bytes != 20 { // a byte of data and one of the key of each record
					t.Errorf("an answer of ten records has %d bytes", batch.Bytes)
				}
				time.Sleep(time.Minute)
				if !cancelled {
					break
				}
				cancel()
			}
			if used := memory.Used(); used != 0 {
				t.Errorf("%d bytes are still in use", used)
			}
		})
	}
}

// TestPanicOfTheCaller: a panic of the caller leaves no goroutine of the reader behind.
func TestPanicOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Records: records(40, 1)})
		s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 10}
		defer func() {
			if recover() == nil {
				t.Error("the panic of the caller was lost")
			}
		}()
		for range s.Read(t.Context(), "a", "", nil) {
			panic("the handler")
		}
	})
}

// TestPanicOfAReadIsItsError: a panic of the client ends the reading with an error, and not the process.
func TestPanicOfAReadIsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a"})
		server.Empty = func() bool { panic("the client") }
		_, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders"}, "a", "")
		if end == nil || !strings.Contains(end.Error(), "panic: the client") {
			t.Errorf("the read ends with %v", end)
		}
	})
}

// TestLargestRecord: a record of 10 MiB is read with the default memory, and the next request waits
// for the five seconds for which it blocks the shard.
func TestLargestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := append(records(1, 10<<20), records(1, 1)...)
		server := newFake(kinesistest.Shard{Name: "a", Records: all, Closed: true})
		s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 1}
		room, sizes := new(stream.Memory).Room(), []int(nil)
		for batch := range s.Read(t.Context(), "a", "", room) {
			for _, e := range batch.Entries {
				sizes = append(sizes, len(e.Records[0].Data))
				room.Give(e.Bytes)
			}
		}
		if len(sizes) != 2 || sizes[0] != 10<<20 {
			t.Errorf("read records of %v bytes", sizes)
		}
		if gap := gaps(server.Calls("GetRecords"))[0]; gap < 5*time.Second {
			t.Errorf("the next request was sent after %v", gap)
		}
	})
}
