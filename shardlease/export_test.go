package shardlease

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// SetWall makes w read another wall clock.
func SetWall(w *Worker, wall func() time.Time) { w.wall = wall }

// Filled returns a configuration with its defaults.
func Filled(c Config) (Config, error) { return c.withDefaults() }

// BuildOf returns the default of Config.Build.
func BuildOf(info *debug.BuildInfo) string { return buildOf(info) }

// CheckRecord returns an error unless r is a record with the key k.
func CheckRecord(r lease.Record, k lease.Key) error { return checkRecord("hook", r, k) }

// TermsOf returns the terms that the engine gets for a move.
func TermsOf(c Config, why rebalance.Why, fault func(string, error)) (rebalance.Terms, error) {
	c, err := c.withDefaults()
	return c.engine(fault).Handoff.Terms("s", why), err
}

// Look returns the input that the engine gets from a source.
func Look(ctx context.Context, s Source) engine.Source { return listSource(ctx, s, false) }

// A Desk plays the worker's loop for one tenure.
type Desk struct {
	*Tenure
	inbox *inbox
	batch batch
}

// NewDesk returns a Desk with a tenure that starts at a position.
func NewDesk(order checkpoint.Order, start string, marks int) *Desk {
	in := newInbox(marks)
	soft, drain := context.WithCancelCause(context.Background())
	hard, cancel := context.WithCancelCause(context.Background())
	t := &Tenure{
		inbox: in, shard: Shard{Name: "s"},
		hold: lease.Hold{Generation: 7, Order: order},
		soft: soft, hard: hard, drain: drain, cancel: cancel,
		last: checkpoint.Mark{Position: start}, start: checkpoint.Checkpoint{Mark: checkpoint.Mark{Position: start}},
	}
	return &Desk{Tenure: t, inbox: in}
}

// Woken reports whether the loop was woken since the last call.
func (d *Desk) Woken() bool {
	select {
	case <-d.inbox.wake:
		return true
	default:
		return false
	}
}

// Reported returns what the tenure reports to the engine next.
func (d *Desk) Reported() (in engine.Marks, ok bool) {
	d.batch = d.inbox.take(d.batch)
	for _, t := range d.batch.marked {
		in, ok = t.report()
	}
	return in, ok
}

// Settle settles marks as an answer of the engine does.
func (d *Desk) Settle(seq uint64, err error) { d.settle(seq, 0, err) }

// Oldest returns the age of the oldest mark that is not settled.
func (d *Desk) Oldest() time.Duration { return d.oldest() }

// Soft returns the ctx of the handler.
func (d *Desk) Soft() context.Context { return d.soft }

// Over ends the tenure as the engine does.
func (d *Desk) Over(cause event.Cause, err error) {
	end := d.end(cause)
	end.Err = err
	d.conclude(end)
}

// Close ends the calls of the handler, as its return does.
func (d *Desk) Close() error { return d.close() }

// NoteOf returns what of an error may be stored in the table.
func NoteOf(err error) string { return noteOf(err) }

// Trust returns the time, on the clock of w, at which its trust ends, as it was last
// published.
func Trust(w *Worker) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.trust)
}

// Refuse gives a session the answer that a lease is not available, for one of its acquisitions.
func Refuse(s *Session, name string, id uint64) { s.refuse(engine.Unavailable{Name: name, ID: id}) }

// Deliver gives a session a tenure for one of its acquisitions. It reports whether a call waited for it.
func Deliver(s *Session, name string, id uint64) bool {
	return s.deliver(&Tenure{shard: Shard{Name: name}, acquire: id}) != nil
}
