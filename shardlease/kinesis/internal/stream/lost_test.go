package stream_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// TestLostRecords: a group that comes back when records after its position have expired is told so
// once. A position that has not expired, and a shard in which nothing was put, are no loss.
func TestLostRecords(t *testing.T) {
	for name, c := range map[string]struct {
		trimmed int           // of ten records
		age     time.Duration // of the records
		after   string
		want    int
	}{
		"position expired":         {6, 23 * time.Hour, "3", 1},
		"position left":            {2, 23 * time.Hour, "3", 0},
		"new group":                {6, 23 * time.Hour, "", 0},
		"nothing was put for days": {6, time.Minute, "6", 0},
		"within an entry":          {6, 23 * time.Hour, "3/1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := records(10, 1)
				for i := range all {
					all[i].Sequence, all[i].Arrived = fmt.Sprint(i+1), time.Now().Add(-c.age)
				}
				server := newFake(kinesistest.Shard{Name: "a", Records: all[c.trimmed:], Closed: true})
				empty := 0
				server.Empty = func() bool { empty++; return empty%3 == 1 }
				s := &stream.Stream{Client: server.Client(), Name: "orders", Limit: 2}
				lost := 0
				for batch, err := range s.Read(t.Context(), "a", c.after, nil) {
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if batch.Lost {
						lost++
					}
					if batch.Retention != 24*time.Hour {
						t.Errorf("the retention is %v", batch.Retention)
					}
				}
				if lost != c.want {
					t.Errorf("told of a loss %d times, want %d", lost, c.want)
				}
			})
		})
	}
}

// TestExpiredShardIsLost: the end of a shard that expired before it was read to its end is a loss.
func TestExpiredShardIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Records: records(1, 1)}, kinesistest.Shard{Name: "b"})
		s := &stream.Stream{Client: server.Client(), Name: "orders"}
		time.AfterFunc(time.Minute, func() { server.Forget("a") })
		lost := 0
		for batch, err := range s.Read(t.Context(), "a", "", nil) {
			if batch.Lost {
				lost++
			}
			if err != nil && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		if lost != 1 {
			t.Errorf("told of a loss %d times, want 1", lost)
		}
	})
}

// TestRetentionIsRefreshed: readers find out that the retention has changed, with one request for all.
func TestRetentionIsRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a"}, kinesistest.Shard{Name: "b"})
		s := &stream.Stream{Client: server.Client(), Name: "orders"}
		done := make(chan time.Duration)
		for _, shard := range []string{"a", "b"} {
			go func() {
				begun := time.Now()
				for batch := range s.Read(t.Context(), shard, "", nil) {
					if time.Since(begun) > 16*time.Minute {
						done <- batch.Retention
						return
					}
				}
			}()
		}
		time.Sleep(time.Minute)
		server.SetRetention(48 * time.Hour)
		for range 2 {
			if got := <-done; got != 48*time.Hour {
				t.Errorf("the retention is %v", got)
			}
		}
		if n := len(server.Calls("DescribeStreamSummary")); n > 3 {
			t.Errorf("%d descriptions in 16 minutes", n)
		}
	})
}
