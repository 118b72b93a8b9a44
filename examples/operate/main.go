// Operate lists the leases of a group and carries out the commands of docs/operations.md. Build
// it once, in a clone of the repository, with Go 1.26 or later:
//
//	go build -o operate ./examples/operate
//
//	operate -h    # lists the commands
//	operate -table leases -group orders list
//	operate -table leases -group orders -by ann -why "handler hangs" -generation N release SHARD
//
// The command list prints the generation N of each shard. The command is refused if the shard has
// changed hands since. Commands that do not need -generation read it themselves if it is missing.
// The lease row keeps -by, and the first 256 bytes of -why; after the next change of hands, the first 64.
//
// Operate needs the permissions of a worker (docs/iam.md). The AWS SDK reads region and
// credentials from its own settings; set AWS_ENDPOINT_URL_DYNAMODB to use a DynamoDB Local.
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
	"strings"
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

const usage = `usage: operate -table TABLE -group GROUP [flags] COMMAND

  list                          prints the shards
  workers                       prints the seats of the workers
  history SHARD                 prints the last changes of hands of a shard, newest first
  release SHARD                 takes a shard from its owner; needs -why and -generation
  quarantine SHARD              keeps a shard from all workers; needs -why and -generation
  unquarantine SHARD            lets workers claim it again; needs -why
  rewind SHARD POSITION         makes the next tenure start there; needs -why
  evict INCARNATION             releases the shards of a worker and deletes its seat; needs -why
  release-task TASK             does that for every worker of a task; needs -why
  wishes                        prints the cordons, drains, pauses and pins, with their ends
  cordon WORKER                 gives the worker no more shards; needs -why
  drain WORKER                  moves all shards away from the worker; needs -why
  pause                         stops all moves of held shards; needs -why
  pin SHARD WORKER              moves the shard to the worker and keeps it there; needs -why
  lift KIND [NAME]              ends a cordon, drain, pause or pin; NAME: the worker, or the pinned shard
  adopt                         adopts the rows after the table was restored

`

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("operate", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	table := f.String("table", "", "the lease table")
	group := f.String("group", "", "the group")
	by := f.String("by", operator(), "the name of the operator, which is stored with the change")
	why := f.String("why", "", "the reason; a lease row stores its first 256 bytes, a wish up to 255")
	buckets := f.Int("buckets", 0, "the number of buckets of the group; needed by adopt if the record of the group was lost")
	lasts := f.Duration("for", 0, "how long a cordon, drain, pause or pin lasts; 0: until it is lifted")
	generation := f.Int64("generation", 0, "the generation of the shard, as list prints it; release and quarantine need it")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *table == "" || *group == "" || f.NArg() == 0 {
		return errors.New("needs -table, -group and a command; -h lists the commands")
	}
	aws, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	store, err := dynamostore.Open(ctx, dynamodb.NewFromConfig(aws), *table, dynamostore.Options{Group: *group, Buckets: *buckets})
	if err != nil {
		return err
	}
	if f.Arg(0) == "adopt" {
		return adopt(ctx, store, *group, *by, out)
	}
	return command(ctx, shardlease.Supervisor{Store: store, Group: *group, By: *by}, order{*why, *generation, *lasts}, f.Args(), out)
}

