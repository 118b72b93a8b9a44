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

// Why a lease or a group cannot be moved; callers branch with errors.Is.
var (
	// ErrRunning: workers of the group have seats.
	ErrRunning = errors.New("workers of the group are running, or have not been missed yet")
	// ErrExists: there are rows already that say something else. They are left alone.
	ErrExists = errors.New("there are rows already, and they say something else")
	// ErrUnstarted: the checkpoint is LATEST or AT_TIMESTAMP.
	ErrUnstarted = errors.New("has no position but LATEST or AT_TIMESTAMP, and nothing in the table says where that was")
	// ErrPacked: the checkpoint lies within an entry of the stream, perhaps at its end.
	ErrPacked = errors.New("has a checkpoint at a record that the KPL has packed with others, and nothing in the table says whether it is the last of them")
)

// ImportOptions of [Import]. The zero value refuses what is not clear.
type ImportOptions struct {
	// Shards are those of the stream, as the source of the group lists them. Ancestors of
	// what has a lease become finished rows. Without it only the parents that leases name
	// do; older shards that are still listed would be processed again.
	Shards []shardlease.Shard
	// Mark makes a mark of the two numbers of a checkpoint. Default: the sequence number;
	// a second number other than 0 is ErrPacked. A handler that can begin in the middle of
	// an entry has the second number in its position or its state; one that cannot loses
	// the rest of the entry, unless the KCL's fleet only ever made checkpoints at ends.
	// (A second number of 0 is an entry that holds one record, or the first of several.)
	Mark func(sequence string, sub int64) (checkpoint.Mark, error)
	// Unstarted accepts leases at LATEST and AT_TIMESTAMP, as rows without a position.
	Unstarted bool
	// Word turns TRIM_HORIZON, LATEST or AT_TIMESTAMP into a mark, for a handler that can
	// read such a position and a Config.Order that can compare it. A zero mark makes a row
	// without a position. Default: a zero mark for TRIM_HORIZON, and for the other two words
	// as Unstarted says.
	Word func(word string) (checkpoint.Mark, error)
	// Pending replaces a lease that has a prepared checkpoint by the lease to import: l
	// without the prepared checkpoint, say, or with the prepared one in place of the other.
	// The lease that it returns must have no prepared checkpoint. Default: *PendingError.
	// The KCL's table keeps the prepared checkpoint in any case.
	Pending func(l Lease) (Lease, error)
}

// An Outcome is the row that an import leaves for a shard.
type Outcome struct {
	Row  lease.Row
	Made bool // by this import; false: the row was there already
	// Start is TRIM_HORIZON, LATEST or AT_TIMESTAMP if the lease has such a word in place of
	// a position. The row itself has the word only if ImportOptions.Word made a mark of it.
	Start string
}

// importer is in whose name rows are made. Whoever finishes what another import left
// undone goes by it.
const importer = "kcl-import"

// Import makes a row in a group for each lease of the KCL. It refuses, before anything is
// written, a table that moves, a group that runs, and leases that are not clear. A row
// that is there and says something else is left alone, and so reported when all others
// are made: ErrExists.
//
// A crash leaves some rows made, and perhaps one without its position; to call Import
// again finishes that. Start no worker before it has returned without an error.
func Import(ctx context.Context, from Table, into shardlease.Supervisor, o ImportOptions) ([]Outcome, error) {
	leases, err := from.still(ctx)
	if err == nil {
		leases, err = o.decided(from, leases)
	}
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	wants, err := o.wants(leases)
	if err != nil {
		return nil, fmt.Errorf("import from table %q: %w", from.Name, err)
	}
	if err := verify(ctx, into); err != nil {
		return nil, fmt.Errorf("import into group %q: %w", into.Group, err)
	}
	var outcomes []Outcome
	var others []string
	for _, w := range wants {
		outcome, err := w.bring(ctx, into, "from table "+from.Name)
		if errors.Is(err, ErrExists) {
			others = append(others, w.shard)
			continue
		}
		if err != nil {
			return outcomes, fmt.Errorf("import %q into group %q: %w", w.shard, into.Group, err)
		}
		outcome.Start = w.start
		outcomes = append(outcomes, outcome)
	}
	if len(others) > 0 {
		return outcomes, fmt.Errorf("import into group %q: %w: %s", into.Group, ErrExists, some(others))
	}
	return outcomes, nil
}

// verify looks whether anything may be written to the group at all.
func verify(ctx context.Context, s shardlease.Supervisor) error {
	if s.By == "" {
		return &shardlease.ConfigError{Field: "By", Rule: "must be given: it is put on record"}
	}
	if err := stopped(ctx, s); err != nil {
		return err
	}
	return s.Store.Verify(ctx, s.Group)
}

// stopped refuses a group with seats.
func stopped(ctx context.Context, s shardlease.Supervisor) error {
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

// A want is the row that is to be there.
type want struct {
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

// wants are the rows of all leases and of their ancestors.
func (o ImportOptions) wants(leases []Lease) ([]want, error) {
	listed := map[string][]string{}
	for _, s := range o.Shards {
		listed[s.Name] = s.Parents
	}
	wants := map[string]want{}
	var errs []error
	for _, l := range leases {
		w := want{shard: l.Shard, parents: l.Parents, finished: l.Sequence == shardEnd}
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
		wants[l.Shard] = w
	}
	for _, l := range leases {
		o.ancestors(wants, listed, wants[l.Shard].parents)
	}
	inOrder := make([]want, 0, len(wants))
	for _, shard := range slices.Sorted(maps.Keys(wants)) {
		inOrder = append(inOrder, wants[shard])
	}
	return inOrder, errors.Join(errs...)
}

// ancestors adds those that have no lease: the KCL is done with them.
func (o ImportOptions) ancestors(wants map[string]want, listed map[string][]string, parents []string) {
	for _, parent := range parents {
		if _, ok := wants[parent]; !ok {
			wants[parent] = want{shard: parent, parents: listed[parent], finished: true}
			o.ancestors(wants, listed, listed[parent])
		}
	}
}

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

// bring looks at the row and makes the next of the writes that lead to what is wanted,
// until it is there. Each is conditional on what was seen.
func (w want) bring(ctx context.Context, s shardlease.Supervisor, why string) (o Outcome, err error) {
	me := lease.Owner{Name: importer, Incarnation: importer}
	const most = 10 // three, if nobody else is at it
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
		default: // only a holder finishes
			write, err = protocol.Claim(row, me, st)
		}
		if err == nil && write.Op != 0 {
			_, err = s.Store.Write(ctx, write)
		}
		o.Made = true
		// Who is refused looks again: it may have been stored all the same.
		if err != nil && !errors.Is(err, lease.ErrRefused) && !errors.Is(err, lease.ErrOutdated) {
			return o, err
		}
	}
	return o, errors.New("others are writing to it all the time")
}

// met reports whether a row is what is wanted.
func (w want) met(r lease.Row) bool {
	return r.Finished == w.finished && r.Checkpoint.Mark == w.mark && !r.Removed && !r.Quarantined
}

// begun reports whether a row is as an import leaves it that was cut off.
func begun(r lease.Row) bool {
	return r.Last.Reason == lease.ReasonInitial && r.Last.By == importer && r.Owner.IsZero() && r.Checkpoint.IsZero()
}

// some names a few.
func some(names []string) string {
	const most = 5
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
