package main

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/shardlease"
)

// serve answers the probes and gives the lags, until end is called. It logs the lags too,
// twice a minute, for those who have nothing but logs.
func serve(address string, w *shardlease.Worker, lags *consumer.Lags, log *slog.Logger) (end func(), err error) {
	done := make(chan struct{})
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		report(lags, log, done)
	}()
	stop := func() { close(done); <-logged }
	if address == "" {
		return stop, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		stop()
		return nil, err
	}
	server := &http.Server{Handler: routes(w, lags), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // it ends with Close
	}()
	return func() { stop(); _ = server.Close(); <-served }, nil
}

// routes has three checks that mean different things. /livez fails if a restart helps, /readyz
// while a deploy should wait before it stops the next worker, and /healthz if somebody should
// look at it.
func routes(w *shardlease.Worker, lags *consumer.Lags) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(out http.ResponseWriter, _ *http.Request) {
		if err := w.Healthy(); err != nil {
			http.Error(out, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /livez", w.Probes())
	mux.Handle("GET /readyz", w.Probes())
	mux.HandleFunc("GET /metrics", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/plain; version=0.0.4")
		lags.WriteMetrics(out)
	})
	return mux
}

func report(lags *consumer.Lags, log *slog.Logger, done <-chan struct{}) {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-done:
			return
		}
		for shard, lag := range lags.Shards() {
			log.Info("lag", "shard", shard, "behind", lag.Behind, "backlog", lag.Backlog)
		}
	}
}
