package main

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestCommands executes every command while a fleet runs.
func TestCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		began := make(chan string, 100)
		w, err := shardlease.New(store, shardlease.Static("shard-0"), shardlease.Config{Group: "orders", Name: "a", Task: "run-17", Handoff: rebalance.Eager, Backoff: -1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
				began <- t.Checkpoint().Position
				if err := t.Mark("9"); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			})
		}()
		s := shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}
		var out strings.Builder
		giveAt := func(generation int64, args ...string) error {
			t.Helper()
			time.Sleep(3 * time.Minute)
			out.Reset()
			return command(t.Context(), s, order{why: "because", generation: generation}, args, &out)
		}
		give := func(args ...string) {
			t.Helper()
			if err := giveAt(0, args...); err != nil {
				t.Fatal(args, err)
			}
		}
		seen := func() int64 {
			t.Helper()
			time.Sleep(3 * time.Minute)
			row, err := s.Get(t.Context(), "shard-0")
			if err != nil {
				t.Fatal(err)
			}
			return row.Generation
		}
		shows := func(text string) {
			t.Helper()
			if !strings.Contains(out.String(), text) {
				t.Errorf("no %q in %q", text, out.String())
			}
		}
		give("list")
		shows("held by a, incarnation ")
		shows(", task run-17")
		give("workers")
		shows("lease time 10s")
		if err := giveAt(0, "quarantine", "shard-0"); err == nil {
			t.Error("quarantined a shard without -generation")
		}
		if err := giveAt(seen()-1, "release", "shard-0"); !errors.Is(err, lease.ErrOutdated) {
			t.Errorf("released a shard that has changed hands: %v", err)
		}
		if err := giveAt(seen(), "quarantine", "shard-0"); err != nil {
			t.Error(err)
		}
		shows("quarantined")
		give("rewind", "shard-0", "3") // the quarantine stays
		shows("quarantined")
		give("unquarantine", "shard-0")
		shows("free")
		give("rewind", "shard-0", "5")
		shows("free")
		if err := giveAt(seen(), "release", "shard-0"); err != nil {
			t.Error(err)
		}
		shows("forced by ann")
		time.Sleep(3 * time.Minute)
		row, err := s.Get(t.Context(), "shard-0")
		if err != nil {
			t.Fatal(err)
		}
		give("evict", string(row.Owner.Incarnation))
		shows("forced by ann")
		time.Sleep(3 * time.Minute)
		if row, err = s.Get(t.Context(), "shard-0"); err != nil || row.Owner.IsZero() || row.Attempts() != 0 {
			t.Errorf("after the eviction: %v, %v", row, err)
		}
		give("history", "shard-0")
		shows("forced by a at ") // the claim repeats the reason
		shows("forced by ann at ")
		before := seen()
		give("release-task", "run-17")
		shows("forced by ann")
		time.Sleep(3 * time.Minute)
		if row, err = s.Get(t.Context(), "shard-0"); err != nil || row.Owner.IsZero() || row.Generation < before+2 || row.Attempts() != 0 {
			t.Errorf("after the release of the task: %v, %v", row, err)
		}
		for _, w := range [][]string{{"cordon", "a"}, {"drain", "a"}, {"pause"}, {"pin", "shard-0", "a"}} {
			give(w...)
			give("wishes")
			shows(w[0])
			shows(`by "ann" (because)`)
			give(append([]string{"lift", w[0]}, w[1:min(2, len(w))]...)...)
			give("wishes")
			if out.Len() > 0 {
				t.Errorf("%s is not lifted: %s", w[0], out.String())
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(began)
		var starts []string
		for position := range began {
			starts = append(starts, position)
		}
		starts = slices.Compact(starts) // an evicted worker may claim once more before it finds its seat gone
		if got := strings.Join(starts, ","); got != ",3,5,9" {
			t.Errorf("tenures started at %s", got)
		}
		if err := command(t.Context(), s, order{generation: 1}, []string{"release", "shard-0"}, &out); err == nil {
			t.Error("a command without a reason was carried out")
		}
	})
}

