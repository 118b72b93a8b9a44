package shardlease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Supervisor lists the shards and workers of a group, moves, releases, reassigns, quarantines, rewinds and
// finishes shards, evicts workers, and steers the plan. It is for operators' tools, and for programs that clean up
// after the runs that they started. It needs no Worker: fill in its fields.
//
// # Commands
//
// Commands are fenced like the writes of a worker. A command for a shard states the generation that
// the operator has seen. If the shard has changed hands since, the command is refused with
// [lease.ErrOutdated]: read the row again, and decide again. If the store does not answer, the
// write is repeated a few times.
//
//	error                      meaning
//	ErrConfig                  Store, Group or By is missing or invalid: a *ConfigError for each
//	lease.ErrNotFound          no lease row has this name, or there is no wish to lift
//	*lease.RuleError           the row or the group does not allow the command; the rule is for
//	                           example lease.ErrOutdated, lease.ErrSessions, or lease.ErrHeld:
//	                           quarantine the shard before it is removed
//	*checkpoint.InvalidError   an argument cannot be stored, for example a position that is too
//	                           long or a reason with a line end; nothing was written
//	lease.ErrMalformed         the row cannot be read: see docs/operations.md
//	any other                  the store did not answer: the command may have been carried out
//
// With a *lease.RuleError about a row, a command also returns the row, which shows the obstacle. If the
// outcome is not known, read the row with [Supervisor.Get]: Last.By and Last.Note show
// whether the last change of hands was yours. The row keeps the first [lease.MaxNote] bytes
// of the reason. If an answer of the store was lost, lease.ErrOutdated may also mean that the
// command was carried out and the shard has changed hands since. Then [lease.Row.History]
// contains your change. ForceRelease and Reassign recognize that themselves, and return no error.
//
// A command also stores a wish of the kind "look", which ends after a minute. The workers
// that watch the seats see it within a heartbeat interval, and read the row. Above eight workers,
// they tell the worker to which the plan assigns the shard. A worker whose shard was taken away also
// notices that when its next commit is refused. If the wish cannot be stored, the command is carried
// out all the same, and workers notice it at their next audit ([Config.AuditEvery]).
//
// In a group of sessions, the session that holds the lease sees the wish within a heartbeat interval too.
// Sessions make no audits: if the wish cannot be stored, the session notices the command at its next commit.
// After Evict, a session loses all its leases when its next heartbeat is refused.
//
// Until the old holder notices, it may still write to a sink that cannot compare a generation. So ForceRelease,
// Reassign, Evict and ReleaseTask keep its [SessionConfig.LockDelay]: no session acquires the lease until the delay
// has passed since that session first saw the command. Set NoDelay if the holder is known to be dead.
//
// The row keeps what a command did, and By, for as long as it remembers the change of hands: see
// [lease.Row.History]. After the next change of hands it keeps the first 64 bytes of the reason.
//
// # Wishes
//
// Cordon, Drain, Pause, Pin and Move store wishes. Each plan follows a wish until the wish ends. A wish
// outlives the program that made it. No lease row depends on a wish. A shard without a living owner
// is always claimed. If the only workers left are cordoned or drained, they claim it. The workers
// that watch the seats notice a wish within a heartbeat interval, and its moves begin at most 1.5 s
// later.
//
// A group of sessions has no plan. In such a group, Cordon, Drain, Pause and Pin write nothing, and return
// [lease.ErrSessions]; a holder obeys Move.
//
// A wish with a duration ends by itself, and a pause without one after 24 hours. One worker of the fleet reports each cordon,
// drain, pause and pin that stands as [event.Steered], when it first reads the wish and then daily. The worker that plans
// decides by its own wall clock, so a wrong clock ends a wish early or late. No guarantee of this library depends on it. A new
// wish replaces an earlier one of the same kind for the same worker or shard; a group has at most one pause.
type Supervisor struct {
	Store lease.Store
	Group string
	// By is the name of the operator or program that gives the commands and makes the wishes. Lease
	// rows and wishes record it. Commands and wishes need it.
	By string
	// Order checks the position to which a shard is rewound: Rewind refuses a position that the order
	// of the group's workers ([Config.Order]) cannot read. Nil: any position is accepted.
	Order checkpoint.Order
	// NoDelay makes ForceRelease, Reassign, Evict and ReleaseTask leave no lock delay: another session may acquire
	// the lease at once. ForceRelease and Reassign also end one that an earlier command has left.
	NoDelay bool
	// Unjournaled is called if an act was carried out, and its entry in the journal ([Supervisor.Journal]) was not stored: the
	// table does not answer, or the permissions do not allow the partition of the journal. Nil: nobody is told.
	Unjournaled func(act lease.Act, err error)
	// Uncounted is called if a command was carried out, and up to that many of the tenures that it has ended were not added to the
	// counts of the group ([lease.Ends]). Nil: nobody is told.
	Uncounted func(ended int64, err error)
}

