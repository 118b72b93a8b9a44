// Workitems distributes work items over the runs of an agent. A run works on an item by calling a tool, and
// each call carries the fencing token. An item whose calls fail three times in a row is quarantined. A supervisor
// takes an item away from a run that hangs or is dead. Try it in four terminals:
//
//	go run ./examples/workitems tool
//	go run ./examples/workitems worker -file /tmp/items -task run-1 -items a,b,c
//	go run ./examples/workitems worker -file /tmp/items -task run-2 -items a,b,c
//	go run ./examples/workitems supervisor -file /tmp/items -to run-2
//
// Pause the first worker with ^Z. The supervisor reassigns the item of that worker to run-2, which
// continues the item after the last completed step. Without -to, any run may continue the item. Continue the
// first worker with fg: the tool refuses the call that the worker still makes, and the worker goes on to
// another item.
//
// The items need no other table. The lease row of an item stores which run works on the item, which step is
// completed, how often the item has failed since, who took it away from which run and why, and whether it is done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/internal/ledger"
	"github.com/shardlease/shardlease-go/examples/internal/table"
	"github.com/shardlease/shardlease-go/shardlease"
)

const usage = "usage: workitems worker|supervisor|tool [flags]"

const group = "items" // of the sessions of all workers

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "workitems:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	f := flag.NewFlagSet("workitems "+args[0], flag.ContinueOnError)
	var leases table.Flags
	leases.Define(f)
	task := f.String("task", "", "worker: the name of the `RUN` of the agent")
	items := f.String("items", "", "worker: the `NAMES` of the items, separated by commas")
	tool := f.String("tool", "http://localhost:8080", "worker: the `URL` of the tool")
	ttl := f.Duration("ttl", 10*time.Second, "worker: the lease time: how soon other runs notice that this one is dead")
	stall := f.Duration("stall", time.Minute, "worker: how long a call may hang before the run loses the item")
	to := f.String("to", "", "supervisor: the `RUN` that gets the items that are taken away; empty: any run")
	patience := f.Duration("patience", 5*time.Second, "supervisor: how long an item may make no progress")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "tool" {
		return ledger.Serve(ctx, "localhost:8080", os.Stdout)
	}
	store, err := leases.Open(ctx, group)
	if err != nil {
		return err
	}
	switch args[0] {
	case "worker":
		session, err := shardlease.NewSession(store, shardlease.SessionConfig{
			Group: group, Name: *task, Task: *task, TTL: *ttl, Order: checkpoint.Decimal,
			Drain:       *ttl * 7 / 10, // for the present call, when the run has to let an item go
			MaxAttempts: 3,             // a completed step starts the count again
			StallAfter:  *stall,        // of a call that hangs although the process lives
		})
		if err != nil {
			return err
		}
		w := worker{session: session, items: strings.Split(*items, ","), tool: *tool, aside: map[string]bool{}}
		return w.run(ctx)
	case "supervisor":
		s := supervisor{Supervisor: shardlease.Supervisor{Store: store, Group: group, By: "supervisor"}, patience: *patience, to: *to}
		return s.run(ctx)
	}
	return errors.New(usage)
}
