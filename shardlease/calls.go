package shardlease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the calls that goroutines other than the loop make: of the store, the source,
// Config.Planner, Config.Prepare and the handlers. Each puts its result into the inbox, once.

// A call is one call of the store or of the source.
type call struct {
	hook   string                          // the HookError.Hook for a fault of make
	urgent bool                            // whether the result is an urgent arrival
	make   func(ctx context.Context) error // calls the store or the source
	answer func(err error) engine.Input    // returns the input for the engine; err is the error or the panic of make
	flight *flight                         // nil: a call of the source
}

// ask makes a call and puts its result into the inbox. Every call has a time limit, after
// which the engine repeats it; that may help if the first request was lost. A store that
// panics counts as a store that has not answered.
func (r *run) ask(limit time.Duration, c call) {
	if c.flight != nil && !r.flights.begin(c.flight, r.mono().Add(limit)) {
		r.inbox.put(arrival{input: c.flight.lost, urgent: c.urgent})
		return
	}
	ctx := r.limited(limit)
	r.call(func() {
		err := error(&panicError{}) // the result if the store or the source calls runtime.Goexit
		defer func() {
			if p, ok := err.(*panicError); ok {
				p.sealed = true
				err = &HookError{Hook: c.hook, Err: p}
			}
			if c.flight != nil {
				c.flight.returned.Store(true)
			}
			r.inbox.put(arrival{input: c.answer(err), urgent: c.urgent, flight: c.flight})
		}()
		_, err = guard(func() error { return sound(c.hook, c.make(ctx)) })
	})
}

// A deadline is the context of all calls with one limit that begin at nearly the same time.
// A context and a timer for each call would be a sixth of the cost of a commit.
type deadline struct {
	context.Context
	cancel context.CancelFunc // never called, because a call may still be running: the context ends by its time, or with the run
	until  engine.Instant     // calls that begin later get another deadline
}

// limited returns a context that ends after limit, or up to a thirty-second of it sooner.
func (r *run) limited(limit time.Duration) context.Context {
	d := r.deadlines[limit]
	if now := r.mono(); now >= d.until {
		d.Context, d.cancel = context.WithTimeout(r.calls, limit)
		d.until = now.Add(limit / 32)
		r.deadlines[limit] = d
	}
	return d.Context
}

func (r *run) list(o engine.List) {
	limit := r.callLimit() // without the seats the worker can neither plan nor claim
	if o.Query.Kind == lease.KindLease {
		limit = min(r.config.TTL, longestListing) // there may be many rows
	}
	in, about := engine.Listed{Read: o.Read}, subject{hook: "store.List", kind: o.Query.Kind}
	r.ask(limit, call{
		flight: &flight{about: about, lost: engine.Listed{Read: o.Read, Err: about.unanswered()}},
		hook:   "store.List", urgent: o.Query.Kind == lease.KindSeat,
		make: func(ctx context.Context) error {
			var last string
			for record, err := range r.worker.store.List(ctx, o.Query) {
				if malformed, ok := errors.AsType[*lease.MalformedError](err); ok && malformed != nil {
					in.Unreadable = append(in.Unreadable, engine.Unreadable{Key: malformed.Key, WriteID: malformed.WriteID, Err: malformed})
					continue
				}
				if err == nil {
					err = checkListed(record, o.Query, last)
				}
				if err != nil {
					return err
				}
				in.Records, last = append(in.Records, record), record.Key().Name
			}
			return nil
		},
		answer: func(err error) engine.Input { in.Err = err; return in },
	})
}

// callLimit returns the time limit of a call about one record. A worker must survive an outage
// of half a lease time, whenever it begins. At worst it begins with a heartbeat, which is sent
// a third of a lease time after the last confirmed one. Two attempts then end by this limit.
// The third must be sent after the outage, so at least 0.50 lease times after the first. It
// must also be answered before trust ends, nine tenths of a lease time after the confirmed
// heartbeat was sent, so at most 0.57 lease times after the first. The pauses between the
// attempts are a sixteenth and an eighth of a heartbeat interval, 0.06 lease times together.
// So two limits must add up to between 0.44 and 0.50 lease times.
//
// With a long lease time a call ends sooner: one request that is lost should not delay a claim
// by hours.
func (r *run) callLimit() time.Duration { return min(r.config.TTL*7/30, longestCall) }

