package lease

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/rebalance"
)

// A Row is the lease of one shard: its owner, its generation and its checkpoint. Rows are
// values; a transition returns a new Row and shares nothing that it changes. Stored values are
// fields, such as Quarantined; values that follow from several fields are methods, such as [Row.Attempts].
//
// Invariant: within one generation the owner never changes.
//
// Invariant: Last.Generation == Generation, because the last transfer began the generation.
//
// Invariant: a finished, quarantined or removed row has no owner.
type Row struct {
	Group   string
	Shard   string
	Parents []string // sorted names of the parent shards; empty: no parents

	Counter    int64   // the lease counter, which grows by 1 with every accepted write
	WriteID    WriteID // the id of the write that made the row what it is
	Generation int64   // the fencing token, which grows with every change of hands and at no other time

	Owner      Owner       // the worker that holds the shard; zero: nobody
	OfferedTo  Incarnation // the successor that may take the shard over from Owner; empty: none
	Reserved   Reservation // for whom a command has reserved the released shard, and its lock delay; zero: it is not reserved
	Checkpoint checkpoint.Checkpoint

	Finished    bool // the shard has ended and is processed to its end
	Quarantined bool // the shard is set aside: nobody may claim it until an operator decides
	Removed     bool // the row is a tombstone, kept so that no earlier generation is ever issued again

	Failures Failures
	Last     Transfer // the latest change of hands
	Past     string   // the earlier changes of hands that fit, packed; History unpacks them
}

// An Owner is one incarnation of one worker or session, and the task that it serves.
type Owner struct {
	Name        string
	Incarnation Incarnation
	// Task is what the owner works on, for example a run or a job. Slashes separate its parts, and no part
	// is empty: "deploy/eu/db" is a descendant of "deploy/eu" and of "deploy". A task has at most [MaxName]
	// bytes. [Owner.Serves] finds the owners of a task and its descendants.
	Task string
	// LockDelay is how long no session acquires the lease after this owner was lost, in whole
	// milliseconds; 0: there is no delay. Only sessions set it. It is part of the owner, so a release,
	// and every other change of hands, removes it; a command that takes the lease away keeps it in the
	// [Reservation].
	LockDelay time.Duration
}

// IsZero reports whether o names nobody.
func (o Owner) IsZero() bool { return o == Owner{} }

func (o Owner) String() string {
	switch {
	case o.IsZero():
		return "nobody"
	case o.Task == "":
		return fmt.Sprintf("%q (%s)", o.Name, o.Incarnation)
	}
	return fmt.Sprintf("%q (%s) for task %q", o.Name, o.Incarnation, o.Task)
}

// Validate reports why o cannot own a shard.
func (o Owner) Validate() error {
	return errors.Join(
		validName("owner name", o.Name),
		validIncarnation(o.Incarnation),
		validTask(o.Task),
		validDelay(o.LockDelay))
}

func validDelay(d time.Duration) error {
	if d < 0 || d > rebalance.MaxDuration || d%time.Millisecond != 0 {
		return invalid("lock delay", fmt.Sprintf("must be whole milliseconds, from 0 to %v", rebalance.MaxDuration))
	}
	return nil
}

// A Hold is the handle with which a holder makes its writes: what it knows about its tenure.
// A Hold is worthless after the row has changed hands.
type Hold struct {
	Key         Key // the key of the row; generations of different shards cannot be compared
	Incarnation Incarnation
	Generation  int64
	Order       checkpoint.Order // how positions of the shard are compared; nil: not at all
}

// Failures counts consecutive tenures that ended by error, panic, stall or expiry. Planned
// ends never count. [Row.Attempts] computes how many of them still count.
type Failures struct {
	Count int64 // how many tenures failed
	Last  int64 // the generation of the latest of them
	// Errors is how many of Count ended by error, panic or stall; the others expired. An
	// older version does not change Errors, so it may be larger than Count: then all of
	// Count ended by error, panic or stall.
	Errors int64
	// Workers is under which workers the latest of them failed, packed; [Row.FailedUnder] and
	// [Row.FailedWorkers] read it.
	Workers string
	// Error is the error of the latest failed tenure that had one, as shardlease's Config.ErrorText has made it, and
	// ErrorOf is the generation of that tenure. It is for people: no log and no String prints it. [Row.LastError] tells
	// whether it still counts.
	Error   string
	ErrorOf int64
}

