package main

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
)

// workerEnv is set in the processes that TestEndToEnd starts as consumers.
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

// processUnevenly is process with occasional delays, so that records of other lanes overtake.
func processUnevenly(ctx context.Context, r stream.Record) (consumer.Effect, error) {
	if rand.IntN(50) == 0 {
		<-time.After(rand.N(10 * time.Millisecond))
	}
	return process(ctx, r)
}

// TestSettings: flags override the environment, which overrides defaults, and all errors are
// reported at once.
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
			t.Errorf("%v does not report %s", err, want)
		}
	}
}

// TestStartWaitsForItsServers: a program that is started before its tables, its stream or
// their servers logs what it waits for, and ends with exit code 0 when it is stopped. Before, it
// ended with 1 at the first refused connection.
func TestStartWaitsForItsServers(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	missing := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(out, `{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}`)
	}))
	defer missing.Close()
	denied := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(out, `{"__type":"com.amazon.coral.service#AccessDeniedException"}`)
	}))
	defer denied.Close()
	for name, c := range map[string]struct {
		url   string
		waits bool
	}{"no server": {closed.URL, true}, "no table": {missing.URL, true}, "denied": {denied.URL, false}} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range map[string]string{"ENDPOINT_URL": c.url, "ENDPOINT_URL_KINESIS": c.url, "ENDPOINT_URL_DYNAMODB": c.url,
				"REGION": "us-east-1", "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test"} {
				t.Setenv("AWS_"+variable, value)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			stopAt := &interrupt{line: "waiting for the lease table orders-leases", stop: stop}
			err := run(ctx, []string{"-stream", "orders", "-group", "orders", "-handoff", "eager", "-leases", "orders-leases"}, slog.New(slog.NewTextHandler(stopAt, nil)), process)
			if stopAt.seen != c.waits || (err == nil) != c.waits {
				t.Errorf("the program waited: %t, and ends with %v", stopAt.seen, err)
			}
		})
	}
}

// An interrupt is a log that stops a program when it contains a line.
type interrupt struct {
	line string
	stop func()
	seen bool
}

func (i *interrupt) Write(line []byte) (int, error) {
	if strings.Contains(string(line), i.line) {
		i.seen = true
		i.stop()
	}
	return len(line), nil
}

// TestProbesAndLags: the status codes of all routes before the worker runs.
func TestProbesAndLags(t *testing.T) {
	w, err := shardlease.New(new(memstore.Store), shardlease.Static("a"), shardlease.Config{Group: "orders", Handoff: rebalance.Eager})
	if err != nil {
		t.Fatal(err)
	}
	handler := routes(w, new(consumer.Lags))
	for path, want := range map[string]int{"/alertz": 503, "/healthz": 404, "/livez": 200, "/readyz": 503, "/metrics": 200, "/": 404} {
		out := httptest.NewRecorder()
		handler.ServeHTTP(out, httptest.NewRequest("GET", path, nil))
		if out.Code != want {
			t.Errorf("%s: %d %s", path, out.Code, out.Body)
		}
	}
}

// TestConnect: the client validates checksums, except those of a DynamoDB Local.
func TestConnect(t *testing.T) {
	for endpoint, quiet := range map[string]bool{"": false, "http://localhost:8000": true, "https://dynamodb.example.com": false} {
		t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
		sdk, err := config.LoadDefaultConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if o := connect(sdk).Options(); o.DisableValidateResponseChecksum != quiet {
			t.Errorf("%q: checksums are validated: %v", endpoint, !o.DisableValidateResponseChecksum)
		}
	}
}
