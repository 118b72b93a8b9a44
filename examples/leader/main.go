// Leader elects a leader: the candidate that holds the lease "leader" leads. Observers print who leads.
// Try it in four terminals:
//
//	go run ./examples/leader sink                           # what leaders write to
//	go run ./examples/leader candidate -file /tmp/leases -name one
//	go run ./examples/leader candidate -file /tmp/leases -name two
//	go run ./examples/leader observer  -file /tmp/leases
//
// End the leader with ^C: it releases its lease, and the other candidate leads at once. Kill the leader,
// or pause it with ^Z: the other candidate leads after the lease time. Continue the paused leader with fg:
// it can do no harm, because the sink refuses its token, and it stops leading.
//
// With the flag -listen, a candidate answers requests in the name of the leader, after a confirmed read of the lease:
//
//	go run ./examples/leader candidate -file /tmp/leases -name three -listen localhost:8081
//	curl localhost:8081
//
// A candidate may believe that it leads until the context of its tenure ends. It may be wrong: a process
// that was paused does not know that. So each effect carries the fencing token, and the sink compares the
// token.
//
// An observer knows who led when it read the row. That may have changed before the observer prints it, and
// the row of a dead leader stays until a candidate notices the death. Show what an observer knows to people,
// or use it to choose where to send a request first. Never write to the sink because of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/internal/ledger"
	"github.com/shardlease/shardlease-go/examples/internal/table"
	"github.com/shardlease/shardlease-go/shardlease"
)

const usage = "usage: leader candidate|observer|sink [flags]"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	f := flag.NewFlagSet("leader "+args[0], flag.ContinueOnError)
	var leases table.Flags
	leases.Define(f)
	name := f.String("name", "", "the `NAME` of this candidate, for people")
	ttl := f.Duration("ttl", 0, "the lease time; 0: the default")
	listen := f.String("listen", "", "the `ADDRESS` at which this candidate answers while it leads; empty: nowhere")
	sink := f.String("sink", "http://localhost:8080", "the `URL` of the sink")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "sink" {
		return ledger.Serve(ctx, "localhost:8080", os.Stdout)
	}
	store, err := leases.Open(ctx, group)
	if err != nil {
		return err
	}
	session, err := shardlease.NewSession(store, shardlease.SessionConfig{Group: group, Name: *name, TTL: *ttl, Order: checkpoint.Decimal})
	if err != nil {
		return err
	}
	switch args[0] {
	case "candidate":
		c := candidate{session: session, sink: *sink, pause: time.Second / 5, listen: *listen}
		return c.run(ctx)
	case "observer":
		return observe(ctx, session)
	}
	return errors.New(usage)
}
