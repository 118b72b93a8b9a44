package otelshardlease

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Observe records an event of a worker or session. Pass it as Config.Observe, or call it in a function of your own.
func (t *Telemetry) Observe(e event.Event) {
	ctx, i := context.Background(), &t.instruments
	i.events.Add(ctx, 1, metric.WithAttributes(t.of(e.Group, ofEvent(e)...)...))
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

// begin exports the rare series of counters of a group as 0. A monitoring system counts no increase when a series begins at its
// first value, so the first death would be missing.
func (t *Telemetry) begin(group string) {
	ctx, i := context.Background(), &t.instruments
	for _, reason := range reasonsToStart() {
		for _, mode := range modesOf(reason) {
			i.transfers.Add(ctx, 0, metric.WithAttributes(t.of(group, attribute.String("reason", string(reason)), attribute.String("mode", modeOf(mode)))...))
		}
	}
	for kind := event.Joined; kind <= event.HookFault; kind++ {
		e := event.Event{Kind: kind, Err: context.Canceled} // an ended tenure and a refused checkpoint are faults with an error
		if e.Level() >= slog.LevelWarn {
			i.events.Add(ctx, 0, metric.WithAttributes(t.of(group, ofEvent(e)...)...))
		}
	}
	conflict := event.Event{Kind: event.Ended, Cause: event.CauseConflict} // the end that is an error
	i.events.Add(ctx, 0, metric.WithAttributes(t.of(group, ofEvent(conflict)...)...))
	i.dropped.Add(ctx, 0, metric.WithAttributes(t.of(group)...))
	i.unaccepted.Add(ctx, 0, metric.WithAttributes(t.of(group)...))
}

func ofEvent(e event.Event) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("kind", e.Kind.String()), attribute.String("level", strings.ToLower(e.Level().String()))}
}

// reasonsToStart returns the reasons for which a tenure begins: all but those that leave a shard which nobody claims.
func reasonsToStart() []lease.Reason {
	return []lease.Reason{
		lease.ReasonInitial, lease.ReasonReleased, lease.ReasonExpired, lease.ReasonHandoff, lease.ReasonDrainTimeout, lease.ReasonStalled,
		lease.ReasonFailed, lease.ReasonForced, lease.ReasonAdopted, lease.ReasonUnlisted,
	}
}

// modesOf returns the modes of the changes of hands that have a reason.
func modesOf(r lease.Reason) []rebalance.Mode {
	switch r {
	case lease.ReasonHandoff:
		return []rebalance.Mode{rebalance.Eager, rebalance.Cooperative}
	case lease.ReasonDrainTimeout:
		return []rebalance.Mode{rebalance.Eager}
	}
	return []rebalance.Mode{0}
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
