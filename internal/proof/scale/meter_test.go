package scale

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// bin is the time resolution of the meter.
const bin = 100 * time.Millisecond

// A load is the load on the table in some period. Units are units consumed; a refused
// request counts as throttled only.
type load struct {
	requests  int
	throttled int
	write     [kinds]float64 // units by kind of listing: leases, seats with the plan, targets
	read      [kinds]float64
	audits    float64 // read units of the audits of a large fleet, which are among those of leases
}

const kinds = lease.KindTarget + 1

func (l *load) writes() float64 { return sum(l.write) }
func (l *load) reads() float64  { return sum(l.read) }

func sum(of [kinds]float64) (all float64) {
	for _, units := range of {
		all += units
	}
	return all
}

func (l *load) add(o load) {
	l.requests += o.requests
	l.throttled += o.throttled
	l.audits += o.audits
	for k := range l.write {
		l.write[k] += o.write[k]
		l.read[k] += o.read[k]
	}
}

// A meter records the load on the table.
type meter struct {
	from   time.Duration // when the record begins
	bins   []load
	counts map[string]int
}

func newMeter() *meter { return &meter{counts: map[string]int{}} }

// reset deletes the record, and begins a new one.
func (m *meter) reset(now time.Duration) {
	*m = meter{from: now, counts: map[string]int{}}
}

func (m *meter) at(now time.Duration) *load {
	i := int((now - m.from) / bin)
	for len(m.bins) <= i {
		m.bins = append(m.bins, load{})
	}
	return &m.bins[i]
}

func (m *meter) charge(now time.Duration, k lease.Kind, write bool, units float64) {
	l := m.at(now)
	l.requests++
	k = k.Listed()
	if write {
		l.write[k] += units
	} else {
		l.read[k] += units
	}
}

func (m *meter) throttle(now time.Duration, k lease.Kind) {
	l := m.at(now)
	l.requests++
	l.throttled++
	m.count("throttled "+k.String(), 1)
}

func (m *meter) count(what string, n int) { m.counts[what] += n }

func (m *meter) listed(q lease.Query) {
	what := "list " + q.Kind.String()
	if q.Limit > 0 {
		what = "page of " + q.Kind.String()
	}
	m.count(what, 1)
}

// audited records a page of an audit, and whether it is the first one.
func (m *meter) audited(now time.Duration, costs []float64, first bool) {
	l := m.at(now)
	for _, units := range costs {
		l.audits += units
	}
	if first {
		m.count("audit", 1)
	}
}

func (m *meter) wrote(w lease.Write, err error) {
	what := w.Key().Kind.String() + " " + w.Op.String()
	if err != nil {
		what += " refused"
	}
	m.count(what, 1)
}

// sum returns the whole load.
func (m *meter) sum() (l load) {
	for _, b := range m.bins {
		l.add(b)
	}
	return l
}

// peak returns the highest load within any second; the three maxima are independent.
func (m *meter) peak() (requests int, write, read float64) {
	const second = int(time.Second / bin)
	for i := range m.bins {
		var l load
		for _, b := range m.bins[i:min(i+second, len(m.bins))] {
			l.add(b)
		}
		requests, write, read = max(requests, l.requests), max(write, l.writes()), max(read, l.reads())
	}
	return requests, write, read
}

// List prices of us-east-1, on demand, in dollars per million units, since November 2024.
const (
	writePrice = 0.625
	readPrice  = 0.125
	month      = 730 * time.Hour
)

// price returns the cost of a month with this load.
func price(write, read float64) float64 {
	return (write*writePrice + read*readPrice) / 1e6 * month.Seconds()
}

func (m *meter) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(m.counts)) {
		fmt.Fprintf(&b, " %s: %d;", what, m.counts[what])
	}
	return b.String()
}

// A result is the result of a story.
type result struct {
	story     string
	took      time.Duration // how long the story was measured
	held      time.Duration // when every shard was held; negative: never
	even      time.Duration // when the shards were evenly distributed
	replaced  time.Duration // how long a deploy took
	load      load
	peak      [3]float64    // requests, write and read units of the worst second
	lost      int           // the workers that ended their tenures because their heartbeats were not answered
	starts    int           // the tenures that began
	gaps      int           // how often a shard had no handler
	longest   time.Duration // the longest time for which a shard had no handler
	unchanged bool          // nothing changed in the fleet, so the load has a price per month
}

const header = `| story | requests/s | WCU/s | RCU/s | peak requests/s | peak WCU/s | peak RCU/s | throttled | all held | even | tenures begun | gaps | the longest | seats lost | $/month |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
`

func (r result) String() string {
	s := r.took.Seconds()
	w, rd := r.load.writes()/s, r.load.reads()/s
	cost := "–"
	if r.unchanged {
		cost = fmt.Sprintf("%.0f", price(w, rd))
	}
	return fmt.Sprintf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %d | %s | %s | %d | %d | %s | %d | %s |\n",
		r.story, float64(r.load.requests)/s, w, rd, r.peak[0], r.peak[1], r.peak[2], r.load.throttled,
		moment(r.held), moment(r.even), r.starts, r.gaps, moment(r.longest), r.lost, cost)
}

func moment(d time.Duration) string {
	switch {
	case d < 0:
		return "never"
	case d == 0:
		return "–"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
