package scale

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// bin is how finely the meter sees time.
const bin = 100 * time.Millisecond

// A load is what was asked of the table in some time. Units are those that were
// consumed; what was refused counts as throttled alone.
type load struct {
	requests  int
	throttled int
	write     [3]float64 // units by kind: leases, seats
	read      [3]float64
}

func (l *load) writes() float64 { return l.write[lease.KindLease] + l.write[lease.KindSeat] }
func (l *load) reads() float64  { return l.read[lease.KindLease] + l.read[lease.KindSeat] }

func (l *load) add(o load) {
	l.requests += o.requests
	l.throttled += o.throttled
	for k := range l.write {
		l.write[k] += o.write[k]
		l.read[k] += o.read[k]
	}
}

// A meter writes down what the table was asked.
type meter struct {
	from   time.Duration // since when
	bins   []load
	counts map[string]int
}

func newMeter() *meter { return &meter{counts: map[string]int{}} }

// reset forgets everything before now.
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

func (m *meter) listed(q lease.Query) { m.count("list "+q.Kind.String(), 1) }

func (m *meter) wrote(w lease.Write, err error) {
	what := w.Key().Kind.String() + " " + w.Op.String()
	if err != nil {
		what += " refused"
	}
	m.count(what, 1)
}

// sum is all that was asked.
func (m *meter) sum() (l load) {
	for _, b := range m.bins {
		l.add(b)
	}
	return l
}

// peak is the most that was consumed within any second, of each on its own.
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

// price is what a load that goes on for a month costs.
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

// A result is what a story came to.
type result struct {
	story     string
	took      time.Duration // of the metered time
	held      time.Duration // until every shard was held; never: negative
	even      time.Duration // until the load was even
	load      load
	peak      [3]float64 // requests, write and read units of the worst second
	lost      int        // workers that ended what they held because they could not beat
	starts    int        // tenures that began
	gaps      int        // shards that nobody held for a while, …
	longest   time.Duration
	unchanged bool
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
