// Kcl migrates a consumer from the Kinesis Client Library (KCL) 2.x or 3.x to this library, and
// back. Stop the old fleet, move its positions, then start the new fleet.
//
//	aws kinesis list-shards --stream-name orders > shards.json
//	go run ./examples/kcl -table orders-app show
//	go run ./examples/kcl -table orders-app -leases leases -group orders -shards shards.json import
//	go run ./examples/kcl -table orders-app -leases leases -group orders -shards shards.json export
//
// For examples/kinesis add -packed position to the import and to the export. The KCL's table
// usually has the name of its application. An import only reads that table, so a later export
// can return to it. Import and export first watch the KCL's table for twice the failover time,
// and refuse it if an item changes meanwhile. Package dynamostore/kcl does the work; its
// documentation lists how each kind of checkpoint is translated.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
	"github.com/shardlease/shardlease-go/shardlease"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kcl:", err)
		os.Exit(1)
	}
}

// Options are the flags and the command.
type options struct {
	table    kcl.Table
	leases   string
	group    string
	by       string
	shards   string
	packed   string
	pending  string
	begin    bool
	endpoint string
	command  string
}

func parse(args []string, out io.Writer) (o options, err error) {
	f := flag.NewFlagSet("kcl", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.table.Name, "table", "", "the lease table of the KCL")
	f.DurationVar(&o.table.Failover, "failover", 10*time.Second, "the longest failoverTimeMillis of the KCL's fleet")
	f.StringVar(&o.table.Stream, "stream", "", "the stream, if the table has leases of several: the value of the attribute streamName")
	f.StringVar(&o.leases, "leases", "", "the lease table of this library; an import creates it if it does not exist")
	f.StringVar(&o.group, "group", "", "the group")
	f.StringVar(&o.by, "by", "operator", "the name of the operator, which is stored in the lease rows")
	f.StringVar(&o.shards, "shards", "", "a file with the output of aws kinesis list-shards")
	f.StringVar(&o.packed, "packed", "refuse", `what to do with a checkpoint at a record that the KPL has packed with others: "refuse" it, use it as the checkpoint of the "whole" entry, or keep the number of the record in the "state" or in the "position", where examples/kinesis reads it`)
	f.StringVar(&o.pending, "pending", "refuse", `what to do with a prepared checkpoint: "refuse" it, or "drop" it with its state and begin at the lease's checkpoint`)
	f.BoolVar(&o.begin, "unstarted", false, "accept LATEST and AT_TIMESTAMP: the consumer begins such shards like new ones")
	f.StringVar(&o.endpoint, "endpoint", "", "the address of a DynamoDB Local, instead of AWS")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.command = f.Arg(0)
	switch {
	case f.NArg() != 1 || o.command != "show" && o.command != "import" && o.command != "export":
		return o, errors.New("needs one command, after the flags: show, import or export")
	case o.table.Name == "":
		return o, errors.New("needs -table")
	case o.command != "show" && (o.leases == "" || o.group == ""):
		return o, errors.New("needs -leases and -group")
	case o.command == "import" && o.shards == "":
		return o, errors.New("needs -shards: the KCL deletes the leases of finished shards that Kinesis still lists, and these shards must not be processed again")
	case o.command == "export" && o.shards == "":
		return o, errors.New("needs -shards: leases need the hash keys of their shards, and rows do not have them")
	case o.pending != "refuse" && o.pending != "drop":
		return o, errors.New(`-pending must be "refuse" or "drop"`)
	case !slices.Contains([]string{"refuse", "whole", "state", "position"}, o.packed):
		return o, errors.New(`-packed must be "refuse", "whole", "state" or "position"`)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	client, shut, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer shut()
	o.table.Client = client
	switch o.command {
	case "import":
		return o.importAll(ctx, out)
	case "export":
		return o.exportAll(ctx, out)
	}
	leases, err := o.table.Leases(ctx)
	print(out, leases)
	return err
}

// connect returns a client for AWS, configured by the environment, or for a DynamoDB Local.
func (o options) connect(ctx context.Context) (client *dynamodb.Client, shut func(), err error) {
	if o.endpoint == "" {
		c, err := config.LoadDefaultConfig(ctx)
		return dynamodb.NewFromConfig(c), func() {}, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &o.endpoint, Region: "us-east-1", HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("example", "example", ""),
	}), transport.CloseIdleConnections, nil
}

func (o options) importAll(ctx context.Context, out io.Writer) error {
	listing, err := listed(o.shards)
	if err != nil {
		return err
	}
	var shards []shardlease.Shard
	for _, s := range listing {
		shards = append(shards, shardlease.Shard{Name: s.Name, Parents: s.Parents})
	}
	if err := dynamostore.CreateTable(ctx, o.table.Client, o.leases, dynamostore.TableOptions{}); err != nil {
		return err
	}
	group, err := o.open(ctx)
	if err != nil {
		return err
	}
	outcomes, err := kcl.Import(ctx, o.table, group, kcl.ImportOptions{Shards: shards, Mark: o.mark(), Unstarted: o.begin, Word: o.word(), Pending: o.prepared()})
	made := 0
	for _, outcome := range outcomes {
		if outcome.Made {
			made++
		}
		switch row := outcome.Row; {
		case row.Finished:
			fmt.Fprintf(out, "%s: finished\n", row.Shard)
		case outcome.Start != "":
			fmt.Fprintf(out, "%s: at %s\n", row.Shard, outcome.Start)
		default:
			fmt.Fprintf(out, "%s: after %s\n", row.Shard, row.Checkpoint.Position)
		}
	}
	fmt.Fprintf(out, "%d rows, %d of them new\n", len(outcomes), made)
	return err
}

