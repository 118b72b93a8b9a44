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

// A Verdict is what becomes of a record that failed.
type Verdict int

const (
	// Stop ends the tenure before the record. The shard is tried again after a rest, and
	// quarantined when it has failed shardlease.Config.MaxAttempts times.
	Stop Verdict = iota
	// Skip leaves the record out. The sink keeps its place in the stream and the reason.
	Skip
	// DeadLetter leaves the record out, and the sink keeps its data as well.
	DeadLetter
)

var verdicts = [...]string{Stop: "stop", Skip: "skip", DeadLetter: "dead-letter"}

// String is what UnmarshalText reads.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdicts) {
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
	return verdicts[v]
}

// MarshalText is what UnmarshalText reads.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads it.
func (v *Verdict) UnmarshalText(text []byte) error {
	for i, name := range verdicts {
		if string(text) == name {
			*v = Verdict(i)
			return nil
		}
	}
	return errors.New(`must be "stop", "skip" or "dead-letter"`)
}

// A Failure is a record that Process returned an error for, or panicked, or whose effect the
// sink can never keep.
type Failure struct {
	Record stream.Record
	Err    error
	Times  int // how often the record has failed, this time included, in all tenures
}

// After is a [Consumer.Poison] that tries a record so many times, and then has a verdict.
func After(times int, v Verdict) func(context.Context, Failure) (Verdict, error) {
	return func(_ context.Context, f Failure) (Verdict, error) {
		if f.Times < times {
			return Stop, nil
		}
		return v, nil
	}
}

// A RefusedError is an effect that a sink can never keep.
type RefusedError struct {
	Index int // among the effects of the write
	Rule  string
}

func (e *RefusedError) Error() string { return "the sink refuses the effect: it " + e.Rule }

// A PoisonError ends a tenure before a record that failed. Its type is what the lease row
// remembers; the sink and the log have the rest.
type PoisonError struct{ Failure }

func (e *PoisonError) Error() string {
	return fmt.Sprintf("record %s/%d of %s has failed %d times: %v", e.Record.Sequence, e.Record.Index, e.Record.Shard, e.Times, e.Err)
}

// Unwrap is why the record failed.
func (e *PoisonError) Unwrap() error { return e.Err }

// try processes a record. A panic is an error of that record: this is no goroutine of the
// library, which would have taken it for one of the handler.
func (p *pipeline) try(r stream.Record) (e Effect, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
			p.log.Error("panic in Process", "shard", r.Shard, "sequence", r.Sequence, "index", r.Index, "panic", fault, "stack", string(debug.Stack()))
		}
	}()
	return p.process(p.ctx, r)
}

// judge notes that a record failed and asks what becomes of it: an effect that says that it
// was left out, or an error. It ends the tenure itself where it cannot note it.
func (p *pipeline) judge(r stream.Record, fault error) (Effect, error) {
	if p.ctx.Err() != nil { // it is the tenure that ended
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
			log.Error("record failed, and nothing could be decided", "fault", err)
			return Effect{}, errors.Join(&PoisonError{f}, err)
		}
	}
	switch verdict {
	case Skip:
		log.Error("record skipped")
		return Effect{Record: r, Verdict: Skip, Reason: fault.Error()}, nil
	case DeadLetter:
		log.Error("record put among the dead letters")
		return Effect{Record: r, Verdict: DeadLetter, Reason: fault.Error(), Value: r.Data}, nil
	}
	log.Warn("record failed, and its shard stops before it")
	return Effect{}, &PoisonError{f}
}

// halt ends the tenure before a record that failed. Nothing more is read; but what other
// lanes have is processed and kept: the checkpoint goes up to the record, and what is behind
// it will be known. The first one is the one that is told.
func (p *pipeline) halt(err error) {
	p.halted.CompareAndSwap(nil, &err)
	p.stop(err)
}

// keep gives the sink what the lanes have finished, and what became of the effects that it
// refuses. An effect that is not kept must be followed by none of its key in this tenure:
// those would move the mark of the key past it.
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
		if one.effect, err = p.judge(one.record, refused); err != nil {
			p.blocked[one.record.Key] = true
			p.halt(err)
			items = slices.Concat(items[:refused.Index], p.unblocked(items[refused.Index:]))
		}
	}
	return nil
}

// unblocked leaves out the records of keys that have one that was not kept.
func (p *pipeline) unblocked(items []item) []item {
	var left []item
	for _, i := range items {
		if !p.blocked[i.record.Key] {
			left = append(left, i)
		}
	}
	return left
}

// kept counts records that are in the sink, or were left out.
func (p *pipeline) kept(items []item) {
	for _, i := range items {
		if i.effect.Verdict != Stop {
			p.lags.skipped.Add(1)
		}
		i.begun.Done()
		i.entry.done()
	}
}
