package stream_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// A push sends empty events until it fails.
type push struct{ fail chan error }

func (p *push) Ready(context.Context) bool { return true }
func (p *push) Failed(error)               {}
func (p *push) Subscribe(ctx context.Context, _ string, _ types.StartingPosition) iter.Seq2[stream.Answer, error] {
	return func(yield func(stream.Answer, error) bool) {
		for {
			select {
			case err := <-p.fail:
				yield(stream.Answer{}, err)
				return
			case <-ctx.Done():
				yield(stream.Answer{}, context.Cause(ctx))
				return
			case <-time.After(5 * time.Second):
				if !yield(stream.Answer{}, nil) {
					return
				}
			}
		}
	}
}

// TestAbsentShardThatWasPushed: a shard that Kinesis did not have for a moment, and has again, is not at its end when
// Kinesis does not have it for a moment much later, also if it was not polled in between.
func TestAbsentShardThatWasPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "b"})
		s := &stream.Stream{Client: server.Client(), Name: "orders"}
		there := kinesistest.Shard{Name: "a", Records: records(3, 1)}
		p := &push{fail: make(chan error, 1)}
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Hour)
		defer stop()
		time.AfterFunc(10*time.Second, func() { server.Add(there) }) // Kinesis hears late of it
		time.AfterFunc(time.Hour, func() {
			server.Forget("a")
			p.fail <- errors.New("the subscription fails")
		})
		time.AfterFunc(time.Hour+20*time.Second, func() { server.Add(there) })
		got := 0
		for batch, err := range s.Follow(ctx, "a", "", nil, p) {
			if got += len(batch.Entries); got == 3 {
				return
			}
			if errors.Is(err, io.EOF) {
				t.Fatalf("the shard is at its end after %d records", got)
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestListingAfterAnAbsence: a shard that Kinesis did not have for a moment, and has again, is missed by later listings
// that leave it out.
func TestListingAfterAnAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "b"})
		s := &stream.Stream{Client: server.Client(), Name: "orders"}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		time.AfterFunc(10*time.Second, func() { server.Add(kinesistest.Shard{Name: "a", Records: records(3, 1)}) })
		for batch := range s.Read(ctx, "a", "", nil) {
			if len(batch.Entries) > 0 {
				break
			}
		}
		if all, err := s.Shards(ctx); err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		server.Omit = func(shard string) bool { return shard == "a" }
		if all, err := s.Shards(ctx); !errors.Is(err, stream.ErrPartial) {
			t.Errorf("listed %v, %v", all, err)
		}
	})
}
