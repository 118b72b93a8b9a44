// Leader elects a leader: the candidate that holds the lease "leader" leads. Observers follow who leads.
// Try it in four terminals:
//
//	go run ./examples/leader sink                           # what leaders write to
//	go run ./examples/leader candidate -file /tmp/leases -name one
//	go run ./examples/leader candidate -file /tmp/leases -name two
//	go run ./examples/leader observer  -file /tmp/leases
//
// End the leader with ^C: it releases its lease, and the other candidate leads at once. Kill the leader,
// or pause it with ^Z: the other candidate leads after the lease time. Continue the paused one with fg:
// it stops leading before it can do harm, because the sink refuses its token.
//
// What a candidate may believe: "I lead" is true until the context of its tenure ends, as far as it can
// know. A process that was paused does not know that it was. So each effect carries the fencing token,
// and the sink compares it.
//
// What an observer may believe: who led when the row was read. The view of an observer may be old by the
// time it is printed, and the row of a dead leader stays until a candidate notices. A view is good
// for showing it to people, and for choosing where to send a request first. Nobody may write to the sink
// because of a view.
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
		c := candidate{session: session, sink: *sink, pause: time.Second / 5}
		return c.run(ctx)
	case "observer":
		return observe(ctx, session)
	}
	return errors.New(usage)
}
