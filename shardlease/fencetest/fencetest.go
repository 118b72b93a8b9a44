// Package fencetest tests whether a sink refuses stale effects: it drives the sink with writers that
// it pauses, replaces and wakes up. It fails the test at the first stale effect that the sink accepts,
// and names the mistake in the sink.
//
// The fence of a shard is the highest generation of which the sink has applied an effect, or to which the fence was
// raised. A fenced
// sink applies an effect only if its generation is not lower than the fence of its shard, and it
// compares and applies in one atomic step. It accepts equal generations, because a writer writes more
// than once.
//
// # What Play cannot find
//
// A writer can be stopped only where the sink uses its context, or where a test double calls
// [T.Pause]. A sink that compares in one step and writes in the next, and does neither in between,
// is left to a crowd of concurrent writers, which find it with some luck only. This concerns sinks
// that ignore their context, and comparisons inside of another process: a test double of that
// process can call Pause, a real one cannot. Play logs at how many points it has stopped a writer,
// and how many of them are calls of Pause. With Sink.MustPause it fails if there is none.
//
// Play does not find a job, an operator or a time to live that deletes fences, a replica that has an
// older fence after a failover, or a storage that loses acknowledged writes. It finds a fence that is
// lost in a restart only if the test sets Sink.Restart.
package fencetest

import (
	"context"
	"testing"
)

// A Fence is what a writer sends with each effect.
type Fence struct {
	Shard string
	// Owner is the name of the writer. The name is not unique: a worker that owns the shard again
	// has the same name and a higher generation.
	Owner string
	// Generation grows with each new owner of the shard. Generations of different shards are not
	// related.
	Generation int64
}

// A Sink adapts the sink under test. Play calls its functions from several goroutines, so they must
// not call FailNow, Fatal or Skip. They must use the contexts that they get, because Play stops a
// writer when it uses its context.
type Sink struct {
	// Apply applies an effect under a fence, as a client of the sink does. An error means that the
	// effect was not applied and will not be applied later. Required.
	Apply func(ctx context.Context, f Fence, effect []byte) error

	// Effects returns the effects of a shard that readers see, in the order in which they were
	// applied. If the sink keeps one value for each shard, Effects returns the present value.
	// Required.
	Effects func(ctx context.Context, shard string) ([][]byte, error)

	// Raise raises the fence of a shard, as a shardlease.Target does when a worker takes the shard over: from then on, the sink
	// refuses every lower generation. It changes nothing that readers see. Without Raise, Play fails a sink that
	// accepts late effects of the earlier owner until the successor's first effect. A sink that compares with a
	// lease table needs no Raise.
	Raise func(ctx context.Context, f Fence) error

	// FirstEffect says that the sink cannot raise a fence, and is closed at the first effect of the successor. Until then it
	// accepts late effects, and Play does not play a successor that writes nothing.
	FirstEffect bool

	// Grant changes the owner of a shard and returns the fence of the new owner. It is for a sink
	// that compares with a lease table, because the table issues the generations. Default: Play
	// counts the generations itself.
	Grant func(ctx context.Context, shard, owner string) (Fence, error)

	// Restart replaces the process of the sink by another process with the same storage. Apply and
	// Effects then use the new process. Play calls no other function at the same time. Without
	// Restart, Play does not check that the fence outlives the process.
	Restart func(ctx context.Context) error

	// Refusal reports whether the error of Apply means that the sink refused the effect as stale, for
	// example errors.Is(err, checkpoint.ErrStale). A writer must be able to distinguish a refusal
	// from a failure, after which it sends the effect again. Default: every error is a refusal.
	Refusal func(err error) bool

	// MustPause makes Play fail unless it has stopped a writer at a call of T.Pause at least once.
	// Play cannot see where a sink compares and where it writes. A test that calls T.Pause between
	// the two, in the sink or in a test double of its storage, sets MustPause. Without it, a sink
	// that Play could not stop there passes with a line in the log, whether it is right or wrong.
	MustPause bool
}

// A T is the test of a sink.
type T struct {
	testing.TB
	gates *gates
}

// Pause is a point at which Play may stop the writer whose effect is being applied. A test double
// of the sink's storage calls it before and after each of its steps, where a sink calls the storage
// without a context, or in another goroutine. A sink that compares and writes under a lock calls it
// between the two, with the lock held: Play then sees that the successor waits. Most calls return at
// once. Set Sink.MustPause to be sure that Play stops a writer at such a call.
func (t *T) Pause() { t.gates.point() }

// Play drives a fenced sink through a number of scenarios. It fails the test at the first stale effect
// that the sink accepts, and at the first valid effect that the sink refuses. It calls open for each
// scenario. The names of the shards differ, so open may return the same storage again.
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
		{"an idle successor", (*stage).idleSuccessor},
		{"a paused Raise", (*stage).pausedRaises},
	})
}

// PlayRepeats drives a sink that promises that an effect happens once, however often it is sent: by
// one writer, by its successor, by both at once, or late. The bytes of an effect identify it. This
// promise does not include a fence: if the sink also promises a fence, call Play too.
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
