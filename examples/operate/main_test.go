package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
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
		give := func(args ...string) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			out.Reset()
			if err := command(t.Context(), s, "because", args, &out); err != nil {
				t.Fatal(args, err)
			}
		}
		shows := func(text string) {
			t.Helper()
			if !strings.Contains(out.String(), text) {
				t.Errorf("no %q in %q", text, out.String())
			}
		}
		give("list")
		shows("held by a")
		give("workers")
		shows("lease time 10s")
		give("quarantine", "shard-0")
		shows("quarantined")
		give("rewind", "shard-0", "5")
		shows(`free`)
		give("release", "shard-0")
		shows("forced by ann")
		time.Sleep(3 * time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(began)
		var starts []string
		for position := range began {
			starts = append(starts, position)
		}
		if got := strings.Join(starts, ","); got != ",5,9" {
			t.Errorf("tenures started at %s", got)
		}
		if err := command(t.Context(), s, "", []string{"release", "shard-0"}, &out); err == nil {
			t.Error("a command without a reason was carried out")
		}
	})
}
