package inspect_test

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// must ends the test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStates: each state of a shard, and for how long it has been in it.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		name  string
		state inspect.State
		since time.Duration // 0: unknown
		make  func(of *table, row *lease.Row)
	}{
		{"a worker holds it", inspect.Held, time.Hour, func(of *table, row *lease.Row) {}},
		{"another worker requests it", inspect.Moving, 0, func(of *table, row *lease.Row) { of.want("b", row.Shard, "eager") }},
		{"a request for another generation", inspect.Held, time.Hour, func(of *table, row *lease.Row) {
			of.want("b", row.Shard, "eager")
			of.seats["b"].Wants[0].Generation--
		}},
		{"it is offered", inspect.Moving, 0, func(of *table, row *lease.Row) { row.OfferedTo = "b-1" }},
		{"released", inspect.Free, time.Second, func(of *table, row *lease.Row) {
			of.begin(row, lease.ReasonReleased, "", "a")
			of.pass(time.Second)
		}},
		{"failed twice, within the rest", inspect.Resting, 1900 * time.Millisecond, func(of *table, row *lease.Row) {
			of.failTwice(row)
			of.pass(1900 * time.Millisecond)
		}},
		{"failed twice, after the rest", inspect.Free, 100 * time.Millisecond, func(of *table, row *lease.Row) {
			of.failTwice(row)
			of.pass(2100 * time.Millisecond)
		}},
		{"its owner has no seat", inspect.Orphaned, 0, func(of *table, row *lease.Row) { delete(of.seats, "a") }},
		{"its owner's seat cannot be read", inspect.Held, time.Hour, func(of *table, row *lease.Row) { of.bad = append(of.bad, key(lease.KindSeat, "a-1")) }},
		{"its owner has stored no heartbeat", inspect.Orphaned, 0, func(of *table, row *lease.Row) { of.seats["a"].Beat = 0 }},
		{"unlisted", inspect.Unlisted, time.Minute, func(of *table, row *lease.Row) {
			of.begin(row, lease.ReasonUnlisted, "", "a")
			of.pass(time.Minute)
		}},
		{"quarantined", inspect.Quarantined, time.Minute, func(of *table, row *lease.Row) {
			of.begin(row, lease.ReasonFailed, "", "b")
			row.Quarantined = true
			of.pass(time.Minute)
		}},
		{"finished", inspect.Finished, time.Minute, func(of *table, row *lease.Row) {
			of.begin(row, lease.ReasonFinished, "", "a")
			row.Finished = true
			of.pass(time.Minute)
		}},
		{"its parent is held", inspect.Blocked, time.Minute, func(of *table, row *lease.Row) {
			*row = *of.row(row.Shard, "shard-1")
			of.rows[row.Shard] = row
			of.pass(time.Minute)
		}},
		{"its parent cannot be read", inspect.Blocked, time.Minute, func(of *table, row *lease.Row) {
			of.bad = append(of.bad, key(lease.KindLease, "shard-1"))
			*row = *of.row(row.Shard, "shard-1")
			of.rows[row.Shard] = row
			of.pass(time.Minute)
		}},
		{"its parent has finished", inspect.Free, time.Second, func(of *table, row *lease.Row) {
			*row = *of.row(row.Shard, "shard-1")
			of.rows[row.Shard] = row
			of.pass(time.Minute)
			of.begin(of.rows["shard-1"], lease.ReasonFinished, "", "b")
			of.rows["shard-1"].Finished = true
			of.pass(time.Second)
		}},
		{"its parent has no row", inspect.Free, 0, func(of *table, row *lease.Row) {
			*row = *of.row(row.Shard, "gone")
			of.rows[row.Shard] = row
			of.pass(time.Minute)
		}},
		{"it has begun, so it does not wait for its parent", inspect.Free, time.Minute, func(of *table, row *lease.Row) {
			row.Parents = []string{"shard-1"}
			of.begin(row, lease.ReasonReleased, "", "a")
			of.pass(time.Minute)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := settled(t)
			c.make(of, of.rows["shard-0"])
			got := of.look().Shard("shard-0")
			if got.State != c.state || got.Since.Known != (c.since > 0) || got.Since.D != c.since || got.Since.Observed {
				t.Errorf("%s for %+v, want %s for %v", got.State, got.Since, c.state, c.since)
			}
		})
	}
}

func (of *table) failTwice(row *lease.Row) {
	of.begin(row, lease.ReasonHandoff, "b", "") // without a checkpoint since
	of.fail(row)
	of.pass(time.Minute)
	of.begin(row, lease.ReasonFailed, "a", "")
	of.fail(row)
}

