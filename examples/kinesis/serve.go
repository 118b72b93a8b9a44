package main

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/shardlease"
)

// serve serves the probes and the lags until end is called. It also logs the lags twice a
// minute, for operators who have only logs.
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
		_ = server.Serve(listener) // until Close
	}()
	return func() { stop(); _ = server.Close(); <-served }, nil
}

// routes returns the handler of the probes and metrics. /livez fails if the process should be
// restarted, /readyz while a deploy should wait before it stops the next worker, and /alertz
// if an operator should look at the worker. It is not called /healthz, because many clusters
// restart a process whose /healthz fails, and an outage of the table would restart them all.
func routes(w *shardlease.Worker, lags *consumer.Lags) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /alertz", func(out http.ResponseWriter, _ *http.Request) {
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
