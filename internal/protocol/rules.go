package protocol

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has what the transitions of protocol.go share: the checks of a row, and the four
// ways in which they change it.

func rule(r lease.Row, transition string, rule lease.Rule) error {
	return &lease.RuleError{Transition: transition, Key: r.Key(), Rule: rule}
}

// holds checks that h holds r, as far as the holder itself can know. The fence is the condition that
// the store checks.
func holds(r lease.Row, transition string, h lease.Hold) error {
	switch {
	case r.Key() != h.Key:
		return rule(r, transition, ErrOtherRow)
	case r.Generation > h.Generation:
		return &checkpoint.StaleError{Shard: r.Shard, Mine: h.Generation, Observed: r.Generation, Owner: r.Owner.Name}
	case r.Generation < h.Generation:
		return rule(r, transition, ErrOldImage)
	case r.Owner.IsZero():
		return rule(r, transition, ErrNotHeld)
	case r.Owner.Incarnation != h.Incarnation:
		return rule(r, transition, ErrNotHolder)
	}
	return nil
}

// claimable checks that r may be claimed or quarantined at all.
func claimable(r lease.Row, transition string) error {
	switch {
	case r.Removed:
		return rule(r, transition, ErrRemoved)
	case r.Finished:
		return rule(r, transition, ErrFinished)
	case r.Quarantined:
		return rule(r, transition, ErrQuarantined)
	}
	return nil
}

// unheld returns why nobody holds r.
func unheld(r lease.Row) lease.Rule {
	if r.Quarantined {
		return ErrQuarantined
	}
	return ErrNotHeld
}

func heldByOther(r lease.Row, transition string, me lease.Incarnation) error {
	switch {
	case r.Owner.IsZero():
		return rule(r, transition, ErrNotHeld)
	case r.Owner.Incarnation == me:
		return rule(r, transition, ErrSelf)
	}
	return nil
}

// seen checks that c was given for the present generation of r.
func seen(r lease.Row, transition string, c Command) error {
	switch {
	case r.Generation != c.Seen:
		return rule(r, transition, lease.ErrOutdated)
	case r.Removed:
		return rule(r, transition, ErrRemoved)
	}
	return nil
}

// idle checks in addition that nobody holds r.
func idle(r lease.Row, transition string, c Command) error {
	if err := seen(r, transition, c); err != nil {
		return err
	}
	if !r.Owner.IsZero() {
		return rule(r, transition, lease.ErrHeld)
	}
	return nil
}

// transfer records the command; did is a word for what the command does.
func (c Command) transfer(reason lease.Reason, did string) lease.Transfer {
	return lease.Transfer{Reason: reason, By: c.By, Did: did, Note: c.Note}
}

// fail counts the tenure that ended, of the given generation, as failed for that reason.
func fail(r *lease.Row, ended int64, reason lease.Reason) {
	attempts := min(r.Attempts(), math.MaxInt64-1)
	errors := min(r.Failed(), attempts)
	if EndingOf(reason) == Failed {
		errors++
	}
	f := &r.Failures
	f.Count, f.Last, f.Errors, f.Workers = attempts+1, ended, errors, attr.AddFailed(f.Workers, r.Last.From, attempts)
}

// blame keeps the error of the tenure that ended, of the given generation, if it has failed, counted or not. It leaves the note of the transfer, which the
// logs of other workers print.
func blame(r *lease.Row, ended int64) {
	if text := r.Last.Note; text != "" && EndingOf(r.Last.Reason) == Failed {
		r.Last.Note, r.Failures.Error, r.Failures.ErrorOf = "", text, ended
	}
}

// keep makes a holder's write within its generation.
func keep(r lease.Row, transition string, h lease.Hold, m checkpoint.Mark, s Stamp, edit func(*lease.Row)) (lease.Write, error) {
	next := r
	if err := mark(&next, transition, h, m, s); err != nil {
		return lease.Write{}, err
	}
	if edit != nil {
		edited := next // a copy, because it escapes to the heap; a commit has no edit
		edit(&edited)
		next = edited
	}
	return write(r, lease.OpSwap, next, s)
}

// giveUp makes a holder's write that ends its generation.
func giveUp(r lease.Row, transition string, h lease.Hold, to lease.Owner, e End, s Stamp, edit func(*lease.Row)) (lease.Write, error) {
	marked := r
	if err := mark(&marked, transition, h, e.Mark, s); err != nil {
		return lease.Write{}, err
	}
	if e.Progressed {
		progress(&marked, h, s)
	}
	t := lease.Transfer{Reason: e.Reason, By: r.Owner.Name, Mode: e.Mode, Note: e.Note}
	w, err := handOver(marked, lease.OpSwap, to, t, s, edit)
	if err != nil {
		return lease.Write{}, err
	}
	w.Old = r
	return w, nil
}