// A Reason is why a shard changed hands. A claim repeats the reason for which the shard became
// free.
type Reason string

const (
	ReasonInitial      Reason = "initial"       // the row was created
	ReasonReleased     Reason = "released"      // the owner released the shard
	ReasonFinished     Reason = "finished"      // the shard is processed to its end
	ReasonExpired      Reason = "expired"       // the owner was evicted
	ReasonHandoff      Reason = "handoff"       // the shard was handed over in a planned move
	ReasonDrainTimeout Reason = "drain-timeout" // the owner did not wind down in time in a planned move
	ReasonStalled      Reason = "stalled"       // the handler made no progress
	ReasonFailed       Reason = "failed"        // the handler returned an error or panicked
	ReasonForced       Reason = "forced"        // an operator commanded it
	ReasonAdopted      Reason = "adopted"       // the table was restored or replaced
	ReasonRemoved      Reason = "removed"       // the source no longer lists the finished shard, or an operator removed it
	ReasonUnlisted     Reason = "unlisted"      // the source no longer lists the shard, which is not finished
)

// String returns the reason as rows store it.
func (r Reason) String() string { return string(r) }

// A Transfer records one change of hands. A release is one too: it ends a generation although
// nobody takes the shard over.
type Transfer struct {
	Generation int64 // the generation that began
	Reason     Reason
	From       string // the name of the worker that held the shard; empty: nobody held it
	By         string // the name of the worker or operator that made the change
	At         time.Time
	Task       string         // the task of the worker that held the shard
	Mode       rebalance.Mode // the mode of a planned move; zero: it was none, or the owner gave the shard up by itself
	Why        rebalance.Why  // the cause of a planned move; zero: unknown, or it was none
	Did        string         // what a command did, such as "released" or "rewound"; empty: there was no command
	Note       string         // a note for people; an earlier transfer has one only if an operator made or caused it
	// WriteID is the id of the write that made the change, by which its writer recognizes it.
	// Only the last transfer of a row has one.
	WriteID WriteID
}

// Created reports whether the transfer is the creation of the row, which for a lease by name is its first
// acquisition too. The creation and the first claim have the same reason, "initial", and only a creation
// begins a generation that follows from its time. So the revival of a removed row by a worker whose clock is
// behind looks like a claim.
func (t Transfer) Created() bool {
	return t.Reason == ReasonInitial && t.Generation == generation.First(t.At)
}

// Claimed reports whether the transfer is the claim of a free shard. The Reason of such a transfer is the
// reason for which the shard was free: "forced" does not mean that an operator made the claim.
func (t Transfer) Claimed() bool {
	return t.From == "" && t.Did == "" && t.Mode == 0 && !t.Created()
}

func (t Transfer) String() string {
	text := string(t.Reason)
	switch {
	case t.Created():
		text += ": created"
	case t.Claimed():
		text = "claimed after " + text
	}
	if did := cmp.Or(t.Did, t.mode()); did != "" && did != text {
		text += ": " + did
	}
	if t.Why != 0 {
		text += ", " + t.Why.String()
	}
	if t.From != "" {
		text += fmt.Sprintf(" from %q", t.From)
	}
	if t.Task != "" {
		text += fmt.Sprintf(" for task %q", t.Task)
	}
	if t.By != "" && t.By != t.From {
		text += fmt.Sprintf(" by %q", t.By)
	}
	if !t.At.IsZero() {
		text += " at " + t.At.Format(time.RFC3339)
	}
	if t.Note != "" {
		text += fmt.Sprintf(" (%s)", t.Note)
	}
	return text + fmt.Sprintf(", began generation %d", t.Generation)
}

// Key returns the address of the row.
func (r Row) Key() Key { return Key{Group: r.Group, Kind: KindLease, Name: r.Shard} }

// Written returns the id of the write that made the row what it is.
func (r Row) Written() WriteID { return r.WriteID }

