// Quickstart shows what shardlease does, in about twelve seconds, with nothing but Go:
//
//	go run ./examples/quickstart [-handoff cooperative]
//
// Three workers share the shards of a stream. Two more join, one in each handoff mode; one
// is killed; one is paused for longer than the lease time, in the middle of a checkpoint;
// one leaves. On a terminal the table of owners is live; a pipe or a file gets plain lines.
//
// The story is in internal/proof/story. Its file story.go has the Worker, its handler, a stream, and a
// sink that refuses stale writes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/shardlease/shardlease-go/internal/proof/story"
	"github.com/shardlease/shardlease-go/rebalance"
)

// next is what a reader of the story may want to run.
const next = `
Try next:
  go run ./examples/quickstart -handoff cooperative    the first workers move shards, usually without a gap
  go run ./examples/consumer                           the smallest whole consumer, to copy from
  go test -v -run TestFailover ./examples/consumer     a test of a failover, which takes no time
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	mode := rebalance.Eager // the library has no default for this: a program has to choose
	flag.TextVar(&mode, "handoff", mode, `what planned moves may cost: "eager" (a gap) or "cooperative" (an overlap)`)
	flag.Parse()
	if err := story.Tell(ctx, mode.String(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
	fmt.Print(next)
}
