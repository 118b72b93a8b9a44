package lease

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// A Row is the lease of one shard: who holds it, under which generation, and
// how far it has come. Rows are values; the transitions return new ones and
// share nothing that they change.
//
// Invariant: within one generation the owner never changes.
//
// Invariant: Last.Generation == Generation; the last transfer made it.
//
// Invariant: a finished, quarantined or removed row has no owner.
type Row struct {
	Group   string
	Shard   string
	Parents []string // sorted; empty for a shard without

	Counter    int64   // the lease counter: +1 with every accepted write
	WriteID    WriteID // of the write that left the row like this
	Generation int64   // the fencing token: grows at every change of hands, and at no other time

	Owner      Owner       // zero: nobody
	OfferedTo  Incarnation // the successor that may take it from Owner; empty: none
	Checkpoint checkpoint.Checkpoint

	Finished    bool // the shard has ended and is processed to its end
	Quarantined bool // set aside: nobody may claim it until somebody decides
	Removed     bool // a tombstone: kept so that no earlier generation is ever issued again

	Failures Failures
	Last     Transfer // the latest change of hands
	Past     string   // earlier ones, as many as fit, packed: see History
}

// An Owner is one incarnation of one worker, and the task it serves.
type Owner struct {
	Name        string
	Incarnation Incarnation
	Task        string // free text: a run, a job; so that what a dead run still holds can be found
}

// IsZero reports whether o is nobody.
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

// Validate reports what about o cannot own a shard.
func (o Owner) Validate() error {
	return errors.Join(
		validName("owner name", o.Name),
		validID("incarnation", string(o.Incarnation)),
		validText("task", o.Task, MaxName))
}

// A Hold is what a holder knows of its tenure. It is the handle every write of
// a holder is made with, and it is worth nothing once the row has moved on.
type Hold struct {
	Key         Key // of the row: generations of different shards say nothing about each other
	Incarnation Incarnation
	Generation  int64
	Order       checkpoint.Order // how its positions are compared; nil: not at all
}

// Failures count the tenures in a row that ended by error, panic, stall or expiry.
// How many of them still count is for [Row.Attempts] to say. Planned ends never count.
type Failures struct {
	Count  int64
	Last   int64 // the generation of the latest of them
	Errors int64 // how many of Count ended by error, panic or stall; the others expired. More than Count
	// stands in a row that an older version has written, which leaves it as it was: then all did
}

// A Reason says why a shard changed hands.
type Reason string

const (
	ReasonInitial      Reason = "initial"       // first of its row
	ReasonReleased     Reason = "released"      // given back by its owner
	ReasonFinished     Reason = "finished"      // processed to its end
	ReasonExpired      Reason = "expired"       // its owner was evicted
	ReasonHandoff      Reason = "handoff"       // a planned move
	ReasonDrainTimeout Reason = "drain-timeout" // a planned move whose owner did not wind down in time
	ReasonStalled      Reason = "stalled"       // its handler made no progress
	ReasonFailed       Reason = "failed"        // its handler returned an error or panicked
	ReasonForced       Reason = "forced"        // by command
	ReasonAdopted      Reason = "adopted"       // the table was restored or replaced
	ReasonRemoved      Reason = "removed"       // the source no longer lists the shard
)

// A Transfer records one change of hands. A change is there even when nobody
// takes over: a release ends a generation as well.
type Transfer struct {
	Generation int64 // the generation that began
	Reason     Reason
	From       string // the name of who held it; empty: nobody
	By         string // who did it: a worker's name, an operator's
	At         time.Time
	Note       string  // only in a row's last transfer
	WriteID    WriteID // only in a row's last transfer: tells a giver that its gift arrived
}

