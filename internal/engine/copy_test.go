package engine

import (
	"testing"
	"time"
)

// TestCloneKeepsItsFeed: what a clone learns of the source does not change the engine from which it was made.
func TestCloneKeepsItsFeed(t *testing.T) {
	e := New(Config{Group: "g", Name: "a", TTL: 10 * time.Second}, Moment{Mono: 1})
	e.feed.shards = []sourced{{Shard: Shard{Name: "s1"}}, {Shard: Shard{Name: "s2"}}}
	c := e.Clone()
	c.feed.bar("s1")
	if !c.feed.bars(&c.turn, "s1") {
		t.Error("the clone does not bar s1")
	}
	if e.feed.bars(&e.turn, "s1") {
		t.Error("the original bars s1")
	}
	c.feed.only(func(name string) bool { return name == "s2" })
	if e.feed.find("s1") == nil {
		t.Errorf("the original has lost s1: %+v", e.feed.shards)
	}
}
