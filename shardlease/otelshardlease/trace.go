package otelshardlease

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/shardlease/shardlease-go/shardlease/event"
)

// A change of hands is one trace with a span for each side: "take over", from the change of hands until the handler of the
// new owner was called, and "hand over", from when the handler of the earlier owner should wind down until it had returned.
// The two processes exchange nothing for it: both compute the trace from the group, the shard and the generation that began.

// traced records the span of an event that is one side of a change of hands.
func (t *Telemetry) traced(e event.Event) {
	switch {
	case e.Kind == event.Started && e.Transfer.From != "":
		from := e.At.Add(-max(e.Gap, e.Delay))
		t.span("take over", e, e.Generation, from, e.At, attribute.String("shardlease.from", e.Transfer.From),
			attribute.String("shardlease.reason", string(e.Transfer.Reason)), attribute.String("shardlease.mode", modeOf(e.Transfer.Mode)))
	case e.Kind == event.Ended && e.Next != 0:
		from, until := e.At.Add(-e.Drained), e.At
		if e.Continued > 0 {
			until = later(until, e.Transfer.At.Add(e.Continued))
		}
		t.span("hand over", e, e.Next, from, until, attribute.String("shardlease.to", e.Peer), attribute.String("shardlease.cause", e.Cause.String()))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (t *Telemetry) span(name string, e event.Event, generation int64, from, until time.Time, more ...attribute.KeyValue) {
	more = append(more, t.conventional(e.Group)...)
	_, span := t.tracer.Start(ofHandoff(e.Group, e.Shard, generation), name, trace.WithTimestamp(from), trace.WithAttributes(append(more,
		attribute.String("shardlease.group", e.Group), attribute.String("shardlease.shard", e.Shard), attribute.String("shardlease.worker", e.Worker),
		attribute.Int64("shardlease.generation", generation))...))
	if e.Err != nil {
		span.SetStatus(codes.Error, "the tenure ended with an error") // its text may contain anything
	}
	span.End(trace.WithTimestamp(until))
}

// ofHandoff returns a context with the parent of both spans, which nobody records: only its ids are needed. It is sampled,
// because changes of hands are rare, and because both sides have to decide alike.
func ofHandoff(group, shard string, generation int64) context.Context {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", group, shard, generation))
	return trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24]), TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}
