package tenuretest_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/tenuretest"
)

// consume is the handler under test: it processes three records.
func consume(_ context.Context, t *shardlease.Tenure) error {
	last, _ := strconv.Atoi(t.Checkpoint().Position)
	for n := last + 1; n <= last+3; n++ {
		if err := t.Mark(strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return nil
}

// checkConsume calls the handler with a tenure that starts at a checkpoint, and reads what it
// has stored.
func checkConsume(t *testing.T) {
	tenure := tenuretest.Begin(t, shardlease.Config{}, "shard-3", checkpoint.Mark{Position: "17"})
	if err := tenure.Call(consume); err != nil {
		t.Error(err)
	}
	row, err := tenure.Table.Get(t.Context(), "shard-3")
	if err != nil || row.Checkpoint.Position != "20" {
		t.Errorf("the checkpoint is at %q, %v", row.Checkpoint.Position, err)
	}
}

func ExampleBegin() {
	// In a bubble the test takes no time. TestConsume is the name of your test.
	var TestConsume = func(t *testing.T) { synctest.Test(t, checkConsume) }
	_ = TestConsume
}
