package shardlease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Target is a system that handlers change. A takeover refuses the earlier owner's commits at once. A sink that compares
// generations refuses its other effects only when the sink has seen the new generation: with the first effect of the
// successor, or when the fence is raised. List every system here. The worker raises the fences when a tenure begins:
//
//	before the handler is called     a claim, a recovery, an eager move, every lease of a session
//	while the handler runs           a cooperative move: the earlier owner lives, and its handler ends in a moment
//
// The worker repeats a raise that fails until it passes or the tenure ends. After a heartbeat interval it reports
// a raising event, and its seat names the target. If another worker is well, and no raise passes here, the worker then gives
// the shards up that wait for one; that is no failed attempt. A target that fails for all workers moves no shard, and neither
// does a raise that fails for one shard alone.
//
// A system that was restored from a backup has earlier fences: [Supervisor.Raise] raises them again.
type Target struct {
	// Name identifies the system to people, and is part of the seat while its fence is not raised. At most 64 bytes.
	// Required.
	Name string
	// Raise raises the fence of name to a generation: from its return on, the system refuses every effect under a lower one. It
	// changes nothing else, and may be called again for the same generation at any time. ctx has the token of the tenure;
	// when ctx ends, Raise must return: one lease time after the call, or with the tenure. A call that does not return then
	// gives its turn of MaxRaises to others, unless sixteen such calls hang already. A register has such a method, and
	// fence.Raise makes one of a guard.
	//
	// Nil: there is nothing to raise. The system compares with the lease row itself, or it is closed at the first effect
	// of the successor only.
	Raise func(ctx context.Context, name string, generation int64) error
	// Names returns the names under which the system keeps fences for a shard. Default: the name of the shard.
	Names func(Shard) []string
	// Before says that in a cooperative move too, the fence is raised before the handler is called. Nobody processes
	// the shard meanwhile, if the earlier owner's handler ends first.
	Before bool
}

// maxTarget is the longest name of a target, in bytes.
const maxTarget = 64

func (c *Config) targets(f *faults) {
	names := map[string]bool{}
	for i, t := range c.Targets {
		field := fmt.Sprintf("Targets[%d]", i)
		f.wrap(field, lease.Owner{Name: t.Name, Incarnation: "-"}.Validate())
		switch {
		case len(t.Name) > maxTarget:
			f.add(field, fmt.Sprintf("name must be at most %d bytes long, is %d", maxTarget, len(t.Name)))
		case names[t.Name]:
			f.add(field, fmt.Sprintf("must have a name of its own, %q is that of another target", t.Name))
		case t.Raise == nil && (t.Names != nil || t.Before):
			f.add(field, "has Names or Before, and no Raise")
		}
		names[t.Name] = true
	}
	c.MaxRaises = cmp.Or(c.MaxRaises, 16)
	if c.MaxRaises < 1 {
		f.add("MaxRaises", fmt.Sprintf("must be at least 1, is %d; it cannot be turned off", c.MaxRaises))
	}
}

// A raising is a target whose fences have to be raised.
type raising struct {
	Target
	turns chan struct{} // has room for as many calls as may run at a time
	hung  chan struct{} // the same for calls that have not returned when their contexts ended
	own   chan struct{} // the same for the calls of one tenure: more than one are under way only if some hang
}

// A raiser raises the fences of a run.
type raiser struct {
	do     func(func()) // starts a goroutine that Run waits for
	inbox  *inbox
	fault  func(shard string, err error) // reports a fault of a hook
	ttl    time.Duration
	names  []string // of all targets
	first  []raising
	beside []raising // raised beside the handler, where the mode allows that
}

// newRaiser returns the raiser of a configuration.
func newRaiser(c Config) (r raiser) {
	r.ttl = c.TTL
	for _, t := range c.Targets {
		r.names = append(r.names, t.Name)
		of := raising{Target: t, turns: make(chan struct{}, c.MaxRaises), hung: make(chan struct{}, mostHung)}
		switch {
		case t.Raise == nil:
		case t.Before:
			r.first = append(r.first, of)
		default:
			r.beside = append(r.beside, of)
		}
	}
	return r
}

// open raises the fences of a tenure that begins, and reports whether the handler is to be called. It is not if the tenure
// ends first. open runs on the goroutine of the handler.
func (r *raiser) open(t *Tenure, how engine.Raise) bool {
	first, beside := r.first, r.beside
	switch how {
	case engine.RaiseNothing:
		first, beside = nil, nil
	case engine.RaiseFirst:
		first, beside = slices.Concat(first, beside), nil
	}
	opened := r.raise(t.soft, t, first)
	if opened && how != engine.RaiseNothing {
		r.inbox.put(arrival{input: engine.Raised{Tenure: t.id(), All: len(beside) == 0}})
	}
	if opened && len(beside) > 0 {
		r.do(func() { r.raiseBeside(t, beside, 0) })
	}
	return opened
}

