package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A team is workers of the library that run in the world of a test.
type team struct {
	*world
	t      *testing.T
	stop   []context.CancelFunc
	ended  chan error
	shards []string
}

// newTeam returns a team without workers, with so many shards. It belongs into a bubble.
func newTeam(t *testing.T, shards int) *team {
	f := &team{world: newWorld(), t: t, ended: make(chan error)}
	for i := range shards {
		f.shards = append(f.shards, fmt.Sprintf("shard-%d", i))
	}
	return f
}

// join starts a worker.
func (f *team) join(config shardlease.Config, handler shardlease.Handler) {
	f.t.Helper()
	config.Group, config.Handoff = "orders", rebalance.Eager
	w, err := shardlease.New(f.tables.all["leases"], shardlease.Static(f.shards...), config)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(f.t.Context())
	f.stop = append(f.stop, stop)
	go func() { f.ended <- w.Run(ctx, handler) }()
}

// leave stops all workers.
func (f *team) leave() {
	for _, stop := range f.stop {
		stop()
	}
	for range f.stop {
		if err := <-f.ended; err != nil {
			f.t.Error(err)
		}
	}
}

// give gives a command that must succeed, on a terminal where a person types the answer.
func (f *team) give(answer string, args ...string) string {
	f.t.Helper()
	var out, problems bytes.Buffer
	f.answer = answer
	if f.exec(f.t.Context(), &out, &problems, args...); f.code != 0 {
		f.t.Errorf("%v: exit code %d: %s", args, f.code, problems.String())
	}
	return out.String()
}

// owners returns the owner of each shard, as ls prints it.
func (f *team) owners() map[string]string {
	f.t.Helper()
	var list struct {
		Items []struct {
			Name  string
			Owner struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(f.give("", "ls", "-o", "json")), &list); err != nil {
		f.t.Fatal(err)
	}
	of := map[string]string{}
	for _, item := range list.Items {
		of[item.Name] = item.Owner.Name
	}
	return of
}

func idle(ctx context.Context, _ *shardlease.Tenure) error {
	<-ctx.Done()
	return nil
}

// TestForecastIsWhatTheFleetDoes: after each wish, and after the end of a worker, the fleet does what plan
// has printed.
func TestForecastIsWhatTheFleetDoes(t *testing.T) {
	for name, commands := range map[string][][]string{
		"drain":             {{"drain", "host-1"}},
		"cordon and limits": {{"cordon", "host-0"}, {"drain", "host-2"}},
		"pins":              {{"pin", "shard-3", "host-0"}, {"pin", "shard-4", "host-0"}, {"pin", "shard-5", "host-1"}},
		"pause":             {{"pause"}, {"drain", "host-1"}},
		"all drained":       {{"drain", "host-0"}, {"drain", "host-1"}, {"drain", "host-2"}, {"drain", "host-3"}},
		"pins and drains":   {{"pin", "shard-3", "host-2"}, {"drain", "host-2"}, {"cordon", "host-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTeam(t, 23)
				for i := range 4 {
					config := shardlease.Config{Name: fmt.Sprintf("host-%d", i)}
					if i == 3 {
						config.MaxShards = 7
					}
					f.join(config, idle)
				}
				time.Sleep(2 * time.Minute)
				for _, command := range commands {
					before := f.owners()
					wish := append(command, "--why", "test", "--yes")
					// The dry run sees the wish before a worker plans: nobody has noticed it yet.
					f.give("", wish...)
					expected := f.forecast(before)
					time.Sleep(2 * time.Minute)
					if after := f.owners(); !maps.Equal(expected, after) {
						t.Errorf("%v: the fleet has %v, and the forecast was %v", command, after, expected)
					}
					if out := f.give("", "plan"); !strings.Contains(out, "A new plan would be the same") {
						t.Errorf("%v: the next plan is another one:\n%s", command, out)
					}
				}
				f.leave()
			})
		})
	}
}

