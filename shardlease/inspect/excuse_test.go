package inspect_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// first watches a table for a while, with one look in each step, and returns when it first has a warning; 0: never.
func (of *table) first(code inspect.Code, lasts, step time.Duration) time.Duration {
	of.t.Helper()
	var o inspect.Observer
	for began := of.now; of.now.Sub(began) < lasts; of.pass(step) {
		s := of.look()
		if o.See(s); len(warned(s, code)) > 0 && of.now != began {
			return of.now.Sub(began)
		}
	}
	return 0
}

// TestExcuses: what looks like a fault and has another cause is no warning, or a later one.
func TestExcuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  inspect.Code
		least time.Duration // 0: never
		make  func(of *table)
	}{
		{"no worker has room for the shard", inspect.CodeUnclaimed, 0, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a")
			of.planned(2)
			of.plan.Unplaced = 1
		}},
		{"every worker is unwell", inspect.CodeUnclaimed, 4*time.Minute + ttl, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a")
			of.seats["a"].Health.Unwell, of.seats["b"].Health.Unwell = "it fails", "it fails"
		}},
		{"every worker leaves", inspect.CodeUnclaimed, 0, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a")
			of.seats["a"].Leaving, of.seats["b"].Leaving = true, true
		}},
		{"the shard is reserved for a worker that does not claim it", inspect.CodeUnclaimed, 5*time.Minute + ttl, func(of *table) { of.reserve("b") }},
		{"the shard is reserved for a worker that is not there", inspect.CodeUnclaimed, ttl, func(of *table) { of.reserve("c") }},
		{"the table was restored", inspect.CodeUnclaimed, 0, func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a")
			of.verify = lease.ErrWentBack
		}},
		{"the table was restored, and the owner has no seat", inspect.CodeOrphaned, 0, func(of *table) {
			of.rows["shard-0"].Owner.Incarnation, of.verify = "x-1", lease.ErrWentBack
		}},
		{"the owner of a moving shard is dead", inspect.CodeStuckHandoff, 0, func(of *table) {
			of.want("b", "shard-0", "eager 20s")
			of.frozen = "a"
		}},
		{"the move may stand any time", inspect.CodeStuckHandoff, 0, func(of *table) { of.want("b", "shard-0", "eager 20s wait") }},
		{"the shard that the worker lacks moves", inspect.CodePlanStale, 0, func(of *table) {
			of.lack("shard-0", "b")
			of.want("b", "shard-0", "eager 20s wait")
		}},
		{"the shard that the worker lacks rests", inspect.CodePlanStale, 0, func(of *table) {
			of.seats["a"].Backoff = time.Hour
			of.fail(of.rows["shard-0"])
			of.lack("shard-0", "b")
		}},
		{"a small lease time in a large fleet", inspect.CodeSilent, 5500 * time.Millisecond, func(of *table) {
			for i := range 8 {
				of.seat(fmt.Sprint("worker-", i))
			}
			for _, seat := range of.seats {
				seat.TTL = 3 * time.Second
			}
			of.frozen = "a"
		}},
		{"its worker reports no silent handler", inspect.CodeNoProgress, 15 * time.Minute, func(of *table) { of.idle = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := settled(t)
			c.make(of)
			step := fixture.Size(time.Second, 250*time.Millisecond)
			if c.least == 0 { // there is no moment to find
				step = fixture.Size(4*time.Second, 250*time.Millisecond)
			}
			if at := of.first(c.code, 20*time.Minute, step); (at == 0) != (c.least == 0) || at < c.least || at > c.least+time.Second+c.least/10 {
				t.Errorf("after %v, want %v", at, c.least)
			}
		})
	}
}

// reserve reassigns shard-0 to a worker for five minutes.
func (of *table) reserve(to string) {
	row := of.rows["shard-0"]
	of.begin(row, lease.ReasonForced, "", "ann")
	row.Last.Did, row.Reserved = "reassigned", lease.Reservation{For: to, Lasts: 5 * time.Minute}
}

// lack completes a plan that gives a shard to another worker than its owner.
func (of *table) lack(shard, to string) {
	row := of.rows[shard]
	owner := row.Owner
	row.Owner = of.seats[to].Owner()
	of.planned(2)
	row.Owner = owner
}

// TestNewcomerMakesNoUnevenFleet: a worker has just come, and the plan of an hour ago does not have it.
func TestNewcomerMakesNoUnevenFleet(t *testing.T) {
	of := settled(t)
	var o inspect.Observer
	for i := range 200 {
		if i == 100 {
			of.seat("c").Revision = 1
		}
		s := of.look()
		o.See(s)
		if n := len(warned(s, inspect.CodeUneven)); n > 0 != (i >= 180) {
			t.Fatalf("look %d: %d warnings", i, n)
		}
		of.pass(250 * time.Millisecond)
	}
}

// TestOldRowsShowNoAge: seats that are read more often than rows do not make the state of a shard older than its row.
func TestOldRowsShowNoAge(t *testing.T) {
	of := settled(t)
	var o inspect.Observer
	o.See(of.look())
	of.rows["shard-0"].Owner.Incarnation = "x-1"
	from := of.now
	for range 20 {
		of.pass(time.Second)
		s := of.look()
		s.RowsAt = from
		if o.See(s); s.Shard("shard-0").Since.Watched != 0 || warned(s, inspect.CodeOrphaned)[0].Level != info {
			t.Fatalf("%+v", s.Shard("shard-0").Since)
		}
	}
}

// TestWatchFollowsShardsWithoutOwner: no seat shows that a free shard was claimed, so the rows are read again at each
// look, for a minute.
func TestWatchFollowsShardsWithoutOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := settled(t)
		of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a")
		of.watch(20, func(look int, s *inspect.Snapshot) {
			if look == 5 {
				of.begin(of.rows["shard-0"], lease.ReasonReleased, "a", "")
			}
			if want := map[bool]inspect.State{true: inspect.Free, false: inspect.Held}[look <= 5]; s.Shard("shard-0").State != want {
				t.Errorf("look %d: %s", look, s.Shard("shard-0").State)
			}
		})
		of.begin(of.rows["shard-1"], lease.ReasonReleased, "", "b")
		rows := of.lists[lease.KindLease]
		of.watch(91, func(int, *inspect.Snapshot) {})
		if n := of.lists[lease.KindLease] - rows; n < 30 || n > 36 {
			t.Errorf("%d listings of the rows in three minutes: every two seconds for a minute, then every thirty", n)
		}
	})
}
