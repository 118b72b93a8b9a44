package inspect_test

import (
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A situation is a shard in one state, and which warning says that no worker processes it.
type situation struct {
	name  string
	state inspect.State
	code  inspect.Code  // empty: a worker processes the shard, or it needs none
	after time.Duration // when the warning is there at the latest
	make  func(of *table)
}

// situations has every reason for which shard-0 is in a state. A reason for which a shard has no worker needs a
// warning.
func situations() []situation {
	const soon = ttl + ttl/2
	free := func(of *table) { of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a") }
	leave := func(of *table) { of.seats["a"].Leaving, of.seats["b"].Leaving = true, true }
	child := func(of *table, parents ...string) {
		delete(of.rows, "shard-0")
		of.row("shard-0", parents...)
	}
	return []situation{
		{"a worker holds it", inspect.Held, "", 0, func(*table) {}},
		{"its owner is dead", inspect.Held, inspect.CodeSilent, ttl * 3 / 2, func(of *table) { of.frozen = "a" }},
		{"the seat of its owner cannot be read", inspect.Held, inspect.CodeUnreadable, 0, func(of *table) { of.bad = []lease.Key{key(lease.KindSeat, "a-1")} }},
		{"it moves for as long as it takes", inspect.Moving, "", 0, func(of *table) { of.want("b", "shard-0", "eager 10s wait") }},
		{"it moves, and its owner is dead", inspect.Moving, inspect.CodeSilent, ttl * 3 / 2, func(of *table) { of.want("b", "shard-0", "eager 10s"); of.frozen = "a" }},
		{"its move is stuck", inspect.Moving, inspect.CodeStuckHandoff, 26 * time.Second, func(of *table) { of.want("b", "shard-0", "eager 10s") }},
		{"it is offered to nobody", inspect.Moving, inspect.CodeDanglingOffer, 43 * time.Second, func(of *table) { of.rows["shard-0"].OfferedTo = "x-1" }},
		{"nobody claims it", inspect.Free, inspect.CodeUnclaimed, soon, free},
		{"a handler of it hangs in every process", inspect.Free, inspect.CodeHangs, 0, func(of *table) {
			free(of)
			of.news("a", lease.NewsHangs, "shard-0")
			of.news("b", lease.NewsHangs, "shard-0")
		}},
		{"there is no worker", inspect.Free, inspect.CodeNoWorkers, 0, func(of *table) { free(of); clear(of.seats) }},
		{"every worker leaves", inspect.Free, inspect.CodeNoWorkers, soon, func(of *table) { free(of); leave(of) }},
		{"no worker has room", inspect.Free, inspect.CodeNoRoom, 0, func(of *table) { free(of); of.planned(2); of.plan.Unplaced = 1 }},
		{"the table was restored", inspect.Free, inspect.CodeRestored, 0, func(of *table) { free(of); of.verify = lease.ErrWentBack }},
		{"it is reserved for a name that no worker has", inspect.Free, inspect.CodeUnclaimed, soon, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonForced, "", "op")
			of.rows["shard-0"].Reserved = lease.Reservation{For: "z", Lasts: time.Hour}
		}},
		{"it rests, by a clock that is an hour ahead", inspect.Resting, inspect.CodeUnclaimed, time.Second + soon, func(of *table) {
			of.fail(of.rows["shard-0"])
			of.rows["shard-0"].Last.At = of.now.Add(time.Hour)
		}},
		{"it rests, and every worker leaves", inspect.Resting, inspect.CodeNoWorkers, time.Second + soon, func(of *table) {
			of.fail(of.rows["shard-0"])
			of.rows["shard-0"].Last.At = of.now.Add(time.Hour)
			leave(of)
		}},
		{"its parent is processed", inspect.Blocked, "", 0, func(of *table) { child(of, "shard-1") }},
		{"its parent is set aside", inspect.Blocked, inspect.CodeQuarantined, 0, func(of *table) {
			child(of, "shard-1")
			of.begin(of.rows["shard-1"], lease.ReasonFailed, "", "b")
			of.rows["shard-1"].Quarantined = true
		}},
		{"nobody claims the parent of its parent", inspect.Blocked, inspect.CodeUnclaimed, soon, func(of *table) {
			child(of, "shard-4")
			of.row("shard-4", "shard-1")
			of.begin(of.rows["shard-1"], lease.ReasonReleased, "", "b")
		}},
		{"its parent cannot be read", inspect.Blocked, inspect.CodeUnreadable, 0, func(of *table) {
			child(of, "shard-1")
			of.bad = []lease.Key{key(lease.KindLease, "shard-1")}
		}},
		{"it waits for a parent that waits for it", inspect.Blocked, inspect.CodeUnclaimed, 0, func(of *table) {
			child(of, "shard-4")
			of.row("shard-4", "shard-0")
		}},
		{"its owner has no seat", inspect.Orphaned, inspect.CodeOrphaned, soon, func(of *table) { of.rows["shard-0"].Owner.Incarnation = "x-1" }},
		{"its owner has no seat, and every worker leaves", inspect.Orphaned, inspect.CodeNoWorkers, soon, func(of *table) {
			of.rows["shard-0"].Owner.Incarnation = "x-1"
			leave(of)
		}},
		{"the source lacks it", inspect.Unlisted, inspect.CodeUnlisted, 0, func(of *table) { of.begin(of.rows["shard-0"], lease.ReasonUnlisted, "", "a") }},
		{"the source lacks it, and there is no worker", inspect.Unlisted, inspect.CodeUnlisted, 0, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonUnlisted, "", "a")
			clear(of.seats)
		}},
		{"it is set aside", inspect.Quarantined, inspect.CodeQuarantined, 0, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonForced, "", "op")
			of.rows["shard-0"].Quarantined = true
		}},
		{"it is processed to its end", inspect.Finished, "", 0, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonFinished, "", "a")
			of.rows["shard-0"].Finished = true
		}},
		{"its row is a tombstone", inspect.Removed, "", 0, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonRemoved, "", "op")
			of.rows["shard-0"].Removed = true
		}},
	}
}

