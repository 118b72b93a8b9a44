package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
)

// A Verdict decides what follows when a record has failed.
type Verdict int

const (
	// Stop ends the tenure before the record. The shard is tried again after a pause, and
	// quarantined when it has failed shardlease.Config.MaxAttempts times.
	Stop Verdict = iota
	// Skip leaves the record out. The sink stores its place in the stream and the reason.
	Skip
	// DeadLetter leaves the record out. The sink also stores its data.
	DeadLetter
)

var verdicts = [...]string{Stop: "stop", Skip: "skip", DeadLetter: "dead-letter"}

// String returns the text that UnmarshalText reads.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdicts) {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return verdicts[v]
}

// MarshalText returns the text that UnmarshalText reads.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads a verdict.
func (v *Verdict) UnmarshalText(text []byte) error {
	for i, name := range verdicts {
		if string(text) == name {
			*v = Verdict(i)
			return nil
		}
	}
	return errors.New(`must be "stop", "skip" or "dead-letter"`)
}

// A Failure is a record for which Process returned an error or panicked, or whose effect the
// sink can never store.
type Failure struct {
	Record stream.Record
	Err    error
	Times  int // how often the record has failed in all tenures, including this time
}

// After returns a [Consumer.Poison] that stops until a record has failed the given number of
// times, and then returns the verdict.
func After(times int, v Verdict) func(context.Context, Failure) (Verdict, error) {
	return func(_ context.Context, f Failure) (Verdict, error) {
		if f.Times < times {
			return Stop, nil
		}
		return v, nil
	}
}

// A RefusedError reports an effect that a sink can never store.
type RefusedError struct {
	Index int    // the index of the effect in the write
	Rule  string // the rule that the effect breaks
}

func (e *RefusedError) Error() string { return "the sink refuses the effect: it " + e.Rule }

// A PoisonError ends a tenure before a record that failed. The lease row stores only its type;
// the sink and the log have the details.
type PoisonError struct{ Failure }

func (e *PoisonError) Error() string {
	return fmt.Sprintf("record %s/%d of %s has failed %d times: %v", e.Record.Sequence, e.Record.Index, e.Record.Shard, e.Times, e.Err)
}

// Unwrap returns why the record failed.
func (e *PoisonError) Unwrap() error { return e.Err }

// try processes a record. It turns a panic into an error of that record, because the library
// recovers panics only in the handler's goroutine, and this is another one.
func (p *pipeline) try(r stream.Record) (e Effect, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
			p.log.Error("panic in Process", "shard", r.Shard, "sequence", r.Sequence, "index", r.Index, "panic", fault, "stack", string(debug.Stack()))
		}
	}()
	return p.process(p.ctx, r)
}

// poisoned stores the failure of a record in the sink and calls Poison. It returns the effect of a
// record that is left out, or an error if the shard must stop before the record. If the failure
// cannot be stored, poisoned ends the tenure itself.
func (p *pipeline) poisoned(r stream.Record, fault error) (Effect, error) {
	if p.ctx.Err() != nil { // the tenure has ended, and the record has not failed
		return Effect{}, context.Cause(p.ctx)
	}
	f := Failure{Record: r, Err: fault}
	var err error
	if f.Times, err = p.sink.Failed(p.ctx, p.hold, r, fault.Error()); err != nil {
		err = errors.Join(err, fault)
		p.fail(err)
		return Effect{}, err
	}
	p.lags.failed.Add(1)
	log := p.log.With("shard", r.Shard, "sequence", r.Sequence, "index", r.Index, "times", f.Times, "err", fault)
	verdict := Stop
	if p.poison != nil {
		if verdict, err = p.poison(p.ctx, f); err != nil {
			log.Error("record failed: Poison returned an error", "fault", err)
			return Effect{}, errors.Join(&PoisonError{f}, err)
		}
	}
	switch verdict {
	case Skip:
		log.Error("record skipped")
		return Effect{Record: r, Verdict: Skip, Reason: fault.Error()}, nil
	case DeadLetter:
		log.Error("record stored as a dead letter")
		return Effect{Record: r, Verdict: DeadLetter, Reason: fault.Error(), Value: r.Data}, nil
	}
	log.Warn("record failed: its shard stops before it")
	return Effect{}, &PoisonError{f}
}

// halt ends the tenure before a record that failed. It stops the reader; the records in other
// lanes are still processed and stored. The checkpoint is then just before the failed record,
// and the sink will leave out the stored effects after it. drain returns the first such error.
func (p *pipeline) halt(err error) {
	p.halted.CompareAndSwap(nil, &err)
	p.stop(err)
}

// keep writes finished items to the sink. If the sink refuses an effect, keep treats its record as failed
// and tries again. After an effect that is not stored, no effect of the same key may be stored
// in this tenure, because that would move the mark of the key past it.
func (p *pipeline) keep(items []item) error {
	for items = p.unblocked(items); len(items) > 0; {
		effects := make([]Effect, len(items))
		for i := range items {
			effects[i] = items[i].effect
		}
		err := p.sink.Write(p.ctx, p.hold, effects)
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Index < 0 || refused.Index >= len(items) || effects[refused.Index].Verdict != Stop || errors.Is(err, checkpoint.ErrStale) {
			if err == nil {
				p.kept(items)
			}
			return err
		}
		one := &items[refused.Index]
		if one.effect, err = p.poisoned(one.record, refused); err != nil {
			p.blocked[one.record.Key] = true
			p.halt(err)
			items = slices.Concat(items[:refused.Index], p.unblocked(items[refused.Index:]))
		}
	}
	return nil
}

// unblocked leaves out the items of blocked keys.
func (p *pipeline) unblocked(items []item) []item {
	var left []item
	for _, i := range items {
		if !p.blocked[i.record.Key] {
			left = append(left, i)
		}
	}
	return left
}

// kept completes items that the sink has stored.
func (p *pipeline) kept(items []item) {
	for _, i := range items {
		if i.effect.Verdict != Stop {
			p.lags.skipped.Add(1)
		}
		i.begun.Done()
		i.entry.done()
	}
}
