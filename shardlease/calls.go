package shardlease

import (
	"context"
	"errors"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// What runs beside the loop: calls of the store, the source, the hook and the
// handlers. Each answers into the inbox, once.

// A call is one call of the store or of the source.
type call struct {
	hook   string                          // HookError.Hook if make misbehaves
	urgent bool                            // see arrival
	make   func(ctx context.Context) error // calls the store or the source
	answer func(err error) engine.Input    // the input for the engine; err is the error or the panic of make
}

// ask runs a call and hands in its answer. Every call has a limit: a store that does not
// answer is asked again, which may help where the first request was lost. A store that
// panics counts as a store that has not answered.
func (r *run) ask(limit time.Duration, c call) {
	ctx := r.limited(limit)
	r.call(func() {
		err := error(&panicError{}) // what runtime.Goexit leaves
		defer func() {
			if p, ok := err.(*panicError); ok {
				p.sealed = true
				err = &HookError{Hook: c.hook, Err: p}
			}
			r.inbox.put(arrival{input: c.answer(err), urgent: c.urgent})
		}()
		_, err = guard(func() error { return sound(c.hook, c.make(ctx)) })
	})
}

// A deadline is the context of all calls with one limit that begin at nearly the same
// time. One for each call, with a timer of its own, is a sixth of what a commit costs.
type deadline struct {
	context.Context
	cancel context.CancelFunc // nobody's: a call may still be under way. It ends by its time, or with the run
	until  engine.Instant     // for calls that begin before
}

// limited is a context that ends after limit, or up to a thirty-second of it sooner.
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
	limit := r.patience() // a worker that waits for the seats is blind
	if o.Query.Kind == lease.KindLease {
		limit = r.config.TTL // there may be many
	}
	in := engine.Listed{Read: o.Read}
	r.ask(limit, call{
		hook: "store.List", urgent: o.Query.Kind == lease.KindSeat,
		make: func(ctx context.Context) error {
			var last string
			for record, err := range r.worker.store.List(ctx, o.Query) {
				if malformed, ok := errors.AsType[*lease.MalformedError](err); ok {
					in.Unreadable = append(in.Unreadable, malformed.Key)
					continue
				}
				if err == nil {
					err = listable(record, o.Query, last)
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

// patience is for calls about one record: a beat that hangs must leave time for
// another before trust ends, and that for a third. A beat is sent a third of the lease time
// after the last one at the latest. If from just then on nothing is answered for half a lease
// time, the third has to be sent after that and answered before nine tenths are over. The
// pauses between them are a sixteenth and an eighth of a beat, so two patiences have to be
// between 0.44 and 0.50 lease times.
func (r *run) patience() time.Duration { return r.config.TTL * 7 / 30 }

func (r *run) get(o engine.Get) {
	in := engine.Got{Read: o.Read, Key: o.Key}
	r.ask(r.patience(), call{
		hook: "store.Get",
		make: func(ctx context.Context) error {
			record, err := r.worker.store.Get(ctx, o.Key)
			if err == nil {
				err = answers("store.Get", record, o.Key)
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
	in, seat := engine.Settled{Write: o.Write}, o.Write.Key().Kind == lease.KindSeat
	r.ask(r.patience(), call{
		hook: "store.Write", urgent: seat,
		make: func(ctx context.Context) error {
			began := time.Now()
			record, err := r.worker.store.Write(ctx, o.Write)
			if err == nil && seat {
				r.heard(time.Since(began))
			}
			in.Record, err = settles(o.Write, record, err)
			return err
		},
		answer: func(err error) engine.Input { in.Err = err; return in },
	})
}

func (r *run) verify(o engine.Verify) {
	r.ask(r.config.TTL, call{
		hook: "store.Verify", urgent: true,
		make:   func(ctx context.Context) error { return r.worker.store.Verify(ctx, r.config.Group) },
		answer: func(err error) engine.Input { return engine.Verified{Read: o.Read, Err: err} },
	})
}

func (r *run) poll() {
	limit := max(r.config.PollEvery, 30*time.Second)
	r.patient = r.mono().Add(limit + time.Second)
	var shards []Shard
	r.ask(limit, call{
		hook: "source",
		make: func(ctx context.Context) (err error) {
			shards, err = r.worker.source.Shards(ctx)
			return err
		},
		answer: func(err error) engine.Input { return listing(shards, err) },
	})
}

// errDeaf: a source that blocks.
var errDeaf = errors.New("no answer before the deadline, and the call ignores its context")

// complain reports a source that does not answer. It cannot be asked again before it
// does, and new shards go unnoticed until then.
func (r *run) complain() {
	if r.mono() >= r.patient {
		r.patient = engine.Never
		r.step(engine.SourceSilent{Err: &SourceError{Err: errDeaf}})
	}
}

// A preparation is one call of the prepare hook.
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
		err := error(&panicError{}) // what runtime.Goexit leaves
		defer func() {
			// One that was called off, or is late, returns the error of its context.
			if err != nil && ctx.Err() == nil {
				r.emit(event.Event{Kind: event.HookFault, Shard: shard.Name, Err: &HookError{Hook: "Prepare", Err: err}})
			}
			r.inbox.put(arrival{input: engine.Prepared{Shard: shard.Name}, from: p})
		}()
		_, err = guard(func() error { return sound("Prepare", r.config.Prepare(ctx, shard, o.Checkpoint)) })
	})
}

// handle runs the handler of a tenure to its end, whichever that is.
func (r *run) handle(t *Tenure) {
	// What runtime.Goexit leaves behind.
	panicked, err := true, error(&panicError{})
	defer func() {
		in := engine.Returned{Tenure: t.id()}
		in.Failed, in.Note, err = judge(t, panicked, err)
		// Marks that are made from here on are refused; those made before are
		// in the inbox, and so are told before this.
		end := t.close()
		r.inbox.put(arrival{input: in, err: err})
		t.stop(end) // frees the contexts
	}()
	panicked, err = guard(func() error { return sound("handler", r.handler(t.soft, t)) })
}

// judge says whether a tenure has failed, what the table should remember of its
// end, and what of the handler's error is news.
//
// A handler whose ctx has ended may return any error, and that is no failure; if it is the
// error of its ctx, or its cause, it is no news either.
func judge(t *Tenure, panicked bool, err error) (failed bool, note string, news error) {
	switch {
	case err == nil:
		return false, t.lastWords(), nil
	case panicked || t.soft.Err() == nil:
		return true, noteOf(err), err
	}
	if _, told := errors.AsType[*EndError](err); told || errors.Is(err, context.Canceled) {
		err = nil
	}
	return false, t.lastWords(), err
}
