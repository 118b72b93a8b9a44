package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Fault is one kind of trouble.
type Fault uint8

// The faults, in the order of the report.
const (
	Crash           Fault = iota // a process ends without a word; one of the same name comes later
	Stop                         // … in good order
	PauseHalf                    // stopped for T/2
	PauseEdge                    // … for T, a moment less or more
	PauseLong                    // … for 3T
	PauseVeryLong                // … for 10T
	Suspend                      // paused, and its monotonic clock with it
	WallJump                     // its wall clock jumps by up to an hour
	ClockRate                    // it starts with a monotonic clock up to 4 % off
	Lost                         // a request never arrives
	ReplyLost                    // served, and the answer never arrives
	Late                         // served long after its sender was told that there is no answer
	Twin                         // served and answered, and served again later
	LateReply                    // served at once, answered late
	Throttled                    // refused without being served
	ReadLost                     // a read goes unanswered
	Stale                        // a listing that may lag behind does
	ReadsOnly                    // for a while, one node cannot write
	WritesOnly                   // … cannot read
	BeatsOnly                    // for a while, one node's heartbeats are answered and none of its writes of rows
	Outage                       // for longer than anybody trusts itself, nobody is answered
	HandlerError                 // a handler returns an error
	HandlerPanic                 // … panics
	HandlerStuck                 // … does nothing any more
	HandlerDeaf                  // … ignores its contexts
	HandlerSlow                  // … needs longer to wind down than it has
	HandlerReturn                // … returns for no reason
	HandlerRelease               // … gives its shard up
	PrepareSlow                  // a preparation that takes longer than it may
	PrepareFailed                // … fails
	PlannerFailed                // the user's planner fails, or gives no plan in time
	SourceFault                  // a listing of the source fails, or is a part
	SourceLacks                  // for a while, the source of one node lacks shards and calls its listing complete
	Split                        // a shard ends, and two follow
	Merge                        // two shards end, and one follows
	ModeChange                   // a worker comes back with another strategy
	ForcedRelease                // a supervisor takes a shard away
	Restore                      // the table goes back in time
	SkewedRestore                // … and then every wall clock is off
	MalformedRow                 // a row cannot be read for a while
	MalformedSeat                // … a seat
	Deploy                       // one worker after another is replaced
	Rebirth                      // the name of a removed shard is used again
	Advice                       // a plan and targets are written that no planner would write
	AdviceDeleted                // the plan or targets are deleted by hand
	Wished                       // an operator cordons and drains workers, pauses moves and pins shards, for a while
	PlannerPaused                // a worker is stopped for 2T while it writes a plan
	RackCrash                    // all watchers end at once without a word
	MalformedPlan                // the plan cannot be read for a while
	MalformedTarget              // a target cannot be read for a while
	SickHost                     // a process starts in which every handler fails, hangs or marks nothing
	BusyHost                     // a process starts in which every step takes a while, so that inputs queue
	Unreachable                  // for a while, one node's address does not answer
	Mistaken                     // for a while, the address of a node that lives refuses connections, or another incarnation answers there
	faultKinds                   // how many there are
)

func (f Fault) String() string {
	return [...]string{
		"crash", "stop", "pause T/2", "pause T±ε", "pause 3T", "pause 10T", "suspend", "wall jump", "clock rate",
		"lost", "reply lost", "late", "twin", "late reply", "throttled", "read lost", "stale list", "reads only",
		"writes only", "beats only", "outage", "handler error", "handler panic", "handler stuck", "handler deaf", "handler slow",
		"handler return", "handler release", "prepare slow", "prepare failed", "planner failed", "source fault", "source lacks", "split", "merge",
		"mode change", "forced release", "restore", "restore, clocks off",
		"malformed row", "malformed seat", "deploy", "rebirth", "advice", "advice deleted", "wished", "planner paused", "rack crash",
		"malformed plan", "malformed target", "sick host", "busy host", "unreachable", "mistaken", "?",
	}[min(f, faultKinds)]
}

