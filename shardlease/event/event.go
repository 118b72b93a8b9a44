// Package event defines the events that a worker of package shardlease reports: to
// Config.Observe as a value, and to Config.Logger as a line.
//
// An [Event] has a [Kind]. The end of a tenure also has a [Cause], which is also the cause
// of the handler's contexts. Kinds and causes have the same texts in logs, events and
// documentation: one word, or two with a hyphen.
package event

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Kind is the kind of an event.
type Kind uint8

// The kinds of event.
const (
	Joined      Kind = iota + 1 // this worker took a seat
	Lost                        // this worker lost its seat, and with it every tenure
	PeerJoined                  // another worker took a seat
	PeerLeft                    // the seat of another worker is gone
	PeerLeaving                 // another worker shuts down
	PeerSuspect                 // another worker missed a heartbeat
	PeerEvicted                 // this worker evicted another worker
	Started                     // a tenure of this worker began
	Ended                       // a tenure of this worker ended
	Requested                   // this worker requested a shard of another worker
	Draining                    // a handler should wind down
	Refused                     // the table refused a checkpoint of this worker
	Contended                   // another worker claimed the shard first; of a session: its callers have found leases taken
	Quarantined                 // a shard was quarantined
	Created                     // a lease row was created for a new shard
	Removed                     // a lease row became a tombstone
	Retired                     // a preparation or a request was called off
	StoreFault                  // the store did not answer, or its answer cannot be used
	SourceFault                 // the source could not be listed, or a part of its listing cannot be used
	Malformed                   // a record in the table cannot be read
	Restored                    // the table was restored or replaced: claiming is suspended
	CommitsFail                 // the table has accepted no mark for Config.CommitTimeout
	Silent                      // handlers have neither marked nor called Progress for StallAfter, or five minutes
	Full                        // no worker has room for some shards, or some are reserved for a name that no worker has
	Unlisted                    // the source has ceased to list shards that are not finished; one worker reports it
	Unwell                      // handlers of this worker fail: it gets only trials; or its reads fail: it gets nothing
	PlanStale                   // no plan is complete although one is needed: shards may stay without an owner
	Unwatched                   // some workers do not answer at their addresses, or the listener of Config.Deathwatch has failed
	Misjudged                   // this worker was evicted while its lease was valid: its seat shows no address for ten lease times
	Hangs                       // this worker shuts down, and waits for handlers whose tenures have ended
	Steered                     // a cordon, a drain, a pause or a pin of an operator stands; one worker reports it daily
	Raising                     // fences of Config.Targets are not raised a heartbeat interval after the tenures began

	// HookFault means that a function of the configuration panicked, called runtime.Goexit,
	// or returned an answer that cannot be used, or that Config.Planner is late. Err is a
	// *shardlease.HookError. If a store or a source does so, the event is a StoreFault or a
	// SourceFault with such an error.
	HookFault
)

// String returns the kind as it is written in logs and metrics.
func (k Kind) String() string {
	names := [...]string{
		Joined: "joined", Lost: "lost", PeerJoined: "peer-joined", PeerLeft: "peer-left", PeerLeaving: "peer-leaving",
		PeerSuspect: "peer-suspect", PeerEvicted: "peer-evicted", Started: "started", Ended: "ended", Requested: "requested",
		Draining: "draining", Refused: "refused", Contended: "contended", Quarantined: "quarantined", Created: "created",
		Removed: "removed", Retired: "retired", StoreFault: "store-fault", SourceFault: "source-fault",
		Malformed: "malformed", Restored: "restored", CommitsFail: "commits-fail", Silent: "silent", Full: "full", Unlisted: "unlisted", Unwell: "unwell", PlanStale: "plan-stale",
		Unwatched: "unwatched", Misjudged: "misjudged", Hangs: "hangs", Steered: "steered", Raising: "raising", HookFault: "hook-fault",
	}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("event-%d", uint8(k))
	}
	return names[k]
}