func (o options) exportAll(ctx context.Context, out io.Writer) error {
	shards, err := listed(o.shards)
	if err != nil {
		return err
	}
	group, err := o.open(ctx)
	if err != nil {
		return err
	}
	leases, err := kcl.Export(ctx, group, o.table, kcl.ExportOptions{Checkpoint: o.checkpointOf, Shards: shards})
	print(out, leases)
	return err
}

func (o options) open(ctx context.Context) (shardlease.Supervisor, error) {
	store, err := dynamostore.Open(ctx, o.table.Client, o.leases, dynamostore.Options{Group: o.group})
	return shardlease.Supervisor{Store: store, Group: o.group, By: o.by}, err
}

// mark is ImportOptions.Mark: it stores the sub-sequence number of a checkpoint as -packed
// requires.
func (o options) mark() func(sequence string, sub int64) (checkpoint.Mark, error) {
	switch o.packed {
	case "whole":
		return func(sequence string, _ int64) (checkpoint.Mark, error) {
			return checkpoint.Mark{Position: sequence}, nil
		}
	case "state":
		return func(sequence string, sub int64) (checkpoint.Mark, error) {
			return checkpoint.Mark{Position: sequence, State: strconv.FormatInt(sub, 10)}, nil
		}
	case "position": // also if sub is 0: the record may be the first of several in its entry
		return func(sequence string, sub int64) (checkpoint.Mark, error) {
			return checkpoint.Mark{Position: sequence + "/" + strconv.FormatInt(sub, 10)}, nil
		}
	}
	return nil
}

// word is ImportOptions.Word: with -packed position it keeps TRIM_HORIZON, LATEST or
// AT_TIMESTAMP as the position, as examples/kinesis expects.
func (o options) word() func(string) (checkpoint.Mark, error) {
	if o.packed != "position" {
		return nil
	}
	return func(word string) (checkpoint.Mark, error) {
		if word != "TRIM_HORIZON" && !o.begin {
			return checkpoint.Mark{}, kcl.ErrUnstarted
		}
		return checkpoint.Mark{Position: word}, nil
	}
}

// prepared is ImportOptions.Pending: with -pending drop it removes a prepared checkpoint.
func (o options) prepared() func(kcl.Lease) (kcl.Lease, error) {
	if o.pending != "drop" {
		return nil
	}
	return func(l kcl.Lease) (kcl.Lease, error) {
		l.Pending, l.PendingSub, l.PendingState = "", 0, nil
		return l, nil
	}
}

// checkpointOf is ExportOptions.Checkpoint: it reads the sub-sequence number from the position,
// after a slash, or from the state. With -packed position it ignores the state, which is no
// number in examples/kinesis.
func (o options) checkpointOf(m checkpoint.Mark) (string, int64, error) {
	sequence, number, inPosition := strings.Cut(m.Position, "/")
	switch {
	case !inPosition && o.packed == "position", !inPosition && m.State == "":
		return sequence, 0, nil
	case !inPosition:
		number = m.State
	}
	sub, err := strconv.ParseInt(number, 10, 64)
	if err != nil || sub < 0 {
		return "", 0, errors.New("has a position or a state without a valid sub-sequence number (for positions of examples/kinesis: -packed position)")
	}
	return sequence, sub, nil
}

// listed reads the output of aws kinesis list-shards.
func listed(file string) ([]kcl.Shard, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list struct {
		Shards []struct {
			ShardId, ParentShardId, AdjacentParentShardId string
			HashKeyRange                                  struct{ StartingHashKey, EndingHashKey string }
		}
		NextToken string
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(list.Shards) == 0 || list.NextToken != "" {
		return nil, fmt.Errorf("%s: must list all shards of the stream", file)
	}
	var shards []kcl.Shard
	for _, s := range list.Shards {
		shard := kcl.Shard{Name: s.ShardId, StartingHashKey: s.HashKeyRange.StartingHashKey, EndingHashKey: s.HashKeyRange.EndingHashKey}
		for _, parent := range []string{s.ParentShardId, s.AdjacentParentShardId} {
			if parent != "" {
				shard.Parents = append(shard.Parents, parent)
			}
		}
		shards = append(shards, shard)
	}
	return shards, nil
}

func print(out io.Writer, leases []kcl.Lease) {
	for _, l := range leases {
		owner := "no owner"
		if l.Owner != "" {
			owner = "owner " + l.Owner
		}
		fmt.Fprintf(out, "%s: %s, record %d; %s, counter %d\n", l.Shard, l.Sequence, l.Sub, owner, l.Counter)
		if l.Pending != "" {
			fmt.Fprintf(out, "  prepared: %s, record %d, %d bytes of state\n", l.Pending, l.PendingSub, len(l.PendingState))
		}
	}
	fmt.Fprintf(out, "%d leases\n", len(leases))
}
