package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
)

// workerEnv: where it is set, this binary was started by TestEndToEnd and is a consumer.
const workerEnv = "KINESIS_EXAMPLE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], log, processUnevenly); err != nil {
		log.Error("consumer ends", "err", err)
		os.Exit(1)
	}
}

// processUnevenly takes now and then so long that records of other lanes overtake.
func processUnevenly(ctx context.Context, r stream.Record) (consumer.Effect, error) {
	if rand.IntN(50) == 0 {
		<-time.After(rand.N(10 * time.Millisecond))
	}
	return process(ctx, r)
}
