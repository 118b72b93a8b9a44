package otelshardlease

import (
	"context"
	"errors"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// Watch watches a group from outside until ctx ends, and exports the figures of the whole group, which no worker knows: see
// [inspect.Figures]. It costs the table about as much as one more worker, so watch a group in one or two processes only. A
// program that does nothing else can read the table with the Reader of package dynamostore; the command
// "shardlease exporter" is such a program.
func (t *Telemetry) Watch(ctx context.Context, from inspect.Lister, group string, o inspect.WatchOptions) error {
	w := new(watched)
	t.mu.Lock()
	t.watched[w] = struct{}{}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watched, w)
	}()
	for s := range inspect.Watch(ctx, from, group, o) { // nil: the look has failed, as the figures then show
		figures := inspect.Figures(group, s)
		if err := t.know(figures); err != nil {
			return err
		}
		w.figures.Store(&figures)
	}
	return nil
}

// A watched has the figures of the last look at a group.
type watched struct {
	figures atomic.Pointer[[]inspect.Figure]
}

// know makes an instrument for each figure that has none yet. It makes them without the lock: the SDK has locks of its own,
// under which it calls last.
func (t *Telemetry) know(figures []inspect.Figure) error {
	unknown := []inspect.Figure(nil)
	t.mu.Lock()
	for _, f := range figures {
		if !t.figures[f.Name] {
			t.figures[f.Name] = true
			unknown = append(unknown, f)
		}
	}
	t.mu.Unlock()
	b := builder{meter: t.meter, of: t.of}
	for _, f := range unknown {
		b.observable(f, func(_ context.Context, o metric.Float64Observer) error {
			for _, f := range t.last(f.Name) {
				o.Observe(f.Value, b.labels(f))
			}
			return nil
		})
	}
	return errors.Join(b.errs...)
}

// last returns the figures of a name from the last looks at all groups that are watched.
func (t *Telemetry) last(name string) (all []inspect.Figure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.watched {
		figures := w.figures.Load()
		if figures == nil {
			continue
		}
		for _, f := range *figures {
			if f.Name == name {
				all = append(all, f)
			}
		}
	}
	return all
}
