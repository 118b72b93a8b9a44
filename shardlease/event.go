package shardlease

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An EventKind says what an event is about.
type EventKind uint8

// The kinds of event.
const (
	Joined           EventKind = iota + 1 // this worker has taken a seat
	Lost                                  // this worker lost its seat, and with it every tenure
	PeerJoined                            // a seat has come
	PeerLeft                              // a seat has gone
	PeerLeaving                           // a worker is on its way out
	PeerSuspect                           // a seat missed a beat
	PeerEvicted                           // this worker evicted it
	Started                               // a tenure began here
	Ended                                 // a tenure ended here
	Asked                                 // this worker asked another for a shard
	Draining                              // a handler was told to wind down
	Refused                               // the table refused a checkpoint of this worker
	Contended                             // a claim came too late: another worker was first
	Quarantined                           // a shard was set aside
	Created                               // a row was made for a new shard
	Removed                               // a row became a tombstone
	Retired                               // a preparation or a want was called off
	StoreFault                            // the store did not answer, or not as it should
	SourceFault                           // the source could not be listed, or not all of its listing makes sense
	Malformed                             // a record that cannot be read
	Restored                              // the table is not what it was: nothing is claimed any more
	EventCommitsFail                      // the table has accepted no mark for Config.CommitTimeout

	// HookFault: a function of the configuration panicked, called runtime.Goexit, or
	// returned an answer that cannot be used. Err is a [*HookError]. A store or a source
	// that does so is reported as a StoreFault or a SourceFault with such an error.
	HookFault EventKind = 128
)

// String is the kind as a log's message.
func (k EventKind) String() string {
	names := [...]string{
		Joined: "joined", Lost: "lost", PeerJoined: "peer joined", PeerLeft: "peer left", PeerLeaving: "peer leaving",
		PeerSuspect: "peer suspect", PeerEvicted: "peer evicted", Started: "started", Ended: "ended", Asked: "asked",
		Draining: "draining", Refused: "refused", Contended: "contended", Quarantined: "quarantined", Created: "created",
		Removed: "removed", Retired: "retired", StoreFault: "store fault", SourceFault: "source fault",
		Malformed: "malformed", Restored: "restored", EventCommitsFail: "commits-fail",
	}
	switch {
	case k == HookFault:
		return "hook fault"
	case k == 0 || int(k) >= len(names):
		return fmt.Sprintf("event %d", uint8(k))
	}
	return names[k]
}

// An Event is something a worker did, saw or suffered. Which fields are set
// depends on its kind.
//
// There are no positions and no states in it. Err is as it was: what a handler
// returned may hold anything.
type Event struct {
	Kind   EventKind
	At     time.Time // the worker's wall clock
	Worker string    // whose event it is

	Shard      string
	Generation int64
	Peer       string       // the other worker
	Task       string       // the other worker's
	Reason     lease.Reason // why the shard changed hands
	From, By   string       // of Started: who held it before, and who made the change
	Note       string       // of Started: what the change of hands has on record
	Cause      Cause        // of Draining and Ended
	Attempt    int          // of Started and Quarantined: failed tenures before

	// Gap, of Started: for how long nobody processed the shard in a planned move,
	// by the wall clocks of two workers.
	Gap time.Duration
	// Overlap, of Ended: for how long two may have processed the shard, from the
	// moment another worker took it until this one's handler had returned, by the
	// wall clocks of two workers.
	Overlap time.Duration
	Took    time.Duration // of Ended: how long the tenure was
	Drained time.Duration // of Ended: how long it took to wind down
	Pending uint64        // of Ended: how many marks were never accepted

	// The fields of a fault that lasts: StoreFault, SourceFault, Restored and
	// EventCommitsFail. Such a fault is reported when it begins, a lease time later, then
	// at intervals that double up to an hour, and when it ends. One event reports it for
	// all shards of this worker that it concerns.
	Lasted time.Duration // the time since the fault began
	Over   bool          // whether the fault has ended
	Count  int           // the number of shards that it concerns; 0: it concerns no single shards
	Shards []string      // the first ten of these shards

	// Running, of Ended: the handler has not returned a heartbeat later, and
	// Overlap goes on. Its error is not known.
	Running bool

	// Err is what went wrong. Of Ended it is also what the handler returned; after a
	// cooperative handoff it is, as a matter of course, the stale generation.
	Err error
	// Dropped is how many events were dropped since the one before was delivered,
	// because Observe or Logger was too slow.
	Dropped uint64

	taken lease.Transfer // of Ended: the latest change of hands
}

