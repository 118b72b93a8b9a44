package otelshardlease

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A tracer keeps the spans of a process, by trace.
type tracer struct {
	noop.TracerProvider
	mu  *sync.Mutex
	all map[trace.TraceID][]*span
}

type span struct {
	noop.Span
	name        string
	labels      map[string]string
	from, until time.Time
}

func (r tracer) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracing{tracer: r} }

type tracing struct {
	noop.Tracer
	tracer tracer
}

func (r tracing) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	c := trace.NewSpanStartConfig(o...)
	s := &span{name: name, labels: map[string]string{}, from: c.Timestamp()}
	for _, l := range c.Attributes() {
		s.labels[string(l.Key)] = fmt.Sprint(l.Value.AsInterface())
	}
	r.tracer.mu.Lock()
	defer r.tracer.mu.Unlock()
	id := trace.SpanContextFromContext(ctx).TraceID()
	r.tracer.all[id] = append(r.tracer.all[id], s)
	return ctx, s
}

func (s *span) End(o ...trace.SpanEndOption) {
	c := trace.NewSpanEndConfig(o...)
	s.until = c.Timestamp()
}

// TestHandoffIsOneTrace: a planned move is one trace with the spans of both sides, although each process has a telemetry of its
// own and nothing about the trace is in the table. The spans say who moved what, and when.
func TestHandoffIsOneTrace(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		synctest.Test(t, func(t *testing.T) {
			all := tracer{mu: new(sync.Mutex), all: map[trace.TraceID][]*span{}}
			process := func() *Telemetry {
				telemetry, err := New(Options{Traces: all})
				if err != nil {
					t.Fatal(err)
				}
				return telemetry
			}
			f := newFleet(t, process())
			f.slow = 10 * time.Millisecond
			f.start("a", mode)
			time.Sleep(time.Minute)
			f.telemetry = process()
			f.start("b", mode)
			time.Sleep(time.Minute)
			all.mu.Lock()
			if len(all.all) != 2 {
				t.Errorf("%v: two shards have moved, and there are %d traces", mode, len(all.all))
			}
			for id, spans := range all.all {
				sides := map[string]*span{}
				for _, s := range spans {
					sides[s.name] = s
				}
				give, take := sides["hand over"], sides["take over"]
				if len(spans) != 2 || give == nil || take == nil {
					t.Errorf("%v: trace %v has %d spans", mode, id, len(spans))
					continue
				}
				for _, s := range spans {
					if s.until.Before(s.from) || time.Since(s.from) > time.Minute {
						t.Errorf("%v: %s lasts from %v to %v", mode, s.name, s.from, s.until)
					}
				}
				if give.labels["shardlease.worker"] != "a" || give.labels["shardlease.to"] != "b" || take.labels["shardlease.worker"] != "b" || take.labels["shardlease.from"] != "a" ||
					take.labels["shardlease.mode"] != mode.String() || take.labels["shardlease.shard"] != give.labels["shardlease.shard"] || take.labels["shardlease.generation"] != give.labels["shardlease.generation"] {
					t.Errorf("%v: %v and %v", mode, give.labels, take.labels)
				}
				if mode == rebalance.Cooperative && !give.until.After(take.from) {
					t.Errorf("the sides of a cooperative move overlap: %v, %v", give, take)
				}
			}
			all.mu.Unlock()
			f.end()
		})
	}
}