func TestLook(t *testing.T) {
	of := settled(t)
	of.want("b", "shard-0", "eager 20s")
	of.seats["b"].MaxShards = 7
	s := of.look()
	if len(s.Shards) != 4 || len(s.Workers) != 2 || s.Plan == nil || s.Plan.Revision != 1 || s.Partial {
		t.Fatalf("%d shards, %d workers, plan %v", len(s.Shards), len(s.Workers), s.Plan)
	}
	a, b := s.Workers[0], s.Workers[1]
	if a.Seat.Name != "a" || a.Held != 2 || a.Giving != 1 || a.Taking != 0 || a.Target != 2 || a.Silent.D != 0 || a.Dead {
		t.Errorf("a: %+v", a)
	}
	if b.Held != 2 || b.Giving != 0 || b.Taking != 1 || b.Target != 2 || b.Beating != inspect.Unknown {
		t.Errorf("b: %+v", b)
	}
	m := s.Shard("shard-0").Move
	want := inspect.Move{From: a.Seat.Owner(), To: b.Seat.Owner(), Mode: rebalance.Eager, Phase: inspect.Requested, May: 45 * time.Second}
	if m == nil || *m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
	if s.Shard("shard-0").Target.Name != "a" || s.Shard("shard-9") != nil || s.Count(inspect.Held) != 3 {
		t.Error(s.Shard("shard-0").Target, s.Count(inspect.Held))
	}
	for kind, n := range map[lease.Kind]int{lease.KindLease: 1, lease.KindSeat: 1, lease.KindTarget: 1, lease.KindEnds: 1} {
		if of.lists[kind] != n {
			t.Errorf("%d listings of %vs, want %d", of.lists[kind], kind, n)
		}
	}
	if s.Cost.ReadUnits != 0.5+1+0.5+0.5 {
		t.Errorf("%v read units", s.Cost.ReadUnits)
	}
}

// TestWait: a move whose terms say wait may stand any time.
func TestWait(t *testing.T) {
	of := settled(t)
	of.want("b", "shard-0", "eager 20s wait")
	if m := of.look().Shard("shard-0").Move; m.May != 0 {
		t.Error(m.May)
	}
	of.want("b", "shard-0", "cooperative 20s wait")
	if m := of.look().Shard("shard-0").Move; m.May != 45*time.Second {
		t.Error(m.May)
	}
}

// TestLookFails: an error that ends a listing fails the look, and nothing is shown as missing.
func TestLookFails(t *testing.T) {
	of := settled(t)
	of.verify = fmt.Errorf("no permission")
	s := of.look()
	if s.Restored || s.Unverified == nil {
		t.Error("only lease.ErrWentBack means that the table was restored")
	}
	of.verify = fmt.Errorf("table B: %w", lease.ErrWentBack)
	if s = of.look(); !s.Restored || s.RestoredWhy == "" || s.Unverified != nil {
		t.Error("not restored")
	}
	if _, err := inspect.Look(t.Context(), of, "", inspect.Options{}); err != nil {
		t.Error("the fake accepts any group:", err)
	}
}

func TestLookAt(t *testing.T) {
	of := settled(t)
	row := of.rows["shard-0"]
	row.Parents = []string{"bad", "gone", "shard-1"}
	of.bad = []lease.Key{key(lease.KindLease, "bad")}
	of.row("bad")
	s, err := inspect.LookAt(t.Context(), of, group, "shard-0", inspect.Options{Now: of.clock})
	must(t, err)
	if !s.Partial || len(s.Shards) != 2 || s.Shard("shard-0").Owner.Name != "a" || s.Shard("shard-1") == nil || len(s.Workers) != 2 {
		t.Errorf("%+v", s.Shards)
	}
	if len(s.Unreadable) != 1 || s.Unreadable[0].Key.Name != "bad" || of.lists[lease.KindLease] != 0 || of.gets != 4 {
		t.Errorf("unreadable: %v; %d gets", s.Unreadable, of.gets)
	}
	row.Owner, row.Removed = lease.Owner{}, true
	if s, err = inspect.LookAt(t.Context(), of, group, "shard-0", inspect.Options{Now: of.clock}); err != nil || s.Shard("shard-0").State != inspect.Removed {
		t.Error(err)
	}
	if _, err := inspect.LookAt(t.Context(), of, group, "nothing", inspect.Options{}); !errors.Is(err, lease.ErrNotFound) {
		t.Error(err)
	}
	if _, err := inspect.LookAt(t.Context(), of, group, "bad", inspect.Options{}); !errors.Is(err, lease.ErrMalformed) {
		t.Error(err)
	}
}

