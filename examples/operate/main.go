// Operate lists the leases of a group and carries out the commands of docs/operations.md:
//
//	go run ./examples/operate -table leases -group orders list
//	go run ./examples/operate -table leases -group orders workers
//	go run ./examples/operate -table leases -group orders adopt
//	go run ./examples/operate -table leases -group orders -why "handler hangs" release SHARD
//	go run ./examples/operate -table leases -group orders -why "poison record" quarantine SHARD
//	go run ./examples/operate -table leases -group orders -why "fixed in 1.4" unquarantine SHARD
//	go run ./examples/operate -table leases -group orders -why "replay June" rewind SHARD POSITION
//
// It needs the permissions of a worker (docs/iam.md). The AWS SDK reads region and credentials
// from its own settings; set AWS_ENDPOINT_URL_DYNAMODB to use a DynamoDB Local.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "operate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("operate", flag.ContinueOnError)
	table := f.String("table", "", "the lease table")
	group := f.String("group", "", "the group")
	by := f.String("by", operator(), "the name of the operator, which is stored in the lease row")
	why := f.String("why", "", "the reason, which is stored in the lease row")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *table == "" || *group == "" || f.NArg() == 0 {
		return errors.New("needs -table, -group and a command: list, workers, adopt, release, quarantine, unquarantine or rewind")
	}
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	store, err := dynamostore.Open(ctx, dynamodb.NewFromConfig(aws), *table, dynamostore.Options{Group: *group})
	if err != nil {
		return err
	}
	if f.Arg(0) == "adopt" {
		return adopt(ctx, store, *group, *by, out)
	}
	return command(ctx, shardlease.Supervisor{Store: store, Group: *group, By: *by}, *why, f.Args(), out)
}

// operator is the name of the user that runs this program.
func operator() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "operator"
}

// adopt adopts the rows of a group after its table was restored from a backup.
func adopt(ctx context.Context, store *dynamostore.Store, group, by string, out io.Writer) error {
	n, err := store.Adopt(ctx, group, by)
	fmt.Fprintf(out, "%d rows adopted\n", n)
	return err
}

// command executes any other command.
func command(ctx context.Context, s shardlease.Supervisor, why string, args []string, out io.Writer) error {
	switch args[0] {
	case "list":
		return list(ctx, s, out)
	case "workers":
		return workers(ctx, s, out)
	}
	if len(args) < 2 || why == "" {
		return errors.New("needs a command, a shard and -why")
	}
	row, err := s.Get(ctx, args[1])
	if err != nil {
		return err
	}
	switch {
	case args[0] == "release":
		row, err = s.ForceRelease(ctx, row.Shard, row.Generation, why)
	case args[0] == "quarantine":
		row, err = s.Quarantine(ctx, row.Shard, row.Generation, why)
	case args[0] == "unquarantine":
		row, err = s.Unquarantine(ctx, row.Shard, row.Generation, why)
	case args[0] == "rewind" && len(args) == 3:
		row, err = rewind(ctx, s, row, checkpoint.Mark{Position: args[2]}, why)
	default:
		return fmt.Errorf("unknown command %q: see go doc ./examples/operate", args)
	}
	if err != nil {
		return err
	}
	describe(out, row)
	return nil
}

// rewind makes the next tenure of a shard start at another position. A running fleet claims a
// free shard within moments, so rewind quarantines the shard until the position is stored. If
// the command is interrupted, the shard stays quarantined; repeat the command then.
func rewind(ctx context.Context, s shardlease.Supervisor, row lease.Row, to checkpoint.Mark, why string) (lease.Row, error) {
	var err error
	if !row.Quarantined && !row.Finished {
		if row, err = s.Quarantine(ctx, row.Shard, row.Generation, why); err != nil {
			return row, err
		}
	}
	row, err = s.Rewind(ctx, row.Shard, row.Generation, to, why)
	if err != nil || !row.Quarantined {
		return row, err
	}
	return s.Unquarantine(ctx, row.Shard, row.Generation, why)
}

// list prints a line for each shard, and reports the rows that cannot be read.
func list(ctx context.Context, s shardlease.Supervisor, out io.Writer) error {
	rows, err := s.List(ctx)
	for _, row := range rows {
		describe(out, row)
	}
	return err
}

func describe(out io.Writer, row lease.Row) {
	fmt.Fprintf(out, "%s\t%s\tgeneration %d\tcheckpoint %q of %s\tfailed attempts %d\tlast change: %s by %s at %s %s\n",
		row.Shard, state(row), row.Generation, row.Checkpoint.Position, moment(row.Checkpoint.At), row.Attempts(),
		row.Last.Reason, row.Last.By, moment(row.Last.At), row.Last.Note)
}

func state(row lease.Row) string {
	switch {
	case row.Quarantined:
		return "quarantined"
	case row.Finished:
		return "finished"
	case row.Owner.IsZero():
		return "free"
	}
	return "held by " + row.Owner.Name
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.DateTime)
}

// workers prints a line for each seat.
func workers(ctx context.Context, s shardlease.Supervisor, out io.Writer) error {
	seats, err := s.Workers(ctx)
	for _, seat := range seats {
		fmt.Fprintf(out, "%s\tincarnation %s\theartbeat %d at %s\tlease time %v\tleaving %t\ttask %s\n",
			seat.Name, seat.Incarnation, seat.Beat, moment(seat.At), seat.TTL, seat.Leaving, cmp.Or(seat.Task, "none"))
	}
	return err
}
