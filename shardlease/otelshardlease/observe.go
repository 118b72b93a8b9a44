package otelshardlease

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// Observe records an event of a worker or session. Pass it as Config.Observe, or call it in a function of your own.
func (t *Telemetry) Observe(e event.Event) {
	ctx, i := context.Background(), &t.instruments
	i.events.Add(ctx, 1, metric.WithAttributes(t.of(e.Group,
		attribute.String("kind", e.Kind.String()), attribute.String("level", strings.ToLower(e.Level().String())))...))
	if e.Dropped > 0 {
		i.dropped.Add(ctx, int64(e.Dropped), metric.WithAttributes(t.of(e.Group)...))
	}
	t.traced(e)
	switch e.Kind {
	case event.Started:
		t.started(ctx, e)
	case event.Ended:
		t.ended(ctx, e)
	}
}

func (t *Telemetry) started(ctx context.Context, e event.Event) {
	i, mode := &t.instruments, attribute.String("mode", modeOf(e.Transfer.Mode))
	i.transfers.Add(ctx, 1, metric.WithAttributes(t.of(e.Group, attribute.String("reason", string(e.Transfer.Reason)), mode)...))
	record(ctx, i.gap, e.Gap, t.of(e.Group, mode))
	record(ctx, i.delay, e.Delay, t.of(e.Group))
}

func (t *Telemetry) ended(ctx context.Context, e event.Event) {
	i, cause := &t.instruments, attribute.String("cause", e.Cause.String())
	record(ctx, i.tenure, e.Took, t.of(e.Group, cause))
	record(ctx, i.drain, e.Drained, t.of(e.Group, cause))
	record(ctx, i.overlap, e.Continued, t.of(e.Group, cause))
	if e.Pending > 0 {
		i.unaccepted.Add(ctx, int64(e.Pending), metric.WithAttributes(t.of(e.Group)...))
	}
}

// record records a duration that is known.
func record(ctx context.Context, h metric.Float64Histogram, d time.Duration, labels []attribute.KeyValue) {
	if d > 0 {
		h.Record(ctx, d.Seconds(), metric.WithAttributes(labels...))
	}
}

func modeOf(m rebalance.Mode) string {
	if m == 0 {
		return "none"
	}
	return m.String()
}
