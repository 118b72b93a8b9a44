package shardlease_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A topic is a stream whose shards are split while it runs, as those of Kinesis are: a
// shard that is split ends, and two other shards continue it.
type topic struct {
	mu     sync.Mutex
	shards []shardlease.Shard
	ended  map[string]chan struct{}
}

func newTopic(shard string) *topic {
	return &topic{shards: []shardlease.Shard{{Name: shard}}, ended: map[string]chan struct{}{shard: make(chan struct{})}}
}

// Shards lists every shard that still exists, also those that have ended. It would return
// an error if it could not list them all, because a finished shard that is missing from two
// listings in a row is removed.
func (s *topic) Shards(context.Context) ([]shardlease.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shards), nil
}

// split ends a shard. Its children wait until it is finished.
func (s *topic) split(shard string, children ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, child := range children {
		s.shards = append(s.shards, shardlease.Shard{Name: child, Parents: []string{shard}})
		s.ended[child] = make(chan struct{})
	}
	close(s.ended[shard])
}

// end returns a channel that is closed when the shard has ended.
func (s *topic) end(shard string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[shard]
}

// handle stands for a handler that reads records.
func (s *topic) handle(ctx context.Context, t *shardlease.Tenure) error {
	fmt.Println(t.Shard().Name, "starts, parents:", t.Shard().Parents)
	select {
	case <-s.end(t.Shard().Name):
		return t.Finish(t.Context()) // now its children may start
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A source lists shards that are split while a worker runs.
func ExampleSource() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	stream, ended := newTopic("1"), 0
	worker, err := shardlease.New(new(memstore.Store), stream, shardlease.Config{
		Group: "orders", Handoff: rebalance.Eager,
		PollEvery: 100 * time.Millisecond, // the interval at which the source is listed; the default is 30 s
		Observe: func(e event.Event) {
			switch {
			case e.Kind == event.Started && e.Shard == "1":
				stream.split("1", "2", "3")
			case e.Kind == event.Started:
				stream.split(e.Shard) // the shard ends, and has no children
			case e.Kind == event.Ended:
				if ended++; ended == 3 {
					stop()
				}
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Run(ctx, stream.handle))
	// Unordered output:
	// 1 starts, parents: []
	// 2 starts, parents: [1]
	// 3 starts, parents: [1]
	// <nil>
}
