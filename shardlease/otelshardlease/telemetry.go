// Package otelshardlease exports the metrics and traces of package shardlease by OpenTelemetry.
//
// It imports the API of OpenTelemetry alone: the program chooses the SDK and its exporters. If the program has none,
// nothing is recorded, and a commit costs nothing that can be measured.
//
//	telemetry, err := otelshardlease.New(otelshardlease.Options{})
//	…
//	w, err := telemetry.Worker(store, source, shardlease.Config{ … }) // instead of shardlease.New
//
// [Telemetry.Session] does the same for a session. Everything else that makes a worker, such as the consumer of package
// kinesis, gets the parts: the store of [Telemetry.Store], the function [Telemetry.Observe] as Config.Observe, and
// [Telemetry.Status] afterwards. [Telemetry.Watch] adds the figures of a whole group, which one process is enough for.
//
// docs/metrics.md lists every metric, and alerts with their runbooks. All durations are in seconds. The only label that all
// metrics have is the group: no label has the name of a shard or a worker. The resource of the SDK tells processes apart.
//
// Each change of hands is a trace, in which the earlier and the new owner have a span each.
package otelshardlease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/shardlease/shardlease-go/shardlease/otelshardlease"

// Options are the settings of a [Telemetry]. The zero Options are ready to use.
type Options struct {
	Meters metric.MeterProvider // default: the global provider of package otel, also if the program sets it later
	Traces trace.TracerProvider // as Meters

	// System and Destination are what OpenTelemetry's conventions call the messaging system, such as "aws_kinesis", and
	// the name of the stream. With one of them every metric and span also has the attributes messaging.system,
	// messaging.destination.name and messaging.consumer.group.name, which is the group. By default there are none: the
	// conventions are still in development.
	System, Destination string
}

// A Telemetry records the metrics and traces of the workers, sessions and watchers of a process. Its methods are safe for concurrent
// use. A process needs one, however many workers it has: the metrics of workers in the same group are added up.
type Telemetry struct {
	meter       metric.Meter
	tracer      trace.Tracer
	messaging   []attribute.KeyValue // without the group
	instruments instruments
	stores      atomic.Pointer[map[string]*calls] // by group; replaced when there is another group

	mu       sync.Mutex // guards the fields below
	statuses map[*status]struct{}
	past     map[string]acquisitions // of sessions that have stopped, by group
	streams  []stream
	watched  map[*watched]struct{}
	figures  map[string]bool // the names of the figures of watchers for which there are instruments
}

