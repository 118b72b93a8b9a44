package scale

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file is about the engine of the target assignment, which SHARDLEASE_ENGINE=next chooses. Its
// bounds are those of docs/design.md for fleets of any size.

func next() bool { return os.Getenv("SHARDLEASE_ENGINE") == "next" }

const (
	auditPage = 400         // the rows of one page of an audit of a large fleet; see internal/core
	auditRest = time.Second // the time between two pages
	watchers  = 8
)

// sweep returns how long one audit of a large fleet takes.
func (s setting) sweep() time.Duration { return time.Duration(s.shards/auditPage) * auditRest }

// nextPerSecond derives the units that a settled fleet consumes in a second.
//
//   - In each heartbeat a worker writes its seat.
//   - Up to eight workers all list the seats once per heartbeat, and all rows once per minute.
//   - In a larger fleet, the first three of eight watchers list the seats every 500 ms, 1 s and 2 s,
//     the others once per heartbeat. All other workers read the plan once per heartbeat. The first
//     watcher ticks once per heartbeat, and lists the rows page by page. All these reads are
//     eventually consistent, at half the price.
func (f *fleet) nextPerSecond() (l load) {
	rows, seats := f.table.rows, f.table.seats
	perBeat := 1 / onAverage(f.ttl/3).Seconds()
	list := float64(units(seats.bytes, readUnit)) / 2
	n := float64(f.workers)
	l.write[lease.KindSeat] = n * perBeat * float64(units(seats.typical(), writeUnit))
	if f.workers <= watchers {
		l.read[lease.KindSeat] = n * perBeat * list
		l.read[lease.KindLease] = n / f.auditPeriod().Seconds() * float64(units(rows.bytes, readUnit))
	} else {
		l.write[lease.KindSeat] += perBeat
		l.read[lease.KindSeat] = (n-watchers)*perBeat/2 + list*((2+1+0.5)*20/19+(watchers-3)*perBeat)
		pages := (f.shards + auditPage - 1) / auditPage
		page := float64(units(rows.bytes/pages, readUnit)) / 2
		l.read[lease.KindLease] = float64(pages) * page / f.auditPeriod().Seconds()
	}
	if !f.idle {
		l.write[lease.KindLease] = float64(f.shards) / f.commit.Seconds() * float64(units(rows.typical(), writeUnit))
	}
	return l
}

// A bound is what one change of a large fleet may take.
type bound struct {
	name      string
	run       func(*fleet) result
	held      time.Duration // until every shard is held
	even      time.Duration // until the shards are evenly distributed
	starts    int           // tenures that begin
	longest   time.Duration // for which a shard has no handler
	reads     float64       // read units beyond those of the settled fleet; 0: any number
	throttled bool          // requests may be throttled: there are more claims than the partitions take in a second
}

// bounds are those of docs/design.md, for a lease time of 10 s and one partition.
func bounds(s setting) []bound {
	least := s.shards / (s.workers + 1)
	share := (s.shards + s.workers - 1) / s.workers
	perSecond := partitionWrite * s.ranges
	claims := func(n int) time.Duration { return time.Duration(n) * time.Second / time.Duration(perSecond) }
	some := (s.workers + 9) / 10
	died := leaseTime + 2500*time.Millisecond
	change := beat + 2*time.Second + claims(s.workers)
	back := (leaseTime + time.Second + claims(s.shards)) * 6 / 5
	never := time.Duration(0)
	return []bound{
		{"a worker joins", joins, beat, change, least + 1, never, float64(s.workers + 10*(least+1)), false},
		{"a worker leaves", leaves, change, change, share, never, 0, false},
		{"one dies", one, died + claims(share), died + claims(share), share, died + claims(share), 0, false},
		{"10 % die at once", tenth, died + 500*time.Millisecond + claims(some*share), died + 500*time.Millisecond + claims(some*share), some * share, back, 0, some*share > perSecond},
		{"all watchers die", watchersDie, 27*time.Second + claims(watchers*share), 27*time.Second + claims(watchers*share), watchers * share, 40 * time.Second, 0, true},
		{"all restart", restart, back, back, s.shards, time.Hour * 24, 0, true},
		{"every worker is replaced", replaceEach, beat, time.Hour, s.shards + s.shards*3/20, 500 * time.Millisecond, 0, true},
	}
}

