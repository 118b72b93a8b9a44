package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

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
	// The time of seasons by their lease times: see band.
	Lease bands
	// The longest times in calm.
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

// Bands are the times of seasons whose lease times are shorter than 10 s, than a minute, than three minutes,
// and up to ten minutes.
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