// raiseBeside raises fences while the handler runs.
func (r *raiser) raiseBeside(t *Tenure, targets []raising, round int) {
	if r.raise(t.hard, t, targets) {
		r.inbox.put(arrival{input: engine.Raised{Tenure: t.id(), All: true, Round: round}})
	}
}

// again raises all fences of a tenure once more.
func (r *raiser) again(t *Tenure, round int) {
	r.do(func() { r.raiseBeside(t, slices.Concat(r.first, r.beside), round) })
}

// raise raises the fences of a tenure in these targets, side by side, and reports whether they are raised: false if ctx
// has ended first.
func (r *raiser) raise(ctx context.Context, t *Tenure, targets []raising) bool {
	raised := make([]bool, len(targets))
	var rest sync.WaitGroup
	for i, of := range targets {
		if i > 0 {
			rest.Go(func() { raised[i] = r.raiseIn(ctx, t, of) })
		}
	}
	if len(targets) > 0 {
		raised[0] = r.raiseIn(ctx, t, targets[0])
	}
	rest.Wait()
	for _, is := range raised {
		if !is {
			return false
		}
	}
	return true
}

// raiseIn raises the fences of a tenure in one target. It repeats each raise until it passes, with pauses that double up to
// a heartbeat interval.
func (r *raiser) raiseIn(ctx context.Context, t *Tenure, of raising) bool {
	of.own = make(chan struct{}, max(1, cap(of.turns)/4)) // the calls of one shard that hang leave turns to others
	told, stale := false, false
	fails := func(err error) {
		higher := errors.Is(err, checkpoint.ErrStale)
		if told && (stale || !higher) || ctx.Err() != nil {
			return
		}
		if told, stale = true, higher; isPanic(err) {
			err = &HookError{Hook: "Raise of target " + of.Name, Err: err}
			r.fault(t.shard.Name, err)
		}
		r.inbox.put(arrival{input: engine.Unraised{Tenure: t.id(), Target: of.Name, Err: err}})
	}
	var names atomic.Pointer[[]string] // a call that was given up may still return
	listing := func(context.Context) error { names.Store(&[]string{t.shard.Name}); return nil }
	if of.Names != nil {
		listing = func(context.Context) error { names.Store(new(slices.Clone(of.Names(t.shard)))); return nil }
	}
	if !r.untilPasses(ctx, of, listing, fails) {
		return false
	}
	for _, name := range *names.Load() {
		raise := func(ctx context.Context) error { return of.Raise(ctx, name, t.hold.Generation) }
		if !r.untilPasses(ctx, of, raise, fails) {
			return false
		}
	}
	return true
}

// errNotRaised is the error of a raise that does not return.
var errNotRaised = errors.New("no answer for a heartbeat interval")

// mostHung is how many calls to a target may hang without a turn, so that they do not keep the other shards from theirs.
const mostHung = 16

// firstPause is the pause after the first raise that fails.
const firstPause = 100 * time.Millisecond

// untilPasses calls f until it returns nil, and reports whether it has: false if ctx has ended first.
func (r *raiser) untilPasses(ctx context.Context, of raising, f func(context.Context) error, fails func(error)) bool {
	longest := r.ttl / 3
	for pause := firstPause; ; pause = min(2*pause, longest) {
		err := r.attempt(ctx, of, f, fails)
		if err == nil {
			return true
		}
		fails(err)
		wait := time.NewTimer(min(pause, longest))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return false
		}
	}
}

// attempt calls f when it is its turn, on a goroutine of its own: neither a panic nor a runtime.Goexit nor a call that
// hangs ends the handler's goroutine. A call that does not return when its context ends leaves its turn to others,
// unless too many hang: so few goroutines hang. The calls of one tenure keep at most a quarter of the turns. Run waits
// for the call in the end.
func (r *raiser) attempt(ctx context.Context, of raising, f func(context.Context) error, late func(error)) error {
	for _, turn := range []chan struct{}{of.own, of.turns} {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.ttl)
	done, place := make(chan error, 1), make(chan chan struct{}, 1)
	place <- of.turns
	r.do(func() {
		err := error(&panicError{}) // the result if f calls runtime.Goexit
		defer func() { <-<-place; <-of.own; done <- err; cancel() }()
		_, err = guard(func() error { return sound("Raise of target "+of.Name, f(ctx)) })
	})
	slow := time.NewTimer(r.ttl / 3)
	defer slow.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-slow.C:
			late(errNotRaised)
		case <-ctx.Done():
			select {
			case err := <-done:
				return err
			default:
				of.hangs(place)
				return cmp.Or(context.Cause(ctx), errNotRaised)
			}
		}
	}
}

// hangs gives back the turn of a call that has not returned, if not too many hang. place has where the call is counted.
func (of raising) hangs(place chan chan struct{}) {
	select {
	case of.hung <- struct{}{}:
	default:
		return
	}
	select {
	case at := <-place:
		<-at
		place <- of.hung
	default: // it has returned by now
		<-of.hung
	}
}

func isPanic(err error) bool {
	_, is := errors.AsType[*panicError](err)
	return is
}