// List returns the lease rows of the group, sorted by shard. The error contains a
// [*lease.MalformedError] for each row that cannot be read; List returns the other rows
// nevertheless.
func (s Supervisor) List(ctx context.Context) ([]lease.Row, error) {
	return collect[lease.Row](ctx, s, lease.KindLease)
}

// Workers returns the seats of the group: those of the workers that run, and those of dead
// workers that no other worker has evicted yet. In a group of sessions, Workers returns the seats of the
// sessions.
//
// One read does not show which workers are alive: the heartbeat counter of a dead worker looks like that of a
// living one, and Seat.At is by the worker's own clock. Only a second read shows whether the counter grows:
// see inspect.Watch and inspect.Worker.Beating.
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
		if err != nil && !isOther(err, kind) {
			errs = append(errs, err)
		}
	}
	return records, errors.Join(errs...)
}

// isOther reports whether err is a malformed record of another kind, which is listed with those
// of this kind.
func isOther(err error, kind lease.Kind) bool {
	malformed, ok := errors.AsType[*lease.MalformedError](err)
	return ok && malformed != nil && malformed.Key.Kind != kind
}

// Get returns the lease row of one shard, or lease.ErrNotFound if there is none. For a
// removed shard it returns the tombstone.
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
		return lease.Row{}, fmt.Errorf("get %v: %w: the record is no lease row", s.key(shard), lease.ErrMalformed)
	}
	return row, nil
}

// ByTask returns the lease rows that are held for a task or its descendants: the rows whose owner serves the
// task ([lease.Owner.Serves]). A session may hold each lease for another task ([AcquireOptions]). With the
// empty task, ByTask returns the rows whose owner has no task. It reads all rows of the group.
func (s Supervisor) ByTask(ctx context.Context, task string) ([]lease.Row, error) {
	if err := checkTask(task); err != nil {
		return nil, err
	}
	rows, err := s.List(ctx)
	return slices.DeleteFunc(rows, func(row lease.Row) bool { return !row.Owner.Serves(task) }), err
}

// checkTask returns an error if no task can have the name.
func checkTask(task string) error {
	var f faults
	f.wrap("task", lease.Owner{Name: "-", Incarnation: "-", Task: task}.Validate())
	return errors.Join(f...)
}

// ForceRelease releases a shard without the cooperation of its owner. It is for an owner that is dead or
// stuck. Any worker may claim the shard then, also the former owner; to choose the next owner, use
// [Supervisor.Reassign]. If nobody holds the shard, ForceRelease ends its reservation for a name. If an answer of the
// store was lost, the row that ForceRelease returns may show that a worker has claimed the shard again.
func (s Supervisor) ForceRelease(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	row, ended, err := s.forceRelease(ctx, shard, seen, why)
	return s.announced(ctx, lease.Act{Did: "release", Why: why}, row, ended, err)
}

func (s Supervisor) forceRelease(ctx context.Context, shard string, seen int64, why string) (lease.Row, int64, error) {
	return s.command(ctx, "force-release", shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.ForceRelease(row, s.stated(seen, why), st)
	})
}