// New returns a telemetry. It fails only if the provider refuses an instrument.
func New(o Options) (*Telemetry, error) {
	if o.Meters == nil {
		o.Meters = otel.GetMeterProvider()
	}
	if o.Traces == nil {
		o.Traces = otel.GetTracerProvider()
	}
	t := &Telemetry{
		meter: o.Meters.Meter(scope), tracer: o.Traces.Tracer(scope), statuses: map[*status]struct{}{}, past: map[string]acquisitions{}, watched: map[*watched]struct{}{}, figures: map[string]bool{},
	}
	if o.System != "" {
		t.messaging = append(t.messaging, attribute.String("messaging.system", o.System))
	}
	if o.Destination != "" {
		t.messaging = append(t.messaging, attribute.String("messaging.destination.name", o.Destination))
	}
	t.stores.Store(&map[string]*calls{})
	b := builder{meter: t.meter, of: t.of}
	t.instruments = b.instruments()
	b.observed(t.gauges(), t.collect)
	if err := errors.Join(b.errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// of returns the attributes of a metric of a group: what all have, and more.
func (t *Telemetry) of(group string, more ...attribute.KeyValue) []attribute.KeyValue {
	list := append(make([]attribute.KeyValue, 0, 8), attribute.String("group", group))
	return append(append(list, t.conventional(group)...), more...)
}

// conventional returns the attributes of the conventions for messaging, if there are any.
func (t *Telemetry) conventional(group string) []attribute.KeyValue {
	if len(t.messaging) == 0 {
		return nil
	}
	return append(slices.Clip(t.messaging), attribute.String("messaging.consumer.group.name", group))
}

// Worker is [shardlease.New] for a worker whose metrics t records. Events also reach c.Observe.
func (t *Telemetry) Worker(store lease.Store, source shardlease.Source, c shardlease.Config) (*shardlease.Worker, error) {
	c.Observe = t.before(c.Observe)
	w, err := shardlease.New(t.Store(store), source, c)
	if err != nil {
		return nil, err
	}
	t.Status(w.Status)
	return w, nil
}

// Session is [shardlease.NewSession] for a session whose metrics t records. Events also reach c.Observe.
func (t *Telemetry) Session(store lease.Store, c shardlease.SessionConfig) (*shardlease.Session, error) {
	c.Observe = t.before(c.Observe)
	s, err := shardlease.NewSession(t.Store(store), c)
	if err != nil {
		return nil, err
	}
	t.Status(s.Status)
	return s, nil
}

// before returns a function that passes an event to t and then to next.
func (t *Telemetry) before(next func(event.Event)) func(event.Event) {
	if next == nil {
		return t.Observe
	}
	return func(e event.Event) {
		t.Observe(e)
		next(e)
	}
}

// Instruments are those that record at once.
type instruments struct {
	events, dropped, transfers, unaccepted metric.Int64Counter
	tenure, drain, gap, delay, overlap     metric.Float64Histogram
	store                                  metric.Float64Histogram
}

// The bounds of the buckets of histograms, in seconds.
var (
	ofCalls   = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	ofMoves   = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60}
	ofTenures = []float64{1, 10, 60, 600, 3600, 21600, 86400, 604800}
)

func (b *builder) instruments() instruments {
	return instruments{
		events:     b.counter("shardlease.events", "{event}", "Events of workers and sessions, by kind and level."),
		dropped:    b.counter("shardlease.events.dropped", "{event}", "Events that were dropped because Observe or Logger was too slow."),
		transfers:  b.counter("shardlease.transfers", "{tenure}", "Tenures that began, by the reason for the change of hands, and the mode of a planned move."),
		unaccepted: b.counter("shardlease.marks.unaccepted", "{mark}", "Marks that the table had not accepted when their tenure ended."),
		tenure:     b.histogram("shardlease.tenure.duration", "How long tenures lasted, by the cause of their end.", ofTenures),
		drain:      b.histogram("shardlease.drain.duration", "How long handlers took to wind down, by the cause of the end.", ofMoves),
		gap:        b.histogram("shardlease.handoff.gap", "For how long nobody processed a shard between two tenures, unless the first owner died.", ofMoves),
		delay:      b.histogram("shardlease.handoff.delay", "How long after the takeover of an offered shard the handler was called.", ofMoves),
		overlap:    b.histogram("shardlease.handoff.overlap", "How long the handler of the earlier owner went on after a takeover, by the cause of its end.", ofMoves),
		store:      b.histogram("shardlease.store.duration", "How long calls of the store took, by operation and outcome.", ofCalls),
	}
}

// A builder makes instruments, and collects errors.
type builder struct {
	meter metric.Meter
	of    func(group string, more ...attribute.KeyValue) []attribute.KeyValue
	errs  []error
}

func (b *builder) counter(name, unit, help string) metric.Int64Counter {
	c, err := b.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
	b.errs = append(b.errs, err)
	return c
}

func (b *builder) histogram(name, help string, bounds []float64) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
	b.errs = append(b.errs, err)
	return h
}

// observable makes an instrument that is observed at each collection.
func (b *builder) observable(f inspect.Figure, o ...metric.Float64Callback) metric.Float64Observable {
	if f.Total {
		var options []metric.Float64ObservableCounterOption
		for _, callback := range o {
			options = append(options, metric.WithFloat64Callback(callback))
		}
		c, err := b.meter.Float64ObservableCounter(f.Name, append(options, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))...)
		b.errs = append(b.errs, err)
		return c
	}
	var options []metric.Float64ObservableGaugeOption
	for _, callback := range o {
		options = append(options, metric.WithFloat64Callback(callback))
	}
	g, err := b.meter.Float64ObservableGauge(f.Name, append(options, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))...)
	b.errs = append(b.errs, err)
	return g
}

// observed makes the instruments of figures that are all collected by one call.
func (b *builder) observed(kinds []inspect.Figure, collect func() []inspect.Figure) {
	by, all := map[string]metric.Float64Observable{}, []metric.Observable(nil)
	for _, kind := range kinds {
		by[kind.Name] = b.observable(kind)
		all = append(all, by[kind.Name])
	}
	_, err := b.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, f := range collect() {
			o.ObserveFloat64(by[f.Name], f.Value, b.labels(f))
		}
		return nil
	}, all...)
	b.errs = append(b.errs, err)
}

// labels returns the labels of a figure. The first is its group.
func (b *builder) labels(f inspect.Figure) metric.MeasurementOption {
	list := b.of(f.Labels[0][1])
	for _, l := range f.Labels[1:] {
		list = append(list, attribute.String(l[0], l[1]))
	}
	return metric.WithAttributes(list...)
}