// progress marks the checkpoint as accepted under h, without a change of its position. That
// resets the attempts.
func progress(r *lease.Row, h lease.Hold, s Stamp) {
	r.Checkpoint.Generation, r.Checkpoint.At = h.Generation, wall(s.At)
}

// mark makes m the checkpoint of r, if h holds r and m does not move back. A zero mark leaves the
// checkpoint as it is.
func mark(r *lease.Row, transition string, h lease.Hold, m checkpoint.Mark, s Stamp) error {
	if err := holds(*r, transition, h); err != nil {
		return err
	}
	if m.IsZero() {
		return nil
	}
	if err := h.Order.Advance(r.Shard, r.Checkpoint.Mark, m); err != nil {
		return err
	}
	r.Checkpoint = checkpoint.Checkpoint{Mark: m, Generation: h.Generation, At: wall(s.At)}
	return nil
}

// handOver ends the generation of r and begins the next one.
func handOver(r lease.Row, op lease.Op, to lease.Owner, t lease.Transfer, s Stamp, edit func(*lease.Row)) (lease.Write, error) {
	next, err := succ("generation", r.Generation)
	if err != nil {
		return lease.Write{}, err
	}
	return changeHands(r, op, next, to, t, s, edit)
}

// jump ends the generation of r, and leaves room for generations that were issued and lost. The new
// generation is the old one plus by, or the clock's generation if that is higher.
func jump(r lease.Row, op lease.Op, by int64, to lease.Owner, t lease.Transfer, s Stamp, edit func(*lease.Row)) (lease.Write, error) {
	if _, err := succ("generation", r.Generation+min(by-1, math.MaxInt64-r.Generation)); err != nil {
		return lease.Write{}, err
	}
	if err := generation.ValidClock(s.At); err != nil {
		return lease.Write{}, err
	}
	return changeHands(r, op, max(r.Generation+by, generation.First(s.At)), to, t, s, edit)
}

func changeHands(r lease.Row, op lease.Op, began int64, to lease.Owner, t lease.Transfer, s Stamp, edit func(*lease.Row)) (lease.Write, error) {
	next := r
	begin(&next, began, to, t, s)
	if edit != nil {
		edit(&next)
	}
	if text, _ := next.LastError(); text == "" { // the shard has made progress since
		next.Failures.Error, next.Failures.ErrorOf = "", 0
	}
	return write(r, op, next, s)
}

// begin begins a generation in r and records the transfer.
func begin(r *lease.Row, began int64, to lease.Owner, t lease.Transfer, s Stamp) {
	if r.Last.Generation > 0 {
		r.Past = r.Followed(began)
	}
	t.Generation, t.From, t.Task, t.At, t.WriteID = began, r.Owner.Name, r.Owner.Task, wall(s.At), s.ID
	most := lease.MaxNote
	if t.Mode != 0 {
		most -= attr.PackedWhy // a planned move has its cause there too
	}
	t.Note = attr.Shortened(t.Note, most)
	r.Generation, r.Owner, r.OfferedTo, r.Last = began, to, "", t
	r.Reserved = lease.Reservation{}
}

// write adds 1 to the counter, sets the write id, and checks the write as a store will.
func write(r lease.Row, op lease.Op, next lease.Row, s Stamp) (lease.Write, error) {
	counter, err := succ("counter", r.Counter)
	if err != nil {
		return lease.Write{}, err
	}
	next.Counter, next.WriteID = counter, s.ID
	if outgrew(next, r) {
		if next.Generation != r.Generation {
			shortenError(&next)
		}
		fit(&next, next.Generation != r.Generation)
	}
	return checked(lease.Write{Op: op, Old: r, Next: next})
}

// checked returns w if it passes the check that every store makes.
func checked(w lease.Write) (lease.Write, error) {
	if err := w.Check(); err != nil {
		return lease.Write{}, err
	}
	return w, nil
}

// succ returns n+1, or an error if n is the highest number.
func succ(field string, n int64) (int64, error) {
	if n == math.MaxInt64 {
		return n, &checkpoint.InvalidError{Field: field, Rule: fmt.Sprintf("cannot grow beyond %d", n), Limit: n}
	}
	return n + 1, nil
}

// wall returns a time as rows store it: whole milliseconds, in UTC.
func wall(at time.Time) time.Time {
	if at.IsZero() || at.UnixMilli() == 0 { // 0 is stored for no time
		return time.Time{}
	}
	return time.UnixMilli(at.UnixMilli()).UTC()
}

func sorted(parents []string) []string {
	if len(parents) == 0 {
		return nil
	}
	return slices.Sorted(slices.Values(parents))
}
