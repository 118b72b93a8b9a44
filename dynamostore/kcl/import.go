package kcl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Reasons why leases or a group cannot be moved. Callers compare with errors.Is.
var (
	// ErrRunning means that workers of the group have seats.
	ErrRunning = errors.New("workers of the group are running, or have stopped and are not evicted yet")
	// ErrExists means that rows exist whose position or state differs from the leases. They
	// are not changed.
	ErrExists = errors.New("rows exist already, and differ from the leases")
	// ErrUnstarted means that a checkpoint is LATEST or AT_TIMESTAMP.
	ErrUnstarted = errors.New("has the checkpoint LATEST or AT_TIMESTAMP, and the table does not store where that was")
	// ErrPacked means that a checkpoint is within an entry of the stream, perhaps at its end.
	ErrPacked = errors.New("has a checkpoint at a record that the KPL has packed with others, and the table does not store whether it is the last of them")
)

// ImportOptions configures [Import]. The zero value refuses every lease that is ambiguous.
type ImportOptions struct {
	// Shards are the shards of the stream, as the source of the group lists them. The
	// ancestors of shards with leases become finished rows. Without Shards only the parents
	// that leases name become finished rows, and older shards that are still listed would be
	// processed again.
	Shards []shardlease.Shard
	// Mark turns the two numbers of a checkpoint into a mark. Default: the position is the
	// sequence number, and a sub-sequence number other than 0 is refused with ErrPacked.
	// For a handler that can begin in the middle of an entry, Mark should keep the
	// sub-sequence number in the position or the state. Without it the handler skips the
	// rest of the entry, which is correct only if the KCL's fleet made all its checkpoints
	// at the ends of entries. (The record with the number 0 is the only one of an entry, or
	// the first of several.)
	Mark func(sequence string, sub int64) (checkpoint.Mark, error)
	// Unstarted accepts leases at LATEST and AT_TIMESTAMP. Their rows have no position.
	Unstarted bool
	// Word turns TRIM_HORIZON, LATEST or AT_TIMESTAMP into a mark, for a handler that can
	// read such a position and a Config.Order that can compare it. A zero mark makes a row
	// without a position. Default: a zero mark for TRIM_HORIZON, and for the other two words
	// if Unstarted is set.
	Word func(word string) (checkpoint.Mark, error)
	// Pending replaces a lease that has a prepared checkpoint by the lease to import: for
	// example l without the prepared checkpoint, or with the prepared one as its checkpoint.
	// The returned lease must have no prepared checkpoint. Default: refuse with a
	// *PendingError. The KCL's table keeps the prepared checkpoint in any case.
	Pending func(l Lease) (Lease, error)
}

// An Outcome is the result of an import for one shard.
type Outcome struct {
	// Row is the row of the shard after the import.
	Row lease.Row
	// Made reports that this import created or completed the row; false if it existed.
	Made bool
	// Start is TRIM_HORIZON, LATEST or AT_TIMESTAMP if the lease has such a word instead of
	// a position. The row itself has the word only if ImportOptions.Word made a mark of it.
	Start string
}

// importer is the name under which rows are created. It identifies the rows that an
// interrupted import has left incomplete.
const importer = "kcl-import"

// Import creates a row in a group for each lease of the KCL. Before it writes anything, it
// refuses a table that changes, a group that runs, and ambiguous leases. It does not change a
// row that exists and differs from its lease: it creates all others, and then returns
// ErrExists.
//
// After a crash some rows exist, and perhaps one of them has no position yet; call Import again
// to complete the import. Start no worker before Import has returned without an error.
func Import(ctx context.Context, from Table, into shardlease.Supervisor, o ImportOptions) ([]Outcome, error) {
	leases, err := from.still(ctx)
	if err == nil {
		leases, err = o.decided(from, leases)
	}
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	wanted, err := o.wanted(leases)
	if err != nil {
		return nil, fmt.Errorf("import from table %q: %w", from.Name, err)
	}
	if err := verify(ctx, into); err != nil {
		return nil, fmt.Errorf("import into group %q: %w", into.Group, err)
	}
	var outcomes []Outcome
	var different []string
	for _, w := range wanted {
		outcome, err := w.write(ctx, into, "from table "+from.Name)
		if errors.Is(err, ErrExists) {
			different = append(different, w.shard)
			continue
		}
		if err != nil {
			return outcomes, fmt.Errorf("import %q into group %q: %w", w.shard, into.Group, err)
		}
		outcome.Start = w.start
		outcomes = append(outcomes, outcome)
	}
	if len(different) > 0 {
		return outcomes, fmt.Errorf("import into group %q: %w: %s", into.Group, ErrExists, some(different))
	}
	return outcomes, nil
}

