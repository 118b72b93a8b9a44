package inspect_test

import (
	"testing"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestMoveHasItsCause: a shard that is in a move shows why the plan moves it, as the target of its successor says: requested or
// offered, in a look at all shards and at one. Without a target that can be read, the cause is unknown. A look at a shard that
// does not move reads no target.
func TestMoveHasItsCause(t *testing.T) {
	cause := lease.MoveCause{Why: rebalance.Drained, Note: "by ann: disk is slow", Shards: []string{"shard-0"}}
	for name, c := range map[string]struct {
		moves func(of *table)
		pages int
		gets  int // of targets, by LookAt
		known bool
	}{
		"requested":       {func(of *table) { of.want("b", "shard-0", "eager") }, 1, 1, true},
		"offered":         {func(of *table) { of.rows["shard-0"].OfferedTo = "b-1" }, 1, 1, true},
		"in a later page": {func(of *table) { of.want("b", "shard-0", "eager") }, 3, 3, true},
		"of an unreadable target": {func(of *table) {
			of.want("b", "shard-0", "eager")
			of.bad = append(of.bad, of.targets[len(of.targets)-1].Key())
		}, 1, 1, false},
		"of another generation":    {func(of *table) { of.want("b", "shard-0", "eager"); of.seats["b"].Wants[0].Generation-- }, 1, 0, false},
		"nobody requests it":       {func(of *table) {}, 1, 0, false},
		"another shard is wanted":  {func(of *table) { of.want("b", "shard-2", "eager") }, 1, 0, false},
		"of a target that is gone": {func(of *table) { of.want("b", "shard-0", "eager"); of.targets = nil }, 1, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			of := settled(t)
			of.targets = nil
			for page := range c.pages {
				target := lease.Target{Group: group, Incarnation: "b-1", Page: int64(page), Pages: int64(c.pages), WriteID: "w", Revision: 2}
				if page == c.pages-1 {
					target.Hold, target.Causes = []lease.Assigned{{Shard: "shard-0"}}, []lease.MoveCause{cause}
				}
				of.targets = append(of.targets, target)
			}
			c.moves(of)
			of.gets = 0
			at, err := inspect.LookAt(t.Context(), of, group, "shard-0", inspect.Options{Now: of.clock})
			if err != nil || of.gets != 1+c.gets || len(at.Targets) > 0 {
				t.Errorf("%d gets, %d targets, %v", of.gets, len(at.Targets), err)
			}
			for _, s := range []*inspect.Snapshot{at, of.look()} {
				var got lease.MoveCause
				if m := s.Shard("shard-0").Move; m != nil {
					got = lease.MoveCause{Why: m.Why, Note: m.Note}
				}
				if known := got.Why == cause.Why && got.Note == cause.Note; known != c.known || !known && got.Why != 0 {
					t.Errorf("the cause is %v %q", got.Why, got.Note)
				}
			}
		})
	}
}