const (
	longestCall    = 30 * time.Second
	longestListing = 5 * time.Minute // of all rows: many requests
)

func (r *run) get(o engine.Get) {
	in, about := engine.Got{Read: o.Read, Key: o.Key}, subject{"store.Get", o.Key.Kind, o.Key.Name}
	r.ask(r.callLimit(), call{
		flight: &flight{about: about, lost: engine.Got{Read: o.Read, Key: o.Key, Err: about.unanswered()}},
		hook:   "store.Get",
		make: func(ctx context.Context) error {
			record, err := r.worker.store.Get(ctx, o.Key)
			if err == nil {
				err = checkRecord("store.Get", record, o.Key)
			}
			if errors.Is(err, lease.ErrNotFound) {
				return nil
			}
			in.Record = record
			return err
		},
		answer: func(err error) engine.Input { in.Err = err; return in },
	})
}

func (r *run) send(o engine.Send) {
	key := o.Write.Key()
	in, about := engine.Settled{Write: o.Write}, subject{"store.Write", key.Kind, key.Name}
	seat := key.Kind == lease.KindSeat
	if seat {
		about.name = o.Write.Op.String() // a worker that takes another seat has another name there
	}
	r.ask(r.callLimit(), call{
		flight: &flight{about: about, lost: engine.Settled{Write: o.Write, Err: lostWrite{o.Write}}},
		hook:   "store.Write", urgent: seat,
		make: func(ctx context.Context) error {
			began := time.Now()
			record, err := r.worker.store.Write(ctx, o.Write)
			if err == nil && seat {
				r.heartbeatTook(time.Since(began))
			}
			in.Record, err = checkAnswer(o.Write, record, err)
			return err
		},
		answer: func(err error) engine.Input { in.Err = err; return in },
	})
}

func (r *run) verify(o engine.Verify) {
	about := subject{hook: "store.Verify"}
	r.ask(min(r.config.TTL, longestCall), call{
		flight: &flight{about: about, lost: engine.Verified{Read: o.Read, Err: about.unanswered()}},
		hook:   "store.Verify", urgent: true,
		make:   func(ctx context.Context) error { return r.worker.store.Verify(ctx, r.config.Group) },
		answer: func(err error) engine.Input { return engine.Verified{Read: o.Read, Err: err} },
	})
}

func (r *run) poll() {
	limit := max(r.config.PollEvery, 30*time.Second)
	r.sourceDue = r.mono().Add(limit + time.Second)
	var shards []Shard
	r.ask(limit, call{
		hook: "source",
		make: func(ctx context.Context) (err error) {
			shards, err = r.worker.source.Shards(ctx)
			return err
		},
		answer: func(err error) engine.Input { return listing(shards, err, r.config.EmptySource) },
	})
}

// reportSilentSource reports a source that does not answer. It cannot be called again
// before it does, and new shards go unnoticed until then.
func (r *run) reportSilentSource() {
	if r.mono() >= r.sourceDue {
		r.sourceDue = engine.Never
		r.step(engine.SourceSilent{Err: &SourceError{Err: errNoAnswer}})
	}
}

// plan calls the user's planner on a goroutine of its own. Another one waits for it, at most a third of the lease time.
// A planner gets no context, so a call that hangs cannot be ended. Until it returns, the planner is not called
// again: a second call would hang as well, and each would keep a goroutine. Run waits for it in the end, as it does for a
// handler.
func (r *run) plan(o engine.Plan) {
	if r.planning.Load() {
		r.planned(o, nil, errors.New("an earlier call has not returned")) // at once: there is nothing to wait for
		return
	}
	r.planning.Store(true)
	var plan []int
	done, limit := make(chan error, 1), r.config.TTL/3
	r.do(func() {
		err := error(&panicError{}) // the result if the planner calls runtime.Goexit
		defer func() { r.planning.Store(false); done <- err }()
		_, err = guard(func() error {
			plan = r.config.Planner.Plan(rebalance.View{Shards: slices.Clone(o.View.Shards), Workers: slices.Clone(o.View.Workers), Pins: o.View.Pins})
			plan = slices.Clone(plan)
			return nil
		})
	})
	r.do(func() {
		late := time.NewTimer(limit)
		defer late.Stop()
		select {
		case err := <-done:
			if err == nil {
				err = checkPlan(o.View, plan)
			}
			r.planned(o, plan, err)
		case <-late.C:
			r.planned(o, nil, fmt.Errorf("returned no plan within %v", limit))
		case <-r.calls.Done():
		}
	})
}

