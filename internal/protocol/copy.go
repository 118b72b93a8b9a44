package protocol

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Copy is what one worker knows of one row, and the only way it writes there.
// It is a plain value: no clock, no I/O; its owner sends what it says.
//
// Invariant: at most one write is open. With two under way, the first could
// arrive after the second and undo it.
//
// Invariant: a copy never goes back. What a late reply says is older, and
// counts for nothing.
type Copy struct {
	key  lease.Key
	me   lease.Incarnation
	row  lease.Row
	held int64 // the highest generation this incarnation has started
	open lease.Write
	busy bool // open is under way
	torn bool // a sending of open went unanswered; a call that ended with a lease.QueuedError does not count
}

// NewCopy is the copy of a worker that has not seen the row.
func NewCopy(key lease.Key, me lease.Incarnation) Copy { return Copy{key: key, me: me} }

// Key is the row's address, known before the row is.
func (c *Copy) Key() lease.Key { return c.key }

// Row is the row as last known; its generation is 0 before it was seen.
func (c *Copy) Row() lease.Row { return c.row }

// Open is the write whose outcome is not known, and that is to be sent, or sent
// again, if there is one.
func (c *Copy) Open() (lease.Write, bool) { return c.open, c.busy }

// Send makes w the open write. ErrOpen: another one is; ErrOtherRow: it is not
// about this row.
func (c *Copy) Send(w lease.Write) error {
	if w.Key() != c.key {
		return fmt.Errorf("%v: %w", w, ErrOtherRow)
	}
	if c.busy {
		return fmt.Errorf("%v: %w", w, ErrOpen)
	}
	c.open, c.busy, c.torn = w, true, false
	return nil
}

// Saw takes in a row that was read, and reports whether it is news. While a
// write is open nothing is: only the answer to that write settles it, for a
// read may have been served before the write was.
func (c *Copy) Saw(r lease.Row) bool {
	if c.busy || r.Key() != c.key || r.Compare(c.row) <= 0 {
		return false
	}
	c.row = r
	return true
}

// An Answer is what came of a write.
type Answer struct {
	Write   lease.Write
	Verdict Verdict
	Row     lease.Row // as it stands, where known
	// Torn: an earlier sending of the same bytes went unanswered. Overtaken
	// then leaves open whether the write was stored before.
	Torn bool
	me   lease.Incarnation
	err  error
}

// Answer takes in the store's answer to w. Unless the verdict is Unknown, no write
// is open afterwards. An answer to any write but the open one changes nothing:
// it is a slow reply to an earlier sending of something that is settled.
func (c *Copy) Answer(w lease.Write, reply lease.Record, err error) Answer {
	if !c.busy || w.ID() != c.open.ID() {
		return Answer{Write: w, Verdict: Unsent, err: ErrNotOpen}
	}
	verdict, now := Settle(c.me, c.open, reply, err)
	refused, _ := errors.AsType[*lease.RefusedError](err)
	a := Answer{Write: c.open, Verdict: verdict, Torn: c.torn || refused != nil && refused.Retried, me: c.me, err: err}
	if verdict == Unknown {
		c.torn = c.torn || !errors.Is(err, lease.ErrQueued)
		return a
	}
	c.busy, c.open = false, lease.Write{}
	if row, ok := now.(lease.Row); ok {
		a.Row = row
		if row.Compare(c.row) > 0 {
			c.row = row
		}
	}
	return a
}

func (a Answer) stale(old lease.Row) error {
	return &checkpoint.StaleError{
		Shard: old.Shard, Mine: old.Generation,
		Observed: a.Row.Generation, Owner: a.Row.Owner.Name, OutcomeUnknown: a.Torn,
	}
}

// Err is what the writer is told; nil for success.
//
//   - Overtaken: a StaleError for the holder, ErrExists for a creation, otherwise
//     lease.ErrOutdated
//   - Gone: nil for a holder that was giving the shard up and had no new mark to
//     store; a StaleError over a tombstone; otherwise ErrGone
//   - Again: ErrMoved; Conflict: ErrConflict; WentBack: lease.ErrWentBack
//   - Unknown and Unsent: the store's error, or ErrNotOpen
func (a Answer) Err() error {
	old, _ := a.Write.Old.(lease.Row)
	next, _ := a.Write.Next.(lease.Row)
	holder := a.Write.Op == lease.OpSwap && a.me != "" && old.Owner.Incarnation == a.me
	because := func(why lease.Rule) error {
		return &lease.RuleError{Transition: a.Write.Op.String(), Key: a.Write.Key(), Rule: why}
	}
	switch a.Verdict {
	case Stored:
		return nil
	case Overtaken:
		switch {
		case a.Write.Op == lease.OpCreate:
			return because(ErrExists)
		case !holder:
			return because(lease.ErrOutdated)
		}
		return a.stale(old)
	case Gone:
		switch {
		case holder && next.Owner.Incarnation != a.me && next.Checkpoint.Mark == old.Checkpoint.Mark:
			return nil
		case holder && a.Row.Removed:
			return a.stale(old)
		}
		return because(ErrGone)
	case Conflict:
		return because(ErrConflict)
	case WentBack:
		return because(lease.ErrWentBack)
	case Again:
		return because(ErrMoved)
	}
	return a.err // Unsent, Unknown
}

// String tells what is known, and never the user's data.
func (c Copy) String() string {
	text := fmt.Sprintf("copy of %v for %s: %v", c.key, c.me, c.row)
	if c.busy {
		text += fmt.Sprintf("; open: %v, unanswered before: %t", c.open, c.torn)
	}
	return text
}

// Format keeps every verb from printing the user's data.
func (c Copy) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is String, for structured logs.
func (c Copy) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Start begins a tenure of the row as it stands. It gives no hold where the row
// is not in this incarnation's name, or where this generation was started
// before: one generation is one tenure.
func (c *Copy) Start(order checkpoint.Order) (lease.Hold, bool) {
	if c.row.Owner.IsZero() || c.row.Owner.Incarnation != c.me || c.row.Generation <= c.held {
		return lease.Hold{}, false
	}
	c.held = c.row.Generation
	return lease.Hold{Key: c.key, Incarnation: c.me, Generation: c.held, Order: order}, true
}

// A Remedy says what to do with a row that names this incarnation while it has
// no tenure of it: a lost answer to a claim, a yield nobody waited for any
// more, a release that never arrived.
type Remedy uint8

const (
	LeaveAlone Remedy = iota
	StartIt           // the generation was never started
	ClaimAgain        // it was, and the tenure is over: only a new generation can be started
	GiveBack          // the worker is leaving: release it unstarted
)

// Reconcile is asked at every look at the row, with whether the worker has a
// tenure of it and whether it is leaving.
func (c *Copy) Reconcile(tenure, leaving bool) Remedy {
	switch {
	case c.busy || tenure || c.row.Owner.IsZero() || c.row.Owner.Incarnation != c.me:
		return LeaveAlone
	case leaving:
		return GiveBack
	case c.row.Generation > c.held:
		return StartIt
	}
	return ClaimAgain
}