// Attempts returns the number of failed tenures since the shard last made progress, by an
// accepted checkpoint or without one.
//
// A commit does not reset Failures, and a [Transfer] may be made from a row that was read
// before the last commit. Attempts therefore compares the generation of the checkpoint with
// the generation of the last failure.
func (r Row) Attempts() int64 {
	switch accepted := r.Checkpoint.Generation; {
	case accepted > r.Failures.Last:
		return 0
	case accepted == r.Failures.Last:
		return min(r.Failures.Count, 1) // the tenure had a checkpoint accepted before it failed
	}
	return r.Failures.Count
}

// Failed returns how many of [Row.Attempts] ended by error, panic or stall. The back-off before
// the next claim grows with these alone, because the death of an owner is no failure of the
// shard.
func (r Row) Failed() int64 {
	if r.Attempts() < r.Failures.Count {
		return 0 // the one attempt that counts is a recovery, made from a row that was read before the last commit
	}
	return min(r.Failures.Errors, r.Failures.Count)
}

// LastError returns the error of the latest failed tenure that had one, and the generation of that tenure; empty: there is
// none, or the shard has made progress since. The text may contain the user's data.
func (r Row) LastError() (text string, generation int64) {
	if f := r.Failures; f.Error != "" && r.Checkpoint.Generation <= f.ErrorOf {
		return f.Error, f.ErrorOf
	}
	return "", 0
}

// Noted returns a transfer of the row for people to read: if it ended the tenure of [Row.LastError], that error is its note.
func (r Row) Noted(t Transfer) Transfer {
	if text, of := r.LastError(); text != "" && t.Generation == of+1 && t.Note == "" {
		t.Note = text
	}
	return t
}

// FailedUnder returns how many of [Row.Attempts] failed under the worker of that name.
func (r Row) FailedUnder(worker string) int64 {
	for hash, n := range attr.Failed(r.Failures.Workers, r.Attempts()) {
		if hash == attr.Hashed(worker) {
			return n
		}
	}
	return 0
}

// FailedWorkers returns under how many workers the tenures failed that [Row.Attempts] counts. All
// workers that the row does not remember count as one.
func (r Row) FailedWorkers() (n int) {
	for range attr.Failed(r.Failures.Workers, r.Attempts()) {
		n++
	}
	return n
}

func (r Row) count() int64 { return r.Counter }

// Compare orders two states of one row by when the table had them. A reply that arrives late
// has an older row, which never replaces a newer one.
func (r Row) Compare(other Row) int {
	return cmp.Or(cmp.Compare(r.Generation, other.Generation), cmp.Compare(r.Counter, other.Counter))
}

// Validate reports everything that makes r impossible to store or that this package never
// stores.
func (r Row) Validate() error {
	errs := []error{
		r.Key().Validate(), validID("write id", string(r.WriteID)),
		positive("counter", r.Counter), positive("generation", r.Generation),
		validParents(r.Shard, r.Parents), r.validateHold(), r.validateReservation(), r.validateCheckpoint(), r.validateTransfers(),
	}
	if r.Failures.Count < 0 || r.Failures.Last < 0 || r.Failures.Last > r.Generation {
		errs = append(errs, invalid("failures", "must not be negative or ahead of the generation"))
	}
	if r.Failures.Errors < 0 {
		errs = append(errs, invalid("errors", "must not be negative"))
	}
	errs = append(errs, validText("failed by", r.Failures.Workers, MaxName), validText("last error", r.Failures.Error, MaxNote))
	if (r.Failures.Error == "") != (r.Failures.ErrorOf == 0) || r.Failures.ErrorOf < 0 || r.Failures.ErrorOf >= r.Generation && r.Failures.Error != "" {
		errs = append(errs, invalid("last error", "must have a generation before that of the row"))
	}
	return errors.Join(errs...)
}

func validParents(shard string, parents []string) error {
	if len(parents) > MaxParents {
		return tooMany("parents", len(parents), MaxParents)
	}
	for i, parent := range parents {
		if err := validName("parent", parent); err != nil {
			return err
		}
		if parent == shard || i > 0 && parents[i-1] >= parent {
			return invalid("parents", "must be sorted, different, and not the shard itself")
		}
	}
	return nil
}

