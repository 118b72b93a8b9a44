//go:build unix

package processes

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease"
)

// These tests run worker processes on DynamoDB Local, with a lease time of a second by default, under
// SIGKILL, SIGSTOP and a faulty network. A journal decides from its entries alone: what the service
// accepted, what the register accepted, what the workers reported, and what the test did to them.
//
// Processes cannot be replayed: a seed fixes the schedule of the attacks, but not the timing of the
// machine. The entries can be stored in a file and checked again.
//
//	go test ./integration/processes -run 'TestProcesses$' -v -process.kills 20 -process.stops 20
//	go test ./integration/processes -run 'TestProcesses$' -v -process.kills 300 -process.stops 300 -timeout 40m
//	go test ./integration/processes -run TestProcessesSoak -v -process.soak 60m -process.ttl 5s -timeout 70m
//	go test ./integration/processes -run 'TestProcesses$' -process.records FILE
//	go test ./integration/processes -run TestRecords -v -process.judge FILE

var (
	processKills   = flag.Int("process.kills", 0, "how often TestProcesses kills a worker; 0: by the size of the tests")
	processStops   = flag.Int("process.stops", 0, "the same for stops")
	processSeed    = flag.Uint64("process.seed", 1, "seed of the schedule of attacks")
	processSoak    = flag.Duration("process.soak", 0, "how long TestProcessesSoak runs; 0: it is skipped")
	processWorkers = flag.Int("process.workers", 12, "number of workers in TestProcessesSoak")
	processShards  = flag.Int("process.shards", 200, "number of shards in TestProcessesSoak")
)

// slack is added to bounds in real time, which hold only if nothing else runs on the machine.
const slack = 700 * time.Millisecond

// patience is added to deadlines that must hold on a busy machine, too.
const patience = time.Minute

// inRealTime reports whether the tests check bounds in real time. Then they do not run beside each other.
func inRealTime() bool { return fixture.Long() || *processKills >= 10 }

// beside lets a test run beside others, unless it checks bounds in real time.
func beside(t *testing.T) {
	local.Endpoint(t)
	if !inRealTime() {
		t.Parallel()
	}
}

// TestProcesses kills, stops and cuts off workers at random moments and within handoffs. No stale write
// is accepted, no record is lost, no worker loses a shard without a cause, and the shards of a dead
// worker are processed again in time.
func TestProcesses(t *testing.T) { testProcesses(t, 1) }

// TestProcessesInBuckets does the same in a group whose lease rows are in four buckets.
func TestProcessesInBuckets(t *testing.T) { testProcesses(t, 4) }

func testProcesses(t *testing.T, buckets int) {
	beside(t)
	f := newFleet(t, fleetConfig{
		workers: 4, shards: 16, pause: 40 * time.Millisecond, commit: 250 * time.Millisecond,
		seed: *processSeed, faults: 0.02, register: true, fences: true, buckets: buckets,
	})
	f.whole()
	for kills, stops, n := fixture.Or(*processKills, 1, 3), fixture.Or(*processStops, 1, 3), 0; kills+stops > 0 && !t.Failed(); n++ {
		switch {
		case n%5 == 4:
			f.isolate(pauseNumber(n / 5))
		case kills >= stops:
			kills--
			f.kill()
		default:
			stops--
			f.stop(pauseNumber(stops))
		}
		if n%4 != 3 { // every fourth attack begins before the fleet has recovered
			f.whole()
			fixture.Sleep(t, leaseTime()/2)
		}
	}
	f.whole()
	// On a busy machine other workers stall during most recoveries, and then these do not count.
	for more := 20; *processKills >= 20 && more > 0 && f.journal.slowest() == 0 && !t.Failed(); more-- {
		f.kill()
		f.whole()
		fixture.Sleep(t, leaseTime()/2)
	}
	f.end()
	f.audit()
	f.report()
	if *processKills >= 20 && f.journal.slowest() == 0 {
		t.Error("no recovery counts, so none could be measured")
	}
	if worst := f.journal.slowest(); inRealTime() && worst > leaseTime()+leaseTime()/3+500*time.Millisecond+slack {
		t.Errorf("the shards of a killed worker were processed again only after %v", worst)
	}
}