// An order is what the flags say about a command.
type order struct {
	why        string
	generation int64         // the generation that the operator saw; 0: none was given
	lasts      time.Duration // how long a wish lasts; 0: until it is lifted
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
func command(ctx context.Context, s shardlease.Supervisor, o order, args []string, out io.Writer) error {
	switch args[0] {
	case "list":
		return list(ctx, s, out)
	case "workers":
		return workers(ctx, s, out)
	case "wishes":
		return wishes(ctx, s, out)
	case "lift":
		return lift(ctx, s, args[1:])
	}
	if len(args) == 2 && args[0] == "history" {
		return history(ctx, s, args[1], out)
	}
	if o.why == "" {
		return errors.New("this command needs -why; -h lists the commands")
	}
	if known, err := wish(ctx, s, o, args); known {
		return err
	}
	if len(args) < 2 {
		return errors.New("needs a command and its argument; -h lists the commands")
	}
	switch args[0] {
	case "evict":
		rows, err := s.Evict(ctx, lease.Incarnation(args[1]), o.why)
		return released(out, rows, err)
	case "release-task":
		rows, err := s.ReleaseTask(ctx, args[1], o.why)
		return released(out, rows, err)
	}
	row, err := change(ctx, s, o, args)
	if err != nil {
		return err
	}
	describe(out, row)
	return nil
}

// wish executes a command that steers the plan, and reports whether it is one.
func wish(ctx context.Context, s shardlease.Supervisor, o order, args []string) (known bool, err error) {
	wants, known := map[string]int{"cordon": 2, "drain": 2, "pause": 1, "pin": 3}[args[0]]
	if known && len(args) != wants {
		return true, fmt.Errorf("%s takes %d arguments, and flags come before the command; -h lists the commands", args[0], wants-1)
	}
	switch args[0] {
	case "cordon":
		err = s.Cordon(ctx, args[1], o.lasts, o.why)
	case "drain":
		err = s.Drain(ctx, args[1], o.lasts, o.why)
	case "pause":
		err = s.Pause(ctx, o.lasts, o.why)
	case "pin":
		err = s.Pin(ctx, args[1], args[2], o.lasts, o.why)
	}
	return known, err
}

// lift ends a wish. A pause has no subject.
func lift(ctx context.Context, s shardlease.Supervisor, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return errors.New("lift needs a kind (cordon, drain, pause or pin) and, unless it is pause, the name of the worker; for a pin, the name of the shard")
	}
	return s.Lift(ctx, lease.WishKind(args[0]), strings.Join(args[1:], ""))
}

// wishes prints a line for each wish.
func wishes(ctx context.Context, s shardlease.Supervisor, out io.Writer) error {
	list, err := s.Wishes(ctx)
	for _, w := range list {
		fmt.Fprintln(out, w)
	}
	return err
}

// released prints the rows that a command released.
func released(out io.Writer, rows []lease.Row, err error) error {
	for _, row := range rows {
		describe(out, row)
	}
	return err
}

// change executes a command that changes a lease row. A command that can stop a healthy tenure
// needs the generation that the operator saw: the shard may have another owner by now.
func change(ctx context.Context, s shardlease.Supervisor, o order, args []string) (lease.Row, error) {
	row, err := s.Get(ctx, args[1])
	if err != nil {
		return row, err
	}
	switch {
	case o.generation != 0:
		row.Generation = o.generation
	case args[0] == "release", args[0] == "quarantine":
		return row, fmt.Errorf("%s needs -generation, as list prints it: a shard that changed hands since then is left alone", args[0])
	}
	switch {
	case args[0] == "release":
		return s.ForceRelease(ctx, row.Shard, row.Generation, o.why)
	case args[0] == "quarantine":
		return s.Quarantine(ctx, row.Shard, row.Generation, o.why)
	case args[0] == "unquarantine":
		return s.Unquarantine(ctx, row.Shard, row.Generation, o.why)
	case args[0] == "rewind" && len(args) == 3:
		return s.Rewind(ctx, row.Shard, row.Generation, checkpoint.Mark{Position: args[2]}, o.why)
	}
	return row, fmt.Errorf("unknown command %q: -h lists the commands", args)
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
	case row.Removed:
		return "removed"
	case row.Owner.IsZero():
		return "free"
	}
	return fmt.Sprintf("held by %s, incarnation %s, task %s", row.Owner.Name, row.Owner.Incarnation, cmp.Or(row.Owner.Task, "none"))
}

// history prints a line for each change of hands that the row keeps. The last one alone has a note.
func history(ctx context.Context, s shardlease.Supervisor, shard string, out io.Writer) error {
	row, err := s.Get(ctx, shard)
	if err != nil {
		return err
	}
	for _, t := range append([]lease.Transfer{row.Last}, row.History()...) {
		fmt.Fprintf(out, "generation %d\t%s by %s at %s\tfrom %s\t%s\n", t.Generation, t.Reason, t.By, moment(t.At), cmp.Or(t.From, "nobody"), t.Note)
	}
	return nil
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
