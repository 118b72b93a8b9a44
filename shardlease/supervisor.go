package shardlease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Supervisor looks at a group from outside and gives commands: an operator's
// tool, or a program that cleans up after the runs it started. It is a literal; all
// it needs is the store. Its commands pass the same fence as a worker.
//
// A command names the generation its giver has seen. When the shard has changed
// hands since, it is refused with lease.ErrOutdated: look again, and decide again.
// Every command that the row does not allow returns a [*lease.RuleError], and beside
// it the row as it stands, which shows what is in the way: lease.ErrHeld is the rule of
// a shard that has to be quarantined before it is rewound or removed.
// A store that does not answer is asked a few times; what remains then is an error,
// and the command may have been carried out.
//
// Workers that are not concerned notice a command at their next audit
// ([Config.AuditEvery], which a large fleet stretches); a holder whose shard was taken
// notices with its next commit, and tells the others.
type Supervisor struct {
	Store lease.Store
	Group string
	// By is who gives the commands: it is put on record. Commands need it.
	By string
}

// List gives the lease rows of the group, by shard. Rows that cannot be read are
// in the error, each as a [*lease.MalformedError], beside the others.
func (s Supervisor) List(ctx context.Context) ([]lease.Row, error) {
	return collect[lease.Row](ctx, s, lease.KindLease)
}

// Workers gives the seats of the group: the workers that run, or did until a lease
// time ago.
func (s Supervisor) Workers(ctx context.Context) ([]lease.Seat, error) {
	return collect[lease.Seat](ctx, s, lease.KindSeat)
}

func collect[R lease.Record](ctx context.Context, s Supervisor, kind lease.Kind) ([]R, error) {
	if err := s.check(false); err != nil {
		return nil, err
	}
	var records []R
	var errs []error
	for record, err := range s.Store.List(ctx, lease.Query{Group: s.Group, Kind: kind}) {
		if r, ok := record.(R); ok {
			records = append(records, r)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return records, errors.Join(errs...)
}

// Get gives the lease row of one shard; lease.ErrNotFound: there is none. The row
// of a shard that was removed is one.
func (s Supervisor) Get(ctx context.Context, shard string) (lease.Row, error) {
	if err := s.check(false); err != nil {
		return lease.Row{}, err
	}
	record, err := s.Store.Get(ctx, s.key(shard))
	if err != nil {
		return lease.Row{}, fmt.Errorf("get %v: %w", s.key(shard), err)
	}
	row, ok := record.(lease.Row)
	if !ok {
		return lease.Row{}, fmt.Errorf("get %v: %w: no lease row", s.key(shard), lease.ErrMalformed)
	}
	return row, nil
}

// ByTask gives the rows that workers of a task hold.
func (s Supervisor) ByTask(ctx context.Context, task string) ([]lease.Row, error) {
	rows, err := s.List(ctx)
	var held []lease.Row
	for _, row := range rows {
		if !row.Owner.IsZero() && row.Owner.Task == task {
			held = append(held, row)
		}
	}
	return held, err
}

// ForceRelease takes a shard from whoever holds it and gives it to nobody. Any
// worker may claim it then, the one that held it included: it is for a holder that
// is gone or stuck, not for keeping a shard from somebody.
func (s Supervisor) ForceRelease(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	return s.command(ctx, shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.ForceRelease(row, s.says(seen, why), st)
	})
}

// ReleaseTask is for a run that is dead: it force-releases every shard that workers of
// a task hold, and then evicts these workers, so that the others need not wait for
// their lease time to pass. It returns the rows it released. Stop the task first, or
// its workers come back and claim some again. What cannot be released is in the error;
// the others are released all the same.
func (s Supervisor) ReleaseTask(ctx context.Context, task, why string) ([]lease.Row, error) {
	if task == "" {
		return nil, &ConfigError{Field: "task", Rule: "must be given: every worker without one has the empty task"}
	}
	rows, err := s.ByTask(ctx, task)
	errs := []error{err}
	var released []lease.Row
	for _, row := range rows {
		row, err := s.ForceRelease(ctx, row.Shard, row.Generation, why)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		released = append(released, row)
	}
	seats, err := s.Workers(ctx)
	errs = append(errs, err)
	for _, seat := range seats {
		if seat.Task == task {
			errs = append(errs, s.Evict(ctx, seat.Incarnation))
		}
	}
	return released, errors.Join(errs...)
}

// Evict deletes a worker's seat, and so tells all others at their next look that it is
// gone. If it is not, it learns so with its next heartbeat, ends all it holds and takes
// a new seat. A seat that is gone already is no error.
func (s Supervisor) Evict(ctx context.Context, worker lease.Incarnation) error {
	if err := s.check(false); err != nil {
		return err
	}
	key := lease.Key{Group: s.Group, Kind: lease.KindSeat, Name: string(worker)}
	for {
		record, err := s.Store.Get(ctx, key)
		seat, ok := record.(lease.Seat)
		switch {
		case errors.Is(err, lease.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("evict %v: %w", key, err)
		case !ok:
			return fmt.Errorf("evict %v: %w: no seat", key, lease.ErrMalformed)
		}
		w, err := protocol.Evict(seat)
		if err != nil {
			return err
		}
		_, err = s.Store.Write(ctx, w)
		if !errors.Is(err, lease.ErrRefused) { // else it has beaten in between, or is gone
			return err
		}
	}
}

// Quarantine sets a shard aside, held or not: nobody claims it until Unquarantine.
func (s Supervisor) Quarantine(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	return s.command(ctx, shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Quarantine(row, s.says(seen, why), lease.ReasonForced, st)
	})
}

// Unquarantine makes a shard claimable again, with no failed attempts on record.
func (s Supervisor) Unquarantine(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	return s.command(ctx, shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Unquarantine(row, s.says(seen, why), st)
	})
}