func translate(in engine.Event) Event {
	e := Event{
		Kind: EventKind(in.Kind), Shard: in.Shard, Generation: in.Generation, Peer: in.Peer, Task: in.Task,
		Reason: in.Reason, Cause: Cause(in.Cause), Attempt: int(in.Attempt),
		Took: in.Took, Drained: in.Drained, Pending: in.Pending, Err: in.Err,
		Lasted: in.Lasted, Over: in.Over, Count: in.Count, Shards: in.Shards,
	}
	if in.Kind == engine.Started {
		e.From, e.By, e.Note = in.Transfer.From, in.Transfer.By, in.Transfer.Note
	}
	return e
}

// gap is how long nobody had the shard before it came here: an owner that hands
// over does so when its handler has returned. A shard that was taken from an owner
// was served until then.
func gap(t lease.Transfer, started time.Time) time.Duration {
	planned := t.Reason == lease.ReasonHandoff || t.Reason == lease.ReasonDrainTimeout || t.Reason == lease.ReasonReleased
	if !planned || t.From == "" || t.From != t.By || t.At.IsZero() {
		return 0
	}
	return max(0, started.Sub(t.At))
}

// overlap is how long the handler went on after another worker had taken over.
func overlap(e Event, until time.Time) time.Duration {
	if e.Peer == "" || e.taken.Generation <= e.Generation || e.taken.At.IsZero() {
		return 0 // nobody has taken it, as far as is known
	}
	return max(0, until.Sub(e.taken.At))
}

// level is how loudly an event is logged: an error wants somebody, a warning is
// worth a look, and a debug line is for those who ask how a move went.
func (e Event) level() slog.Level {
	if e.Over {
		return slog.LevelInfo
	}
	switch e.Kind {
	case Lost, Restored, HookFault, EventCommitsFail:
		return slog.LevelError
	case Refused:
		if e.Reason == lease.ReasonHandoff {
			return slog.LevelInfo // in a cooperative move a late commit is a matter of course
		}
		return slog.LevelWarn
	case PeerEvicted, Quarantined, StoreFault, SourceFault, Malformed:
		return slog.LevelWarn
	case PeerSuspect, Asked, Draining, Contended, Retired:
		return slog.LevelDebug
	case Ended:
		switch {
		case e.Cause == Conflict:
			return slog.LevelError
		case e.Cause == HandedOff && errors.Is(e.Err, checkpoint.ErrStale) && !e.Running:
			return slog.LevelInfo // as above
		case e.Err != nil || e.Running || e.Cause != HandedOff && e.Cause != Stopped && e.Cause != Finished && e.Cause != GivenUp:
			return slog.LevelWarn
		}
	}
	return slog.LevelInfo
}

// attrs are the fields that are set.
func (e Event) attrs() []slog.Attr {
	a := make(attrs, 0, 12)
	a.text("worker", e.Worker)
	a.text("shard", e.Shard)
	a.number("generation", e.Generation)
	a.text("peer", e.Peer)
	a.text("task", e.Task)
	a.text("reason", string(e.Reason))
	a.text("from", e.From)
	a.text("by", e.By)
	a.text("note", e.Note)
	if e.Cause != 0 {
		a.text("cause", e.Cause.String())
	}
	a.number("attempt", int64(e.Attempt))
	a.length("gap", e.Gap)
	a.length("overlap", e.Overlap)
	a.length("took", e.Took)
	a.length("drained", e.Drained)
	a.number("pending", int64(e.Pending))
	a.length("lasted", e.Lasted)
	if e.Over {
		a = append(a, slog.Bool("over", true))
	}
	if e.Count > 1 {
		a.number("count", int64(e.Count))
		a = append(a, slog.Any("shards", e.Shards))
	}
	if e.Running {
		a = append(a, slog.Bool("running", true))
	}
	if e.Err != nil {
		a.text("err", e.Err.Error())
	}
	a.number("dropped", int64(e.Dropped))
	return a
}

// attrs leave out what is not set.
type attrs []slog.Attr

func (a *attrs) text(name, value string) {
	if value != "" {
		*a = append(*a, slog.String(name, value))
	}
}

func (a *attrs) number(name string, value int64) {
	if value != 0 {
		*a = append(*a, slog.Int64(name, value))
	}
}

func (a *attrs) length(name string, value time.Duration) {
	if value != 0 {
		*a = append(*a, slog.Duration(name, value.Round(100*time.Microsecond)))
	}
}

// LogValue gives structured logs the event by field.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(append([]slog.Attr{slog.String("event", e.Kind.String())}, e.attrs()...)...)
}

// String reads like the first line of an incident.
func (e Event) String() string {
	var b strings.Builder
	if !e.At.IsZero() {
		b.WriteString(e.At.UTC().Format("2006-01-02T15:04:05.000Z "))
	}
	b.WriteString(e.Kind.String())
	for i, a := range e.attrs() {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(&b, "%s%s %v", separator, a.Key, a.Value)
	}
	return b.String()
}
