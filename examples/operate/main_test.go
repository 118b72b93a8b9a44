package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestCommands executes every command while a fleet runs.
func TestCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memstore.Store)
		began := make(chan string, 100)
		w, err := shardlease.New(store, shardlease.Static("shard-0"), shardlease.Config{Group: "orders", Name: "a", Handoff: rebalance.Eager, Backoff: -1})
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
			return command(t.Context(), s, order{"because", generation}, args, &out)
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
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(began)
		var starts []string
		for position := range began {
			starts = append(starts, position)
		}
		if got := strings.Join(starts, ","); got != ",3,5,9,9" {
			t.Errorf("tenures started at %s", got)
		}
		if err := command(t.Context(), s, order{generation: 1}, []string{"release", "shard-0"}, &out); err == nil {
			t.Error("a command without a reason was carried out")
		}
	})
}