// TestUsageListsTheCommands: the usage lists every command, and so does docs/operations.md.
func TestUsageListsTheCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)(?:case |== |, args\[0\] == )"([a-z-]+)"`).FindAllStringSubmatch(string(code), -1)
	if len(commands) < 10 {
		t.Errorf("found only %d commands: the test may have stopped finding them", len(commands))
	}
	for _, c := range commands {
		line := regexp.MustCompile(`(?m)^  (` + c[1] + `\b.*?)  `).FindStringSubmatch(usage)
		if line == nil {
			t.Errorf("the usage lacks %s", c[1])
		} else if !strings.Contains(string(page), "\n| `"+line[1]+"` |") {
			t.Errorf("docs/operations.md does not list %s", line[1])
		}
	}
}

// A fleet is workers on a store in memory, for the runbooks of docs/operations.md.
type fleet struct {
	shardlease.Supervisor
	t    *testing.T
	stop func()
}

func enter(t *testing.T, workers int, config shardlease.Config, handler shardlease.Handler) fleet {
	t.Helper()
	store := new(memstore.Store)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	for range workers {
		config.Group, config.Handoff = "orders", rebalance.Eager
		w, err := shardlease.New(store, shardlease.Static("shard-0"), config)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- w.Run(ctx, handler) }()
	}
	time.Sleep(10 * time.Minute)
	return fleet{shardlease.Supervisor{Store: store, Group: "orders", By: "ann"}, t, func() {
		stop()
		for range workers {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}}
}

func (f fleet) row() lease.Row {
	f.t.Helper()
	row, err := f.Get(f.t.Context(), "shard-0")
	if err != nil {
		f.t.Fatal(err)
	}
	return row
}

// give gives a command that must succeed.
func (f fleet) give(generation int64, args ...string) {
	f.t.Helper()
	if err := command(f.t.Context(), f.Supervisor, order{why: "because", generation: generation}, args, io.Discard); err != nil {
		f.t.Error(err)
	}
}

// TestPoisonRecord: record 5 cannot be processed. The checkpoint is the record before it, also
// without commits, and a rewind to 5 skips it. A shard that rests but is not quarantined is
// retried soon after it was quarantined and freed.
func TestPoisonRecord(t *testing.T) {
	for name, limit := range map[string]int{"quarantined": 3, "tried forever": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tries atomic.Int32
				f := enter(t, 1, shardlease.Config{MaxAttempts: limit}, func(ctx context.Context, tenure *shardlease.Tenure) error {
					tries.Add(1)
					last, _ := strconv.Atoi(tenure.Checkpoint().Position)
					for n := last + 1; n < 9; n++ {
						if n == 5 {
							return errors.New("cannot process the record at 5")
						}
						if err := tenure.Mark(strconv.Itoa(n)); err != nil {
							return err
						}
					}
					<-ctx.Done()
					return nil
				})
				row := f.row()
				if row.Checkpoint.Position != "4" || row.Quarantined != (limit > 0) || row.Attempts() == 0 {
					t.Errorf("after the failures: %v at %q", row, row.Checkpoint.Position)
				}
				if limit == 0 {
					if err := command(t.Context(), f.Supervisor, order{why: "because"}, []string{"unquarantine", "shard-0"}, io.Discard); err == nil {
						t.Error("freed a shard that was not quarantined")
					}
					f.give(row.Generation, "quarantine", "shard-0")
				}
				before := tries.Load()
				f.give(0, "unquarantine", "shard-0")
				time.Sleep(time.Minute + time.Second) // AuditEvery
				if tries.Load() == before {
					t.Error("it was not tried again")
				}
				time.Sleep(3 * time.Minute)
				f.give(0, "rewind", "shard-0", "5")
				if f.row().Quarantined {
					f.give(0, "unquarantine", "shard-0")
				}
				time.Sleep(3 * time.Minute)
				if row := f.row(); row.Checkpoint.Position != "8" || row.Owner.IsZero() {
					t.Errorf("after the rewind: %v at %q", row, row.Checkpoint.Position)
				}
				f.stop()
			})
		})
	}
}

// TestHungHandler: a handler ignores its contexts. After the release another worker claims the
// shard within the audit and three heartbeats, and the event of the end has Running.
func TestHungHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, running, second := make(chan struct{}), make(chan event.Event, 9), atomic.Bool{}
		observe := func(e event.Event) {
			if e.Kind == event.Ended && e.Running {
				running <- e
			}
		}
		f := enter(t, 2, shardlease.Config{Observe: observe}, func(ctx context.Context, _ *shardlease.Tenure) error {
			if !second.Swap(true) {
				<-hung
			}
			<-ctx.Done()
			return nil
		})
		before := f.row()
		f.give(before.Generation, "release", "shard-0")
		time.Sleep(71 * time.Second)
		if row := f.row(); row.Owner.IsZero() || row.Owner == before.Owner {
			t.Errorf("after the release: %v", row)
		}
		if e := <-running; e.Cause != event.CauseForced {
			t.Errorf("reported: %v", e)
		}
		close(hung)
		f.stop()
	})
}
