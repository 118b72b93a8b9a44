package telemetry

import (
	"context"
	"log"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/otelshardlease"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// measured returns a worker, and serves its metrics at /metrics.
func measured(store lease.Store, source shardlease.Source, at net.Listener) (*otelshardlease.Telemetry, *shardlease.Worker, error) {
	reader, err := otelprom.New()
	if err != nil {
		return nil, nil, err
	}
	telemetry, err := otelshardlease.New(otelshardlease.Options{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	go func() { log.Print(http.Serve(at, mux)) }()
	w, err := telemetry.Worker(store, source, shardlease.Config{Group: "orders", Handoff: rebalance.Cooperative})
	return telemetry, w, err
}

// watch watches the group until ctx ends. The store may be that of the worker.
func watch(ctx context.Context, telemetry *otelshardlease.Telemetry, store lease.Store) {
	if err := telemetry.Watch(ctx, store, "orders", inspect.WatchOptions{}); err != nil {
		log.Print(err)
	}
}
