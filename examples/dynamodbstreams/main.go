// Dynamodbstreams consumes the DynamoDB Streams of one table or several: each change of an
// item has an effect in another table, exactly once. Run any number of processes. README.md
// explains the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], log, effectOf); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Error("consumer ends", "err", err)
		os.Exit(1)
	}
}

// Settings are the flags. The AWS SDK reads endpoints, region and credentials from its own
// environment variables.
type settings struct {
	tables                           []string
	group, name, leases, sink, start string
	handoff                          rebalance.Mode
	ttl, poll                        time.Duration
	attempts                         int
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("dynamodbstreams", flag.ContinueOnError)
	tables := f.String("tables", "", "the tables whose streams are read, separated by commas")
	f.StringVar(&s.group, "group", "", "the group of this worker")
	f.StringVar(&s.name, "name", "", "the name of this worker; empty: host and process")
	f.StringVar(&s.leases, "leases", "leases", "the lease table")
	f.StringVar(&s.sink, "sink", "effects", "the table of the effects")
	f.StringVar(&s.start, "start", "", "where the group begins: trim-horizon or latest; there is no default")
	f.TextVar(&s.handoff, "handoff", rebalance.Mode(0), `"eager" or "cooperative"; there is no default`)
	f.DurationVar(&s.ttl, "ttl", 10*time.Second, "lease time")
	f.DurationVar(&s.poll, "poll", 30*time.Second, "time between two listings of the shards")
	f.IntVar(&s.attempts, "max-attempts", 20, "failed attempts in a row after which a shard is quarantined; 0: never")
	err := f.Parse(args)
	if s.tables = strings.Split(*tables, ","); err == nil && *tables == "" {
		err = errors.New("-tables must be given")
	}
	if err == nil && s.start != "trim-horizon" && s.start != "latest" {
		err = errors.New("-start must be trim-horizon or latest")
	}
	return s, err
}

// run consumes until ctx ends, and then shuts down gracefully. The grace period of the platform
// must be longer than Drain, which is 20 s.
func run(ctx context.Context, args []string, log *slog.Logger, process processor) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	// By default the SDK waits forever for an answer, and a connection may break unnoticed.
	client := awshttp.NewBuildableClient().WithTimeout(20 * time.Second)
	sdk, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(client))
	if err != nil {
		return err
	}
	db := effects.Connect(sdk)
	leases, err := dynamostore.Open(ctx, db, s.leases, dynamostore.Options{Group: s.group, Timeout: min(2*time.Second, s.ttl/4), Logger: log})
	if err != nil {
		return err
	}
	arns, err := find(ctx, db, s.tables)
	if err != nil {
		return err
	}
	out := &effects.Sink{Client: db, Table: s.sink, Leases: leases}
	var start time.Time
	if s.start == "latest" {
		if start, err = begin(ctx, out, s.group, time.Now()); err != nil {
			return err
		}
	}
	// A tenure does not end at once when its reads are throttled, because those of another
	// worker would be too. If the throttling lasts, StallAfter ends the tenure.
	patient := func(o *dynamodbstreams.Options) { o.RetryMaxAttempts = 10 }
	source := &streams{client: dynamodbstreams.NewFromConfig(sdk, patient), arns: arns, pace: time.Second / 4, log: log}
	w, err := shardlease.New(leases, source, shardlease.Config{
		Group: s.group, Handoff: s.handoff, Name: s.name, TTL: s.ttl, PollEvery: s.poll,
		Order: checkpoint.Decimal, StallAfter: 2 * time.Minute, MaxBackoff: 30 * time.Second, MaxAttempts: s.attempts, Logger: log,
	})
	if err != nil {
		return err
	}
	c := consumer{streams: source, start: start, process: process, keep: out.Store}
	return w.Run(ctx, c.handle)
}

// find returns the ARNs of the streams of the tables.
func find(ctx context.Context, db *dynamodb.Client, tables []string) ([]string, error) {
	var arns []string
	for _, table := range tables {
		out, err := db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", table, err)
		}
		if out.Table.LatestStreamArn == nil {
			return nil, fmt.Errorf("table %s has no stream: enable one", table)
		}
		arns = append(arns, *out.Table.LatestStreamArn)
	}
	return arns, nil
}

// effectOf makes the effect of one change; put your own work here. In this example the effect is
// the kind of the change, and the status of the item after it.
func effectOf(_ context.Context, _ string, r types.Record) ([]byte, error) {
	value := string(r.EventName)
	if status, ok := r.Dynamodb.NewImage["status"].(*types.AttributeValueMemberS); ok {
		value += " " + status.Value
	}
	return []byte(value), nil
}
