package fencetest

import (
	"context"
	"strings"
	"testing"
)

// TestIdleSuccessors: a sink that is open until the successor's first effect fails, and the story is printed. So does a sink
// whose Raise raises nothing, lowers the fence or changes an effect.
func TestIdleSuccessors(t *testing.T) {
	t.Parallel()
	story := []string{
		"an idle successor: the sink accepted an effect of generation 7 after generation 8 had begun:",
		"  a writes under generation 7", "  a is paused", "  b takes the shard over, generation 8",
		"  b starts, and has nothing to write", "  a wakes up, and writes under generation 7: accepted",
	}
	with := func(raise func(*table) func(context.Context, Fence) error) func(*T) Sink {
		return func(*T) Sink {
			db := newTable()
			s := db.fenced()
			s.Raise = raise(db)
			return s
		}
	}
	for name, tc := range map[string]struct {
		open func(*T) Sink
		want []string
	}{
		"no raise": {with(func(*table) func(context.Context, Fence) error { return nil }), append(story, "list it in shardlease.Config.Targets")},
		"nothing raised": {with(func(*table) func(context.Context, Fence) error {
			return func(context.Context, Fence) error { return nil }
		}), append(story, "  Sink.Raise raises the fence to 8, and reports success", "the fence that Apply compares with")},
		"lowered": {with(func(db *table) func(context.Context, Fence) error {
			return func(ctx context.Context, f Fence) error { return db.tx(ctx, func() error { return db.raise(f, nil) }) }
		}), []string{"function Raise reported success for generation 7 after 8"}},
		"an effect": {with(func(db *table) func(context.Context, Fence) error {
			return func(ctx context.Context, f Fence) error {
				return db.tx(ctx, func() error { return atOnce(db.compare, db.raise, db.erase)(f, nil) })
			}
		}), []string{"it must change nothing but the fence"}},
	} {
		t.Run(name, func(t *testing.T) {
			faults, _ := report(t, Play, tc.open)
			for _, want := range tc.want {
				if !strings.Contains(faults, want) {
					t.Errorf("the report lacks %q:\n%s", want, faults)
				}
			}
		})
	}
	faults, logs := report(t, Play, func(*T) Sink {
		s := newTable().fenced()
		s.Raise, s.FirstEffect = nil, true
		return s
	})
	if faults != "" || !strings.Contains(logs, "late effects are accepted") {
		t.Errorf("a sink that admits it: %q, %q", faults, logs)
	}
}
