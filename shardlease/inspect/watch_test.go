package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// watch looks n times, and lets the workers beat in between.
func (of *table) watch(n int, each func(look int, s *inspect.Snapshot)) {
	of.t.Helper()
	look := 0
	o := inspect.WatchOptions{Options: inspect.Options{Now: of.clock}}
	for s, err := range inspect.Watch(of.t.Context(), of, group, o) {
		if err != nil {
			of.t.Fatal(err)
		}
		if each(look, s); look == n-1 {
			return
		}
		look++
		of.pass(2 * time.Second)
	}
}

// TestWatchAtRest: two minutes of ten shards that stay where they are cost a listing of the seats every two
// seconds, of the rows and of the counts of ends every thirty, and of the targets once.
func TestWatchAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := crowd(t, 10, 4)
		units := 0.0
		of.watch(61, func(_ int, s *inspect.Snapshot) {
			if len(s.Shards) != 10 || len(s.Workers) != 5 {
				t.Fatal(len(s.Shards), len(s.Workers))
			}
			units += s.Cost.ReadUnits
		})
		if seats, rows, targets := of.lists[lease.KindSeat], of.lists[lease.KindLease], of.lists[lease.KindTarget]; seats != 61 || rows != 5 || targets != 1 || of.lists[lease.KindEnds] != 5 || of.gets != 0 {
			t.Errorf("%d listings of seats, %d of rows, %d of targets, %d of counts", seats, rows, targets, of.lists[lease.KindEnds])
		}
		if want := 61 + 5*0.5 + 0.5 + 5*0.5; units != want {
			t.Errorf("%v read units, want %v", units, want)
		}
	})
}

// TestWatchNotices: what the seats show makes the watch read the rows at once, and then the seats again.
func TestWatchNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := settled(t)
		rows := 0
		of.watch(12, func(look int, s *inspect.Snapshot) {
			defer func() { rows = of.lists[lease.KindLease] }()
			read := of.lists[lease.KindLease] > rows
			switch look {
			case 0: // a look at everything
				if !read {
					t.Error("the first look reads the rows")
				}
			case 5: // requested after look 4
				if !read || s.Shard("shard-0").State != inspect.Moving {
					t.Errorf("look 5: read %v, %s", read, s.Shard("shard-0").State)
				}
				of.seats["b"].Wants = nil
				of.move("shard-0", "b")
				of.planned(2)
				return
			case 6:
				if !read || s.Shard("shard-0").Owner.Name != "b" || s.Shard("shard-0").State != inspect.Held {
					t.Errorf("look 6: read %v, %v", read, s.Shard("shard-0").Owner)
				}
			case 4:
				of.want("b", "shard-0", "eager")
				fallthrough
			default:
				if read {
					t.Errorf("look %d reads the rows for nothing", look)
				}
			}
		})
	})
}

// TestWatchAndListingsThatLag: a row never goes back because a listing lags behind.
func TestWatchAndListingsThatLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := settled(t)
		old := *of.rows["shard-0"]
		of.move("shard-0", "b")
		of.watch(20, func(look int, s *inspect.Snapshot) {
			if look == 1 {
				of.lag["shard-0"] = old
			}
			if s.Shard("shard-0").Owner.Name != "b" {
				t.Errorf("look %d: %v", look, s.Shard("shard-0").Owner)
			}
		})
		if of.lists[lease.KindLease] < 3 {
			t.Error("the listing that lags behind was not repeated")
		}
	})
}

// A broken Lister answers nothing.
type broken struct{ *table }

var errBroken = errors.New("broken")

func (broken) Verify(context.Context, string) error { return errBroken }

// TestWatchGoesOn: a look that fails is reported, and the next may succeed.
func TestWatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		looks := 0
		for s, err := range inspect.Watch(ctx, broken{settled(t)}, group, inspect.WatchOptions{}) {
			if err != nil || s.Unverified == nil {
				t.Error(err)
			}
			if looks++; looks == 3 {
				stop()
			}
		}
		if looks != 3 {
			t.Errorf("%d looks", looks)
		}
		ended := 0
		for range inspect.Watch(ctx, broken{settled(t)}, group, inspect.WatchOptions{}) {
			ended++
		}
		if ended != 0 {
			t.Error("a watch whose context has ended looks once more")
		}
	})
}

// TestHealthyFleetHasNoWarnings: a real fleet starts, grows and shrinks, and nothing that it does on the way is taken
// for a fault.
func TestHealthyFleetHasNoWarnings(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { live(t, mode) })
		})
	}
}

func live(t *testing.T, mode rebalance.Mode) {
	store := new(memstore.Store)
	names := make([]string, 12)
	for i := range names {
		names[i] = fmt.Sprintf("shard-%02d", i)
	}
	run := func(name string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := shardlease.New(store, shardlease.Static(names...), shardlease.Config{Group: group, Name: name, Handoff: mode})
		must(t, err)
		over := make(chan error, 1)
		go func() { over <- w.Run(ctx, processing) }()
		return func() { cancel(); <-over }
	}
	stops := []func(){run("a"), run("b")}
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	synctest.Wait()
	looks, owned := 0, false
	began := time.Now()
	for s, err := range inspect.Watch(t.Context(), store, group, inspect.WatchOptions{}) {
		must(t, err)
		for _, w := range s.Warnings() {
			if w.Level > info {
				t.Errorf("after %v: %+v", time.Since(began), w)
			}
		}
		switch looks++; looks {
		case 30:
			stops = append(stops, run("c"))
		case 60:
			stops[0]()
			stops = stops[1:]
		case 90:
			owned = s.Count(inspect.Held) == len(names) && len(s.Workers) == 2
			for _, w := range s.Workers {
				owned = owned && w.Held == 6 && w.Target == 6 && w.Beating == inspect.Yes
			}
		}
		if looks == 100 {
			break
		}
	}
	if !owned {
		t.Error("b and c do not hold six shards each")
	}
}

// processing is the handler of a shard that always has records.
func processing(ctx context.Context, tenure *shardlease.Tenure) error {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := tenure.Mark(fmt.Sprint(n)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
