package engine

import (
	"cmp"
	"errors"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The inputs and the outputs of an engine. The shell (package shardlease) gives it inputs and carries out its outputs.
// So do the virtual worlds of the tests: internal/proof/virtual, and internal/proof/explore, internal/proof/sim and
// internal/proof/scale, which are built on it.
//
// Used by New and Step, and by each part that returns outputs through turn.do. There is no state here.
//
// Invariant: every call that an output asks for is answered by one input, also if it fails.

// An Instant is a reading of the worker's monotonic clock, as the time since some
// moment of its own. Instants of different workers say nothing about each other.
type Instant time.Duration

// Add is the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub is the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Never is later than every instant.
const Never = Instant(1<<63 - 1)

// A Moment is the time and the chance of one step: all that the engine knows of
// either.
type Moment struct {
	Mono Instant
	// Wall is for people, for the generation of a new row, and for noticing that
	// the machine was suspended. Nothing else looks at it.
	Wall time.Time
	// Chance is unique to this step, as crypto/rand.Text makes it. The ids of the
	// step's writes are made from it.
	Chance string
}

// A Config is what a worker is. The shell has checked it and filled in every
// default.
type Config struct {
	Group, Name, Task string
	Build, Strategy   string        // the version of the program and the handoff strategy, as the seat shows them to people
	TTL               time.Duration // T
	Drain             time.Duration // D: of terms that leave it open, and of a stop
	Handoff           rebalance.Handoff
	Planner           string        // the name of the user's planner; empty: rebalance.Even plans
	MaxShards         int           // 0: any number
	MaxMoves          int           // how many shards it asks for at a time
	StallAfter        time.Duration // 0: off
	CommitTimeout     time.Duration // 0: off
	MaxAttempts       int64         // 0: off
	Backoff           time.Duration // before the claim after the first failure; doubles with each
	MaxBackoff        time.Duration
	Audit             time.Duration // how often the rows are listed although nothing has happened
	Poll              time.Duration // how often the source is asked
	KeepUnlisted      bool          // shards that the source lists no more are processed as before
	Discard           bool          // a lease that is given up without a checkpoint becomes a tombstone
	Order             checkpoint.Order
	Commits           checkpoint.Policy
	Targets           bool   // its handlers change systems whose fences have to be raised
	Before            bool   // some of them also before a handler that takes over from an owner that lives
	Deathwatch        bool   // it answers connections, and keeps connections to the workers that it watches
	Address           string // where it answers them, as its seat shows; empty: its seat shows none
}

// planner returns the name of the planner, for people.
func (c *Config) planner() string { return cmp.Or(c.Planner, rebalance.Even{}.Name()) }

// An Unreadable is a record that is there and malformed.
type Unreadable struct {
	Key     lease.Key
	WriteID lease.WriteID // of the write that made it what it is
	Err     error         // why it cannot be read
}

// malformed reports whether a record is there and cannot be read.
func malformed(err error) bool { return errors.Is(err, lease.ErrMalformed) }

// writtenBy returns the write that made a malformed record what it is; empty: that cannot be read either.
func writtenBy(err error) lease.WriteID {
	if of, ok := errors.AsType[*lease.MalformedError](err); ok && of != nil {
		return of.WriteID
	}
	return ""
}

// An Input is something that has happened.
type Input interface{ input() }

type (
	// Tick: nothing but time has passed.
	Tick struct{}

	// Listed answers a [List]. The reads of an engine are numbered.
	Listed struct {
		Read       uint64
		Records    []lease.Record
		Unreadable []Unreadable
		Err        error // the listing is a part, or there is none
	}

	// Got answers a [Get]; no record and no error: there is none.
	Got struct {
		Read   uint64
		Key    lease.Key
		Record lease.Record
		Err    error
	}

	// Settled answers a [Send].
	Settled struct {
		Write  lease.Write
		Record lease.Record
		Err    error
	}

	// Verified answers a [Verify].
	Verified struct {
		Read uint64
		Err  error
	}

	// Source answers a [Poll]: a listing of the shards, or why there is none. Nothing
	// follows from what an incomplete one lacks. One that lists nothing is complete only if the configuration accepts an empty source.
	Source struct {
		Shards   []Shard
		Complete bool
		Answered bool // the source itself returned no error
		Err      error
	}

	// Planned answers a [Plan]. To is what [rebalance.Planner] returns for its view; nil: the planner has failed, or
	// has not answered in time.
	Planned struct {
		Ask uint64
		To  []int
	}

	// SourceSilent: the source has not answered the last [Poll] in time. It may still do so.
	SourceSilent struct{ Err error }

	// StoreSlow: with an error, the store has become too slow for the lease time; without, it
	// is quick enough again.
	StoreSlow struct{ Err error }

	// Marks tells what a handler has marked since it was last told.
	Marks struct {
		Tenure   Tenure
		Mark     checkpoint.Mark // the latest; zero: no new one
		Seq      uint64          // counts the marks of the tenure
		Made     Instant         // when the first mark since the last Marks was made, by the shell's clock; 0: no new one
		Flush    uint64          // a caller waits until this many are committed
		Progress bool            // Progress was called
		Finish   bool            // the shard has ended: Finish was called
		Release  bool            // the handler wants to give the shard up: Release was called
		Note     string          // of the release
	}

	// Batch: the marks of several tenures. A worker takes all of them in before it decides anything, so that no commit
	// that is due leaves out a mark of the same batch.
	Batch []Marks

	// Returned: the handler of a tenure has returned, and everything it marked has
	// been told.
	Returned struct {
		Tenure  Tenure
		Failed  bool   // with an error, or a panic
		Unasked bool   // nobody had asked it to return: its contexts had not ended, and it had not asked for its release
		Note    string // the note of the release, or what may be stored of the error
	}

	// Confirm: a caller wants to know whether the tenure holds its shard. A Confirmed answers it, unless the tenure is
	// over before.
	Confirm struct {
		Tenure Tenure
		Call   uint64 // above those of earlier calls of the tenure
	}

	// Raised: the targets of a tenure that have to be raised before its handler are, and the handler is called. All: every
	// target is raised. Round is that of the RaiseAgain which it answers; 0: it answers the Start.
	Raised struct {
		Tenure Tenure
		All    bool
		Round  int
	}

	// Unraised: a raise for a tenure has failed, or has not answered for a heartbeat interval. The shell reports the first
	// such raise of each target, and repeats them all until they pass or the tenure ends.
	Unraised struct {
		Tenure Tenure
		Target string
		Err    error
	}

	// Prepared: the preparation of a shard has ended.
	Prepared struct{ Shard string }

	// Acquire: a caller of the session wants a lease by name. The session answers with Start or
	// Unavailable. Acquire may come while the session still winds down an earlier tenure of the lease,
	// or releases it.
	Acquire struct {
		Name      string
		ID        uint64        // unique in the session; above 0
		Task      string        // of the lease; empty: the session's
		LockDelay time.Duration // how long no session acquires the lease after this session was lost
		// How long its holder may be silent (0: forever), and how many of its tenures may fail before this session
		// quarantines it (0: any number).
		StallAfter  time.Duration
		MaxAttempts int64
		Try         bool          // if another session holds the lease, the answer is Unavailable
		Wait        time.Duration // of a Try: how long it waits; 0: only if the holder looks dead; negative: not at all
	}

	// Forgo: the caller of the Acquire with this ID no longer wants the lease.
	Forgo struct {
		Name string
		ID   uint64
	}

	// Linked reports one attempt to reach the peer of a [Link].
	Linked struct {
		Peer    lease.Incarnation
		Address string
		Shows   Shown
		Err     error // what went wrong; nil if the peer answers
	}

	// Visited: somebody has connected to this worker's address, perhaps a newcomer, or a planner that knocks.
	Visited struct{}

	// Deaf: this worker does not answer connections any more, because its listener has failed.
	Deaf struct{ Err error }

	// Stop: finish in good order. Done comes true when it has.
	Stop struct{}
)

// Shown is what an attempt to reach a peer has shown.
type Shown uint8

const (
	Silent  Shown = iota // nothing: no connection, no answer in time, or one that makes no sense
	Answers              // the peer answers
	Refuses              // nobody listens at its address
	Replies              // another incarnation answers there
)

func (Tick) input()         {}
func (Listed) input()       {}
func (Got) input()          {}
func (Settled) input()      {}
func (Verified) input()     {}
func (Source) input()       {}
func (Planned) input()      {}
func (SourceSilent) input() {}
func (StoreSlow) input()    {}
func (Marks) input()        {}
func (Batch) input()        {}
func (Returned) input()     {}
func (Confirm) input()      {}
func (Raised) input()       {}
func (Unraised) input()     {}
func (Prepared) input()     {}
func (Acquire) input()      {}
func (Forgo) input()        {}
func (Linked) input()       {}
func (Visited) input()      {}
func (Deaf) input()         {}
func (Stop) input()         {}

// A Shard is what a source says of one.
type Shard struct {
	Name    string
	Parents []string
	Weight  int
}

// A Tenure is one hold of one shard at one generation.
type Tenure struct {
	Shard      string
	Generation int64
}

// An Output is something to do. Outputs are to be done in their order; what takes
// time is done beside, and answered by an input.
type Output interface{ output() }

type (
	// List: list the records and answer with Listed. Several may be under way, each with its own number.
	List struct {
		Read  uint64
		Query lease.Query
	}

	// Get: read the record and answer with Got.
	Get struct {
		Read uint64
		Key  lease.Key
	}

	// Send: make the write, once, and answer with Settled.
	Send struct{ Write lease.Write }

	// Verify: ask the store whether this is still the table it was, and answer with
	// Verified. An error that is a lease.ErrWentBack says that it is not.
	Verify struct{ Read uint64 }

	// Poll: list the source and answer.
	Poll struct{}

	// Plan: ask the user's planner and answer with Planned, within a third of the lease time. The engine does not use
	// the view any more, and asks nothing else before the answer.
	Plan struct {
		Ask  uint64
		View rebalance.View
	}

	// Start: call the handler, and tell the observer when it is called. It will be answered by Returned, once.
	Start struct {
		Tenure     Tenure
		Hold       lease.Hold
		Shard      Shard
		Checkpoint checkpoint.Checkpoint
		Attempt    int64
		Transfer   lease.Transfer // how the shard came here
		Raise      Raise          // what the shell raises, and answers by Raised
		Acquire    uint64         // the ID of the Acquire that this answers; 0: a worker's
		Event      event.Event    // of kind Started
	}

	// RaiseAgain: raise the fences of a tenure once more, whose handler runs. It is answered like the raises of a Start.
	RaiseAgain struct {
		Tenure Tenure
		Round  int
	}

	// Unavailable answers an Acquire: the lease is finished; or it is not free, and Try was set. With Waits, it is no
	// answer yet: the Try waits on, and this is what to tell its caller if the caller stops waiting.
	Unavailable struct {
		Name string
		ID   uint64
		Row  lease.Row // the row as read; zero if it cannot be read
		Lost bool      // the holder is gone, and its lock delay is not over
		Beat time.Time // the stored time of the holder's last heartbeat; zero: its seat was not read
		// How much longer the session leaves the lease to others, because its own tenure has failed; 0: it does not.
		Left  time.Duration
		Waits bool
	}

	// Drain: end the handler's soft context.
	Drain struct {
		Tenure Tenure
		Cause  event.Cause
	}

	// Over: the tenure is over. End the handler's context, refuse whatever it
	// still asks for. An [event.CauseFinished], or a return before, leaves nothing to cancel.
	Over struct {
		Tenure Tenure
		Cause  event.Cause
		// Err carries what was observed, where something was: usually a *StaleError.
		Err error
		// Open: a commit was under way, and what became of it is not known.
		Open bool
	}

	// Committed: the first Seq marks of the tenure are accepted; or, with an
	// error, they will not be.
	Committed struct {
		Tenure Tenure
		Seq    uint64
		Oldest Instant // Marks.Made of the oldest mark after them; 0: the engine knows of none
		Err    error
	}

	// Confirmed answers the calls of the tenure up to Call, by a read of the row that was sent after each of them.
	// Without an error, the tenure held the shard when the row was read.
	Confirmed struct {
		Tenure Tenure
		Call   uint64
		Err    error       // why the read has failed, or what it has shown
		Lost   bool        // the tenure does not hold the shard any more
		Cause  event.Cause // of Lost
		Open   bool        // of Lost: as in Over
	}

	// Prepare: call the prepare hook, and answer with Prepared.
	Prepare struct {
		Shard      Shard
		Checkpoint checkpoint.Checkpoint
		For        time.Duration
	}

	// CallOff: the preparation is not needed any more; end its context.
	CallOff struct{ Shard string }

	// Answer: answer connections with this incarnation from now on.
	Answer struct{ Incarnation lease.Incarnation }

	// Link: keep a connection to the peer, and report each attempt to make one with Linked. A Link to
	// another address of the same peer replaces the first.
	Link struct {
		Peer    lease.Incarnation
		Address string
	}

	// Knock: connect to the peer once more, so that it is visited, and report the attempt like those of the Link.
	Knock struct{ Peer lease.Incarnation }

	// Unlink: end the connection to the peer.
	Unlink struct{ Peer lease.Incarnation }

	// Tell: tell the observer.
	Tell struct{ Event event.Event }
)

func (List) output()       {}
func (Get) output()        {}
func (Send) output()       {}
func (Verify) output()     {}
func (Poll) output()       {}
func (Plan) output()       {}
func (Start) output()      {}
func (RaiseAgain) output() {}
func (Drain) output()      {}
func (Over) output()       {}
func (Committed) output()  {}
func (Confirmed) output()  {}
func (Prepare) output()    {}
func (CallOff) output()    {}

func (Unavailable) output() {}
func (Tell) output()        {}
func (Answer) output()      {}
func (Link) output()        {}
func (Knock) output()       {}
func (Unlink) output()      {}