// forecast returns the owners after the moves that plan prints.
func (f *team) forecast(owners map[string]string) map[string]string {
	f.t.Helper()
	var list struct {
		Items []struct {
			Shard string
			To    struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(f.give("", "plan", "-o", "json")), &list); err != nil {
		f.t.Fatal(err)
	}
	then := maps.Clone(owners)
	for _, move := range list.Items {
		then[move.Shard] = move.To.Name
	}
	return then
}

// TestCommandsOnAFleet: the commands for shards and workers, while a fleet runs. Each is noticed in moments.
func TestCommandsOnAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTeam(t, 1)
		began := make(chan string, 100)
		f.join(shardlease.Config{Name: "a", Task: "run-17", Backoff: -1}, func(ctx context.Context, t *shardlease.Tenure) error {
			began <- t.Checkpoint().Position
			if err := t.Mark("9"); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		give := func(want, answer string, args ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			if out := f.give(answer, args...); !strings.Contains(out, want) {
				t.Errorf("%v: no %q in %s", args, want, out)
			}
		}
		give("task run-17", "", "get", "shard-0")
		give("quarantined", "shard-0", "quarantine", "shard-0", "--why", "test")
		give("rewound", "shard-0", "rewind", "shard-0", "--to", "3", "--why", "test") // the quarantine stays
		give("quarantined", "", "ls")
		give("unquarantined", "shard-0", "unquarantine", "shard-0", "--why", "test")
		give("rewound", "shard-0", "rewind", "shard-0", "--to", "5", "--why", "test") // from its owner
		give("released", "shard-0", "release", "shard-0", "--why", "test")
		give("last change  claimed after forced at ", "", "get", "shard-0")
		give("released 1 shard", "", "evict", "a", "--why", "test", "--yes")
		give("released 1 shard", "", "release-task", "run-17", "--why", "test", "--yes")
		give("forced: released", "", "history", "shard-0")
		give("claimed after forced", "", "history", "shard-0")
		give(`"reason": "forced",
      "claimed": true,`, "", "history", "shard-0", "-o", "json")
		give("OK", "", "check", "--observe", "16s")
		f.leave()
		close(began)
		var starts []string
		for position := range began {
			starts = append(starts, position)
		}
		starts = slices.Compact(starts) // an evicted worker may claim once more before it finds its seat gone
		if got := strings.Join(starts, ","); got != ",3,5,9" {
			t.Errorf("tenures started at %s", got)
		}
	})
}

// TestPoisonRecord: record 5 cannot be processed. The checkpoint is the record before it, also without
// commits, and a rewind to 5 skips it. A shard that rests is retried soon after it was quarantined and
// freed.
func TestPoisonRecord(t *testing.T) {
	for name, limit := range map[string]int{"quarantined": 3, "tried forever": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tries atomic.Int32
				f := newTeam(t, 1)
				f.join(shardlease.Config{MaxAttempts: limit}, func(ctx context.Context, tenure *shardlease.Tenure) error {
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
				time.Sleep(10 * time.Minute)
				out := f.give("", "get", "shard-0", "--positions")
				if !strings.Contains(out, `"4"`) || strings.Contains(out, "quarantined") != (limit > 0) {
					t.Errorf("after the failures: %s", out)
				}
				if limit == 0 {
					f.give("shard-0", "quarantine", "shard-0", "--why", "test")
				}
				before := tries.Load()
				f.give("shard-0", "unquarantine", "shard-0", "--why", "test")
				time.Sleep(10 * time.Second)
				if tries.Load() == before {
					t.Error("it was not tried again")
				}
				time.Sleep(3 * time.Minute)
				f.give("shard-0", "rewind", "shard-0", "--to", "5", "--order", "number", "--why", "test")
				if strings.Contains(f.give("", "ls"), "quarantined") {
					f.give("shard-0", "unquarantine", "shard-0", "--why", "test")
				}
				time.Sleep(3 * time.Minute)
				if out := f.give("", "get", "shard-0", "--positions"); !strings.Contains(out, `"8"`) || !strings.Contains(out, "held") {
					t.Errorf("after the rewind: %s", out)
				}
				f.leave()
			})
		})
	}
}

