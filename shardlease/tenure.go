package shardlease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Tenure is one worker's hold of one shard under one generation. If the same worker
// claims the shard again later, that is another Tenure.
//
// Its methods are safe for concurrent use. When the tenure is over or the handler has
// returned, those that return an error return an [*EndError].
type Tenure struct {
	shard   Shard
	hold    lease.Hold
	start   checkpoint.Checkpoint
	attempt int
	inbox   *inbox

	// The two contexts are siblings, and stop ends both. As parent and child they would need
	// three times the memory, for every shard.
	soft   context.Context // the ctx of the handler
	hard   context.Context
	drain  context.CancelCauseFunc // ends soft
	cancel context.CancelCauseFunc // ends hard

	acquire  uint64        // in a session: the number of the call of Acquire
	released chan struct{} // in a session: closed by the first Release
	returns  chan error    // of Session.Do: gets the result of its function

	// since is when the oldest mark that is not settled was made, counted from the start of the
	// inbox; 0: every mark is settled. Status reads it without the lock, which Mark holds while
	// it calls Config.Order.
	since atomic.Int64

	mu       sync.Mutex
	last     checkpoint.Mark // the latest mark; the next one must not be before it
	made     uint64          // the number of marks made
	reported uint64          // the number of marks that the engine knows
	fresh    int64           // when the first mark that the engine does not know was made, like since
	settled  uint64          // the number of marks that were accepted, or refused for good
	flush    uint64          // the number of marks up to which Flush was called
	refusal  error           // why the mark that was settled last was refused; nil: it was accepted
	waiting  map[wait]uint64 // the calls that wait, and until which number of marks is settled, or of calls is confirmed
	note     string          // the argument of Release
	closed   error           // the error that calls return; nil: they are allowed
	unsent                   // the calls that the engine does not know yet
	pending  bool            // the engine knows that a mark waits, or the inbox will report it
	listed   bool            // the tenure is in the inbox
	finishes bool            // Finish was called, and the tenure did not end in another way since
	over     bool            // the engine has ended the tenure: nothing is reported to it any more
}

// unsent records the calls of a handler, other than marks, that the engine does not know
// yet.
type unsent struct{ progress, finish, release bool }

// A wait is a call that waits until a number of marks is settled, or until its number is confirmed.
type wait struct {
	result  chan error // has room for the one result
	confirm bool
}

// untilEnd is the number of marks that Finish waits for: it is settled by the end of the
// tenure only.
const untilEnd = math.MaxUint64

// Shard returns the shard as the source lists it.
func (t *Tenure) Shard() Shard { return t.shard }

// Generation returns the fencing token. It grows with every change of hands. A sink is
// fenced if it stores the highest generation that it has seen and refuses every write under
// a lower one; it refuses the old owner from the first write under the new generation on, or from
// when the worker has raised its fence ([Config.Targets]).
func (t *Tenure) Generation() int64 { return t.hold.Generation }

// Attempt returns how many tenures of this shard have failed since it last made progress, by
// an accepted checkpoint or a call of Progress; it is usually 0.
func (t *Tenure) Attempt() int { return t.attempt }

// Checkpoint returns the checkpoint at which the tenure starts. It is the zero Checkpoint
// if none was ever accepted.
func (t *Tenure) Checkpoint() checkpoint.Checkpoint { return t.start }

// Hold returns the handle for a condition on the lease row: dynamostore.Fence takes it.
func (t *Tenure) Hold() lease.Hold { return t.hold }

// Context returns the hard context, for work that must be completed: sink writes, commits
// and [Tenure.Finish]. It ends when the tenure is over, and then its cause is an
// [*EndError]. The ctx of the handler is the soft context: it ends when the handler should
// wind down, at the same time or before. Both contexts contain the fencing token:
// fence.FromContext returns it, and the clients of package fencehttp send it.
func (t *Tenure) Context() context.Context { return t.hard }

// Soft returns the soft context, which ends when the holder should wind down. A worker's handler
// gets this context as its ctx; the holder of a lease of a [Session] has no handler, and calls Soft.
func (t *Tenure) Soft() context.Context { return t.soft }

// Mark records, in memory, that everything up to position is processed. It never waits and
// costs next to nothing; the commit policy ([Config.Commit]) decides when the latest mark
// is written.
//
// Mark refuses a position that cannot be stored, and a position that moves back:
// [Config.Order] compares it with the previous mark, or with the checkpoint at which the
// tenure started.
func (t *Tenure) Mark(position string) error {
	return t.mark(checkpoint.Mark{Position: position})
}

// MarkState is Mark with a small state that belongs to exactly this position. A later Mark
// stores no state.
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
	if t.reported == t.made { // as also if every mark is settled
		t.fresh = t.inbox.now()
	}
	if t.settled == t.made {
		t.since.Store(t.fresh)
	}
	t.made++
	// The engine must know at once of the first mark that waits, because the interval of the
	// commit policy starts then. Later marks are reported before the engine's next step. If
	// so many wait that they are due, the loop is woken for that step now.
	t.notify(!t.pending || t.made-t.settled == t.inbox.marks)
	t.pending = true
	return nil
}

