package shardlease_test

import (
	"context"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// In these tests workers live and do not work. Each fault is one event of the worker while it lasts.

// TestSilentIsReported: handlers neither mark nor call Progress. After five minutes one event says so
// for all of them, and they keep their shards.
func TestSilentIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := staged(t, 3, shardlease.Config{Handoff: rebalance.Eager}, serve, "a")
		a := s.actor("a")
		time.Sleep(4*time.Minute + 30*time.Second)
		if n := len(a.of(event.Silent)); n > 0 {
			t.Errorf("%d reports before five minutes", n)
		}
		time.Sleep(time.Minute)
		if events := a.of(event.Silent); len(events) == 0 || events[0].Count != 3 || len(a.of(event.Ended)) > 0 {
			t.Errorf("reported: %v; ended: %v", events, a.of(event.Ended))
		}
	})
}

// TestFullIsReported: no worker has room for two of six shards. One worker reports it, and reports its
// end when a worker with room has joined.
func TestFullIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStage(t, 6)
		config := shardlease.Config{Handoff: rebalance.Eager, MaxShards: 2}
		a, b := s.enter("a", config, nil), s.enter("b", config, nil)
		time.Sleep(time.Minute)
		events := append(a.of(event.Full), b.of(event.Full)...)
		if len(events) == 0 || events[0].Count != 2 || len(events[0].Shards) != 2 || events[0].Over {
			t.Fatalf("reported: %v", events)
		}
		if len(a.of(event.Full)) > 0 && len(b.of(event.Full)) > 0 {
			t.Error("both workers report that the fleet is full")
		}
		s.enter("c", config, nil)
		time.Sleep(2 * beat)
		events = append(a.of(event.Full), b.of(event.Full)...)
		if last := events[len(events)-1]; !last.Over || last.Lasted < 50*time.Second {
			t.Errorf("the last report: %v", last)
		}
	})
}

// TestUnwellIsReported: all handlers of one worker fail, whatever the shard. It reports that it is
// unwell, its Healthy returns an error, and the other worker processes everything.
func TestUnwellIsReported(t *testing.T) {
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
