// Quickstart shows what shardlease is about, in less than twenty seconds, on your
// machine, with nothing but Go:
//
//	go run ./examples/quickstart
//
// A few workers share the shards of a stream. One more joins; one is killed; one is
// paused for longer than its lease lasts, with a commit under way that arrives
// after it was replaced; one leaves in good order. At the end both handoff modes
// are measured side by side. On a terminal the table of who holds what is live;
// into a pipe or a file go plain lines.
//
//	-handoff cooperative   hand shards over without a gap, instead of without an overlap
//	-shards 24 -workers 5  another fleet
//	-store dynamodb        keep the leases in DynamoDB, in a table that is made for this,
//	                       with the credentials and the region of your environment
//	-endpoint http://localhost:8000
//	                       … or in DynamoDB Local
//
// Everything it prints was measured while it ran. The stream and the sink are in
// memory and count for themselves what was processed; they do not ask the library.
//
// Where to read: story.go has the acts, member.go the handler, host.go how a worker
// is killed and paused, sink.go a sink that refuses stale writers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run tells the whole story on out.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	store, err := o.open(ctx)
	defer store.shut()
	if err != nil {
		return err
	}
	s := newStory(o, store, newScreen(out))
	defer func() { err = errors.Join(err, s.close()) }()
	return s.tell(ctx)
}

// Options are the flags.
type options struct {
	handoff         rebalance.Mode
	shards, workers int
	store, name     string // where the leases are, and in which table
	endpoint        string
}

// ttl is short, as the show is; the default of the library is 10 s. A lease has to
// outlast what a store may take at its worst: a call over a network takes longer.
func (o options) ttl() time.Duration {
	if o.store == "dynamodb" {
		return 2 * time.Second
	}
	return time.Second
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	f.SetOutput(out)
	// Eager for this show. A program of yours has to choose: there is no default.
	f.TextVar(&o.handoff, "handoff", rebalance.Eager, `what a planned move may cost: "eager" (a gap) or "cooperative" (an overlap)`)
	f.IntVar(&o.shards, "shards", 12, "how many shards the stream has")
	f.IntVar(&o.workers, "workers", 3, "how many workers share them at first")
	f.StringVar(&o.store, "store", "memory", `where the leases are: "memory" or "dynamodb"`)
	f.StringVar(&o.name, "table", "shardlease-quickstart", "name of the DynamoDB table; it is made if it is not there")
	f.StringVar(&o.endpoint, "endpoint", "", "URL of DynamoDB Local; empty: the real DynamoDB")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	refuse := func(wrong bool, rule string) {
		if wrong {
			errs = append(errs, errors.New(rule))
		}
	}
	refuse(f.NArg() > 0, "there are flags, and no arguments")
	refuse(o.workers < 3 || o.workers > 8, "-workers must be 3 to 8: one is killed, one paused, and one leaves")
	refuse(o.shards <= o.workers || o.shards > 64, "-shards must be more than -workers, and at most 64")
	refuse(o.store != "memory" && o.store != "dynamodb", `-store must be "memory" or "dynamodb"`)
	refuse(o.store == "memory" && o.endpoint != "", "-endpoint goes with -store dynamodb")
	return o, errors.Join(errs...)
}
