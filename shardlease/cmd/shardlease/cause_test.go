package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
)

// TestWhoDrainedThisHost: the commands of docs/operations.md show that an operator drained a host, the operator's name and the
// reason: before the shards move, while they move, and afterwards, also when they have moved on.
func TestWhoDrainedThisHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.list(6)
		for i := range 3 {
			s.start(fmt.Sprintf("worker-%d", 5+i), shardlease.Config{}, func(ctx context.Context, _ *shardlease.Tenure) error {
				<-ctx.Done()
				time.Sleep(10 * time.Second)
				return nil
			})
		}
		time.Sleep(2 * time.Minute)
		before := s.owners()
		drained := ""
		for shard, owner := range before {
			if owner == "worker-7" {
				drained = shard
			}
		}
		s.give("", "drain", "worker-7", "--why", "disk is slow", "--by", "ann", "--yes")
		shows := func(want string, args ...string) {
			t.Helper()
			if out := s.give("", args...); !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%v shows no %q:\n%s", args, want, out)
			}
		}
		shows(`CAUSE +NOTE\n.*\n?`+drained+` +worker-7 +worker-7 +worker-[56] +drain +by ann: disk is slow`, "plan")
		shows(`"cause": "drain",\s+"note": "by ann: disk is slow"`, "plan", "-o", "json")
		time.Sleep(10 * time.Second)
		shows(`move +requested to worker-[56], eager, drain \(by ann: disk is slow\)`, "get", drained)
		shows(`"mode": "eager",\s+"cause": "drain",\s+"note": "by ann: disk is slow",`, "get", drained, "-o", "json")
		shows(`requested to worker-[56], eager, drain`, "ls", "-o", "wide")
		time.Sleep(20 * time.Second)
		shows(`last change +handoff: eager, drain at .* from worker-7 by worker-7 \(by ann: disk is slow\)`, "get", drained)
		shows(`handoff: eager, drain +worker-7 +worker-7 +by ann: disk is slow`, "history", "--since", "1h")
		shows(`"cause": "drain",\s+"note": "by ann: disk is slow"`, "history", drained, "-o", "json")
		shows(`handoff: eager, drain from "worker-7" at .* \(by ann: disk is slow\)`, "events", "--since", "1h")
		s.give("", "lift", "drain", "worker-7", "--yes")
		time.Sleep(2 * time.Minute)
		s.leave("worker-5", "worker-6")
		shows(`handoff: eager, leaving +worker-[56] +worker-[56] +-\n`, "history", "--since", "1h")
		shows(`handoff: eager, drain +worker-7 +worker-7 +by ann: disk is slow`, "history", drained)
		s.end()
		if page := manual(t, "why-a-shard-has-moved"); !strings.Contains(page, "handoff: eager, drain  worker-7  worker-7  by ann: disk is slow") {
			t.Error("the page shows another line")
		}
	})
}
