package report

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/fleet"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

// A report is the result of all measurements. The fleets of a section run side by side, and add their
// figures under the lock.
type report struct {
	*testing.T
	plan  reportPlan
	table string
	began time.Time
	quick bool

	mu                   sync.Mutex
	sections             []sectionTime
	bench                []benchLine
	benchNote            string // which benchmarks are missing
	memoryOf             heldMemory
	held, even           lot // the times of cold starts until all shards are held, and even
	costs                []cost
	modes                [2]modeFigures
	slowCrash, fastCrash crashFigures
	beatLost, rowsLate   int64
}

type sectionTime struct {
	name string
	took time.Duration
	// Shares of the time of all cores, including the database's: working, and taken by the host of a
	// virtual machine; below 0: unknown.
	busy, stolen float64
}

// modeFigures are measured in both modes.
type modeFigures struct {
	joins, stops    lot
	gaps, overlaps  lot // the gap and overlap of each planned move
	moved, again    int
	rows            traffic
	extraSeats      float64 // writes of seats in addition to heartbeats
	restarts        lot
	restartGaps     lot // the gaps of each shard, summed over a restart
	restartMoves    int
	restartOverlaps lot
	restartAgain    int
	calls           []fleet.Call
	from, to        time.Time
}

type crashFigures struct {
	ttl      time.Duration
	recovery lot
	again    []int // records processed again, for each shard of a crashed worker
}

// section runs one part of the report, and ends the report if it fails: later parts would be measured on
// a machine that still works for the failed one.
func (r *report) section(name string, run func()) {
	from, busy := time.Now(), machineTime()
	run()
	took := time.Since(from)
	s := sectionTime{name: name, took: took}
	s.busy, s.stolen = busy.until(machineTime())
	r.sections = append(r.sections, s)
	r.Logf("%s: %v, machine %.0f %% busy, %.0f %% stolen", name, took.Round(time.Second), 100*s.busy, 100*s.stolen)
	if r.Failed() {
		r.FailNow()
	}
}

// bothModes runs the fleets of both modes side by side.
func (r *report) bothModes(f func(rebalance.Mode)) func() {
	return func() {
		together(func() { f(rebalance.Eager) }, func() { f(rebalance.Cooperative) })
	}
}

func (r *report) of(mode rebalance.Mode) *modeFigures {
	if mode == rebalance.Eager {
		return &r.modes[0]
	}
	return &r.modes[1]
}

// fleetOf returns the fleet of most measurements, with 20 records a second per shard.
func (r *report) fleetOf(mode rebalance.Mode, ttl time.Duration, commit checkpoint.Policy) *measured {
	return newFleet(r.T, fleetPlan{
		table: r.table, mode: mode, ttl: ttl, shards: base.shards, pace: 50 * time.Millisecond, commit: commit,
	})
}

// patience is how long a trial waits before it fails.
func (s *measured) patience() time.Duration { return 3*s.plan.ttl + 20*time.Second }

// start starts the fleet, and returns after how long all shards were held, and even.
func (s *measured) start(workers int) (staff []string, held, even time.Duration) {
	from, all := time.Now(), s.Watch(fleet.Whole)
	staff = s.StartAll(workers)
	level := s.Watch(fleet.Shared(staff...))
	held = s.must(all, s.patience(), "all is held").Sub(from)
	even = s.must(level, s.patience(), "all is even").Sub(from)
	return staff, held, even
}

// coldStarts starts fleets whose groups do not exist. The first does not count: it has the virtual machine of DynamoDB Local
// compile what the others use.
func (r *report) coldStarts() {
	for trial := range 1 + r.plan.cold {
		together(func() {
			s := r.fleetOf(rebalance.Eager, r.plan.slow, checkpoint.Policy{})
			defer s.Close()
			_, held, even := s.start(base.workers)
			r.Logf("cold start %d: all held after %v", trial, held)
			if trial > 0 {
				r.held, r.even = append(r.held, held), append(r.even, even)
			}
		})
	}
}

// joinsAndLeaves makes a worker join and then the oldest leave, repeatedly. Handlers commit only for
// moves, so that each write of a row belongs to a move.
func (r *report) joinsAndLeaves(mode rebalance.Mode) {
	s := r.fleetOf(mode, r.plan.slow, checkpoint.Policy{Every: -1})
	defer s.Close()
	staff, _, _ := s.start(base.workers)
	s.rest()
	since, before := time.Now(), s.sum()
	f := r.of(mode)
	for range r.plan.cycles {
		staff = append(staff, s.NextName())
		from, level := time.Now(), s.Watch(fleet.Shared(staff...))
		s.Start(staff[len(staff)-1])
		f.joins = append(f.joins, s.must(level, s.patience(), "a worker has its part").Sub(from))
		s.rest()
		oldest := staff[0]
		staff = staff[1:]
		from, rest := time.Now(), s.Watch(fleet.Without(oldest))
		s.Worker(oldest).Stop()
		f.stops = append(f.stops, s.must(rest, s.patience(), "the others hold all").Sub(from))
		s.rest()
	}
	f.rows, f.extraSeats = s.sum().plus(before, -1), s.extraSeats(since, before)
	f.gaps, f.overlaps, f.again = split(s.Moves(since))
	f.moved = len(f.gaps)
	r.troubled(s)
}

