package protocol

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Copy is what one worker knows of one row. A worker writes to the row only through its
// Copy. A Copy is a plain value without clock and I/O; the worker sends the writes.
//
// Invariant: at most one write is open. If two were under way, the first could arrive after
// the second and undo it.
//
// Invariant: a Copy never goes back. A late reply has an older row, which is ignored.
type Copy struct {
	key  lease.Key
	me   lease.Incarnation
	row  lease.Row
	held int64 // the highest generation of which this incarnation has started a tenure
	open lease.Write
	busy bool // open is under way
	torn bool // an attempt of open was not answered. A call that ended with a lease.QueuedError made no attempt
}

// NewCopy returns the copy of a worker that has not read the row yet.
func NewCopy(key lease.Key, me lease.Incarnation) Copy { return Copy{key: key, me: me} }

// Key returns the address of the row.
func (c *Copy) Key() lease.Key { return c.key }

// Me returns the incarnation that writes through the copy.
func (c *Copy) Me() lease.Incarnation { return c.me }

// Row returns the row as last known. Its generation is 0 until the row has been read.
func (c *Copy) Row() lease.Row { return c.row }

// Open returns the write whose outcome is unknown, which the worker has to send or send again,
// if there is one.
func (c *Copy) Open() (lease.Write, bool) { return c.open, c.busy }

// Send makes w the open write. It returns ErrOpen if another write is open, and ErrOtherRow if w
// is about another row.
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

// Saw records a row that was read, and reports whether it is newer than the known one. It ignores
// the row while a write is open: the read may have been served before the write was, so only the
// answer to the write settles it.
func (c *Copy) Saw(r lease.Row) bool {
	if c.busy || r.Key() != c.key || r.Compare(c.row) <= 0 {
		return false
	}
	c.row = r
	return true
}

// An Answer is the result of a write.
type Answer struct {
	Write   lease.Write
	Verdict Verdict
	Row     lease.Row // the present row, if the answer contained it
	// Torn: an earlier attempt with the same bytes was not answered. If the verdict is
	// Overtaken, that attempt may have been stored before the row changed hands.
	Torn bool
	me   lease.Incarnation
	err  error
}

// Answer records the store's answer to w. After it no write is open, unless the verdict is
// Unknown. An answer to another write than the open one changes nothing: it is a late reply to an
// earlier attempt of a write that is settled.
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

// Holds returns what a read of the row means for a holder under a generation: what it would mean as the refusal of a
// write of that holder. The verdict is Again if the row is under that generation and names this incarnation. It changes
// nothing.
func (c *Copy) Holds(generation int64, read lease.Record) Answer {
	held := lease.Row{Group: c.key.Group, Shard: c.key.Name, Generation: generation, Owner: lease.Owner{Incarnation: c.me}}
	w := lease.Write{Op: lease.OpSwap, Old: held}
	held.WriteID = noWrite
	w.Next = held
	row, _ := read.(lease.Row)
	return Answer{Write: w, Verdict: Decide(c.me, w, read), Row: row, me: c.me}
}

// noWrite is the id of no write.
const noWrite lease.WriteID = "(no write)"

func (a Answer) stale(old lease.Row) error {
	return &checkpoint.StaleError{
		Shard: old.Shard, Mine: old.Generation,
		Observed: a.Row.Generation, Owner: a.Row.Owner.Name, OutcomeUnknown: a.Torn,
	}
}

// Err returns the error for the writer, or nil for success.
//
//   - Overtaken: a StaleError for the holder, ErrExists for a creation, otherwise
//     lease.ErrOutdated
//   - Gone: nil for a holder that gave the shard up and had no new mark to store; a StaleError
//     if there is a tombstone; otherwise ErrGone
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

// String describes the copy without the user's data.
func (c Copy) String() string {
	text := fmt.Sprintf("copy of %v for %s: %v", c.key, c.me, c.row)
	if c.busy {
		text += fmt.Sprintf("; open: %v, unanswered before: %t", c.open, c.torn)
	}
	return text
}

// Format keeps every verb from printing the user's data.
func (c Copy) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue returns the text of String for structured logs.
func (c Copy) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Start begins a tenure of the row as last known. It returns no hold if the row does not name
// this incarnation as owner, or if this generation was started before: one generation is one
// tenure.
func (c *Copy) Start(order checkpoint.Order) (lease.Hold, bool) {
	if c.row.Owner.IsZero() || c.row.Owner.Incarnation != c.me || c.row.Generation <= c.held {
		return lease.Hold{}, false
	}
	c.held = c.row.Generation
	return lease.Hold{Key: c.key, Incarnation: c.me, Generation: c.held, Order: order}, true
}

// A Remedy is what to do with a row that names this incarnation as owner while this incarnation has
// no tenure of the shard. That happens when the answer to a claim was lost, when a shard is handed
// over to a worker that no longer waits for it, and when a release never arrived.
type Remedy uint8

const (
	LeaveAlone Remedy = iota
	StartIt           // start a tenure: the generation was never started
	ClaimAgain        // claim the shard: the tenure of this generation is over, and only a new one can be started
	GiveBack          // release the shard without a tenure: the worker is leaving
)

// Reconcile returns what to do with the row, after every read of it. The arguments are whether
// the worker has a tenure of the shard and whether it is leaving.
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