// audit compares the table after all workers have left with what the journal has.
func (f *fleet) audit() {
	f.Helper()
	f.proxy.arrive() // no request is on its way now
	supervisor := shardlease.Supervisor{Store: local.Open(f.T, local.Client(f.T, nil), f.table), Group: "processes"}
	rows, err := supervisor.List(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if len(rows) != f.shards {
		f.Errorf("%d rows, want %d", len(rows), f.shards)
	}
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	for _, row := range rows {
		seen := f.journal.judge.Row(row.Shard)
		if row.WriteID != seen.WriteID || row.Counter != seen.Counter || row.Checkpoint.Position != seen.Checkpoint.Position {
			f.Errorf("the journal has not the write that left %s as %v", row.Shard, row)
		}
		if row.Owner.IsZero() || f.journal.stream(row.Shard).late {
			continue
		}
		now := entry{Wall: time.Now().UnixNano()}.at()
		if cause := f.journal.cause(f.journal.who(seen.Owner.Incarnation), now-5*leaseTime(), now); cause != "" {
			f.journal.excused["left at the end, "+string(cause)]++
		} else {
			f.Errorf("%s was not released by a graceful shutdown: %v", row.Shard, row)
		}
	}
}

// report prints the results, and fails the test for every objection. It runs last, so that the
// objections are at the end of the output.
func (f *fleet) report() {
	f.Helper()
	objections := f.journal.verdict()
	f.Logf("%d processes; killed %v, stopped %v, cut off %v (by phase; none: at any moment; phases not reached: %v)\n%s",
		len(f.started), f.kills, f.stops, f.cuts, f.missed, f.journal.summary())
	for _, objection := range objections {
		f.Errorf("%s", objection)
	}
}

// TestWithoutTheFenceUpdatesAreLost: a worker is stopped, its commits are held back in the network,
// another worker takes over, and the first one wakes up. TestProcesses does the same; here one of the
// fences is off, and the journal must report what was lost.
func TestWithoutTheFenceUpdatesAreLost(t *testing.T) {
	for name, c := range map[string]struct {
		config fleetConfig
		want   []string
	}{
		"register": {fleetConfig{fences: true}, []string{"register"}},
		"table":    {fleetConfig{register: true}, []string{"S1", "S2"}},
	} {
		t.Run(name, func(t *testing.T) {
			beside(t)
			c.config.workers, c.config.shards = 3, 9
			c.config.pause, c.config.commit = 40*time.Millisecond, 250*time.Millisecond
			var f *fleet
			for try := range uint64(5) { // on a busy machine no request may arrive late
				c.config.seed = *processSeed + try
				if f = unfenced(t, c.config); f.notices(c.want) {
					break
				}
			}
			switch {
			case f.notices(c.want):
			case f.journal.excused[string(stalled)] > 0 && !fixture.Long():
				t.Logf("every try was disturbed, because the machine is busy: the journal does not report %v\n%s", c.want, f.journal.summary())
			default:
				t.Errorf("the journal does not report %v\n%s", c.want, f.journal.summary())
			}
			t.Logf("%v\n%s", f.journal.faulty, f.journal.faults[:min(3, len(f.journal.faults))])
		})
	}
}

// unfenced stops a worker for longer than its lease time and then lets it wake up.
func unfenced(t *testing.T, c fleetConfig) *fleet {
	t.Helper()
	f := newFleet(t, c)
	f.whole()
	fixture.Sleep(t, leaseTime())
	f.stopOne(keepFor() + leaseTime()/2)
	fixture.Sleep(t, leaseTime())
	f.end()
	f.journal.verdict()
	return f
}

// notices reports whether the journal has objections about each of these promises.
func (f *fleet) notices(promises []string) bool {
	return !slices.ContainsFunc(promises, func(p string) bool { return f.journal.faulty[p] == 0 })
}

// TestProcessesSoak runs a large fleet for the time of -process.soak. Half of the workers are never
// attacked: they must keep their shards, and must not grow.
func TestProcessesSoak(t *testing.T) {
	if *processSoak == 0 {
		t.Skip("takes long: run with -process.soak 60m -timeout 70m, and with -process.ttl 5s if the server shares its processors")
	}
	local.Endpoint(t)
	f := newFleet(t, fleetConfig{
		workers: *processWorkers, shards: *processShards, pause: time.Second, commit: 2 * time.Second,
		seed: *processSeed, faults: 0.005, register: true, fences: true,
	})
	f.spared = *processWorkers / 2
	f.whole()
	began, commits := time.Now(), f.journal.accepted()
	for n := 0; time.Since(began) < *processSoak && !t.Failed(); n++ {
		switch n % 5 {
		case 0, 2:
			f.kill()
		case 4:
			f.isolate(pauseNumber(n / 5))
		default:
			f.stop(pauseNumber(n / 2))
		}
		f.whole()
		fixture.Sleep(t, min(15*time.Second, *processSoak-time.Since(began)))
	}
	ran := time.Since(began)
	rate := float64(f.journal.accepted()-commits) / ran.Seconds()
	f.end()
	f.audit()
	f.report()
	t.Logf("%v, %.0f commits a second", ran.Round(time.Second), rate)
	if rate < 50 {
		t.Errorf("only %.1f commits a second", rate)
	}
	f.flat(ran)
}

// flat fails for every worker whose heap or goroutines have grown between early and late in the run.
func (f *fleet) flat(ran time.Duration) {
	f.Helper()
	grown := f.journal.growth(ran)
	if len(grown) < f.spared {
		f.Errorf("only %d workers lived for the whole run, want %d", len(grown), f.spared)
	}
	for name, g := range grown {
		f.Logf("%s: heap and goroutines in the second quarter %v, in the last %v", name, g[0], g[1])
		// Each connection of the client has two goroutines, and the client keeps as many
		// connections as it needed at once.
		if g[1].heap > g[0].heap*5/4+1<<20 || g[1].goroutines > g[0].goroutines+2*inFlight {
			f.Errorf("%s grew", name)
		}
	}
}
