package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestIteratorsThatExpireAtOnce: if the iterators of a service expire at once, the reader sends
// requests at growing intervals, and logs this. Before, a minute of it was 300 requests for
// iterators and 300 reads, and no line in the log.
func TestIteratorsThatExpireAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1), Closed: true})
		server.Fail("GetRecords", code("ExpiredIteratorException"), -1)
		time.AfterFunc(time.Minute, func() { server.Fail("GetRecords", nil, 0) })
		var log bytes.Buffer
		s := &stream.Stream{Client: server.Client(), Name: "orders", Logger: slog.New(slog.NewTextHandler(&log, nil))}
		got, end := readAll(t.Context(), s, "a", "")
		if len(got) != 3 || !errors.Is(end, io.EOF) {
			t.Errorf("got %d records and %v", len(got), end)
		}
		lines := bytes.Count(log.Bytes(), []byte("ExpiredIteratorException"))
		if n := len(server.Calls("GetRecords")); n > 20 || lines != n-1 {
			t.Errorf("%d reads and %d lines in the log", n, lines)
		}
	})
}

// entries returns two plain entries with an entry of 10 packed records between them.
func entries() []kinesistest.Record {
	var packed []kpl.Record
	for i := range 10 {
		packed = append(packed, kpl.Record{Key: "k", Data: fmt.Sprint(i)})
	}
	return []kinesistest.Record{{Key: "k", Data: []byte("before")}, {Key: "k", Data: kpl.Pack(packed...)}, {Key: "k", Data: []byte("behind")}}
}

// TestPositionWithinAnEntry: from a checkpoint at one of the records that the KPL has packed into
// an entry, reading continues at the next record. Before, there was no such position: after a
// checkpoint of the Kinesis Client Library at the third of ten records, 7 records were skipped.
func TestPositionWithinAnEntry(t *testing.T) {
	for after, want := range map[string]string{
		"":             "before 0 1 2 3 4 5 6 7 8 9 behind",
		"TRIM_HORIZON": "before 0 1 2 3 4 5 6 7 8 9 behind",
		"1":            "0 1 2 3 4 5 6 7 8 9 behind",
		"1/0":          "0 1 2 3 4 5 6 7 8 9 behind", // the KCL's checkpoint of a plain entry
		"2/0":          "1 2 3 4 5 6 7 8 9 behind",
		"2/2":          "3 4 5 6 7 8 9 behind",
		"2/9":          "behind",
		"2":            "behind",
		"3":            "",
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(kinesistest.Shard{Name: "a", Records: entries(), Closed: true})
			s := &stream.Stream{Client: server.Client(), Name: "orders"}
			var got []byte
			for batch, err := range s.Read(t.Context(), "a", after, nil) {
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range batch.Entries {
					for _, r := range e.Records {
						got = fmt.Appendf(got, " %s", r.Data)
					}
				}
			}
			if string(bytes.TrimSpace(got)) != want {
				t.Errorf("after %q: got%s, want %s", after, got, want)
			}
		})
	}
}

// TestRedeliveredEntries: entries or parts of entries that a server repeats are left out.
func TestRedeliveredEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := records(25, 1)
		for i := 4; i < 25; i += 5 { // entries whose keys all belong to other shards
			all[i].Data = kpl.Pack()
		}
		server := newFake(kinesistest.Shard{Name: "a", Records: all, Closed: true})
		server.Redeliver = 4
		got, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders", Limit: 10}, "a", "3")
		if len(got) != 22 || !slices.IsSortedFunc(got, func(a, b string) int { n, _ := stream.Order(a, b); return n }) || !errors.Is(end, io.EOF) {
			t.Errorf("got %v and %v", got, end)
		}
	})
}

// TestPositionOrder: positions sort as their records do, and invalid positions are refused.
func TestPositionOrder(t *testing.T) {
	ascending := []string{"TRIM_HORIZON", "0", "9/0", "9/2", "9/10", "9", "10/0", "10", "00011", "149680432012421693192906901846246322160952532893572268034/7"}
	for i, a := range ascending {
		for j, b := range ascending {
			got, err := stream.Order(a, b)
			if want := min(max(i-j, -1), 1); err != nil || got != want {
				t.Errorf("%s and %s: %d, %v, want %d", a, b, got, err, want)
			}
		}
	}
	for _, bad := range []string{"x", "1/", "/1", "1/-1", "1/x", "1/2/3", "1/99999999999", "latest"} {
		if _, err := stream.Order(bad, "1"); err == nil {
			t.Errorf("%q is accepted as a position", bad)
		}
	}
}

// TestImportedStarts: the word that an import leaves for an unread shard decides where the shard
// begins, and Start does not override TRIM_HORIZON.
func TestImportedStarts(t *testing.T) {
	for after, want := range map[string]string{"TRIM_HORIZON": "TRIM_HORIZON", "LATEST": "AT_TIMESTAMP", "AT_TIMESTAMP": "AT_TIMESTAMP"} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(kinesistest.Shard{Name: "parent", Closed: true}, kinesistest.Shard{Name: "a", Parents: []string{"parent"}})
			s := &stream.Stream{Client: server.Client(), Name: "orders", Start: time.Now()}
			for range s.Read(t.Context(), "a", after, nil) {
				break
			}
			calls := server.Calls("GetShardIterator")
			if got := calls[len(calls)-1].Fields["ShardIteratorType"]; got != want {
				t.Errorf("%s begins at %v, want %s", after, got, want)
			}
		})
	}
}

