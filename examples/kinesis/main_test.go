package main

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
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

// TestSettings: flags are stronger than the environment, which is stronger than defaults;
// all that is wrong is told at once.
func TestSettings(t *testing.T) {
	t.Setenv("CONSUMER_STREAM", "orders")
	t.Setenv("CONSUMER_HANDOFF", "eager")
	t.Setenv("CONSUMER_START", "latest")
	s, err := parse([]string{"-handoff", "cooperative"})
	if err != nil || s.stream != "orders" || s.handoff != rebalance.Cooperative || !s.start.Latest || s.leases != "leases" {
		t.Errorf("got %+v, %v", s, err)
	}
	t.Setenv("CONSUMER_STREAM", "")
	t.Setenv("CONSUMER_TTL", "soon")
	_, err = parse([]string{"-poison", "skip", "-poison-after", "20"})
	for _, want := range []string{"CONSUMER_TTL", "-stream must be given", "-poison-after must be less"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell of %s", err, want)
		}
	}
}

// TestProbesAndLags: what is served before the worker runs.
func TestProbesAndLags(t *testing.T) {
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("a"), shardlease.Config{Group: "orders", Handoff: rebalance.Eager})
	if err != nil {
		t.Fatal(err)
	}
	handler := routes(w, new(consumer.Lags))
	for path, want := range map[string]int{"/healthz": 503, "/readyz": 503, "/metrics": 200, "/": 404} {
		out := httptest.NewRecorder()
		handler.ServeHTTP(out, httptest.NewRequest("GET", path, nil))
		if out.Code != want {
			t.Errorf("%s: %d %s", path, out.Code, out.Body)
		}
	}
}
