// Kinesis consumes a Kinesis stream; it is a template for a production consumer. Each process
// reads its share of the shards, processes the records, and stores their effects in a DynamoDB
// table, each exactly once. Run any number of processes. README.md explains the program.
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

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], log, process); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Error("consumer ends", "err", err)
		os.Exit(1)
	}
}

// Settings are the flags. Each may also be set in the environment: -ttl by CONSUMER_TTL. The
// AWS SDK reads endpoints, region and credentials from its own environment variables.
type settings struct {
	stream, group, name, leases, journal, listen string
	start                                        stream.Start
	handoff                                      rebalance.Mode
	ttl, idle, poll                              time.Duration
	lanes, attempts, tries                       int
	poison                                       consumer.Verdict
	memory, shardMemory                          int64
	create                                       bool
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("kinesis", flag.ContinueOnError)
	f.StringVar(&s.stream, "stream", "", "the stream to read")
	f.StringVar(&s.group, "group", "", "the group of this worker")
	f.StringVar(&s.name, "name", "", "the name of this worker; empty: host and process")
	f.StringVar(&s.leases, "leases", "leases", "the lease table")
	f.StringVar(&s.journal, "journal", "journal", "the table of the effects")
	f.StringVar(&s.listen, "listen", "", "address for /livez, /readyz, /alertz (for alerts, not a probe) and /metrics; empty: none")
	f.TextVar(&s.start, "start", stream.Start{}, "where the group begins: trim-horizon, latest, or a time")
	f.TextVar(&s.handoff, "handoff", rebalance.Mode(0), `"eager" or "cooperative"; there is no default`)
	f.DurationVar(&s.ttl, "ttl", 10*time.Second, "lease time")
	f.DurationVar(&s.idle, "idle", time.Second, "time between two reads of a shard that has nothing new")
	f.DurationVar(&s.poll, "poll", 30*time.Second, "time between two listings of the shards")
	f.IntVar(&s.lanes, "lanes", 4, "how many records of a shard are processed at a time")
	f.Int64Var(&s.memory, "memory", 256, "MiB of records that may be read and not yet in the sink")
	f.Int64Var(&s.shardMemory, "shard-memory", 16, "the same limit for one shard, in MiB")
	f.IntVar(&s.attempts, "max-attempts", 20, "failed attempts in a row after which a shard is quarantined; 0: never")
	f.TextVar(&s.poison, "poison", consumer.Stop, `what to do with a record that fails: "stop" before it, "skip" it, or store it as a "dead-letter"`)
	f.IntVar(&s.tries, "poison-after", 5, "how often a record must fail before -poison skips it or stores it as a dead letter")
	f.BoolVar(&s.create, "create-tables", false, "create the tables that do not exist")
	var errs []error
	f.VisitAll(func(g *flag.Flag) {
		name := "CONSUMER_" + strings.ToUpper(strings.ReplaceAll(g.Name, "-", "_"))
		if value, set := os.LookupEnv(name); set {
			if err := g.Value.Set(value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	errs = append(errs, f.Parse(args))
	if s.stream == "" {
		errs = append(errs, errors.New("-stream must be given"))
	}
	if s.poison != consumer.Stop && s.attempts > 0 && s.tries >= s.attempts {
		errs = append(errs, errors.New("-poison-after must be less than -max-attempts, or the shard is quarantined first"))
	}
	return s, errors.Join(errs...)
}

// A processor is the type of consumer.Consumer.Process.
type processor func(ctx context.Context, r stream.Record) (consumer.Effect, error)

// run consumes until ctx ends, and then shuts down gracefully. The grace period of the platform
// must be at least twice Drain and a lease time, which is 50 s.
func run(ctx context.Context, args []string, log *slog.Logger, process processor) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	sdk, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	sink, source, err := open(ctx, sdk, s, log)
	if ctx.Err() != nil {
		return nil // the program was stopped while it waited
	}
	if err != nil {
		return err
	}
	c := consumer.Consumer{
		Stream: source, Process: process, Sink: sink, Lanes: s.lanes, Lags: new(consumer.Lags),
		Poison: consumer.After(s.tries, s.poison), Logger: log,
		Memory: &stream.Memory{PerShard: s.shardMemory << 20, Total: s.memory << 20},
	}
	group := shardlease.Supervisor{Store: sink.Leases, Group: s.group}
	if err := verify(ctx, group, &c); err != nil {
		return err
	}
	source.Leased = func(ctx context.Context, shard string) (bool, error) {
		_, err := group.Get(ctx, shard) // a removed row counts too
		if errors.Is(err, lease.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	w, err := shardlease.New(sink.Leases, source, shardlease.Config{
		Group: s.group, Handoff: s.handoff, Name: s.name, TTL: s.ttl, PollEvery: s.poll,
		Order: stream.Order, StallAfter: 2 * time.Minute, MaxAttempts: s.attempts, Logger: log,
		// Tenures that end because the store does not answer count as failed attempts. After
		// an outage of an hour, the default pause of up to five minutes would be too long.
		MaxBackoff: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	end, err := serve(s.listen, w, c.Lags, log)
	if err != nil {
		return err
	}
	defer end()
	err = w.Run(ctx, c.Handle)
	kept, known, stale := sink.Stats()
	failures, skipped := c.Lags.Poison()
	log.Info("consumer ends", "kept", kept, "known", known, "stale", stale, "failures", failures, "skipped", skipped)
	return err
}

// process makes the effect of one record; put your own work here. In this example the effect
// is the data of the record.
func process(_ context.Context, r stream.Record) (consumer.Effect, error) {
	return consumer.Effect{Record: r, Value: r.Data}, nil
}