// TestNoShardWaitsUnseen: in every state in which no worker processes a shard, for whatever reason, a warning that changes
// the exit code of check is there when the bound of the state has passed, and stays. Where a worker processes the shard, or
// it needs none, there is no such warning.
func TestNoShardWaitsUnseen(t *testing.T) {
	told := map[inspect.State]bool{}
	for _, of := range situations() {
		told[of.state] = true
		t.Run(string(of.state)+"/"+of.name, func(t *testing.T) { of.test(t) })
	}
	for _, state := range inspect.States() {
		if !told[state] {
			t.Errorf("no situation has the state %s", state)
		}
	}
}

func (of situation) test(t *testing.T) {
	table, o := settled(t), inspect.Observer{}
	of.make(table)
	step := fixture.Size(time.Second, 250*time.Millisecond)
	for waited := time.Duration(0); waited < of.after+2*time.Minute; waited += step {
		s := table.look()
		if of.state == inspect.Removed { // a listing has no tombstones
			var err error
			if s, err = inspect.LookAt(t.Context(), table, group, "shard-0", inspect.Options{Now: table.clock}); err != nil {
				t.Fatal(err)
			}
		}
		if o.See(s); s.Shard("shard-0").State != of.state {
			t.Fatalf("after %v it is %s, want %s", waited, s.Shard("shard-0").State, of.state)
		}
		all := others(s)
		if of.code == "" && len(all) > 0 {
			t.Fatalf("after %v: %v", waited, s.Warnings())
		}
		if of.code != "" && waited >= of.after+step && !slices.Contains(all, of.code) {
			t.Fatalf("after %v there is no warning %s: %v", waited, of.code, all)
		}
		table.pass(step)
	}
}