// Rewind moves the position of a shard that nobody holds, in either direction; a
// zero mark rewinds to the very beginning. A finished shard is unfinished by it. A
// running fleet leaves a shard free for moments only: quarantine it first.
func (s Supervisor) Rewind(ctx context.Context, shard string, seen int64, to checkpoint.Mark, why string) (lease.Row, error) {
	return s.command(ctx, shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Rewind(row, s.says(seen, why), to, st)
	})
}

// Remove leaves a tombstone where the row of a shard was that nobody holds. When
// the shard is still listed a worker makes a new row of it, which starts at the
// beginning.
func (s Supervisor) Remove(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	return s.command(ctx, shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Remove(row, s.says(seen, why), st)
	})
}

func (s Supervisor) key(shard string) lease.Key {
	return lease.Key{Group: s.Group, Kind: lease.KindLease, Name: shard}
}

func (s Supervisor) says(seen int64, why string) protocol.Command {
	return protocol.Command{Seen: seen, By: s.By, Note: why}
}

// check refuses a literal that lacks something.
func (s Supervisor) check(command bool) error {
	var f faults
	if isNil(s.Store) {
		f.add("Store", "must be given"+nilOf(s.Store))
	}
	f.wrap("Group", lease.Query{Group: s.Group, Kind: lease.KindLease}.Validate())
	if command && s.By == "" {
		f.add("By", "must be given: commands are put on record with who gave them")
	}
	return errors.Join(f...)
}

// A transition makes the write that would move a row on.
type transition func(lease.Row, protocol.Stamp) (lease.Write, error)

// command reads the row, makes the write and sees it through.
func (s Supervisor) command(ctx context.Context, shard string, make transition) (lease.Row, error) {
	if err := s.check(true); err != nil {
		return lease.Row{}, err
	}
	row, err := s.Get(ctx, shard)
	if err != nil {
		return lease.Row{}, err
	}
	const tries = 3
	for try := 1; ; try++ {
		w, err := make(row, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
		if err != nil {
			return row, err
		}
		answer := s.send(ctx, row, w)
		// The row has moved on within its generation, so the command still
		// stands. That happens to a row nobody holds once in a blue moon.
		if answer.Verdict == protocol.Again && try < tries {
			row = answer.Row
			continue
		}
		if err := answer.Err(); err != nil {
			return answer.Row, fmt.Errorf("%v: %w", w, err)
		}
		return answer.Row, nil
	}
}

// send sends a write until it is answered: the same bytes, so that a sending whose
// answer was lost is recognized.
func (s Supervisor) send(ctx context.Context, row lease.Row, w lease.Write) protocol.Answer {
	c := protocol.NewCopy(row.Key(), "")
	c.Saw(row)
	_ = c.Send(w) // of this row, and none is open
	pause := 50 * time.Millisecond
	const tries = 6
	for try := 1; ; try++ {
		reply, err := s.Store.Write(ctx, w)
		answer := c.Answer(w, reply, err)
		if answer.Verdict != protocol.Unknown || try == tries {
			return answer
		}
		select {
		case <-ctx.Done():
			return answer
		case <-time.After(pause):
			pause *= 2
		}
	}
}
