package shardlease

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Tenure is one worker's hold of one shard at one generation. When the shard
// comes back to the same worker that is another Tenure.
//
// Its methods are safe for concurrent use. After the tenure is over, and after the
// handler has returned, they return an [*EndError].
type Tenure struct {
	shard   Shard
	hold    lease.Hold
	start   checkpoint.Checkpoint
	attempt int
	marks   uint64 // that many unwritten marks are due; 0: any number
	inbox   *inbox

	// Two contexts side by side: stop ends both. As parent and child they would
	// need three times the memory, for every shard.
	soft   context.Context // what the handler is called with
	hard   context.Context
	drain  context.CancelCauseFunc // ends soft
	cancel context.CancelCauseFunc // ends hard

	mu       sync.Mutex
	last     checkpoint.Mark // where the next mark has to go on from
	made     uint64          // marks made
	told     uint64          // of these, the engine knows
	settled  uint64          // of these, accepted, or refused for good
	since    time.Time       // when the first of those that are not settled was made, at the latest
	flush    uint64          // of these, somebody waits for
	refusal  error           // of the last one settled
	waiting  []wait
	note     string // of Release
	closed   error  // why calls are refused
	asks            // not told yet
	pending  bool   // the engine has been told, or will be, that a mark waits
	listed   bool   // in the inbox
	finishes bool   // Finish was called, and nothing has come between
	over     bool   // the engine has let go; there is nobody to tell anything
}

// asks are what a handler can ask for beside its marks.
type asks struct{ progress, finish, release bool }

// A wait waits until a number of marks is settled.
type wait struct {
	until uint64
	done  chan error // has room for the one answer
}

// theEnd is what Finish waits for.
const theEnd = math.MaxUint64

// Shard is what the source says of it.
func (t *Tenure) Shard() Shard { return t.shard }

// Generation is the fencing token: it grows with every change of hands. A sink
// that remembers the highest it has seen, and refuses what is lower, is fenced, from
// the first write under the next one on.
func (t *Tenure) Generation() int64 { return t.hold.Generation }

// Attempt counts the tenures of this shard that failed since the last accepted
// checkpoint: 0 as a rule.
func (t *Tenure) Attempt() int { return t.attempt }

// Checkpoint is where the tenure starts; the zero Checkpoint for a shard that
// nobody has checkpointed yet.
func (t *Tenure) Checkpoint() checkpoint.Checkpoint { return t.start }

// Hold is what a condition on the lease row needs: dynamostore.Fence takes it.
func (t *Tenure) Hold() lease.Hold { return t.hold }

// Context returns the hard context, for finishing what was begun: sink writes, commits and
// [Tenure.Finish]. It ends when the tenure is over, and then its cause is an [*EndError].
// The ctx of the handler is the soft context: it ends when the tenure should wind down, at
// the same time or before.
func (t *Tenure) Context() context.Context { return t.hard }

// Mark says that everything up to position is processed. It never waits and costs
// next to nothing; the commit policy says when the latest mark is written.
//
// It refuses a position that cannot be stored, and one that goes back: the order
// of the configuration compares it with the mark before, or with the start.
func (t *Tenure) Mark(position string) error {
	return t.mark(checkpoint.Mark{Position: position})
}

// MarkState is Mark with a small state that belongs to exactly this position. A
// Mark after it stores none.
func (t *Tenure) MarkState(position, state string) error {
	return t.mark(checkpoint.Mark{Position: position, State: state})
}

func (t *Tenure) mark(m checkpoint.Mark) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return t.closed
	}
	if err := t.hold.Order.Advance(t.shard.Name, t.last, m); err != nil {
		return err
	}
	t.last = m
	if t.settled == t.made {
		t.since = time.Now()
	}
	t.made++
	// The engine has to know at once of the first mark that waits: its clock
	// starts there. Of all others it learns before its next step; but when so
	// many wait that they are due, that step is now.
	t.tell(!t.pending || t.made-t.settled == t.marks)
	t.pending = true
	return nil
}