// ReleaseTask cleans up after a dead run: it releases all that is held for a task and its descendants
// ([lease.Owner.Serves]), so that others need not wait for the lease time. It evicts every worker and
// session of these tasks, as [Supervisor.Evict] evicts one. Of a session with another task it releases
// only the leases that the session holds for these tasks ([AcquireOptions]), as
// [Supervisor.ForceRelease] releases one; the session keeps its seat and its other leases. One write of wishes makes it
// read the rows of the leases that it has lost.
//
// ReleaseTask returns the released rows; the error names the shards that it could not release. Stop the
// task first. Otherwise its workers take new seats and claim shards again.
//
// It lists the seats once and the rows twice. Each release and each eviction adds a read and a write.
func (s Supervisor) ReleaseTask(ctx context.Context, task, why string) ([]lease.Row, error) {
	if task == "" {
		return nil, &ConfigError{Field: "task", Rule: "must be given: every worker without one has the empty task"}
	}
	if err := checkTask(task); err != nil {
		return nil, err
	}
	var workers []lease.Incarnation
	seats, err := s.Workers(ctx)
	for _, seat := range seats {
		if seat.Owner().Serves(task) {
			workers = append(workers, seat.Incarnation)
		}
	}
	released, ended, expelled := s.expel(ctx, workers, why, func(o lease.Owner) bool { return o.Serves(task) })
	defer s.countEnds(ctx, ended)
	return changed(ctx, s, lease.Act{Did: "release-task", Subject: task, Why: why}, released, errors.Join(err, expelled))
}

// Evict force-releases the shards of a worker and deletes its seat, so that the other workers claim
// the shards without waiting for the lease time. It is for a worker that is dead or stuck, or whose
// seat cannot be read. The rows record By and the reason. No failed attempt is counted, because the
// worker did not crash. Evict returns the released rows; the error names the shards that it could
// not release. If the seat is already gone, Evict releases the shards and returns no error.
//
// If the worker is still running, its next heartbeat is refused; it then reports [event.Lost] with
// the cause [event.CauseExpired], ends all its tenures, takes a new seat, and may get the same
// shards again. If the worker claims more shards before its seat is deleted, Evict releases them
// afterwards. If another worker, or this one under its new seat, claims such a shard first, a failed
// attempt is counted for it.
func (s Supervisor) Evict(ctx context.Context, worker lease.Incarnation, why string) ([]lease.Row, error) {
	released, ended, err := s.expel(ctx, []lease.Incarnation{worker}, why, func(o lease.Owner) bool { return o.Incarnation == worker })
	defer s.countEnds(ctx, ended)
	act := lease.Act{Did: "evict", Subject: string(worker), Why: why}
	if len(released) > 0 && released[0].Last.From != "" {
		act.Subject = fmt.Sprintf("%s (%s)", released[0].Last.From, worker)
	}
	return changed(ctx, s, act, released, err)
}

// expel releases the shards of some workers and of the owners for which of is true, deletes their seats
// as unseat does, and then releases the shards that they claimed in between. The second round also
// retries releases that failed in the first. Owners that keep their seats are told what they have lost; the
// others lose their next heartbeat. expel returns the released rows, and how many tenures it has ended.
func (s Supervisor) expel(ctx context.Context, workers []lease.Incarnation, why string, of func(lease.Owner) bool) (rows []lease.Row, ended int64, err error) {
	if err := s.check(true); err != nil {
		return nil, 0, err
	}
	released, ended, owners, err := s.releaseAll(ctx, workers, why, of)
	if isInvalid(err) {
		return nil, ended, err
	}
	var errs []error
	unseated := map[lease.Incarnation]bool{}
	all := slices.AppendSeq(slices.Clone(workers), maps.Keys(owners))
	slices.Sort(all)
	for _, worker := range slices.Compact(all) {
		gone, err := s.unseat(ctx, worker, of)
		unseated[worker], errs = gone, append(errs, err)
	}
	more, again, late, err := s.releaseAll(ctx, workers, why, of)
	for _, row := range more { // a shard that was claimed in between is in both
		released = slices.DeleteFunc(released, func(r lease.Row) bool { return r.Shard == row.Shard })
	}
	s.look(ctx, spared(unseated, owners, late)...)
	return append(released, more...), ended + again, errors.Join(append(errs, err)...)
}

