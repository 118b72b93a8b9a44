package engine_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var sickFor = flag.Duration("sick.for", 0, "for how long all workers of TestAllSick are sick")

// watched is how long most tests watch a fleet with sick workers: an hour, or ten minutes in a sample.
func watched() time.Duration { return fixture.Size(10*time.Minute, time.Hour) }

// plenty is how many shards most of their fleets have: 40, or 20 in a sample.
func plenty() int { return fixture.Size(20, 40) }

// TestSickWorkerCostsNothing: four workers are well, and one joins whose handlers fail at once. In
// an hour no shard is quarantined, none is unprocessed for longer than two minutes in sum, and an
// event names the sick worker.
func TestSickWorkerCostsNothing(t *testing.T) {
	kinds(t, func(t *testing.T, maxAttempts int64, commits bool) {
		c := newWorkload(t, plenty(), maxAttempts, commits)
		c.fails = sick("e")
		c.join("abcd")
		c.recovers(5 * time.Second)
		c.count()
		c.join("e")
		c.run(watched())
		c.noneAside()
		c.lostAtMost(2 * time.Minute)
		c.diagnosed("e")
		for _, n := range c.nodes {
			says, sick := c.seat(n).Health, n.Name == "e"
			if (says.Unwell != "") != sick || says.UnwellSince.IsZero() == sick {
				t.Errorf("the seat of %s says of its health %+v", n.Name, says)
			}
		}
	})
}

// TestSickWorkerOfASmallGroup: there are not three shards that could fail under the sick worker. Each failure counts,
// because they progress elsewhere.
func TestSickWorkerOfASmallGroup(t *testing.T) {
	t.Parallel()
	for shards := 2; shards <= 4; shards++ {
		t.Run(strconv.Itoa(shards), func(t *testing.T) {
			c := newWorkload(t, shards, 5, true)
			c.fails = sick("b")
			c.join("a")
			c.recovers(5 * time.Second)
			c.count()
			c.join("b")
			c.run(watched())
			c.noneAside()
			c.lostAtMost(2 * time.Minute)
			c.diagnosed("b")
		})
	}
}

// TestUnquarantinedPoison: an operator frees a quarantined shard again and again, and it fails each time. That is no
// progress elsewhere, and the worker stays well.
func TestUnquarantinedPoison(t *testing.T) {
	c := newWorkload(t, 1, 1, true)
	c.fails = func(string, string) bool { return true }
	c.join("a")
	for i := range 4 {
		for limit := c.Now() + 5*time.Minute; !c.row("shard-000").Quarantined; c.run(time.Second) {
			if c.Now() > limit {
				t.Fatalf("not quarantined, after %d times", i)
			}
		}
		row := c.row("shard-000")
		c.write(protocol.Unquarantine(row, seen(row), c.stamp()))
	}
	if unwell := c.nodes[0].Engine.Status().Unwell; unwell.Count > 0 {
		t.Errorf("the worker is unwell: %v", unwell)
	}
}

// TestSickWorkerWithoutBackoff: without Backoff a shard that fails is tried again at once, by the same worker. When
// that worker is unwell, its shards go to the others nevertheless.
func TestSickWorkerWithoutBackoff(t *testing.T) {
	t.Parallel()
	c := newWorkload(t, plenty(), 0, true)
	c.config.Backoff = -1
	c.fails = sick("e")
	c.join("abcde")
	c.recovers(time.Minute)
	c.count()
	c.run(fixture.Size(10*time.Minute, 20*time.Minute))
	c.lostAtMost(time.Minute)
	c.diagnosed("e")
}

// TestTwoSickOfFive: of five workers that process everything, two become sick. It costs no more
// than one.
func TestTwoSickOfFive(t *testing.T) {
	kinds(t, func(t *testing.T, maxAttempts int64, commits bool) {
		c := newWorkload(t, plenty(), maxAttempts, commits)
		c.join("abcde")
		c.recovers(10 * time.Second)
		c.run(time.Minute)
		c.count()
		c.fails = sick("b", "d")
		c.run(watched())
		c.noneAside()
		c.lostAtMost(2 * time.Minute)
		c.diagnosed("b", "d")
		for _, row := range c.rows() {
			if n := row.Attempts(); n > 2 { // what failed before three had
				t.Errorf("%d failures under unwell workers count against the shard: %v", n, row)
			}
		}
	})
}