func (r Row) validateHold() error {
	if r.Owner.IsZero() {
		if r.OfferedTo != "" {
			return invalid("offer", "must be empty in a row without owner")
		}
		return nil
	}
	if r.Finished || r.Quarantined || r.Removed {
		return invalid("owner", "must be nobody: the row is finished, quarantined or removed")
	}
	return errors.Join(r.Owner.Validate(), validText("offer", string(r.OfferedTo), MaxID))
}

func (r Row) validateCheckpoint() error {
	c := r.Checkpoint
	if c.Generation < 0 || c.Generation > r.Generation || c.Generation == 0 && !c.IsZero() {
		return invalid("checkpoint generation", "must be one that the row has had")
	}
	if c.IsZero() {
		return nil // no position; a generation without one records progress
	}
	return c.Validate()
}

func (r Row) validateTransfers() error {
	if r.Last.Generation != r.Generation {
		return invalid("last transfer", "must have the generation of the row")
	}
	if err := errors.Join(validText("note", r.Last.packedNote(), MaxNote), validID("transfer id", string(r.Last.WriteID))); err != nil {
		return err
	}
	return r.Last.validate()
}

func (t Transfer) validate() error {
	if t.Mode != 0 && (t.Mode.Validate() != nil || t.Did != "") {
		return invalid("mode", "must be eager or cooperative, and not that of a command")
	}
	if t.Why != 0 && (t.Mode == 0 || letter(t.Why) == 0) {
		return invalid("why", "must be a known cause, and only that of a planned move")
	}
	if mode := new(rebalance.Mode); t.Did != "" && mode.UnmarshalText([]byte(t.Did)) == nil {
		return invalid("did", "must not be a mode")
	}
	return errors.Join(
		validID("reason", string(t.Reason)), validText("did", t.Did, MaxID), validText("task of the transfer", t.Task, MaxName),
		validText("transfer from", t.From, MaxName),
		validText("transfer by", t.By, MaxName))
}

// String describes the row for logs and incident reports, without the user's data.
func (r Row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: generation %d, counter %d, ", r.Key(), r.Generation, r.Counter)
	switch {
	case r.Removed:
		b.WriteString("removed")
	case r.Finished:
		b.WriteString("finished")
	case r.Quarantined:
		fmt.Fprintf(&b, "quarantined after %d attempts", r.Attempts())
	default:
		fmt.Fprintf(&b, "held by %v", r.Owner)
	}
	if r.OfferedTo != "" {
		fmt.Fprintf(&b, ", offered to %s", r.OfferedTo)
	}
	if r.Reserved.For != "" {
		fmt.Fprintf(&b, ", reserved for %q for %v", r.Reserved.For, r.Reserved.Lasts)
	}
	if r.Reserved.Delay > 0 {
		fmt.Fprintf(&b, ", lock delay %v", r.Reserved.Delay)
	}
	fmt.Fprintf(&b, ", %v, last transfer %v", r.Checkpoint, r.Last)
	return b.String()
}

// GoString keeps %#v from printing the user's data.
func (r Row) GoString() string { return r.String() }

// LogValue returns the row as a group of fields for structured logs, without the user's data.
func (r Row) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("group", r.Group), slog.String("shard", r.Shard),
		slog.Int64("generation", r.Generation), slog.Int64("counter", r.Counter),
		slog.String("owner", r.Owner.Name), slog.String("incarnation", string(r.Owner.Incarnation)),
		slog.String("checkpoint", r.Checkpoint.String()), slog.String("last_transfer", r.Last.String()),
	}
	if r.Owner.Task != "" {
		attrs = append(attrs, slog.String("task", r.Owner.Task))
	}
	if r.OfferedTo != "" {
		attrs = append(attrs, slog.String("offered_to", string(r.OfferedTo)))
	}
	if r.Reserved.For != "" {
		attrs = append(attrs, slog.String("reserved_for", r.Reserved.For))
	}
	if r.Reserved.Delay > 0 {
		attrs = append(attrs, slog.Duration("lock_delay", r.Reserved.Delay))
	}
	if n := r.Attempts(); n > 0 {
		attrs = append(attrs, slog.Int64("attempts", n))
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"finished", r.Finished}, {"quarantined", r.Quarantined}, {"removed", r.Removed}} {
		if flag.set {
			attrs = append(attrs, slog.Bool(flag.name, true))
		}
	}
	return slog.GroupValue(attrs...)
}