// spared returns what owners have lost in several rounds that still have their seats.
func spared(unseated map[lease.Incarnation]bool, rounds ...map[lease.Incarnation][]string) (shards []string) {
	for _, owners := range rounds {
		for owner, lost := range owners {
			if !unseated[owner] {
				shards = append(shards, lost...)
			}
		}
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

// releaseAll force-releases the shards of some workers and of the owners for which of is true. It
// returns how many tenures it has ended, and these owners, with the shards that they have lost. If the reason cannot be stored, it
// releases no row.
func (s Supervisor) releaseAll(ctx context.Context, workers []lease.Incarnation, why string, of func(lease.Owner) bool) (released []lease.Row, ended int64, owners map[lease.Incarnation][]string, err error) {
	rows, err := s.List(ctx)
	errs := []error{err}
	owners = map[lease.Incarnation][]string{}
	for _, row := range rows {
		owner := row.Owner.Incarnation
		if row.Owner.IsZero() || !slices.Contains(workers, owner) && !of(row.Owner) {
			continue
		}
		owners[owner] = append(owners[owner], row.Shard)
		row, n, err := s.forceRelease(ctx, row.Shard, row.Generation, why)
		ended += n
		switch {
		case err == nil:
			released = append(released, row)
		case isInvalid(err):
			return nil, ended, nil, err
		}
		errs = append(errs, err)
	}
	return released, ended, owners, errors.Join(errs...)
}

// isInvalid reports whether err means that an argument of a command cannot be stored.
func isInvalid(err error) bool {
	return errors.Is(err, checkpoint.ErrInvalid) && !errors.Is(err, lease.ErrMalformed)
}

// unseat deletes the seat of a worker, if there is one, unless the seat can be read and of is false for
// its owner. It reports whether the worker has no seat now.
func (s Supervisor) unseat(ctx context.Context, worker lease.Incarnation, of func(lease.Owner) bool) (gone bool, err error) {
	key := lease.Key{Group: s.Group, Kind: lease.KindSeat, Name: string(worker)}
	for last, again := lease.WriteID(""), false; ; again = true {
		record, err := s.Store.Get(ctx, key)
		if errors.Is(err, lease.ErrNotFound) {
			return true, nil
		}
		if seat, ok := record.(lease.Seat); ok && err == nil && !of(seat.Owner()) {
			return false, nil // a session with another task, which held a lease for this one
		}
		w, err := eviction(key, record, err)
		if err != nil {
			return false, err
		}
		if _, err = s.Store.Write(ctx, w); err == nil {
			return true, nil
		}
		refused := errors.Is(err, lease.ErrRefused) || errors.Is(err, lease.ErrMalformed)
		if !refused || again && w.Old.Written() == last { // refused: the seat was written in between, or is gone
			return false, fmt.Errorf("evict %v: %w", key, err)
		}
		last = w.Old.Written()
	}
}

// eviction returns the write that deletes a seat as a read has shown it. One that cannot be read is
// deleted on its write id.
func eviction(key lease.Key, record lease.Record, err error) (lease.Write, error) {
	if malformed, ok := errors.AsType[*lease.MalformedError](err); ok && malformed != nil {
		return protocol.EvictSpoilt(key, malformed.WriteID)
	}
	seat, ok := record.(lease.Seat)
	switch {
	case err != nil:
		return lease.Write{}, fmt.Errorf("evict %v: %w", key, err)
	case !ok:
		return lease.Write{}, fmt.Errorf("evict %v: %w: the record is no seat", key, lease.ErrMalformed)
	}
	return protocol.Evict(seat)
}

// Quarantine sets a shard aside, whether it is held or not: nobody claims it until
// Unquarantine.
func (s Supervisor) Quarantine(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	row, ended, err := s.command(ctx, "quarantine", shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Quarantine(row, s.stated(seen, why), lease.ReasonForced, st)
	})
	return s.announced(ctx, lease.Act{Did: "quarantine", Why: why}, row, ended, err)
}

// Unquarantine makes a shard claimable again, and sets its failed attempts to 0.
func (s Supervisor) Unquarantine(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	row, ended, err := s.command(ctx, "unquarantine", shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Unquarantine(row, s.stated(seen, why), st)
	})
	return s.announced(ctx, lease.Act{Did: "unquarantine", Why: why}, row, ended, err)
}

// Remove replaces the row of a shard without owner by a tombstone. If the source lists the
// shard, now or later, a worker revives the row, and the shard starts at the beginning.
func (s Supervisor) Remove(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	row, ended, err := s.command(ctx, "remove", shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Remove(row, s.stated(seen, why), st)
	})
	return s.announced(ctx, lease.Act{Did: "remove", Why: why}, row, ended, err)
}

func (s Supervisor) key(shard string) lease.Key {
	return lease.Key{Group: s.Group, Kind: lease.KindLease, Name: shard}
}