// TestAllSick: what the handlers need fails for all workers. Nothing is quarantined, and every shard
// is processed within five minutes of the recovery. Ten minutes are enough for the longest rests.
//
//	go test ./internal/engine -run TestAllSick -sick.for 30m -v
func TestAllSick(t *testing.T) {
	kinds(t, func(t *testing.T, maxAttempts int64, commits bool) {
		c := newWorkload(t, plenty(), maxAttempts, commits)
		c.join("abcde")
		c.recovers(10 * time.Second)
		c.run(time.Minute)
		c.fails = sick("a", "b", "c", "d", "e")
		c.run(fixture.Or(*sickFor, time.Minute, 10*time.Minute))
		c.noneAside()
		c.diagnosed("a", "b", "c", "d", "e")
		c.fails = sick()
		t.Logf("all are processed %v after the recovery", c.recovers(5*time.Minute))
		c.run(fixture.Size(5*time.Minute, 10*time.Minute))
		c.noneAside()
		for _, n := range c.nodes {
			if events := n.reports(event.Unwell); !events[len(events)-1].Over || n.Engine.Status().Unwell.Count > 0 {
				t.Errorf("worker %s is still unwell long after the recovery", n.Name)
			}
		}
	})
}

// TestPoisonIsQuarantined: a shard that fails under every worker is quarantined after
// MaxAttempts failures, and makes no worker unwell.
func TestPoisonIsQuarantined(t *testing.T) {
	for _, workers := range []string{"abcdefghijkl", "abcd", "ab", "a"} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("workers=%s,commits=%v", workers, commits), func(t *testing.T) {
				t.Parallel()
				c := newWorkload(t, plenty(), 5, commits)
				const poison = "shard-007"
				c.fails = func(_, shard string) bool { return shard == poison }
				c.join(workers)
				c.run(3 * time.Minute)
				if row := c.row(poison); !row.Quarantined || row.Attempts() != 5 {
					t.Errorf("after five failures: %v, %d attempts", row, row.Attempts())
				}
				for _, row := range c.rows() {
					if row.Quarantined && row.Shard != poison {
						t.Errorf("quarantined too: %v", row)
					}
				}
				c.diagnosed()
			})
		}
	}
}

// TestSickWorkersOfALargeFleet: in a fleet in which not every worker lists the seats, two sick
// workers cost no more than in a small one.
func TestSickWorkersOfALargeFleet(t *testing.T) {
	for _, commits := range fixture.Sample(1, []bool{true, false}) {
		t.Run(fmt.Sprintf("commits=%v", commits), func(t *testing.T) {
			t.Parallel()
			c := newWorkload(t, fixture.Size(36, 60), 5, commits)
			c.join("abcdefghijkl")
			c.recovers(20 * time.Second)
			c.run(time.Minute)
			c.count()
			c.fails = sick("b", "k")
			c.run(watched() / 2)
			c.noneAside()
			c.lostAtMost(2 * time.Minute)
			c.diagnosed("b", "k")
		})
	}
}

// TestPoisonBesideSickWorkers: a shard that fails under every worker is quarantined although one
// worker is sick; and where the only worker that is well has failed it, because no other can try.
func TestPoisonBesideSickWorkers(t *testing.T) {
	for _, well := range []string{"abc", "a"} {
		t.Run(well, func(t *testing.T) {
			t.Parallel()
			c := newWorkload(t, plenty(), 5, true)
			const poison = "shard-007"
			c.fails = func(worker, shard string) bool { return worker == "x" || shard == poison }
			c.join(well + "x")
			c.run(5 * time.Minute)
			if row := c.row(poison); !row.Quarantined {
				t.Errorf("after five minutes: %v, %d attempts", row, row.Attempts())
			}
			c.diagnosed("x")
		})
	}
}