// notify puts the tenure into the inbox, and wakes the loop if that is urgent.
func (t *Tenure) notify(urgent bool) {
	if !t.listed {
		t.listed = true
		t.inbox.add(t)
	}
	if urgent {
		t.inbox.signal()
	}
}

// Commit marks position, writes the mark and waits until the table has accepted it.
func (t *Tenure) Commit(ctx context.Context, position string) error {
	if err := t.Mark(position); err != nil {
		return err
	}
	return t.Flush(ctx)
}

// Flush writes the latest mark and waits until the table has accepted it. If the tenure
// ends first, Flush returns an [*EndError]; it matches checkpoint.ErrStale if another
// worker holds the shard now. If ctx ends first, the write continues.
//
// Flush promises that the mark is stored, and nothing about ownership: if every mark is stored already, it asks nobody.
// [Tenure.Confirm] asks the table.
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

// Finish records that the shard itself has ended and is processed to its end: nobody claims
// it again, and its children may start. Call it only if the stream has reported that the
// shard is closed, not because the shard is silent.
//
// Finish writes the last mark and the end in one write, and waits until the table has
// accepted it. Later calls of Mark are refused. Finish does not end the contexts of the
// handler, which may complete its work and return; it ends those of a tenure of a [Session]. If ctx
// ends first, the write continues.
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
	return t.await(ctx, untilEnd)
}

// Progress reports that the shard makes progress although there is nothing to mark. It
// restarts the time of [Config.StallAfter], and like an accepted checkpoint it restarts the
// count of failed attempts, which [Config.MaxAttempts] limits.
//
// On an idle shard call Progress when the stream reports that the reader has caught up: a
// record that failed before is not ahead then. While the reader is behind, or works on one
// long record, call Alive instead. If a handler never calls Progress on an idle shard, the
// deaths of its workers add up, until they quarantine the shard.
func (t *Tenure) Progress() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.progress = true
		t.notify(false) // the engine reads the inbox before it decides that a tenure has stalled
	}
}

// Alive restarts the time of [Config.StallAfter] and does nothing else: unlike Progress it
// does not change the count of failed attempts. It is for a handler that works but has
// nothing to mark yet, and cannot know that the shard is fine: the present record may still
// fail, or the record that failed in an earlier tenure may come after some empty reads.
func (t *Tenure) Alive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.notify(false) // as in Progress
	}
}

// Release asks the worker to release the shard, which does not count as a failure. The soft
// context ends; when the handler has returned, the shard is released, and any worker may
// claim it, also this one. A session releases its lease at once, in one write with the last
// mark; under [Session.Do] when the function has returned. The first [lease.MaxNote] bytes of the note are stored in
// the table for people to read: put no user data into it.
func (t *Tenure) Release(note string) {
	note = printable(note, lease.MaxNote)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.release, t.note = true, note
		t.notify(true)
	}
	if t.released != nil && !t.letGo() {
		close(t.released)
	}
}

// letGo reports whether Release was called on a tenure of a session.
func (t *Tenure) letGo() bool {
	select {
	case <-t.released:
		return true
	default:
		return false
	}
}

// await wakes the loop and waits until that many marks are settled. The caller holds the
// lock, and await releases it.
func (t *Tenure) await(ctx context.Context, until uint64) error {
	w := t.wait(false, until)
	t.notify(true)
	t.mu.Unlock()
	return t.result(ctx, w)
}

func (t *Tenure) wait(confirm bool, number uint64) wait {
	w := wait{make(chan error, 1), confirm}
	if t.waiting == nil {
		t.waiting = map[wait]uint64{}
	}
	t.waiting[w] = number
	return w
}

// answer ends the waits of one kind up to a number.
func (t *Tenure) answer(confirm bool, number uint64, err error) {
	for w, until := range t.waiting {
		if w.confirm == confirm && until <= number {
			w.result <- err
			delete(t.waiting, w)
		}
	}
}

// result waits for the result of a call. If the result has arrived and ctx has ended, it returns the result.
func (t *Tenure) result(ctx context.Context, w wait) error {
	select {
	case err := <-w.result:
		return err
	case <-ctx.Done():
	}
	// Before the lock is taken: these call methods of ctx, which may wait for a lock of the user.
	end, _ := errors.AsType[*EndError](context.Cause(ctx))
	err, why := ctx.Err(), ended(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, w)
	select {
	case err := <-w.result:
		return err
	default:
		if end != nil && t.closed == nil {
			return err // ctx is the soft context, and the tenure is not over
		}
		return why
	}
}

// ended returns the error of a context, together with its cause if that is another error.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (t *Tenure) end(cause event.Cause) *EndError {
	return &EndError{Shard: t.shard.Name, Generation: t.hold.Generation, Cause: cause, session: t.acquire > 0}
}