// An Event is something that a worker did or observed. Its kind decides which fields are
// set.
//
// It contains no positions and no states. Err is passed on unchanged: the error of a
// handler may contain anything.
type Event struct {
	Kind   Kind
	At     time.Time // the time of the event, by the wall clock of the worker
	Group  string
	Worker string // the name of the worker that reports the event

	Shard      string
	Generation int64
	Peer       string       // the name of the other worker
	Task       string       // the task of the other worker
	Reason     lease.Reason // why the shard changed hands
	Cause      Cause        // of Lost, Draining and Ended: why the tenure ends
	Attempt    int          // of Started and Quarantined: how many tenures failed since the shard last made progress

	// Transfer is how the shard changed hands: to this worker (Started), or, as last known, since
	// this worker held it (Ended). It is zero in an Ended if no later generation is known.
	Transfer lease.Transfer
	// Targets, of Started: the names of Config.Targets, the systems that the handler changes.
	Targets []string
	// Next, of Ended: the generation that followed this one; 0: unknown.
	Next int64
	// Terms are those of a planned move, in Requested, Draining, Started and Ended. They are zero if
	// the shard did not move on request, and have only the mode if a worker no longer knew the others.
	Terms rebalance.Terms
	// Why is the cause of a planned move, in Requested, Draining, Started and Ended. It is zero if the shard did not move on
	// request, or if an earlier version of the library planned or made the move; and in a Draining also if the worker has not
	// read the plan yet: it serves a request at once. The transfer has an operator's reason.
	Why rebalance.Why

	// Gap, of Started: for how long nobody processed the shard in an eager move,
	// by the wall clocks of two workers.
	Gap time.Duration
	// Delay, of Started, and Continued, of Ended, show what a cooperative move has cost. Both count from
	// the moment at which the successor took the shard over (Transfer.At): Delay until the successor's handler was
	// called, Continued until the owner's handler had returned. If Continued is longer, both handlers ran for
	// the difference; if Delay is longer, none did. Continued is by the wall clocks of two workers, and is
	// also set if another worker took the shard over without a move.
	Delay     time.Duration
	Continued time.Duration
	Took      time.Duration // of Ended: how long the tenure lasted
	Drained   time.Duration // of Ended: how long the handler took to wind down
	Pending   uint64        // of Ended: how many marks were never accepted

	// Lasted, Over, Count and Shards describe a fault that lasts: StoreFault, SourceFault, Restored,
	// CommitsFail, Silent, Full, Unlisted, Unwell, PlanStale, Unwatched, Misjudged or Raising. Such a fault is reported when
	// it begins, a lease time later, then at intervals that double up to an hour, and when it ends.
	// One event reports it for all shards of this worker that it concerns; Full is about shards
	// that no worker has or may claim, and Unlisted about those of all workers. Malformed has Lasted and Over
	// too, and its Err says why the record cannot be read. One event reports one record, at the listings
	// that find it. A session lists nothing: it reports the rows and seats that it reads for a caller, until
	// they can be read or no caller waits. A session reports Contended at most once a minute, and when it ends:
	// Count is how many of its acquisitions have found a lease taken since the last such event, Shards has these
	// leases, and Lasted is the longest wait since then. Hangs is reported as soon as a shutdown waits, and then every
	// minute: Shards and Count are those of the handlers, and Lasted is how long ago the first of their tenures ended.
	Lasted time.Duration // the time since the fault began
	Over   bool          // whether the fault has ended
	Count  int           // the number of shards that the fault concerns; 0: it concerns no particular shard
	Shards []string      // the first ten of these shards

	// Wish, of Steered: the wish with its author, its end and its reason.
	Wish string

	// Running, of Ended: a heartbeat interval after the end the handler had not returned.
	// Then Continued is longer than reported, and the error of the handler is not known.
	Running bool

	// Err is what went wrong. In an Ended it includes the error of the handler. In a PeerEvicted it
	// is the proof of a deathwatch, and nil if the lease time has passed. Err is nil if the table
	// refused a write because of a planned move: that is part of the move.
	Err error
	// Dropped is how many events were dropped since the last one that was delivered,
	// because Observe or Logger was too slow.
	Dropped uint64
}

