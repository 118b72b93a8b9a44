//go:build unix

package processes

import (
	"flag"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	processDeaths     = flag.Int("process.deaths", 0, "how many times TestDeathwatch ends workers; 0: it is skipped")
	processDeathFleet = flag.Int("process.deathfleet", 8, "how many workers TestDeathwatch has")
)

// TestDeathwatch: workers die that have a deathwatch: one, a pair, or the planner, by SIGKILL, by a panic or for
// want of memory. Their shards are processed again within a second and a half, however long the lease time is. A
// worker that is stopped for half a lease time, or cut off from the table for as long, loses nothing.
//
//	go test ./integration/processes -run TestDeathwatch -v -process.ttl 10s -process.deaths 100 -timeout 30m
//	go test ./integration/processes -run TestDeathwatch -v -process.ttl 10s -process.deaths 12 -process.deathfleet 12
//	go test ./integration/processes -run TestDeathwatch -v -process.ttl 60s -process.deaths 100 -timeout 60m
func TestDeathwatch(t *testing.T) {
	if *processDeaths == 0 {
		t.Skip("needs a quiet machine: run with -process.ttl 10s -process.deaths 12")
	}
	local.Endpoint(t)
	workers := *processDeathFleet
	f := newFleet(t, fleetConfig{
		workers: workers, shards: 40, pause: 60 * time.Millisecond, commit: 500 * time.Millisecond,
		seed: *processSeed, register: true, fences: true, deathwatch: true,
	})
	f.whole()
	each := leaseTime() / time.Duration(workers) // so that each worker lives for more than two heartbeats, and is known by all
	fixture.Sleep(t, leaseTime())
	for n := range *processDeaths {
		fixture.Sleep(t, time.Duration(f.chance.Int64N(int64(leaseTime()/10))))
		for _, p := range f.doomed(n) {
			f.die(p, n)
		}
		f.whole()
		for slot, p := range f.slots {
			if p.dead() {
				f.enter(slot)
			}
		}
		fixture.Sleep(t, max(each, time.Second))
		if n%20 == 10 {
			p := f.random(f.halt())
			f.resume(p, leaseTime()/2)
			fixture.Sleep(t, leaseTime()/2)
			f.checkSeated(p)
			f.isolate(leaseTime() / 2)
		}
	}
	f.whole()
	fixture.Sleep(t, leaseTime()/2) // moves to the last newcomer end: a row handed to one that has just left stays in its name
	f.end()
	f.audit()
	f.report()
	f.checkRecoveries()
}

// checkSeated checks that a worker was not evicted.
func (f *fleet) checkSeated(p *process) {
	f.Helper()
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	if l := f.journal.life(p.name); len(l.evicted)+len(l.lost) > 0 {
		f.Errorf("%s was stopped for half of its lease time: evicted at %v, lost its seat at %v", p.name, l.evicted, l.lost)
	}
}

// doomed returns the workers that die: the planner, two workers, or the one that lives longest.
func (f *fleet) doomed(n int) []*process {
	f.Helper()
	switch n % 5 {
	case 1:
		if p := f.planner(); p != nil {
			return []*process{p}
		}
	case 3:
		return []*process{f.slots[n%len(f.slots)], f.slots[(n+3)%len(f.slots)]}
	}
	oldest := f.slots[0]
	for _, p := range f.slots {
		if p.born.Before(oldest.born) {
			oldest = p
		}
	}
	return []*process{oldest}
}

// planner returns the worker that has written the plan, or nil if it is gone.
func (f *fleet) planner() *process {
	f.Helper()
	record, err := local.Open(f.T, local.Client(f.T, nil), f.table).Get(f.Context(), lease.Plan{Group: "processes"}.Key())
	if err != nil {
		f.Fatal(err)
	}
	f.journal.mu.Lock()
	name := f.journal.who(record.(lease.Plan).By.Incarnation)
	f.journal.mu.Unlock()
	for _, p := range f.slots {
		if p.name == name && !p.dead() {
			return p
		}
	}
	return nil
}

// die ends a worker.
func (f *fleet) die(p *process, n int) {
	f.kills[other]++
	f.journal.saw(entry{Kind: killed, By: p.name})
	if order := []string{"", "", deathByPanic, "", deathByMemory}[n%5]; order != "" {
		p.mu.Lock()
		p.killed = true
		p.mu.Unlock()
		_, _ = fmt.Fprintln(p.life, order)
		return
	}
	p.signal(syscall.SIGKILL)
}

// longestStall is for how long the machine may stand still in a recovery that counts. With a lease time of ten
// seconds the journal ignores more.
const longestStall = 300 * time.Millisecond

// excludeStalls notes which recoveries do not count, because a process stood still meanwhile.
func (j *journal) excludeStalls() {
	_, _ = j.recoveries() // it notes what else has disturbed them
	for _, r := range j.kills {
		for name, l := range j.lives {
			var stalls []trouble
			for _, t := range l.troubles {
				if t.kind == stalled && t.from < r.at+r.took && t.to > r.at {
					stalls = append(stalls, t)
				}
			}
			if still := standstill(stalls, r.at, r.at+r.took); still > longestStall && r.mixed == "" && name != r.process {
				r.mixed = "the machine stood still"
			}
		}
	}
}

// age returns how long a worker had lived when it died.
func (f *fleet) age(r *recovery) time.Duration {
	for _, p := range f.started {
		if p.name == r.process {
			return r.at - entry{Wall: p.born.UnixNano()}.at()
		}
	}
	return 0
}

// checkRecoveries checks how long the shards of the dead were not processed.
func (f *fleet) checkRecoveries() {
	f.Helper()
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	var all spread
	f.journal.excludeStalls()
	for _, r := range f.journal.kills {
		if len(r.missing) > 0 {
			f.Errorf("%s: shards are not processed again: %v", r.process, r.missing)
		}
		all.add(r.took)
		if r.took > 1500*time.Millisecond {
			f.Logf("%s took %v: it had lived for %v; disturbed: %q", r.process, r.took, f.age(r), r.mixed)
		}
	}
	clean, mixed := f.journal.recoveries()
	f.Logf("T = %v; until all shards of a dead worker are processed again: %v; of these, undisturbed: %v; disturbed: %v", leaseTime(), all, clean, mixed)
	if *processDeaths < 10 {
		return // too few, and perhaps beside other tests
	}
	if len(clean) == 0 {
		f.Error("no recovery counts, so none could be measured")
	}
	if most := fixture.Quantile(clean, 1); most > 1500*time.Millisecond+slack {
		f.Errorf("the slowest took %v", most)
	}
	if mean := fixture.Mean(clean); mean > 600*time.Millisecond+slack/2 {
		f.Errorf("on average it took %v", mean)
	}
}