// TestMemoryIsBounded: the bytes that are read and not returned stay within the bounds, for any
// number of shards, and everything is read when they are returned. Before, the bound was 1,000
// entries per shard, up to 1 GB: four shards of 25 entries of 1 MB were read completely.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards, each, mb = 4, 25, 1 << 20
		var all []kinesistest.Shard
		for i := range shards {
			all = append(all, kinesistest.Shard{Name: fmt.Sprint("s", i), Records: records(each, mb), Closed: true})
		}
		server := newFake(all...)
		s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 8}
		memory := &stream.Memory{PerShard: 20 * mb, Total: 40 * mb}
		reads, done := make(chan stream.Entry, shards*each), make(chan int, shards)
		var rooms []*stream.Room
		for _, shard := range all {
			room := memory.Room()
			rooms = append(rooms, room)
			go func() {
				n := 0
				for batch := range s.Read(t.Context(), shard.Name, "", room) {
					for _, e := range batch.Entries {
						n++
						reads <- e
					}
				}
				done <- n
			}()
		}
		time.Sleep(time.Minute) // no bytes are returned
		if used := memory.Used(); used > 40*mb || len(reads) < 20 || len(reads) > 40 {
			t.Errorf("%d MB in use, %d entries of 1 MB were read", used/mb, len(reads))
		}
		var total int
		for range shards {
			for waiting := true; waiting; {
				select {
				case e := <-reads:
					var i int
					_, _ = fmt.Sscanf(e.Records[0].Shard, "s%d", &i)
					rooms[i].Give(e.Bytes)
				case n := <-done:
					total, waiting = total+n, false
				}
			}
		}
		if total != shards*each {
			t.Errorf("%d entries, want %d", total, shards*each)
		}
		for len(reads) > 0 {
			<-reads
		}
		for _, room := range rooms {
			room.Close()
		}
		if used := memory.Used(); used != 0 {
			t.Errorf("%d bytes are still in use", used)
		}
	})
}

// TestMemoryOfOneShard: a shard whose records are not returned is limited by its own bound, and
// leaves room for the others.
func TestMemoryOfOneShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mb = 1 << 20
		server := newFake(kinesistest.Shard{Name: "stuck", Records: records(25, mb), Closed: true},
			kinesistest.Shard{Name: "other", Records: records(25, mb), Closed: true})
		s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 5}
		memory := &stream.Memory{PerShard: 20 * mb, Total: 40 * mb}
		ctx, stop := context.WithCancel(t.Context())
		stuck, ended := 0, make(chan error)
		go func() {
			var end error
			for batch, err := range s.Read(ctx, "stuck", "", memory.Room()) {
				stuck, end = stuck+len(batch.Entries), err
			}
			ended <- end
		}()
		room, n := memory.Room(), 0
		for batch := range s.Read(ctx, "other", "", room) {
			for _, e := range batch.Entries {
				room.Give(e.Bytes)
				n++
			}
		}
		stop()
		if end := <-ended; n != 25 || stuck < 10 || stuck > 20 || !errors.Is(end, context.Canceled) {
			t.Errorf("%d records of the other shard, %d MB of the one that is stuck, which ends with %v", n, stuck, end)
		}
	})
}

// TestOmittedShardIsNoEnd: a shard that no listing has, but that Kinesis confirms when it is
// requested, is not at its end: it is read when a listing has it again. Before, its reader ended
// at once, as if the shard had expired.
func TestOmittedShardIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1), Closed: true}, kinesistest.Shard{Name: "b"})
		healed := time.Now().Add(time.Minute)
		server.Omit = func(name string) bool { return name == "a" && time.Now().Before(healed) }
		begun := time.Now()
		got, end := readAll(t.Context(), &stream.Stream{Client: server.Client(), Name: "orders"}, "a", "")
		if took := time.Since(begun); len(got) != 3 || !errors.Is(end, io.EOF) || took < time.Minute || took > 75*time.Second {
			t.Errorf("got %d records and %v after %v", len(got), end, took)
		}
	})
}

// TestRecreatedStreamWhileItIsRead: a stream that is deleted and created again under its name does
// not have the shards of the old stream, but these are not at their end. Before, the reader ended
// as if the shard had expired, and the shard was finished.
func TestRecreatedStreamWhileItIsRead(t *testing.T) {
	for name, again := range map[string][]kinesistest.Shard{
		"without the shard": {{Name: "c"}},
		"with the shard":    {{Name: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFake(kinesistest.Shard{Name: "a", Records: records(3, 1)})
				s := &stream.Stream{Client: server.Client(), Name: "orders"}
				time.AfterFunc(30*time.Second, func() { server.recreate(again...) })
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				got, end := readAll(ctx, s, "a", "")
				if len(got) != 3 || !errors.Is(end, stream.ErrRecreated) {
					t.Errorf("got %d records and %v", len(got), end)
				}
				time.Sleep(2 * time.Minute)
				if _, err := s.Shards(t.Context()); !errors.Is(err, stream.ErrRecreated) {
					t.Errorf("the next listing: %v", err)
				}
			})
		})
	}
}

// TestRecreatedStreamIsListed: a listing detects another stream at once if a shard is missing, and
// within a minute otherwise. A reader that begins then ends with the error, without repeating its
// requests.
func TestRecreatedStreamIsListed(t *testing.T) {
	for after, next := range map[time.Duration]string{time.Second: "c", 2 * time.Minute: "a"} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(kinesistest.Shard{Name: "a"})
			s := &stream.Stream{Client: server.Client(), Name: "orders"}
			if _, err := s.Shards(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			server.recreate(kinesistest.Shard{Name: next})
			if shards, err := s.Shards(t.Context()); !errors.Is(err, stream.ErrRecreated) {
				t.Errorf("after %v: listed %v, %v", after, shards, err)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			if _, end := readAll(ctx, s, "new", ""); !errors.Is(end, stream.ErrRecreated) {
				t.Errorf("after %v: a reader ends with %v", after, end)
			}
		})
	}
}