// tell gets t into the inbox, and wakes the loop if the news is urgent.
func (t *Tenure) tell(urgent bool) {
	if !t.listed {
		t.listed = true
		t.inbox.add(t)
	}
	if urgent {
		t.inbox.signal()
	}
}

// Commit marks position, writes it and waits until it is accepted.
func (t *Tenure) Commit(ctx context.Context, position string) error {
	if err := t.Mark(position); err != nil {
		return err
	}
	return t.Flush(ctx)
}

// Flush writes what is marked and waits until it is accepted. It returns an
// [*EndError] when the tenure ends before; [errors.Is] with checkpoint.ErrStale
// tells whether another worker was the reason. When ctx ends first the write goes
// on.
func (t *Tenure) Flush(ctx context.Context) error {
	t.mu.Lock()
	if t.closed != nil || t.settled == t.made {
		defer t.mu.Unlock()
		if t.closed != nil {
			return t.closed
		}
		return t.refusal
	}
	t.flush = t.made
	return t.await(ctx, t.made)
}

// Finish says that the shard itself has ended and is processed to its end, as far
// as it is marked: nobody will work on it again, and its children may start. It
// is for positive evidence only: a stream that says it is closed, not one that is
// silent.
//
// The last mark and the end are one write, and Finish waits for it. Nothing can be
// marked from here on; the handler's contexts do not end before it returns. When ctx
// ends first the write goes on.
func (t *Tenure) Finish(ctx context.Context) error {
	t.mu.Lock()
	if t.closed != nil && !t.finishes || t.over {
		defer t.mu.Unlock()
		if t.finishes {
			return nil // finished before
		}
		return t.closed
	}
	if !t.finishes {
		t.finishes, t.finish, t.closed = true, true, t.end(event.CauseFinished)
	}
	return t.await(ctx, theEnd)
}

// Progress says that the handler gets somewhere although there is nothing to mark:
// an idle poll, or one long record. Where [Config.StallAfter] is set it keeps the
// tenure from being taken for stalled; and like an accepted checkpoint it ends the
// count of failed attempts. Where [Config.MaxAttempts] is set and a record that failed
// may still come next, call Alive instead.
func (t *Tenure) Progress() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.progress = true
		t.tell(false) // the engine looks again before it calls a tenure stalled
	}
}

// Alive keeps the tenure from being taken for stalled, and does no more: unlike
// Progress it leaves the count of failed attempts as it is. It is for a handler that
// works but has nothing to mark yet, after an earlier tenure failed: it may only be on
// its way back to the record that failed, past reads that bring nothing.
func (t *Tenure) Alive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.tell(false) // as in Progress
	}
}

// Release asks to give the shard up, which counts as no failure. The soft context
// ends; the shard is released when the handler returns, for any worker to take,
// this one included. The note is stored in the table for people to read: no user
// data, and no more than [lease.MaxNote] bytes of it are kept.
func (t *Tenure) Release(note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.release, t.note = true, printable(note, lease.MaxNote)
		t.tell(true)
	}
}

// await tells the loop at once and waits until that many marks are settled. It is
// called with the lock held and gives it away. Where the answer and the end of ctx
// are both there the answer counts.
func (t *Tenure) await(ctx context.Context, until uint64) error {
	w := wait{until: until, done: make(chan error, 1)}
	t.waiting = append(t.waiting, w)
	t.tell(true)
	t.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = slices.DeleteFunc(t.waiting, func(v wait) bool { return v.done == w.done })
	select {
	case err := <-w.done:
		return err
	default:
		return ended(ctx)
	}
}

// ended is the context's error, and its cause where that says more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (t *Tenure) end(cause event.Cause) *EndError {
	return &EndError{Shard: t.shard.Name, Generation: t.hold.Generation, Cause: cause}
}