// TestTargets: while a planner writes the targets, the one of the higher revision counts.
func TestTargets(t *testing.T) {
	of := settled(t)
	of.targets[0].Revision, of.targets[1].Revision = 2, 1
	newer := of.targets[0].Incarnation
	of.targets[0].Hold = []lease.Assigned{{Shard: "shard-0"}, {Shard: "shard-1"}, {Shard: "shard-2"}}
	if to := of.look().Shard("shard-1").Target; to.Incarnation != newer {
		t.Errorf("%v, want %s", to, newer)
	}
	stale := of.targets[0]
	stale.Page, stale.Revision, stale.Hold = 1, 1, []lease.Assigned{{Shard: "shard-3"}}
	of.targets = []lease.Target{of.targets[0], stale}
	if to := of.look().Shard("shard-3").Target; !to.IsZero() {
		t.Errorf("%v, of a page that is left from an earlier target", to)
	}
	of.plan = nil
	if s := of.look(); len(s.Targets) != 2 || !s.Shard("shard-1").Target.IsZero() {
		t.Errorf("without a plan there are %d pages, and shard-1 is assigned to %v", len(s.Targets), s.Shard("shard-1").Target)
	}
}

// TestManyShards: a snapshot of 10,000 shards on memstore (in a sample, 2,000) is taken, searched for warnings and compared. At full size
// that takes well under a second. The quickest of five attempts counts, because other programs use the machine too.
func TestManyShards(t *testing.T) {
	shards := fixture.Size(2000, 10_000)
	store := full(t, shards)
	quickest := time.Hour
	var o inspect.Observer
	for range fixture.Size(1, 5) {
		before := time.Now()
		s, err := inspect.Look(t.Context(), store, group, inspect.Options{})
		must(t, err)
		s.Warnings()
		o.See(s)
		inspect.Diff(s, s)
		quickest = min(quickest, time.Since(before))
		bytes := 0
		for _, shard := range s.Shards {
			bytes += shard.Size
		}
		units := float64(bytes) / 4096 / 2 // the seats cost one more, and the end of each page up to half a unit
		if s.Count(inspect.Held) != shards || s.Cost.ReadUnits < units+1 || s.Cost.ReadUnits > units+1+2 {
			t.Fatalf("%d shards of %d bytes, %v read units", len(s.Shards), bytes, s.Cost.ReadUnits)
		}
	}
	if t.Logf("%v", quickest); quickest > 500*time.Millisecond && fixture.Long() {
		t.Errorf("%d shards took %v", shards, quickest)
	}
}

func BenchmarkLook(b *testing.B) {
	store := full(b, 10_000)
	for b.Loop() {
		s, err := inspect.Look(b.Context(), store, group, inspect.Options{})
		must(b, err)
		s.Warnings()
	}
}

// full returns a store in which one worker holds many shards.
func full(t testing.TB, shards int) *memstore.Store {
	store := new(memstore.Store)
	seat := fixture.Must[lease.Seat](t, store)(protocol.Sit(lease.Seat{Group: group, Incarnation: "a-1", Name: "a", TTL: ttl}, fixture.Stamp()))
	seat = fixture.Must[lease.Seat](t, store)(protocol.NextBeat(seat, lease.Says{}, fixture.Stamp()))
	write := fixture.Must[lease.Row](t, store)
	for i := range shards {
		row := write(protocol.Begin(group, fmt.Sprintf("shard-%05d", i), nil, "a", fixture.Stamp()))
		write(protocol.Claim(row, seat.Owner(), fixture.Stamp()))
	}
	return store
}

// crowd returns a table with many shards and workers.
func crowd(t testing.TB, shards, workers int) *table {
	of := newTable(t)
	for i := range workers {
		of.seat(fmt.Sprintf("worker-%03d", i))
	}
	of.seat("a")
	for i := range shards {
		row := of.row(fmt.Sprintf("shard-%05d", i))
		of.begin(row, lease.ReasonInitial, fmt.Sprintf("worker-%03d", i%workers), "")
		of.commit(row)
	}
	of.pass(time.Minute)
	of.plan = &lease.Plan{Group: group, WriteID: "w", Revision: 1, By: of.seats["a"].Owner(), At: of.now}
	return of
}

// TestStandsAlone: a reader links neither the worker nor the engine. A Lister cannot write, so
// nothing in this package can.
func TestStandsAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	must(t, err)
	deps := strings.Fields(string(out))
	for _, name := range []string{"shardlease", "internal/engine", "memstore"} {
		if slices.Contains(deps, "github.com/shardlease/shardlease-go/"+name) {
			t.Error("inspect depends on", name)
		}
	}
}