// TestSuspicionOfAWorkerThatDoesNotWatch: a shard is pinned to a worker of a large fleet that does not
// list the seats, and fails there more often than MaxAttempts. In between, others have the shard for a
// while and commit nothing. The worker finds out that the shard has not failed under them, and goes on
// to try it.
func TestSuspicionOfAWorkerThatDoesNotWatch(t *testing.T) {
	t.Parallel()
	c := newWorkload(t, 40, 3, true)
	c.join("abcdefghijkl")
	c.recovers(20 * time.Second)
	c.run(time.Minute)
	watchers := c.plan().Watchers
	at := slices.IndexFunc(c.nodes, func(n *member) bool { return !slices.Contains(watchers, n.Engine.Status().Incarnation) })
	n := c.nodes[at]
	poison := n.Handlers[0].Shard
	c.wish(lease.Wish{Kind: lease.WishPin, Subject: poison, To: n.Name, By: "somebody", Why: "a test"})
	c.run(time.Minute)
	c.began[n.Name] = nil
	c.commits = false // a commit would end the count
	c.fails = func(worker, shard string) bool { return worker == n.Name && shard == poison }
	c.run(6 * time.Minute)
	if tries := len(slices.DeleteFunc(slices.Clone(c.began[n.Name]), func(name string) bool { return name != poison })); tries < 5 || c.row(poison).Quarantined {
		t.Errorf("in six minutes the worker tried %d times: %v", tries, c.row(poison))
	}
}

// TestUnwellWorkersHoldWhatHasNoOtherPlace: shards for which the workers that are well have no room
// are placed on the unwell one, which tries them one at a time and processes all as soon as it can.
func TestUnwellWorkersHoldWhatHasNoOtherPlace(t *testing.T) {
	t.Parallel()
	c := newWorkload(t, 12, 5, true)
	c.config.MaxShards = 4
	c.join("ab")
	c.config.MaxShards = 0
	c.join("x")
	c.recovers(10 * time.Second)
	c.fails = sick("x")
	c.run(5 * time.Second)
	c.began["x"], c.most["x"] = nil, 0
	for range 20 {
		c.run(time.Minute)
		plan := c.plan()
		if n := len(c.busy()); n != 8 || plan.Unplaced != 0 {
			t.Errorf("two workers with room for four shards each process %d; %v", n, plan)
		}
	}
	c.noneAside()
	c.diagnosed("x")
	if different := len(slices.Compact(slices.Sorted(slices.Values(c.began["x"])))); c.most["x"] != 1 || len(c.began["x"]) < 4 || len(c.began["x"]) > 12 || different != 4 {
		t.Errorf("in 20 minutes the unwell worker tried %v, at most %d at a time", c.began["x"], c.most["x"])
	}
	c.fails = sick()
	c.recovers(5 * time.Minute)
}

// TestStallsMakeUnwell: handlers that stall are failures of the worker as well as those that
// return an error.
func TestStallsMakeUnwell(t *testing.T) {
	t.Parallel()
	c := newWorkload(t, plenty(), 5, true)
	c.config.StallAfter = 10 * time.Second
	c.join("abcd")
	c.recovers(5 * time.Second)
	c.fails, c.lasts = sick("e"), func(string, string) time.Duration { return 24 * time.Hour }
	c.count()
	c.join("e")
	c.run(watched())
	c.noneAside()
	c.diagnosed("e")
	c.lostAtMost(6 * time.Minute)
}

// TestFailedShardGoesToOthers: a shard that fails under one worker is processed by another within
// the back-off, a heartbeat interval and a second.
func TestFailedShardGoesToOthers(t *testing.T) {
	for _, workers := range []string{"ab", "abcd"} {
		t.Run(workers, func(t *testing.T) {
			t.Parallel()
			c := newWorkload(t, 40, 5, true)
			c.join(workers)
			c.recovers(10 * time.Second)
			c.run(time.Minute)
			const shard = "shard-007"
			owner := c.row(shard).Owner.Name
			c.fails = func(worker, s string) bool { return worker == owner && s == shard }
			for len(c.busy()) == 40 {
				c.run(10 * time.Millisecond)
			}
			t.Logf("processed again after %v", c.recovers(c.config.Backoff+c.config.TTL/3+time.Second))
			for _, n := range c.nodes {
				if n.Name == owner && c.began[n.Name][len(c.began[n.Name])-1] == shard && slices.Index(c.began[n.Name], shard) != len(c.began[n.Name])-1 {
					t.Errorf("%s tried again before the others", owner)
				}
			}
			c.run(time.Minute)
			c.noneAside()
			c.diagnosed()
		})
	}
}