// Level returns the level at which an event is logged. An error needs somebody to act, a
// warning is worth a look, and a debug line is for tracing a move. Events that are part of
// every deploy are Info or Debug.
func (e Event) Level() slog.Level {
	if e.Over {
		return slog.LevelInfo
	}
	switch e.Kind {
	case Lost, Restored, HookFault, CommitsFail:
		return slog.LevelError
	case PeerEvicted, Quarantined, StoreFault, SourceFault, Malformed, Silent, Full, Unlisted, Unwell, PlanStale, Unwatched, Misjudged, Hangs, Raising:
		return slog.LevelWarn
	case PeerSuspect, Requested, Draining, Retired:
		return slog.LevelDebug
	case Contended:
		if e.Count == 0 { // of a worker, for which it is part of a deploy
			return slog.LevelDebug
		}
	case Refused:
		if e.Err != nil { // a late commit of a cooperative move has none: it is part of the move
			return slog.LevelWarn
		}
	case Ended:
		switch {
		case e.Cause == CauseConflict:
			return slog.LevelError
		case e.Err != nil || e.Running || !e.Cause.planned():
			return slog.LevelWarn
		}
	}
	return slog.LevelInfo
}

// planned reports whether c is the normal end of a tenure.
func (c Cause) planned() bool {
	switch c {
	case CauseHandedOff, CauseStopped, CauseFinished, CauseGivenUp:
		return true
	}
	return false
}

// LogValue returns the event as a group: its kind, and the fields that are set.
func (e Event) LogValue() slog.Value {
	a := make(attrs, 0, 16)
	a.text("event", e.Kind.String())
	a.text("group", e.Group)
	a.text("worker", e.Worker)
	a.text("shard", e.Shard)
	a.number("generation", e.Generation)
	a.text("peer", e.Peer)
	a.text("task", e.Task)
	a.text("reason", string(e.Reason))
	switch e.Kind {
	case Started:
		a.text("from", e.Transfer.From)
		a.text("by", e.Transfer.By)
		a.text("note", e.Transfer.Note)
		a.text("targets", strings.Join(e.Targets, " "))
	case Ended:
		a.number("next", e.Next)
	}
	if e.Terms.Mode != 0 {
		a.text("terms", e.Terms.String())
	}
	if e.Why != 0 {
		a.text("why", e.Why.String())
	}
	if e.Cause != 0 {
		a.text("cause", e.Cause.String())
	}
	a.number("attempt", int64(e.Attempt))
	a.length("gap", e.Gap)
	a.length("delay", e.Delay)
	a.length("continued", e.Continued)
	a.length("took", e.Took)
	a.length("drained", e.Drained)
	a.number("pending", int64(e.Pending))
	return slog.GroupValue(e.trouble(a)...)
}

// trouble adds the fields that describe faults.
func (e Event) trouble(a attrs) attrs {
	a.length("lasted", e.Lasted)
	a.truth("over", e.Over)
	if e.Count > 1 {
		a.number("count", int64(e.Count))
		a = append(a, slog.Any("shards", e.Shards))
	}
	a.text("wish", e.Wish)
	a.truth("running", e.Running)
	if e.Err != nil {
		a.text("err", oneLine(e.Err.Error()))
	}
	a.number("dropped", int64(e.Dropped))
	return a
}

// attrs collects the attributes that are not zero.
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

func (a *attrs) truth(name string, value bool) {
	if value {
		*a = append(*a, slog.Bool(name, true))
	}
}

func (a *attrs) length(name string, value time.Duration) {
	if value != 0 {
		*a = append(*a, slog.Duration(name, value.Round(100*time.Microsecond)))
	}
}

// String returns the event as one line.
func (e Event) String() string {
	var b strings.Builder
	if !e.At.IsZero() {
		b.WriteString(e.At.UTC().Format("2006-01-02T15:04:05.000Z "))
	}
	b.WriteString(e.Kind.String())
	for i, a := range e.LogValue().Group()[1:] {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(&b, "%s%s %v", separator, a.Key, a.Value)
	}
	return b.String()
}
