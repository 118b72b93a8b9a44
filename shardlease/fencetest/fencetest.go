// Package fencetest proves a sink: it drives the sink as writers do that are paused, replaced and
// woken up, and reports the first stale effect that the sink accepts, with the mistake that
// explains it.
//
// A fence is a generation of one shard. A fenced sink applies an effect only if it has applied no
// effect of a higher generation for the same shard, and it compares and applies in one atomic step.
// It accepts equal generations, because a writer writes more than once.
//
// # What Play cannot find
//
// A writer can be stopped only where the sink uses its context, or where a test double calls
// [T.Pause]. A sink that compares in one step and writes in the next, and does neither in between,
// is left to a crowd of concurrent writers, which find it with some luck only. This concerns sinks
// that ignore their context, and comparisons inside of another process: a test double of that
// process can call Pause, a real one cannot. Play logs at how many points it has stopped a writer.
//
// Play does not find a fence that a job, an operator or a time to live deletes, a replica that
// reads an older fence after a failover, or a storage that loses what it has acknowledged. It finds
// a fence that is lost in a restart only if the test sets Sink.Restart.
package fencetest

import (
	"context"
	"testing"
)

// A Fence is what a writer sends with each effect.
type Fence struct {
	Shard string
	// Owner is the name of the writer. It identifies no writer: a worker that comes back has the
	// same name and a higher generation.
	Owner string
	// Generation grows with each new owner of the shard. Generations of different shards are not
	// related.
	Generation int64
}

// A Sink is the sink under test, as a test adapts it. Its functions are called from several
// goroutines, so they must not call FailNow, Fatal or Skip. They must use the contexts that they
// get, because those are where Play stops a writer.
type Sink struct {
	// Apply applies an effect under a fence, as a client of the sink does. An error means that the
	// effect was not applied and will not be. Required.
	Apply func(ctx context.Context, f Fence, effect []byte) error

	// Effects returns the effects of a shard that readers see, in the order in which they were
	// applied. A sink that keeps one value for each shard returns the present one. Required.
	Effects func(ctx context.Context, shard string) ([][]byte, error)

	// Grant changes the owner of a shard and returns the fence of the new one. It is for a sink that
	// compares with a lease table, which issues the generations. By default Play counts them.
	Grant func(ctx context.Context, shard, owner string) (Fence, error)

	// Restart replaces the process of the sink by another one over the same storage. Apply and
	// Effects then use the new process. Play calls no other function at the same time. Without
	// Restart, Play does not check that the fence outlives the process.
	Restart func(ctx context.Context) error

	// Refusal reports whether an error is a refusal of the fence, such as errors.Is(err,
	// checkpoint.ErrStale). A writer must be able to distinguish it from a failure, after which it
	// writes again. By default every error is a refusal.
	Refusal func(err error) bool
}

// A T is the test of a sink.
type T struct {
	testing.TB
	gates *gates
}

// Pause is a point at which Play may stop the writer whose effect is being applied. A test double
// of the sink's storage calls it before and after each of its steps, where a sink calls the storage
// without a context, or in another goroutine. Most calls return at once.
func (t *T) Pause() { t.gates.point() }

// Play drives a fenced sink through a number of scenarios, and fails the test at the first stale
// effect that the sink accepts, or the first effect that it must accept and does not. It calls open
// for each scenario. The names of the shards differ, so open may return the same storage again.
//
// Play measures real time to see that a writer waits for another one, so it is not for a bubble of
// testing/synctest. It returns when all of its writers have returned.
func Play(t testing.TB, open func(t *T) Sink) {
	t.Helper()
	play(t, open, []scenario{
		{"a writer and its successor", (*stage).succession},
		{"a late writer", (*stage).lateWriters},
		{"two shards", (*stage).twoShards},
		{"large generations", (*stage).numbers},
		{"a repeated effect", (*stage).repeats},
		{"a restart of the sink", (*stage).restart},
		{"a paused writer", (*stage).pausedWriters},
		{"a crowd of writers", (*stage).crowd},
	})
}

// PlayRepeats drives a sink that promises that an effect happens once, however often it is sent: by
// one writer, by its successor, by both at once, or late. The bytes of an effect identify it. The
// promise does not include a fence: a sink that makes both is driven by Play too.
func PlayRepeats(t testing.TB, open func(t *T) Sink) {
	t.Helper()
	play(t, open, []scenario{
		{"an effect that is sent again", (*stage).sentAgain},
		{"an effect that is sent again after a restart of the sink", (*stage).sentAgainAfterRestart},
		{"an effect of a paused writer", (*stage).sentAgainWhilePaused},
		{"an effect of a crowd of writers", (*stage).sentByCrowd},
	})
}

// A scenario returns an error at the first fault of the sink.
type scenario struct {
	name string
	play func(*stage) error
}

func play(t testing.TB, open func(t *T) Sink, scenarios []scenario) {
	t.Helper()
	names := new(counter)
	for _, sc := range scenarios {
		s := &stage{t: &T{t, new(gates)}, names: names}
		s.sink = open(s.t)
		if s.sink.Apply == nil || s.sink.Effects == nil {
			t.Error("fencetest: a Sink needs Apply and Effects")
			return
		}
		if err := sc.play(s); err != nil {
			// Later scenarios presuppose what this one checks: they would report the same mistake.
			t.Errorf("fencetest: %s: %v", sc.name, err)
			return
		}
	}
}