func (t Transfer) String() string {
	text := string(t.Reason)
	if t.From != "" {
		text += fmt.Sprintf(" from %q", t.From)
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

// Key is the row's address.
func (r Row) Key() Key { return Key{Group: r.Group, Kind: KindLease, Name: r.Shard} }

// Written is the id of the write that left the row like this.
func (r Row) Written() WriteID { return r.WriteID }

// Attempts counts the failed tenures since a checkpoint was last accepted.
//
// A commit does not write the count, and a [Transfer] may be made from a row
// that was read before the last commit: what has been accepted since the last
// failure is seen from the generation of the checkpoint itself.
func (r Row) Attempts() int64 {
	switch accepted := r.Checkpoint.Generation; {
	case accepted > r.Failures.Last:
		return 0
	case accepted == r.Failures.Last:
		return min(r.Failures.Count, 1) // the tenure got somewhere before it failed
	}
	return r.Failures.Count
}

// Failed counts those of [Row.Attempts] that ended by error, panic or stall. The back-off
// before the next claim grows with these alone, because the death of an owner is no failure
// of the shard.
func (r Row) Failed() int64 {
	if r.Attempts() < r.Failures.Count {
		return 0 // the one attempt that counts is a recovery from a row that was read before the last commit
	}
	return min(r.Failures.Errors, r.Failures.Count)
}

func (r Row) count() int64 { return r.Counter }

// Compare orders the states of one row as the table went through them. A reply
// that arrives late is older, and an older row never replaces a newer one.
func (r Row) Compare(other Row) int {
	return cmp.Or(cmp.Compare(r.Generation, other.Generation), cmp.Compare(r.Counter, other.Counter))
}

// Validate reports, all at once, what about r cannot be stored or was never
// stored by this package.
func (r Row) Validate() error {
	errs := []error{
		r.Key().Validate(), validID("write id", string(r.WriteID)),
		positive("counter", r.Counter), positive("generation", r.Generation),
		r.validateParents(), r.validateHold(), r.validateCheckpoint(), r.validateTransfers(),
	}
	if r.Failures.Count < 0 || r.Failures.Last < 0 || r.Failures.Last > r.Generation {
		errs = append(errs, invalid("failures", "must not be negative or ahead of the generation"))
	}
	if r.Failures.Errors < 0 {
		errs = append(errs, invalid("errors", "must not be negative"))
	}
	return errors.Join(errs...)
}

func (r Row) validateParents() error {
	if len(r.Parents) > MaxParents {
		return &checkpoint.InvalidError{Field: "parents", Rule: fmt.Sprintf("must be at most %d, are %d", MaxParents, len(r.Parents)), Limit: MaxParents}
	}
	for i, parent := range r.Parents {
		if err := validName("parent", parent); err != nil {
			return err
		}
		if parent == r.Shard || i > 0 && r.Parents[i-1] >= parent {
			return invalid("parents", "must be sorted, different, and not the shard itself")
		}
	}
	return nil
}

func (r Row) validateHold() error {
	if r.Owner.IsZero() {
		if r.OfferedTo != "" {
			return invalid("offer", "must come from an owner")
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
		return invalid("checkpoint generation", "must be one the row has had")
	}
	if c.IsZero() {
		return nil // nothing marked; a generation says that there was progress all the same
	}
	return c.Validate()
}

func (r Row) validateTransfers() error {
	if r.Last.Generation != r.Generation {
		return invalid("last transfer", "must have made the generation")
	}
	if err := errors.Join(validText("note", r.Last.Note, MaxNote), validID("transfer id", string(r.Last.WriteID))); err != nil {
		return err
	}
	return r.Last.validate()
}

func (t Transfer) validate() error {
	return errors.Join(
		validID("reason", string(t.Reason)),
		validText("transfer from", t.From, MaxName),
		validText("transfer by", t.By, MaxName))
}

// String reads like the first line of an incident: everything but the user's
// data.
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
	fmt.Fprintf(&b, ", %v, last transfer %v", r.Checkpoint, r.Last)
	return b.String()
}

// GoString keeps %#v from printing the user's data.
func (r Row) GoString() string { return r.String() }

// LogValue gives structured logs the same, by field.
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