// TestFailedShardReturns: a shard fails, and no plan gives it to another worker, because the plan cannot
// be read. Its own worker tries again.
func TestFailedShardReturns(t *testing.T) {
	c := newWorkload(t, 40, 5, true)
	c.join("ab")
	c.recovers(10 * time.Second)
	c.run(time.Minute)
	c.unreadable(c.plan().Key())
	c.fails = func(_, shard string) bool { return shard == "shard-007" }
	c.run(time.Minute)
	tries := 0
	for _, n := range c.nodes {
		tries += len(c.began[n.Name])
	}
	if tries -= len(c.source.Shards); tries < 3 {
		t.Errorf("%d tries in a minute", tries)
	}
}

// TestSilentHandlers: handlers that neither mark nor call Progress keep their shards, and are reported
// after five minutes, by one event for all of a worker; the seat has their number. The report ends
// with the first mark.
func TestSilentHandlers(t *testing.T) {
	c := newWorkload(t, 6, 5, false)
	c.join("ab")
	c.recovers(10 * time.Second)
	c.run(4*time.Minute + 30*time.Second)
	for _, n := range c.nodes {
		n.never(event.Silent)
	}
	c.run(time.Minute)
	for _, n := range c.nodes {
		if events := n.reports(event.Silent); len(events) == 0 || events[0].Count != 3 || events[0].Lasted.Round(time.Second) != 5*time.Minute {
			t.Errorf("worker %s: %v", n.Name, events)
		}
	}
	for _, seat := range c.table.Seats("g") {
		if seat.Health.Silent != 3 || seat.Health.Unwell != "" {
			t.Errorf("%v says %+v", seat, seat.Health)
		}
	}
	c.commits = true
	c.run(time.Minute)
	for _, n := range c.nodes {
		if events := n.reports(event.Silent); !events[len(events)-1].Over || len(n.reports(event.Ended)) > 0 {
			t.Errorf("worker %s, after marks: %v, ended %v", n.Name, events, n.reports(event.Ended))
		}
	}
}

// TestFull: shards for which no worker has room are reported while that lasts, by one worker.
func TestFull(t *testing.T) {
	c := newWorkload(t, 12, 5, true)
	c.config.MaxShards = 5
	c.join("ab")
	c.run(time.Minute)
	told := 0
	for _, n := range c.nodes {
		events, full := n.reports(event.Full), n.Engine.Status().Unplaced
		if full.Count != 2 || len(full.Shards) != 2 {
			t.Errorf("worker %s: status %v", n.Name, full)
		}
		if len(events) > 0 {
			told++
			if e := events[0]; e.Over || e.Count != 2 || len(e.Shards) != 2 {
				t.Errorf("worker %s: %v", n.Name, e)
			}
		}
	}
	if told != 1 {
		t.Errorf("%d workers report that the fleet is full, want 1", told)
	}
	c.join("c")
	c.recovers(10 * time.Second)
	c.run(beat) // a sees the plan that c has made
	for _, n := range c.nodes {
		events := n.reports(event.Full)
		if last := len(events) - 1; last >= 0 && (!events[last].Over || events[last].Lasted < 50*time.Second) || n.Engine.Status().Unplaced.Count > 0 {
			t.Errorf("worker %s, with room for all: %v", n.Name, events)
		}
	}
}

// TestUnreadablePlanIsNoWorker: a plan that cannot be read is no worker that lives. So an unwell worker
// that is alone says that it is unwell, and not that all workers are; and it goes on with what it holds.
func TestUnreadablePlanIsNoWorker(t *testing.T) {
	c := newWorkload(t, 4, 0, true)
	c.join("a")
	c.recovers(10 * time.Second)
	c.unreadable(c.plan().Key())
	c.run(time.Minute)
	a := c.nodes[0]
	if ended := a.reports(event.Ended); len(ended) > 0 || len(c.busy()) != 4 {
		t.Errorf("it processes %d shards; tenures ended: %v", len(c.busy()), ended)
	}
	if said := a.reports(event.Malformed); len(said) == 0 {
		t.Error("the plan is not reported as malformed")
	}
	c.fails = func(string, string) bool { return true }
	c.run(time.Minute)
	said := a.reports(event.Unwell)
	for _, e := range said {
		if strings.Contains(e.Err.Error(), "every worker") {
			t.Errorf("a worker without others reports %v", e)
		}
	}
	if len(said) == 0 {
		t.Error("the worker does not report that it is unwell")
	}
	c.fails, c.table.Unreadable = func(string, string) bool { return false }, nil
	c.recovers(2 * time.Minute)
	c.noneAside()
}
