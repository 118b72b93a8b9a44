package fencetest

import (
	"context"
	"errors"
	"testing"
)

// TestPausedRaises: a Raise that is no atomic step fails. Those that are pass, also if they fail or wait beside another call.
func TestPausedRaises(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		raise func(t *T, db *table) func(context.Context, Fence) error
		want  string // empty: passes
	}{
		"one transaction": {func(_ *T, db *table) func(context.Context, Fence) error { return db.raiseOnly }, ""},
		"check, then store": {func(_ *T, db *table) func(context.Context, Fence) error {
			return db.inTurn(db.compare, db.raise)
		}, "Raise was stopped, and its worker replaced, at point 2 of 2: the sink accepted an effect of generation 7 after one of " +
			"generation 8: Raise checks first and stores after"},
		"check, then store, with pauses": {func(t *T, db *table) func(context.Context, Fence) error {
			raise := db.inTurn(db.compare, func(Fence, []byte) error { return nil }, db.raise)
			return func(_ context.Context, f Fence) error {
				return raise(pausing{context.Background(), t}, f)
			}
		}, "Raise checks first and stores after"},
		"the first of a shard only": {func(_ *T, db *table) func(context.Context, Fence) error {
			create := db.inTurn(db.raise)
			return func(ctx context.Context, f Fence) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				db.mu.Lock()
				_, exists := db.fences[f.Shard]
				db.mu.Unlock()
				if exists {
					return db.raiseOnly(ctx, f)
				}
				return create(ctx, f)
			}
		}, "the first Raise of the shard was stopped, and its worker replaced"},
		"reads the effects, and stores them again": {func(_ *T, db *table) func(context.Context, Fence) error {
			return func(ctx context.Context, f Fence) error {
				read := ""
				return db.inTurn(func(f Fence, _ []byte) error { read = string(db.effects[f.Shard]); return nil },
					atOnce(db.compare, db.raise, func(f Fence, _ []byte) error { db.effects[f.Shard] = []byte(read); return nil }))(ctx, f)
			}
		}, "the successor's Raise was stopped, and the writer wrote, at point 2 of 2: the sink reported success for the effect"},
		"reads the fence, and stores on condition": {func(_ *T, db *table) func(context.Context, Fence) error {
			return func(ctx context.Context, f Fence) error {
				var read Fence
				return db.inTurn(func(f Fence, _ []byte) error { read = db.fences[f.Shard]; return db.compare(f, nil) }, func(f Fence, _ []byte) error {
					if db.fences[f.Shard] != read {
						return errConflict
					}
					return db.raise(f, nil)
				})(ctx, f)
			}
		}, ""},
		"waits for others": {func(_ *T, db *table) func(context.Context, Fence) error {
			return func(ctx context.Context, f Fence) error {
				return db.tx(context.Background(), func() error {
					return errors.Join(ctx.Err(), atOnce(db.compare, db.raise)(f, nil))
				})
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			open := func(t *T) Sink {
				db := newTable()
				s := db.fenced()
				s.Raise = tc.raise(t, db)
				return s
			}
			if tc.want == "" {
				Play(t, open)
			} else {
				finds(t, Play, open, tc.want)
			}
		})
	}
}

// inTurn takes each step in a transaction of its own.
func (t *table) inTurn(steps ...step) func(context.Context, Fence) error {
	apply := t.sink(steps...).Apply
	return func(ctx context.Context, f Fence) error { return apply(ctx, f, nil) }
}

// A pausing context stands for a storage that calls T.Pause at each step, and looks at no context of a call.
type pausing struct {
	context.Context
	t *T
}

func (p pausing) Err() error {
	p.t.Pause()
	return p.Context.Err()
}
