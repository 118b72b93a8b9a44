package shardlease

import (
	"context"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// SetWall makes w read another wall clock.
func SetWall(w *Worker, wall func() time.Time) { w.wall = wall }

// Filled is a configuration with its defaults.
func Filled(c Config) (Config, error) { return c.withDefaults() }

// TermsOf are the terms that the engine gets for a move.
func TermsOf(c Config, why rebalance.Why, fault func(string, error)) (rebalance.Terms, error) {
	c, err := c.withDefaults()
	return c.engine(fault).Handoff.Terms("s", why), err
}

// Look is what the engine gets of a source.
func Look(ctx context.Context, s Source) engine.Source { return listSource(ctx, s) }

// A Desk stands in for the worker of one tenure.
type Desk struct {
	*Tenure
	inbox *inbox
	batch batch
}

// NewDesk is a tenure that starts at a position, and its desk.
func NewDesk(order checkpoint.Order, start string, marks int) *Desk {
	in := newInbox()
	soft, drain := context.WithCancelCause(context.Background())
	hard, cancel := context.WithCancelCause(context.Background())
	t := &Tenure{
		inbox: in, shard: Shard{Name: "s"}, marks: uint64(marks),
		hold: lease.Hold{Generation: 7, Order: order},
		soft: soft, hard: hard, drain: drain, cancel: cancel,
		last: checkpoint.Mark{Position: start}, start: checkpoint.Checkpoint{Mark: checkpoint.Mark{Position: start}},
	}
	return &Desk{Tenure: t, inbox: in}
}

// Woken reports whether the loop was woken since it was last asked.
func (d *Desk) Woken() bool {
	select {
	case <-d.inbox.wake:
		return true
	default:
		return false
	}
}

// Told is what the engine is told next.
func (d *Desk) Told() (in engine.Marks, ok bool) {
	d.batch = d.inbox.take(d.batch)
	for _, t := range d.batch.marked {
		in, ok = t.report()
	}
	return in, ok
}

// Settle is the engine's answer.
func (d *Desk) Settle(seq uint64, err error) { d.settle(seq, err) }

// Soft is the context that the handler is called with.
func (d *Desk) Soft() context.Context { return d.soft }

// Over is the end, as the engine says it.
func (d *Desk) Over(cause event.Cause, err error) {
	end := d.end(cause)
	end.Err = err
	d.conclude(end)
}

// Close is the handler's return.
func (d *Desk) Close() error { return d.close() }

// NoteOf is what of an error may be stored.
func NoteOf(err error) string { return noteOf(err) }

// Trust is when the trust of w in its lease ends, on its own clock, as it was last published.
func Trust(w *Worker) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.trust)
}
