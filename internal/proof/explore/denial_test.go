package explore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/explore"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestDeniedReads: reads of one worker of three fail, or of all, while their writes are stored; a worker dies, and one
// leaves. From every state, each shard that a worker has left is served again. If single reads or listings fail, the
// bound is that of docs/reliability.md, and otherwise the sum for a crash and for a worker that does not follow. While
// no worker can find out what is free, shards without a worker wait. A worker keeps what it held when its reads began
// to fail.
func TestDeniedReads(t *testing.T) {
	for _, s := range fixture.Sample(6, denialStories()) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			visit(t, s, max(states()/700, fixture.Size(8, 30)))
		})
	}
}

func denialStories() (all []explore.Story) {
	for _, method := range []string{"Get", "List", "Get and List"} {
		for _, who := range []string{"the first", "the last", "all"} {
			for _, what := range []string{"rows", "targets", "all", "seats"} {
				for _, since := range []time.Duration{0, explore.TTL + beat} { // before the workers report it, and after
					all = append(all, denialStory(method, who, what, since))
				}
			}
		}
	}
	return all
}

// The bounds are those of docs/design.md, docs/operations.md and docs/reliability.md.
const (
	beat    = explore.TTL / 3
	crash   = explore.TTL + beat + time.Second/2 // a shard of a dead worker is free, and the plan gives it to another
	follows = explore.TTL + beat + 2*time.Second // that worker does not take it, and the shard goes to the next
	alone   = explore.TTL + follows              // both, if one method of the table fails
)

func denialStory(method, who, what string, since time.Duration) explore.Story {
	kinds := map[string][]lease.Kind{
		"rows": {lease.KindLease}, "targets": {lease.KindTarget}, "seats": {lease.KindSeat},
		"all": {lease.KindLease, lease.KindTarget, lease.KindSeat},
	}[what]
	workers := map[string][]int{"the first": {a}, "the last": {c}, "all": {a, b, c}}[who]
	gets, lists, within := kinds, kinds, crash+follows
	switch method {
	case "Get":
		lists, within = nil, alone
	case "List":
		gets, within = nil, alone
	}
	s := explore.Story{
		Name:    fmt.Sprintf("%s of %s by %s, for %v", method, what, who, since),
		Workers: 3, Shards: 6, Settled: 3, Mode: rebalance.Eager, Crashes: 1, Stops: 1, Mends: 1, For: 12 * time.Second,
		Goal: true, Within: within,
		Waits: lists != nil && (gets != nil || what != "rows"), // single reads replace a listing of rows
		Prelude: func(p *explore.Prelude) {
			for _, i := range workers {
				p.Deny(i, gets, lists)
			}
			p.Rest(since)
		},
	}
	// A planner that dies while its plan is open leaves one that no worker can replace until it can list the rows. So one
	// worker dies or leaves, and not both.
	if method == "List" && what == "rows" && who == "all" {
		if since == 0 {
			s.Stops = 0
		} else {
			s.Crashes = 0
		}
	}
	return s
}