// planned gives the engine the user's plan, or none and reports why.
func (r *run) planned(o engine.Plan, plan []int, err error) {
	if err != nil {
		plan = nil
		r.hookFault("", &HookError{Hook: "Planner", Err: fmt.Errorf("%w; rebalance.Even makes this plan", err)})
	}
	r.inbox.put(arrival{input: engine.Planned{Ask: o.Ask, To: plan}})
}

// A preparation is one call of Config.Prepare.
type preparation struct{ cancel context.CancelFunc }

func (r *run) prepareFor(o engine.Prepare) {
	ctx, cancel := context.WithTimeout(r.calls, o.For)
	if old := r.prepare[o.Shard.Name]; old != nil {
		old.cancel()
	}
	p := &preparation{cancel: cancel}
	r.prepare[o.Shard.Name] = p
	r.do(func() {
		shard := Shard{Name: o.Shard.Name, Parents: o.Shard.Parents, Weight: o.Shard.Weight}
		err := error(&panicError{}) // the result if Prepare calls runtime.Goexit
		defer func() {
			// A preparation that was called off or is late returns the error of its context.
			if err != nil && ctx.Err() == nil {
				r.emit(event.Event{Kind: event.HookFault, Shard: shard.Name, Err: &HookError{Hook: "Prepare", Err: err}})
			}
			r.inbox.put(arrival{input: engine.Prepared{Shard: shard.Name}, from: p})
		}()
		_, err = guard(func() error { return sound("Prepare", r.config.Prepare(ctx, shard, o.Checkpoint)) })
	})
}

// handle raises the fences of a tenure, and runs its handler to the end.
func (r *run) handle(t *Tenure, how engine.Raise, started event.Event) {
	// The result if the handler calls runtime.Goexit.
	panicked, err := true, error(&panicError{})
	defer func() {
		in, at, result := engine.Returned{Tenure: t.id(), Unasked: t.unasked()}, r.worker.wall().UnixMilli(), err
		in.Failed, in.Note, err = resultOf(t, panicked, err, func(err error) string {
			text, fault := errorText(r.config.ErrorText, err)
			if fault != nil {
				r.hookFault(t.shard.Name, fault)
			}
			return text
		})
		// Marks that are made after close are refused. Those made before are in the inbox,
		// so they are reported before the return.
		end := t.close()
		r.inbox.put(arrival{input: in, err: err, at: at})
		t.stop(end) // frees the contexts
		if t.returns != nil {
			t.returns <- given(result)
		}
	}()
	if how != engine.RaiseNothing && r.worker.unwanted != nil && r.worker.unwanted(t) {
		t.Release("no longer wanted")
	}
	opened := r.raiser.open(t, how)
	started.Targets = r.raiser.names
	r.reportStart(started) // also if the handler is not called, because the end of the tenure is reported
	if !opened {
		if panicked, err = false, nil; r.worker.again != nil {
			r.worker.again(t)
		}
		return
	}
	panicked, err = guard(func() error { return sound("handler", r.handler(t.soft, t)) })
}

// unasked reports whether nothing has asked the handler to return.
func (t *Tenure) unasked() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.soft.Err() == nil && !t.release
}

// resultOf returns whether a tenure has failed, the note that the table stores about its end,
// and the handler's error unless it contains nothing new.
//
// If ctx has ended, the handler may return any error, and that is no failure. If that error
// is the error of ctx or its cause, it contains nothing new.
func resultOf(t *Tenure, panicked bool, err error, textOf func(error) string) (failed bool, note string, news error) {
	switch {
	case err == nil:
		return false, t.releaseNote(), nil
	case panicked || t.soft.Err() == nil:
		return true, textOf(err), err
	}
	if end, _ := errors.AsType[*EndError](err); end != nil || errors.Is(err, context.Canceled) {
		err = nil
	}
	return false, t.releaseNote(), err
}
