// Consumer is the smallest complete consumer: it reads the shards of a stream, marks its
// progress, and finishes each shard at its end. Stream and lease table are in memory. The
// function consume contains all of it.
//
//	go run ./examples/consumer
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// consume is the program in the README.
func consume(ctx context.Context, store lease.Store, stream *stream, out *log.Logger) error {
	w, err := shardlease.New(store, shardlease.Static("shard-0", "shard-1"),
		shardlease.Config{Group: "orders", Handoff: rebalance.Cooperative})
	if err != nil {
		return err
	}
	return w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		for rec, err := range stream.read(ctx, t.Shard().Name, t.Checkpoint().Position) {
			if errors.Is(err, io.EOF) {
				return t.Finish(t.Context()) // the shard itself has ended
			}
			if err != nil {
				return err // no failure if ctx has ended: the handler should wind down
			}
			out.Println(t.Shard().Name, rec.text)
			if err := t.Mark(rec.position); err != nil {
				return err
			}
		}
		return nil
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

// run consumes a stream to its end, and then prints the lease rows.
func run(ctx context.Context, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	orders := newStream(map[string][]string{
		"shard-0": {"apples", "bread", "cheese", "dates"},
		"shard-1": {"eggs", "figs", "grapes"},
	}, stop) // a worker would wait for new shards; this stream will have none
	store := new(memstore.Store) // in production: dynamostore.Open
	if err := consume(ctx, store, orders, log.New(out, "", 0)); err != nil {
		return err
	}
	rows, err := shardlease.Supervisor{Store: store, Group: "orders"}.List(context.WithoutCancel(ctx))
	for _, row := range rows {
		fmt.Fprintf(out, "%s: finished %t, checkpoint %s\n", row.Shard, row.Finished, row.Checkpoint.Position)
	}
	return err
}
