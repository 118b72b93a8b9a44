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

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// owners returns the owner of each shard, as ls prints it.
func (s *scene) owners() map[string]string {
	s.t.Helper()
	var list struct {
		Items []struct {
			Name  string
			Owner struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(s.give("", "ls", "-o", "json")), &list); err != nil {
		s.t.Fatal(err)
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
				s := newScene(t)
				s.list(23)
				for i := range 4 {
					s.start(fmt.Sprintf("host-%d", i), shardlease.Config{MaxShards: []int{0, 0, 0, 7}[i]}, idle)
				}
				time.Sleep(2 * time.Minute)
				for _, command := range commands {
					before := s.owners()
					wish := append(command, "--why", "test", "--yes")
					// The dry run sees the wish before a worker plans: nobody has noticed it yet.
					s.give("", wish...)
					expected := s.forecast(before)
					time.Sleep(2 * time.Minute)
					if after := s.owners(); !maps.Equal(expected, after) {
						t.Errorf("%v: the fleet has %v, and the forecast was %v", command, after, expected)
					}
					if out := s.give("", "plan"); !strings.Contains(out, "A new plan would be the same") {
						t.Errorf("%v: the next plan is another one:\n%s", command, out)
					}
				}
				s.end()
			})
		})
	}
}

// forecast returns the owners after the moves that plan prints.
func (s *scene) forecast(owners map[string]string) map[string]string {
	s.t.Helper()
	var list struct {
		Items []struct {
			Shard string
			To    struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(s.give("", "plan", "-o", "json")), &list); err != nil {
		s.t.Fatal(err)
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
		s := newScene(t)
		s.list(1)
		began := make(chan string, 100)
		s.start("a", shardlease.Config{Task: "run-17", Backoff: -1}, func(ctx context.Context, t *shardlease.Tenure) error {
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
			if out := s.give(answer, args...); !strings.Contains(out, want) {
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
		s.end()
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
				s := newScene(t)
				s.list(1)
				s.start("a", shardlease.Config{MaxAttempts: limit}, func(ctx context.Context, tenure *shardlease.Tenure) error {
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
				out := s.give("", "get", "shard-0", "--positions")
				if !strings.Contains(out, `"4"`) || strings.Contains(out, "quarantined") != (limit > 0) {
					t.Errorf("after the failures: %s", out)
				}
				if limit == 0 {
					s.give("shard-0", "quarantine", "shard-0", "--why", "test")
				}
				before := tries.Load()
				s.give("shard-0", "unquarantine", "shard-0", "--why", "test")
				time.Sleep(10 * time.Second)
				if tries.Load() == before {
					t.Error("it was not tried again")
				}
				time.Sleep(3 * time.Minute)
				s.give("shard-0", "rewind", "shard-0", "--to", "5", "--order", "number", "--why", "test")
				if strings.Contains(s.give("", "ls"), "quarantined") {
					s.give("shard-0", "unquarantine", "shard-0", "--why", "test")
				}
				time.Sleep(3 * time.Minute)
				if out := s.give("", "get", "shard-0", "--positions"); !strings.Contains(out, `"8"`) || !strings.Contains(out, "held") {
					t.Errorf("after the rewind: %s", out)
				}
				s.end()
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
		s := newScene(t)
		s.list(1)
		for i := range 2 {
			s.start(fmt.Sprintf("host-%d", i), shardlease.Config{Observe: observe}, func(ctx context.Context, _ *shardlease.Tenure) error {
				if !second.Swap(true) {
					<-hung
				}
				<-ctx.Done()
				return nil
			})
		}
		time.Sleep(10 * time.Minute)
		before := s.owners()
		s.give("shard-0", "release", "shard-0", "--why", "test")
		time.Sleep(20 * time.Second)
		if after := s.owners(); after["shard-0"] == "" || after["shard-0"] == before["shard-0"] {
			t.Errorf("after the release: %v, before it: %v", after, before)
		}
		if e := <-running; e.Cause != event.CauseForced {
			t.Errorf("reported: %v", e)
		}
		close(hung)
		s.end()
	})
}

// TestFollow: what happens in a fleet is printed while it happens, and in order of time.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.list(4)
		s.start("host-0", shardlease.Config{}, idle)
		time.Sleep(time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		ended, out := make(chan struct{}), bytes.Buffer{}
		go func() {
			s.world.exec(ctx, &out, &out, "events", "--follow", "-o", "jsonl")
			close(ended)
		}()
		time.Sleep(10 * time.Second)
		s.start("host-1", shardlease.Config{}, idle)
		time.Sleep(time.Minute)
		stop()
		<-ended
		if s.code != 0 {
			t.Errorf("exit code %d", s.code)
		}
		handoffs, joined, last := 0, false, time.Time{}
		for line := range strings.Lines(out.String()) {
			var e struct {
				At             time.Time
				Event, Subject string
				Transfer       struct{ Reason, Mode string }
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if e.At.Before(last) || e.Event == "transfer" && !joined {
				t.Errorf("late: %s", line)
			}
			last, joined = e.At, joined || e.Event == "joined"
			if e.Event == "transfer" && e.Transfer.Reason == "handoff" && e.Transfer.Mode == "eager" {
				handoffs++
			}
		}
		if handoffs != 2 || !strings.Contains(out.String(), `"event":"joined","subject":"host-1"`) {
			t.Errorf("%d handoffs: %s", handoffs, out.String())
		}
		s.end()
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
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
			defer stop()
			s.world.exec(ctx, &out, &out, "events", "--follow", "-o", format)
			if s.code != 0 || !strings.Contains(out.String(), want) {
				t.Errorf("exit code %d: %s", s.code, out.String())
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
		w.seeds(t, "create shard-0")
		ctx, stop := context.WithCancel(t.Context())
		keyboard, hand := io.Pipe()
		var problems bytes.Buffer
		p := operatedBy(keyboard, io.Discard, &problems, w.tables, w.env)
		p.terminal = true
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
