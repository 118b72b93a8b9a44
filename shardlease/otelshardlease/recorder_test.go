package otelshardlease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// A recorder is a provider that keeps what is recorded: for a counter the sum, for a histogram the count and the last value,
// for the others the last value. The real SDK records the same calls in the tests of integration/telemetry.
type recorder struct {
	noop.MeterProvider
	meter recordingMeter
}

type recordingMeter struct {
	noop.Meter
	mu        *sync.Mutex
	kinds     map[string]kind      // the instruments, by name
	order     *[]string            // their names, as they were made
	labels    map[string][]string  // the names of their labels
	values    map[string]float64   // by name and labels
	callbacks *[]metric.Callback   // of several instruments
	own       map[string]observing // of one instrument
}

type kind struct{ kind, unit, help string }

type observing struct{ callbacks []metric.Float64Callback }

func newRecorder() *recorder {
	return &recorder{meter: recordingMeter{
		mu: new(sync.Mutex), kinds: map[string]kind{}, order: new([]string), labels: map[string][]string{}, values: map[string]float64{}, callbacks: new([]metric.Callback), own: map[string]observing{},
	}}
}

func (r *recorder) Meter(string, ...metric.MeterOption) metric.Meter { return r.meter }

// collect calls the callbacks, and returns all values that are not 0, with the labels but the group.
func (r *recorder) collect(t *testing.T) map[string]float64 {
	t.Helper()
	m := r.meter
	m.mu.Lock()
	callbacks, own := slices.Clone(*m.callbacks), maps.Clone(m.own)
	for name := range m.values {
		if strings.HasPrefix(m.kinds[strings.Fields(name)[0]].kind, "observable") {
			delete(m.values, name)
		}
	}
	m.mu.Unlock()
	for _, call := range callbacks {
		if err := call(t.Context(), observer{m: m}); err != nil {
			t.Error(err)
		}
	}
	for name, of := range own {
		for _, call := range of.callbacks {
			if err := call(t.Context(), float64Observer{m: m, name: name}); err != nil {
				t.Error(err)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.values)
	maps.DeleteFunc(all, func(_ string, value float64) bool { return value == 0 })
	return all
}

func (m recordingMeter) add(name string, k kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, twice := m.kinds[name]; twice {
		panic("a second instrument named " + name)
	}
	m.kinds[name] = k
	*m.order = append(*m.order, name)
}

func (m recordingMeter) set(name string, labels attribute.Set, change func(float64) float64) {
	var of []string
	for _, l := range labels.ToSlice() {
		if l.Key != "group" {
			of = append(of, l.Value.String())
		}
	}
	key := strings.Join(append([]string{name}, of...), " ")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = change(m.values[key])
	for _, l := range labels.ToSlice() {
		if !slices.Contains(m.labels[name], string(l.Key)) {
			m.labels[name] = append(m.labels[name], string(l.Key))
		}
	}
}

func (m recordingMeter) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c := metric.NewInt64CounterConfig(o...)
	m.add(name, kind{"counter", c.Unit(), c.Description()})
	return int64Counter{m: m, name: name}, nil
}

func (m recordingMeter) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	c := metric.NewFloat64HistogramConfig(o...)
	m.add(name, kind{"histogram", c.Unit(), c.Description()})
	return float64Histogram{m: m, name: name}, nil
}

func (m recordingMeter) Float64ObservableCounter(name string, o ...metric.Float64ObservableCounterOption) (metric.Float64ObservableCounter, error) {
	c := metric.NewFloat64ObservableCounterConfig(o...)
	m.add(name, kind{"observable counter", c.Unit(), c.Description()})
	m.own[name] = observing{c.Callbacks()}
	return named{name: name}, nil
}

func (m recordingMeter) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	c := metric.NewFloat64ObservableGaugeConfig(o...)
	m.add(name, kind{"observable gauge", c.Unit(), c.Description()})
	m.own[name] = observing{c.Callbacks()}
	return namedGauge{name: name}, nil
}

func (m recordingMeter) RegisterCallback(f metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	*m.callbacks = append(*m.callbacks, f)
	return noop.Registration{}, nil
}

type int64Counter struct {
	noop.Int64Counter
	m    recordingMeter
	name string
}

func (c int64Counter) Add(_ context.Context, n int64, o ...metric.AddOption) {
	c.m.set(c.name, metric.NewAddConfig(o).Attributes(), func(v float64) float64 { return v + float64(n) })
}

type float64Histogram struct {
	noop.Float64Histogram
	m    recordingMeter
	name string
}

func (h float64Histogram) Record(_ context.Context, x float64, o ...metric.RecordOption) {
	labels := metric.NewRecordConfig(o).Attributes()
	h.m.set(h.name, labels, func(v float64) float64 { return v + 1 })
	h.m.set(h.name+":last", labels, func(float64) float64 { return x })
}

type named struct {
	noop.Float64ObservableCounter
	name string
}

type namedGauge struct {
	noop.Float64ObservableGauge
	name string
}

type observer struct {
	noop.Observer
	m recordingMeter
}

func (o observer) ObserveFloat64(to metric.Float64Observable, x float64, with ...metric.ObserveOption) {
	name := ""
	switch to := to.(type) {
	case named:
		name = to.name
	case namedGauge:
		name = to.name
	default:
		panic(fmt.Sprintf("observed without an instrument: %v", to))
	}
	float64Observer{m: o.m, name: name}.Observe(x, with...)
}

type float64Observer struct {
	noop.Float64Observer
	m    recordingMeter
	name string
}

func (o float64Observer) Observe(x float64, with ...metric.ObserveOption) {
	o.m.set(o.name, metric.NewObserveConfig(with).Attributes(), func(float64) float64 { return x })
}
