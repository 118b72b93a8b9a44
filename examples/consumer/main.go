// Consumer is the smallest whole consumer: it reads the shards of a stream, says
// how far it has come, and finishes each shard at its end. The stream and the lease
// table are in memory.
//
//	go run ./examples/consumer
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run consumes the stream to its end.
func run(ctx context.Context, out io.Writer) error {
	orders := &stream{records: map[string][]string{
		"shard-0": {"apples", "bread", "cheese"},
		"shard-1": {"dates", "eggs"},
	}}
	return consume(ctx, orders, out)
}

// consume is what the README shows. A real program keeps the table in DynamoDB, has
// a Source that asks the stream for its shards, and runs until it is told to stop.
func consume(ctx context.Context, stream *stream, out io.Writer) error {
	store, shards := new(memstore.Store), shardlease.Static("shard-0", "shard-1")
	w, err := shardlease.New(store, shards, shardlease.Config{Group: "orders", Handoff: rebalance.Cooperative})
	if err != nil {
		return err
	}
	return w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		for rec, err := range stream.Read(t.Reading(), t.Shard().Name, t.Checkpoint().Position) {
			if errors.Is(err, io.EOF) {
				return t.Finish(ctx) // the shard itself has ended
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(out, rec)
			t.Mark(rec)
		}
		return nil
	})
}

var _ = atomic.Int32{}
var _ = time.Second
type stream struct{ records map[string][]string }
func (s *stream) Read(ctx context.Context, shard, after string) func(func(string, error) bool) {
	return func(yield func(string, error) bool) {
		for _, r := range s.records[shard] {
			if !yield(r, nil) { return }
		}
		yield("", io.EOF)
	}
}
