package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/otelshardlease"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// measured is the program of docs/metrics.md.
func measured(store lease.Store, source shardlease.Source, run func(*shardlease.Worker) error) error {
	reader, err := prometheus.New()
	if err != nil {
		return err
	}
	http.Handle("/metrics", promhttp.Handler())
	telemetry, err := otelshardlease.New(otelshardlease.Options{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		return err
	}
	w, err := telemetry.Worker(store, source, shardlease.Config{Group: "orders", Handoff: rebalance.Cooperative})
	if err != nil {
		return err
	}
	return run(w)
}
