package shardlease_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// In these tests workers live and do not work. Each fault is one event of the worker while it lasts.

// TestUnlistedIsReported: the source lists two of four shards no more. With KeepUnlisted they are processed as
// before, and one worker reports them until the source lists one of them again and the other is quarantined. A shard that
// only the other worker's source lists yet is not reported.
func TestUnlistedIsReported(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 5)
		var all []shardlease.Shard
		for _, name := range s.names() {
			all = append(all, shardlease.Shard{Name: name})
		}
		var lists [2]atomic.Pointer[[]shardlease.Shard]
		list := func(worker int, shards []shardlease.Shard) { lists[worker].Store(&shards) }
		enter := func(worker int, name string) *actor {
			s.source = shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) { return *lists[worker].Load(), nil })
			return s.enter(name, shardlease.Config{Handoff: rebalance.Eager, PollEvery: 10 * time.Second, AuditEvery: 10 * time.Second, KeepUnlisted: true}, nil)
		}
		list(0, all[:4])
		list(1, all[:4])
		a := enter(0, "a")
		time.Sleep(10 * time.Second)
		b := enter(1, "b")
		reports := func() []event.Event { return append(a.of(event.Unlisted), b.of(event.Unlisted)...) }
		time.Sleep(time.Minute)
		list(1, all)
		time.Sleep(20 * time.Second)
		list(0, all)
		time.Sleep(5 * time.Minute)
		if events := reports(); len(events) > 0 {
			t.Fatalf("reported while all are listed: %v", events)
		}
		list(0, all[:3])
		list(1, all[:3])
		time.Sleep(25 * time.Second)
		events := reports()
		if len(events) == 0 || events[0].Count != 2 || !slices.Equal(events[0].Shards, []string{all[3].Name, all[4].Name}) || events[0].Over {
			t.Fatalf("reported: %v", events)
		}
		time.Sleep(3 * time.Minute)
		if events = reports(); slices.ContainsFunc(events, func(e event.Event) bool { return e.Over }) || len(a.of(event.Unlisted)) != len(events) {
			t.Errorf("reported as over, or by both workers: %v", events)
		}
		if len(a.of(event.Ended))+len(b.of(event.Ended)) > 2 { // those that b took over
			t.Error("a tenure has ended")
		}
		supervisor := shardlease.Supervisor{Store: s.store, Group: "orders", By: "ann"}
		if _, err := supervisor.Quarantine(t.Context(), all[4].Name, s.row(all[4].Name).Generation, "it is gone"); err != nil {
			t.Fatal(err)
		}
		list(0, all[:4])
		list(1, all[:4])
		time.Sleep(time.Minute)
		if events = reports(); !events[len(events)-1].Over {
			t.Errorf("the last report: %v", events[len(events)-1])
		}
	})
}

// TestUnwellIsReported: all handlers of one worker fail, whatever the shard. It reports that it is
// unwell, its Healthy returns an error, and the other worker processes everything.
func TestUnwellIsReported(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 8)
		config := shardlease.Config{Handoff: rebalance.Eager}
		sick := s.enter("sick", config, func(context.Context, *shardlease.Tenure) error { return errDown })
		well := s.enter("well", config, nil)
		s.within(2*time.Minute, "the well worker processes everything", func() bool { return s.running()["well"] == 8 })
		if events := sick.of(event.Unwell); len(events) == 0 || events[0].Over {
			t.Errorf("reported: %v", events)
		}
		if err := sick.Healthy(); err == nil {
			t.Error("the sick worker is healthy")
		}
		if err := well.Healthy(); err != nil || len(well.of(event.Unwell)) > 0 {
			t.Errorf("the well worker: %v, %v", err, well.of(event.Unwell))
		}
	})
}