// verify reports why nothing may be written to the group.
func verify(ctx context.Context, s shardlease.Supervisor) error {
	if s.By == "" {
		return &shardlease.ConfigError{Field: "By", Rule: "must be given: it is put on record"}
	}
	if err := stopped(ctx, s); err != nil {
		return err
	}
	return s.Store.Verify(ctx, s.Group)
}

// stopped returns ErrRunning if the group has seats, and lease.ErrSessions if it is a group of sessions.
func stopped(ctx context.Context, s shardlease.Supervisor) error {
	plan := lease.Plan{Group: s.Group}.Key()
	switch record, err := s.Store.Get(ctx, plan); {
	case errors.Is(err, lease.ErrNotFound):
	case err != nil:
		return err
	default:
		if at, ok := record.(lease.Plan); ok && at.Sessions {
			return &lease.RuleError{Transition: "kcl", Key: plan, Rule: lease.ErrSessions}
		}
	}
	seats, err := s.Workers(ctx)
	if err != nil {
		return err
	}
	if len(seats) > 0 {
		names := make([]string, len(seats))
		for i, seat := range seats {
			names[i] = seat.Name
		}
		return fmt.Errorf("%w: %s", ErrRunning, some(names))
	}
	return nil
}

// A target is the row that an import creates for a shard.
type target struct {
	shard    string
	parents  []string
	mark     checkpoint.Mark // zero: no position
	start    string          // Outcome.Start
	finished bool
}

// decided returns the leases as ImportOptions.Pending leaves them: without prepared
// checkpoints.
func (o ImportOptions) decided(from Table, leases []Lease) ([]Lease, error) {
	decided := slices.Clone(leases)
	var errs []error
	for i, l := range leases {
		if l.Pending == "" {
			continue
		}
		pending := &PendingError{Table: from.Name, Key: l.Shard}
		if o.Pending == nil {
			errs = append(errs, pending)
			continue
		}
		d, err := o.Pending(l)
		switch {
		case err != nil:
			err = fmt.Errorf("lease %.64q: %w", l.Shard, err)
		case d.Pending != "":
			err = pending
		case d.Shard != l.Shard || !isSequence(d.Sequence) && !unstarted(d.Sequence) && d.Sequence != shardEnd || d.Sub < 0:
			err = &MalformedError{Table: from.Name, Key: l.Shard, Attribute: attrPending}
		}
		decided[i], errs = d, append(errs, err)
	}
	return decided, errors.Join(errs...)
}

// wanted returns the rows for all leases and their ancestors, sorted by shard.
func (o ImportOptions) wanted(leases []Lease) ([]target, error) {
	listed := map[string][]string{}
	for _, s := range o.Shards {
		listed[s.Name] = s.Parents
	}
	targets := map[string]target{}
	var errs []error
	for _, l := range leases {
		w := target{shard: l.Shard, parents: l.Parents, finished: l.Sequence == shardEnd}
		if unstarted(l.Sequence) {
			w.start = l.Sequence
		}
		if parents, ok := listed[l.Shard]; ok {
			w.parents = parents
		}
		var err error
		if w.mark, err = o.mark(l); err != nil {
			errs = append(errs, fmt.Errorf("shard %q %w", l.Shard, err))
		}
		targets[l.Shard] = w
	}
	for _, l := range leases {
		o.ancestors(targets, listed, targets[l.Shard].parents)
	}
	inOrder := make([]target, 0, len(targets))
	for _, shard := range slices.Sorted(maps.Keys(targets)) {
		inOrder = append(inOrder, targets[shard])
	}
	return inOrder, errors.Join(errs...)
}

