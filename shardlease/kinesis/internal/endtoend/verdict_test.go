package endtoend

import (
	"crypto/sha256"
	"maps"
	"slices"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// sound returns a history without a fault: six records of one key in a shard and its child.
func sound() history {
	h := history{ledger: newLedger(), unordered: map[string]bool{}, rows: map[string]lease.Row{}, shards: map[string]shard{
		"s/a": {closed: true, first: "1"}, "s/b": {parents: []string{"s/a"}, first: "7"}, "s/c": {closed: true, first: "9"},
	}}
	for i, sequence := range []string{"1", "2", "3", "7", "8", "10"} {
		d := sha256.Sum256([]byte(sequence))
		in := []string{"a", "b"}[i/3]
		h.record("s", "k", func(int) digest { return d })
		h.add("s/"+in, entry{sequence, i == 5, []packed{{2, d}}})
		h.effects = append(h.effects, effect{topic: "s", shard: in, key: "k", digest: d, generation: int64(i)})
	}
	for name, position := range map[string]string{"s/a": "3", "s/b": "10/2", "s/c": "9"} {
		row := lease.Row{Shard: name, Finished: name != "s/b"}
		row.Checkpoint.Position = position
		h.rows[name] = row
	}
	return h
}

// TestJudge: the judge finds each kind of fault, and none in a sound history.
func TestJudge(t *testing.T) {
	row := func(name string, edit func(*lease.Row)) func(*history) {
		return func(h *history) {
			r := h.rows[name]
			edit(&r)
			h.rows[name] = r
		}
	}
	for name, c := range map[string]struct {
		harm func(*history)
		want []string
	}{
		"nothing":                     {func(*history) {}, nil},
		"a record is lost":            {func(h *history) { h.effects = slices.Delete(h.effects, 1, 2) }, []string{"lost"}},
		"an effect happens twice":     {func(h *history) { h.effects = append(h.effects, h.effects[5]) }, []string{"twice"}},
		"bytes are changed":           {func(h *history) { h.effects[2].digest[0]++ }, []string{"changed", "lost"}},
		"a key is changed":            {func(h *history) { h.effects[2].key = "l" }, []string{"changed", "lost"}},
		"two records change places":   {func(h *history) { e := h.effects; e[0].digest, e[1].digest = e[1].digest, e[0].digest }, []string{"out of order"}},
		"a child is before its end":   {func(h *history) { h.effects[2].shard, h.effects[3].shard = "b", "a" }, []string{"before its parent"}},
		"a stale worker writes":       {func(h *history) { h.effects[2].generation = 0 }, []string{"stale"}},
		"a checkpoint is too early":   {row("s/a", func(r *lease.Row) { r.Checkpoint.Position = "2" }), []string{"checkpoint"}},
		"a checkpoint is too far":     {row("s/b", func(r *lease.Row) { r.Checkpoint.Position = "10" }), []string{"checkpoint"}},
		"an empty shard has none":     {row("s/c", func(r *lease.Row) { r.Checkpoint.Position = "" }), []string{"checkpoint"}},
		"a closed shard goes on":      {row("s/a", func(r *lease.Row) { r.Finished = false }), []string{"end of a shard"}},
		"an open shard is finished":   {row("s/b", func(r *lease.Row) { r.Finished = true }), []string{"end of a shard"}},
		"a shard is set aside":        {row("s/b", func(r *lease.Row) { r.Quarantined = true }), []string{"state of a row"}},
		"a row is missing":            {func(h *history) { delete(h.rows, "s/b") }, []string{"no row"}},
		"a row is of no shard":        {func(h *history) { h.rows["s/d"] = lease.Row{} }, []string{"no shard"}},
		"a copy is left out silently": {func(h *history) { h.foreign++ }, []string{"left out uncounted"}},
	} {
		h := sound()
		c.harm(&h)
		if v := judge(h); !slices.Equal(slices.Sorted(maps.Keys(v)), c.want) {
			t.Errorf("%s: %v, want %v", name, v, c.want)
		}
	}
}

// TestUncovered: a checkpoint is compared with the effects up to it, also in the middle of an entry.
func TestUncovered(t *testing.T) {
	h := sound()
	done := map[digest]bool{}
	for i, position := range []string{"1", "2", "3"} {
		for want := range 2 {
			if n, err := h.uncovered("s/a", position, func(d digest) bool { return done[d] }); n != 1-want || err != nil {
				t.Errorf("%s: %d, %v; want %d", position, n, err, 1-want)
			}
			done[h.puts[i].digest] = true
		}
	}
	for position, want := range map[string]int{"10/1": 2, "10/2": 3, "10": 3, "9": 2, "6": 0} {
		if n, err := h.uncovered("s/b", position, func(digest) bool { return false }); n != want || err != nil {
			t.Errorf("%s: %d, %v; want %d", position, n, err, want)
		}
	}
	for _, position := range []string{"x", "", "1/x", "-1"} {
		if _, err := h.uncovered("s/a", position, func(digest) bool { return true }); err == nil {
			t.Errorf("%q is a position", position)
		}
	}
}