// TestHungHandler: a handler ignores its contexts. After the release another worker claims the shard within
// moments, and the event of the end has Running.
func TestHungHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, running, second := make(chan struct{}), make(chan event.Event, 9), atomic.Bool{}
		observe := func(e event.Event) {
			if e.Kind == event.Ended && e.Running {
				running <- e
			}
		}
		f := newTeam(t, 1)
		for i := range 2 {
			f.join(shardlease.Config{Name: fmt.Sprintf("host-%d", i), Observe: observe}, func(ctx context.Context, _ *shardlease.Tenure) error {
				if !second.Swap(true) {
					<-hung
				}
				<-ctx.Done()
				return nil
			})
		}
		time.Sleep(10 * time.Minute)
		before := f.owners()
		f.give("shard-0", "release", "shard-0", "--why", "test")
		time.Sleep(20 * time.Second)
		if after := f.owners(); after["shard-0"] == "" || after["shard-0"] == before["shard-0"] {
			t.Errorf("after the release: %v, before it: %v", after, before)
		}
		if e := <-running; e.Cause != event.CauseForced {
			t.Errorf("reported: %v", e)
		}
		close(hung)
		f.leave()
	})
}

// TestFollow: what happens in a fleet is printed while it happens.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTeam(t, 4)
		f.join(shardlease.Config{Name: "host-0"}, idle)
		time.Sleep(time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		ended, out := make(chan struct{}), bytes.Buffer{}
		go func() {
			f.exec(ctx, &out, &out, "events", "--follow", "-o", "jsonl")
			close(ended)
		}()
		time.Sleep(10 * time.Second)
		f.join(shardlease.Config{Name: "host-1"}, idle)
		time.Sleep(time.Minute)
		stop()
		<-ended
		if f.code != 0 {
			t.Errorf("exit code %d", f.code)
		}
		handoffs := 0
		for line := range strings.Lines(out.String()) {
			var e struct {
				Event, Subject string
				Transfer       struct{ Reason, Mode string }
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if e.Event == "transfer" && e.Transfer.Reason == "handoff" && e.Transfer.Mode == "eager" {
				handoffs++
			}
		}
		if handoffs != 2 || !strings.Contains(out.String(), `"event":"joined","subject":"host-1"`) {
			t.Errorf("%d handoffs: %s", handoffs, out.String())
		}
		f.leave()
	})
}

// TestFollowSaysWhatCannotBeRead: the event of a record that becomes unreadable has the error, also in JSON.
func TestFollowSaysWhatCannotBeRead(t *testing.T) {
	for format, want := range map[string]string{
		asTable: "  unreadable  shard-0  malformed row lease orders/shard-0: invalid attribute owner\n",
		asLines: `"event":"unreadable","subject":"shard-0","text":"malformed row lease orders/shard-0: invalid attribute owner"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.join("a", "b")
			time.Sleep(time.Minute)
			time.AfterFunc(time.Minute, func() {
				s.tables.spoil(lease.Key{Group: "orders", Kind: lease.KindLease, Name: "shard-0"}, true)
			})
			var out bytes.Buffer
			p := &program{
				in: strings.NewReader(""), out: &out, problems: &out, now: time.Now, tables: s.tables,
				env: func(name string) (string, bool) { value, ok := s.env[name]; return value, ok },
			}
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
			defer stop()
			if code := p.run(ctx, []string{"events", "--follow", "-o", format}); code != 0 || !strings.Contains(out.String(), want) {
				t.Errorf("exit code %d: %s", code, out.String())
			}
			s.end()
		})
	}
}

// TestInterruptedQuestion: an interruption ends a question that nobody answers, and nothing is written.
func TestInterruptedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		time.Sleep(time.Until(w.clock))
		if err := w.seed("create shard-0"); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		keyboard, hand := io.Pipe()
		var problems bytes.Buffer
		p := &program{
			in: keyboard, out: io.Discard, problems: &problems, now: time.Now, operator: "ann", terminal: true, tables: w.tables,
			env: func(name string) (string, bool) { value, ok := w.env[name]; return value, ok },
		}
		time.AfterFunc(time.Minute, stop)
		before := w.generation("shard-0")
		if code := p.run(ctx, []string{"quarantine", "shard-0", "--why", "test"}); code != exitError || !strings.Contains(problems.String(), "interrupted") {
			t.Errorf("exit code %d: %s", code, problems.String())
		}
		if w.generation("shard-0") != before {
			t.Error("the shard was changed")
		}
		_ = hand.Close()
	})
}