func (s Supervisor) stated(seen int64, why string) protocol.Command {
	return protocol.Command{Seen: seen, By: s.By, Note: why, NoDelay: s.NoDelay}
}

// check reports the fields that are missing or not valid.
func (s Supervisor) check(command bool) error {
	var f faults
	if isNil(s.Store) {
		f.add("Store", "must be given"+nilOf(s.Store))
	}
	f.wrap("Group", lease.Query{Group: s.Group, Kind: lease.KindLease}.Validate())
	if command && s.By == "" {
		f.add("By", "must be given: the lease row or the wish records who gave the command")
	}
	return errors.Join(f...)
}

// A transition returns the write that changes a row as a command demands.
type transition func(lease.Row, protocol.Stamp) (lease.Write, error)

// command reads the row, makes the write and sends it until its outcome is known. The verb names
// the transition in errors. ended is 1 if the write has ended a tenure, which it may have done although command returns an error
// or the row of a later write.
func (s Supervisor) command(ctx context.Context, verb, shard string, make transition) (row lease.Row, ended int64, err error) {
	if err := s.check(true); err != nil {
		return lease.Row{}, 0, err
	}
	row, err = s.Get(ctx, shard)
	if err != nil {
		return lease.Row{}, 0, err
	}
	const tries = 10 // each commit of the owner refuses a swap
	for try := 1; ; try++ {
		w, err := make(row, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
		if err != nil {
			return row, 0, err
		}
		answer, ended := s.send(ctx, row, w)
		// Again: the row has changed within its generation, so the command is still allowed. The refusal contains the
		// row as it is now.
		if answer.Verdict == protocol.Again && try < tries {
			row = answer.Row
			continue
		}
		err = answer.Err()
		rule, refused := err.(*lease.RuleError)
		switch {
		case err == nil || answer.Torn && released(answer.Row, w):
			return answer.Row, ended, nil
		case refused:
			return answer.Row, ended, &lease.RuleError{Transition: verb, Key: row.Key(), Rule: rule.Rule}
		}
		return answer.Row, ended, fmt.Errorf("%s %v: %w", verb, row.Key(), err)
	}
}

// released reports whether the history of the row shows that w, a forced release, was stored
// before the shard changed hands again. The history has no write ids, so released compares
// everything else. The same command of this operator, in the same second and for the same owner,
// would look the same. That does no harm: the owner has lost the shard, and a shard that was to be
// reassigned was reserved. The other commands promise more, so they return lease.ErrOutdated.
func released(now lease.Row, w lease.Write) bool {
	next, _ := w.Next.(lease.Row)
	if w.Op != lease.OpTransfer || next.Quarantined {
		return false
	}
	mine := next.Last
	return slices.ContainsFunc(now.History(), func(t lease.Transfer) bool {
		return t.Generation == mine.Generation && t.Reason == mine.Reason && t.From == mine.From && t.By == mine.By && t.Did == mine.Did &&
			t.At.Equal(mine.At.Truncate(time.Second))
	})
}

// send sends a write of a row until it is answered, at most six times. ended is 1 if the answer shows that the write
// has ended a tenure. A first attempt that is refused has ended none, although another program with the same name may
// have left what looks like it.
func (s Supervisor) send(ctx context.Context, row lease.Row, w lease.Write) (answer protocol.Answer, ended int64) {
	c := protocol.NewCopy(row.Key(), "")
	c.Saw(row)
	_ = c.Send(w) // cannot fail: w is a write of this row, and no other one is open
	s.repeat(ctx, func() bool {
		reply, err := s.Store.Write(ctx, w)
		answer = c.Answer(w, reply, err)
		if _, is := protocol.Ended(w, reply, err); is && (answer.Torn || answer.Verdict == protocol.Stored) {
			ended = 1
		}
		return answer.Verdict != protocol.Unknown
	})
	return answer, ended
}

// repeat sends a write until it is answered, at most six times. The bytes are the same each time,
// so the store's reply shows whether an earlier attempt was stored.
func (s Supervisor) repeat(ctx context.Context, answered func() bool) {
	const tries = 6
	for try, pause := 1, 50*time.Millisecond; !answered() && try < tries && rest(ctx, pause); try++ {
		pause *= 2
	}
}

// rest waits for d. It returns false if ctx ends first.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