// Stats count what happened.
type Stats struct {
	Rounds  int
	Large   int           // of these, with fleets in which not every worker watches
	Time    time.Duration // simulated
	Steps   int
	Commits int // accepted checkpoints
	Records int64
	Again   int64 // records processed more than once
	Refused int64 // effects that a fenced sink refused
	Writes  int   // accepted writes of lease rows
	Swept   int   // tombstones
	Hands   map[lease.Reason]int
	Faults  [faultKinds]int
	// The time of seasons, by how long their leases are: see band.
	Lease bands
	// The longest of each, in calm.
	Gap, Overlap, Converged, Recovered time.Duration
}

// Add adds what another round counted.
func (s *Stats) Add(o Stats) {
	s.Rounds += o.Rounds
	s.Large += o.Large
	s.Time += o.Time
	s.Steps += o.Steps
	s.Commits += o.Commits
	s.Records += o.Records
	s.Again += o.Again
	s.Refused += o.Refused
	s.Writes += o.Writes
	s.Swept += o.Swept
	for i, d := range o.Lease {
		s.Lease[i] += d
	}
	for reason, n := range o.Hands {
		s.hands(reason, n)
	}
	for i, n := range o.Faults {
		s.Faults[i] += n
	}
	s.Gap, s.Overlap = max(s.Gap, o.Gap), max(s.Overlap, o.Overlap)
	s.Converged, s.Recovered = max(s.Converged, o.Converged), max(s.Recovered, o.Recovered)
}

// Changes is how many changes of hands there were.
func (s Stats) Changes() (n int) {
	for _, k := range s.Hands {
		n += k
	}
	return n
}

// Troubles is how many faults there were.
func (s Stats) Troubles() (n int) {
	for _, k := range s.Faults {
		n += k
	}
	return n
}

// hands counts changes of hands.
func (s *Stats) hands(reason lease.Reason, n int) {
	if s.Hands == nil {
		s.Hands = map[lease.Reason]int{}
	}
	s.Hands[reason] += n
}

func (s Stats) String() string {
	var b strings.Builder
	if s.Large > 0 {
		fmt.Fprintf(&b, "%d large fleets\n", s.Large)
	}
	fmt.Fprintf(&b, "%d rounds, %.1f simulated hours, %d steps\n", s.Rounds, s.Time.Hours(), s.Steps)
	fmt.Fprintf(&b, "%d accepted commits, %d writes, %d records (%d again, %d effects refused by the fence)\n",
		s.Commits, s.Writes, s.Records, s.Again, s.Refused)
	if s.Lease != (bands{}) {
		fmt.Fprintf(&b, "of seasons with leases shorter than 10s %.0f hours, than 1m %.0f, than 3m %.0f, and up to 10m %.0f; %d tombstones swept\n",
			s.Lease[0].Hours(), s.Lease[1].Hours(), s.Lease[2].Hours(), s.Lease[3].Hours(), s.Swept)
	}
	fmt.Fprintf(&b, "in calm at most: gap %v, overlap %v, converged after %v, recovered after %v\n", s.Gap, s.Overlap, s.Converged, s.Recovered)
	fmt.Fprintf(&b, "%d changes of hands:", s.Changes())
	for _, reason := range slices.Sorted(maps.Keys(s.Hands)) {
		fmt.Fprintf(&b, " %s %d,", reason, s.Hands[reason])
	}
	fmt.Fprintf(&b, "\n%d faults:", s.Troubles())
	for f := range faultKinds {
		fmt.Fprintf(&b, " %v %d,", f, s.Faults[f])
	}
	return b.String()
}

// Bands are what lease times of seasons are sorted into: shorter than 10 s, than a minute,
// than three, and up to ten.
type bands [4]time.Duration

func band(ttl time.Duration) int {
	switch {
	case ttl < 10*time.Second:
		return 0
	case ttl < time.Minute:
		return 1
	case ttl < 3*time.Minute:
		return 2
	}
	return 3
}