func one(f *fleet) result {
	f.nodes[len(f.nodes)-1].kill()
	return f.settle()
}

// tenth: every tenth worker dies, the first watcher among them.
func tenth(f *fleet) result {
	for i := len(f.nodes) - 1; i >= 0; i-- {
		if i%10 == 0 {
			f.nodes[i].kill()
		}
	}
	return f.settle()
}

// replaceEach is a deploy: up to ten workers join, and when they are ready, as many others leave.
func replaceEach(f *fleet) result {
	old := append([]*node(nil), f.nodes...)
	for batch := range slices.Chunk(old, min(10, len(old)/5)) {
		for range batch {
			f.join()
		}
		f.until(settleLimit, func() bool { return f.unready() == 0 })
		for _, n := range batch {
			n.last = true
			n.stop()
		}
		f.until(settleLimit, func() bool { return leaving(batch) == 0 })
	}
	return f.settle()
}

// watchersDie: all workers die that the plan names as watchers.
func watchersDie(f *fleet) result {
	var plan lease.Plan
	for _, it := range f.table.seats.items {
		if p, is := it.record.(lease.Plan); is {
			plan = p
		}
	}
	for _, inc := range plan.Watchers {
		for _, n := range f.nodes {
			if n.Engine.Status().Incarnation == inc {
				n.kill()
				break
			}
		}
	}
	return f.settle()
}

// TestBounds holds every change of fleets in which not every worker watches to its bounds. With -scale
// it does so for the fleet of the other flags.
func TestBounds(t *testing.T) {
	if !next() {
		t.Skip("SHARDLEASE_ENGINE=next has these bounds")
	}
	sizes := [][2]int{{64, 12}, {1000, 20}}
	if given.full {
		debug.SetGCPercent(200)
		sizes = [][2]int{{given.shards, given.workers}}
	}
	for _, size := range sizes {
		s := setting{shards: size[0], workers: size[1], ranges: given.ranges, mode: rebalance.Cooperative, commit: 30 * time.Second, rest: 15 * time.Second, away: 5 * time.Minute}
		for _, b := range bounds(s) {
			t.Run(fmt.Sprintf("%d x %d, %s", s.shards, s.workers, b.name), func(t *testing.T) { b.check(t, s) })
		}
		t.Run(fmt.Sprintf("%d x %d, nothing happens", s.shards, s.workers), func(t *testing.T) {
			f := settled(s, true)
			f.Run(f.auditPeriod())
			f.begin()
			followsFromSizes(t, f, steady(f))
		})
	}
}

func (b bound) check(t *testing.T, s setting) {
	f := settled(s, true)
	idle := f.perSecond()
	r := b.run(f)
	t.Logf("%v%v", r, f.meter)
	if r.held < 0 || r.held > b.held || r.even < 0 || r.even > b.even {
		t.Errorf("all held after %v, at most %v; even after %v, at most %v", r.held, b.held, r.even, b.even)
	}
	if r.starts > b.starts || r.longest > b.longest || r.lost > 0 {
		t.Errorf("%d tenures began, at most %d; a shard had no handler for %v, at most %v; %d seats lost", r.starts, b.starts, r.longest, b.longest, r.lost)
	}
	if net := r.load.reads() - idle.reads()*r.took.Seconds(); b.reads > 0 && net > b.reads {
		t.Errorf("%.0f read units beyond those of a settled fleet, at most %.0f", net, b.reads)
	}
	if n := f.meter.counts["list lease"]; n > 0 || r.load.throttled > 0 && !b.throttled {
		t.Errorf("%d listings of all rows; %d requests were throttled", n, r.load.throttled)
	}
}
