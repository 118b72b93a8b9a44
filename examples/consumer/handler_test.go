package main

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/tenuretest"
)

// TestHandlerWindsDown: the worker shuts down after a second. The handler has to return soon,
// and its last mark has to be in the table.
func TestHandlerWindsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(effects)
		tn := tenuretest.Begin(t, shardlease.Config{}, "shard-0", checkpoint.Mark{Position: "17"})
		time.AfterFunc(time.Second, tn.Stop)
		began := time.Now()
		err := tn.Call(log.handle)
		if took := time.Since(began); err != nil || took > 2*time.Second {
			t.Errorf("the handler returned %v after %v", err, took)
		}
		row, err := tn.Table.Get(t.Context(), "shard-0")
		if want := strconv.Itoa(17 + log.len()); err != nil || row.Checkpoint.Position != want {
			t.Errorf("the checkpoint is at %q and not at %s: %v", row.Checkpoint.Position, want, err)
		}
	})
}
