package lease

import (
	"slices"
	"unicode/utf8"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// What the transitions of lease.go have in common: the questions they ask of a
// row, and the four ways in which they change it.

func (r Row) rule(transition string, rule error) error {
	return &RuleError{Transition: transition, Key: r.Key(), Rule: rule}
}

// holds asks whether h holds r as it stands. It is the fence as the holder
// itself can see it; the store's condition is the fence that counts.
func (r Row) holds(transition string, h Hold) error {
	switch {
	case r.Key() != h.Key:
		return r.rule(transition, ErrOtherRow)
	case r.Generation > h.Generation:
		return &checkpoint.StaleError{Shard: r.Shard, Mine: h.Generation, Observed: r.Generation, Owner: r.Owner.Name}
	case r.Generation < h.Generation:
		return r.rule(transition, ErrOldImage)
	case r.Owner.IsZero():
		return r.rule(transition, ErrNotHeld)
	case r.Owner.Incarnation != h.Incarnation:
		return r.rule(transition, ErrNotHolder)
	}
	return nil
}

// claimable asks whether anybody may work on r at all.
func (r Row) claimable(transition string) error {
	switch {
	case r.Removed:
		return r.rule(transition, ErrRemoved)
	case r.Finished:
		return r.rule(transition, ErrFinished)
	case r.Quarantined:
		return r.rule(transition, ErrQuarantined)
	}
	return nil
}

func (r Row) heldByOther(transition string, me Incarnation) error {
	switch {
	case r.Owner.IsZero():
		return r.rule(transition, ErrNotHeld)
	case r.Owner.Incarnation == me:
		return r.rule(transition, ErrSelf)
	}
	return nil
}

// seen asks whether c was given for r as it stands.
func (r Row) seen(transition string, c Command) error {
	switch {
	case r.Generation != c.Seen:
		return r.rule(transition, ErrOutdated)
	case r.Removed:
		return r.rule(transition, ErrRemoved)
	}
	return nil
}

// idle asks, on top, that nobody holds it.
func (r Row) idle(transition string, c Command) error {
	if err := r.seen(transition, c); err != nil {
		return err
	}
	if !r.Owner.IsZero() {
		return r.rule(transition, ErrHeld)
	}
	return nil
}

func (c Command) transfer(reason Reason) Transfer {
	return Transfer{Reason: reason, By: c.By, Note: c.Note}
}

// fail counts the tenure of generation ended as failed, for that reason.
func (r *Row) fail(ended int64, reason Reason) {
	attempts := min(r.Attempts(), maxInt64-1)
	errors := min(r.Failed(), attempts)
	if reason != ReasonExpired {
		errors++
	}
	r.Failures = Failures{Count: attempts + 1, Last: ended, Errors: errors}
}

// keep is a holder's write within its generation.
func (r Row) keep(transition string, h Hold, m checkpoint.Mark, s Stamp, edit func(*Row)) (Write, error) {
	next := r
	if err := next.mark(transition, h, m, s); err != nil {
		return Write{}, err
	}
	if edit != nil {
		edited := next // it goes to the heap, and a commit has no edit
		edit(&edited)
		next = edited
	}
	return r.write(OpSwap, next, s)
}

// giveUp is a holder's write that ends its generation.
func (r Row) giveUp(transition string, h Hold, to Owner, e End, s Stamp, edit func(*Row)) (Write, error) {
	marked := r
	if err := marked.mark(transition, h, e.Mark, s); err != nil {
		return Write{}, err
	}
	if e.Progressed {
		marked.progress(h, s)
	}
	t := Transfer{Reason: e.Reason, By: r.Owner.Name, Note: e.Note}
	w, err := marked.handOver(OpSwap, to, t, s, edit)
	if err != nil {
		return Write{}, err
	}
	w.Old = r
	return w, nil
}

// progress stamps the checkpoint as accepted under h, wherever it stands, and so
// ends the count of attempts.
func (r *Row) progress(h Hold, s Stamp) {
	r.Checkpoint.Generation, r.Checkpoint.At = h.Generation, wall(s.At)
}

// mark makes m the checkpoint of r, if h may and m does not go back. A zero
// mark leaves the checkpoint as it is.
func (r *Row) mark(transition string, h Hold, m checkpoint.Mark, s Stamp) error {
	if err := r.holds(transition, h); err != nil {
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

// handOver ends the generation of r and begins the next.
func (r Row) handOver(op Op, to Owner, t Transfer, s Stamp, edit func(*Row)) (Write, error) {
	generation, err := succ("generation", r.Generation)
	if err != nil {
		return Write{}, err
	}
	return r.changeHands(op, generation, to, t, s, edit)
}

// jump is a hand-over to nobody that leaves room for generations nobody here
// has seen: so many above its own, and not below the clock's.
func (r Row) jump(op Op, by int64, t Transfer, s Stamp, edit func(*Row)) (Write, error) {
	if _, err := succ("generation", r.Generation+min(by-1, maxInt64-r.Generation)); err != nil {
		return Write{}, err
	}
	if err := validClock(s.At); err != nil {
		return Write{}, err
	}
	return r.changeHands(op, max(r.Generation+by, FirstGeneration(s.At)), Owner{}, t, s, edit)
}

func (r Row) changeHands(op Op, generation int64, to Owner, t Transfer, s Stamp, edit func(*Row)) (Write, error) {
	next := r
	next.begin(generation, to, t, s)
	if edit != nil {
		edit(&next)
	}
	return r.write(op, next, s)
}

// begin starts a generation and records how.
func (r *Row) begin(generation int64, to Owner, t Transfer, s Stamp) {
	if r.Last.Generation > 0 {
		r.Past = r.followed(generation)
	}
	t.Generation, t.From, t.At, t.WriteID = generation, r.Owner.Name, wall(s.At), s.ID
	t.Note = shortened(t.Note, MaxNote)
	r.Generation, r.Owner, r.OfferedTo, r.Last = generation, to, "", t
}

// shortened is s in at most limit bytes, cut between two characters.
func shortened(s string, limit int) string {
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// write counts up and stamps. What it returns has been checked as a store will
// check it.
func (r Row) write(op Op, next Row, s Stamp) (Write, error) {
	counter, err := succ("counter", r.Counter)
	if err != nil {
		return Write{}, err
	}
	next.Counter, next.WriteID = counter, s.ID
	if next.outgrew(r) {
		next.fit()
	}
	return checked(Write{Op: op, Old: r, Next: next})
}

func sorted(parents []string) []string {
	if len(parents) == 0 {
		return nil
	}
	return slices.Sorted(slices.Values(parents))
}
