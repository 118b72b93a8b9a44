// Kinesis consumes Kinesis streams with package shardlease/kinesis; it is a template for a production consumer. Each
// process reads its share of the shards, and stores the effect of each record exactly once, in a DynamoDB table. Run any
// number of processes. README.md explains the program.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/kinesis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], log, work); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Error("consumer ends", "err", err)
		os.Exit(1)
	}
}

// work returns the effect of one record, here a digest of its data. Put your own work here.
func work(_ context.Context, r kinesis.Record) ([]byte, error) {
	digest := sha256.Sum256(r.Data)
	return digest[:], nil
}

// settings are the flags. The AWS SDK reads endpoints, region and credentials from its own environment variables.
type settings struct {
	config                  kinesis.Config
	leases, effects, listen string
	create, check           bool
}

func parse(args []string) (settings, error) {
	s := settings{config: kinesis.Config{Batch: effects.Most}}
	var streams string
	var handoff rebalance.Mode
	f := flag.NewFlagSet("kinesis", flag.ContinueOnError)
	f.StringVar(&streams, "stream", "", "the streams to read: names or ARNs, separated by commas")
	f.StringVar(&s.config.Group, "group", "", "the group of this worker")
	f.StringVar(&s.config.Name, "name", "", "the name of this worker; empty: host and process")
	f.TextVar(&handoff, "handoff", rebalance.Mode(0), `"eager" or "cooperative"; there is no default`)
	f.TextVar(&s.config.Start, "start", kinesis.Start{}, "where a new group begins: trim-horizon, latest, a time, or sequence numbers")
	f.StringVar(&s.leases, "leases", "leases", "the lease table")
	f.StringVar(&s.effects, "effects", "effects", "the table of the effects")
	f.BoolVar(&s.create, "create-tables", false, "create the tables that do not exist")
	f.BoolVar(&s.check, "check", false, "only report which permissions are missing")
	f.StringVar(&s.listen, "listen", "", "address for /livez, /readyz, /alertz (for alerts, not a probe) and /figures; empty: none")
	f.DurationVar(&s.config.Worker.TTL, "ttl", 10*time.Second, "lease time")
	f.DurationVar(&s.config.Worker.PollEvery, "poll", 30*time.Second, "time between two listings of the shards")
	err := f.Parse(args)
	s.config.Handoff = handoff
	if s.config.Stream = streams; strings.Contains(streams, ",") {
		s.config.Stream, s.config.Streams = "", strings.Split(streams, ",")
	}
	return s, err
}

// A consumer processes records and stores their effects.
type consumer struct {
	work func(ctx context.Context, r kinesis.Record) ([]byte, error)
	sink *effects.Sink
	log  *slog.Logger
}

// batch is the function for kinesis.Consumer.RunBatch. If a record fails, batch stores the effects of those before it.
func (c *consumer) batch(ctx context.Context, records []kinesis.Record) (done int, err error) {
	var all []effects.Effect
	var failed error
	for _, r := range records {
		value, err := c.work(ctx, r)
		if err != nil {
			failed = err
			break
		}
		all = append(all, effects.Effect{Key: keyOf(r), ID: r.ID(), Value: value})
	}
	if err := c.store(ctx, all...); err != nil {
		return 0, errors.Join(err, failed)
	}
	return len(all), failed
}

func (c *consumer) store(ctx context.Context, all ...effects.Effect) error {
	hold, _ := kinesis.Hold(ctx)
	known, err := c.sink.Store(ctx, hold, all)
	if known > 0 {
		c.log.Info("left out", "known", known) // after a crash or in a cooperative move
	}
	return err
}

// deadLetter stores a record that cannot be processed, with the reason. It keeps no more data than fits into an item.
func (c *consumer) deadLetter(ctx context.Context, r kinesis.Record, why error) error {
	text := fmt.Sprintf("%v\n%s\n%s", why, r.Key, r.Data[:min(len(r.Data), 300<<10)])
	return c.store(ctx, effects.Effect{Key: "dead letters of " + r.Stream, ID: r.ID(), Value: []byte(text)})
}

// keyOf returns the key of an effect. A record without a key has one of its own.
func keyOf(r kinesis.Record) string {
	if r.Keyless {
		return r.ID()
	}
	return r.Stream + "/" + r.Key
}

// run consumes until ctx ends, and then shuts down gracefully. The grace period of the platform must be longer than 50 s:
// twice Drain, and a lease time.
func run(ctx context.Context, args []string, log *slog.Logger, work func(context.Context, kinesis.Record) ([]byte, error)) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	sdk, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	db := effects.Connect(sdk)
	if s.create {
		err := dynamostore.CreateTable(ctx, db, s.leases, dynamostore.TableOptions{})
		if err := errors.Join(err, effects.CreateTable(ctx, db, s.effects)); err != nil {
			return err
		}
	}
	store, err := dynamostore.Open(ctx, db, s.leases, dynamostore.Options{Group: s.config.Group, Logger: log})
	if err != nil {
		return err
	}
	own := &consumer{work: work, sink: &effects.Sink{Client: db, Table: s.effects, Leases: store}, log: log}
	s.config.DeadLetter, s.config.Logger = own.deadLetter, log
	c, err := kinesis.New(awskinesis.NewFromConfig(sdk), store, s.config)
	if err != nil {
		return err
	}
	if s.check {
		return c.Check(ctx)
	}
	if s.listen != "" {
		listener, err := net.Listen("tcp", s.listen)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: routes(c), ReadHeaderTimeout: 5 * time.Second}
		defer server.Close()
		go func() { _ = server.Serve(listener) }() // until Close
	}
	return c.RunBatch(ctx, own.batch)
}

// routes returns the handler of the probes and figures. /livez fails if the process should be restarted, /readyz while a
// deploy should wait before it stops the next worker, and /alertz if an operator should look at the worker. /figures has
// the figures of the consumer, by lease.
func routes(c *kinesis.Consumer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", c.Worker().Probes())
	mux.Handle("GET /readyz", c.Worker().Probes())
	mux.HandleFunc("GET /alertz", func(out http.ResponseWriter, _ *http.Request) {
		if err := c.Worker().Healthy(); err != nil {
			http.Error(out, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /figures", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(c.Stats().Figures())
	})
	return mux
}