// extraSeats returns the number of writes of seats since then, in addition to the heartbeats that were
// due.
func (s *measured) extraSeats(since time.Time, before traffic) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lived time.Duration
	writes := -before.beats - before.seats
	for _, w := range s.wires {
		lived += w.worker.Lived(since)
		sent := w.traffic()
		writes += sent.beats + sent.seats
	}
	return float64(writes) - lived.Seconds()/s.plan.beat().Seconds()
}

// split returns the gaps and overlaps of moves, zeros included, and how many records both sides processed.
func split(moves []fleet.Move) (gaps, overlaps lot, again int) {
	for _, m := range moves {
		gaps, overlaps, again = append(gaps, m.Gap), append(overlaps, m.Overlap), again+m.Again
	}
	return gaps, overlaps, again
}

func (r *report) troubled(s *measured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beatLost += s.Trouble.Load() - s.Late.Load()
	r.rowsLate += s.Late.Load()
}

// rolling replaces every worker of a fleet: one stops, and when its Run has returned its successor starts;
// when the shards are even the next one follows.
func (r *report) rolling(mode rebalance.Mode) {
	s := r.fleetOf(mode, r.plan.slow, checkpoint.Policy{})
	defer s.Close()
	staff, _, _ := s.start(base.workers)
	f := r.of(mode)
	for range r.plan.restarts {
		s.rest()
		from := time.Now()
		for range base.workers {
			rest := s.Watch(fleet.Without(staff[0]))
			s.Worker(staff[0]).Stop()
			s.must(rest, s.patience(), "the others hold all")
			staff = append(staff[1:], s.NextName())
			level := s.Watch(fleet.Shared(staff...))
			s.Start(staff[len(staff)-1])
			s.must(level, s.patience(), "a worker has its part")
		}
		f.restarts = append(f.restarts, time.Since(from))
		s.rest()
		moves, gaps := s.Moves(from), map[string]time.Duration{}
		for _, m := range moves {
			gaps[m.Shard] += m.Gap
			f.restartOverlaps = append(f.restartOverlaps, m.Overlap)
			f.restartAgain += m.Again
		}
		f.restartMoves += len(moves)
		for _, shard := range s.Names {
			f.restartGaps = append(f.restartGaps, gaps[shard])
		}
	}
	r.troubled(s)
}

// crashes kills workers at random moments between heartbeats, in fleets side by side.
func (r *report) crashes(ttl time.Duration, fleets, each int, f *crashFigures) {
	f.ttl = ttl
	var all []func()
	for i := range fleets {
		all = append(all, func() {
			s := r.fleetOf([]rebalance.Mode{rebalance.Eager, rebalance.Cooperative}[i%2], ttl, checkpoint.Policy{Every: ttl / 2})
			defer s.Close()
			staff, _, _ := s.start(base.workers)
			since := time.Now()
			for n := range each {
				s.rest()
				victim := n % len(staff)
				at := s.Crash(staff[victim])
				took := s.must(s.Watch(fleet.Whole), s.patience(), "what the dead held is held again").Sub(at)
				staff = append(slices.Delete(staff, victim, victim+1), s.NextName())
				level := s.Watch(fleet.Shared(staff...))
				s.Start(staff[len(staff)-1])
				s.must(level, s.patience(), "its successor has its part")
				r.mu.Lock()
				f.recovery = append(f.recovery, took)
				r.mu.Unlock()
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, m := range s.Moves(since) {
				if m.Crash {
					f.again = append(f.again, m.Again)
				}
			}
		})
	}
	together(all...)
}

// timeline records a scene for a picture: two workers, a third joins, the first leaves.
func (r *report) timeline(mode rebalance.Mode) {
	s := newFleet(r.T, fleetPlan{table: r.table, mode: mode, ttl: time.Second, shards: 6, pace: 20 * time.Millisecond})
	defer s.Close()
	s.start(2)
	s.rest()
	from := time.Now()
	fixture.Sleep(r.T, 150*time.Millisecond)
	level := s.Watch(fleet.Shared("a", "b", "c"))
	s.Start(s.NextName())
	s.must(level, s.patience(), "c has its part")
	fixture.Sleep(r.T, time.Second)
	level = s.Watch(fleet.Shared("b", "c"))
	s.Worker("a").Stop()
	s.must(level, s.patience(), "b and c hold all")
	fixture.Sleep(r.T, 400*time.Millisecond)
	f := r.of(mode)
	f.calls, f.from, f.to = s.Calls(), from, time.Now()
}

// A ticks contains how long all cores have worked, been idle, and waited for the host of a virtual machine.
type ticks struct{ busy, idle, stolen float64 }

// machineTime reads the ticks if the system reports them.
func machineTime() ticks {
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	var t ticks
	for i, field := range strings.Fields(line) {
		n, _ := strconv.ParseFloat(field, 64)
		switch {
		case i == 4 || i == 5: // idle, or waiting for a disk
			t.idle += n
		case i == 8:
			t.stolen += n
		case i < 8: // the later columns are included in these
			t.busy += n
		}
	}
	return t
}

// until returns the share of the time until later in which the cores worked, and the share that the host
// took; below 0: unknown.
func (t ticks) until(later ticks) (busy, stolen float64) {
	all := later.busy + later.idle + later.stolen - t.busy - t.idle - t.stolen
	if all <= 0 {
		return -1, -1
	}
	return (later.busy - t.busy) / all, (later.stolen - t.stolen) / all
}