// ancestors adds finished rows for the ancestors without a lease: the KCL has finished them.
func (o ImportOptions) ancestors(targets map[string]target, listed map[string][]string, parents []string) {
	for _, parent := range parents {
		if _, ok := targets[parent]; !ok {
			targets[parent] = target{shard: parent, parents: listed[parent], finished: true}
			o.ancestors(targets, listed, listed[parent])
		}
	}
}

// mark returns the mark for a lease; zero means no position.
func (o ImportOptions) mark(l Lease) (checkpoint.Mark, error) {
	switch {
	case l.Sequence == shardEnd:
		return checkpoint.Mark{}, nil
	case unstarted(l.Sequence) && o.Word != nil:
		m, err := o.Word(l.Sequence)
		if err == nil && !m.IsZero() {
			err = m.Validate()
		}
		return m, err
	case l.Sequence == trimHorizon, unstarted(l.Sequence) && o.Unstarted:
		return checkpoint.Mark{}, nil
	case unstarted(l.Sequence):
		return checkpoint.Mark{}, ErrUnstarted
	case o.Mark != nil:
		m, err := o.Mark(l.Sequence, l.Sub)
		if err == nil {
			err = m.Validate()
		}
		return m, err
	case l.Sub != 0:
		return checkpoint.Mark{}, ErrPacked
	}
	return checkpoint.Mark{Position: l.Sequence}, nil
}

// write reads the row of the shard and makes the next write towards the target, until the row
// is as wanted. Each write is conditional on the row that was read. A crash in between leaves
// a row that begun recognizes, or one that importer owns; the next import completes it.
func (w target) write(ctx context.Context, s shardlease.Supervisor, why string) (o Outcome, err error) {
	me := lease.Owner{Name: importer, Incarnation: importer}
	const most = 10 // three are enough if no other process writes to the row
	for range most {
		row, err := s.Get(ctx, w.shard)
		absent := errors.Is(err, lease.ErrNotFound)
		if err != nil && !absent {
			return o, err
		}
		st := protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()}
		mine := row.Owner.Incarnation == importer
		var write lease.Write
		switch {
		case absent:
			write, err = protocol.Begin(s.Group, w.shard, w.parents, importer, st)
		case !mine && w.met(row):
			o.Row = row
			return o, nil
		case !mine && !begun(row):
			return o, ErrExists
		case !w.finished:
			_, err = s.Rewind(ctx, w.shard, row.Generation, w.mark, why)
		case mine:
			hold := lease.Hold{Key: row.Key(), Incarnation: importer, Generation: row.Generation}
			write, err = protocol.Finish(row, hold, w.mark, st)
		default: // only the holder of a shard can finish it
			write, err = protocol.Claim(row, me, st)
		}
		if err == nil && write.Op != 0 {
			_, err = s.Store.Write(ctx, write)
		}
		o.Made = true
		// After a refusal the row is read again: the write may have been stored nevertheless.
		if err != nil && !errors.Is(err, lease.ErrRefused) && !errors.Is(err, lease.ErrOutdated) {
			return o, err
		}
	}
	return o, errors.New("other processes keep changing the row")
}

// met reports whether a row is as wanted.
func (w target) met(r lease.Row) bool {
	return r.Finished == w.finished && r.Checkpoint.Mark == w.mark && !r.Removed && !r.Quarantined
}

// begun reports whether an interrupted import has left the row without its position.
func begun(r lease.Row) bool {
	return r.Last.Reason == lease.ReasonInitial && r.Last.By == importer && r.Owner.IsZero() && r.Checkpoint.IsZero()
}

// some joins up to five names, and counts the others.
func some(names []string) string {
	const most = 5
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
