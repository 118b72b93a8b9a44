package endtoend

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A shard is a shard as Kinesis lists it in the end.
type shard struct {
	parents []string // leases
	closed  bool
	first   string // its first sequence number
}

// A history is what is left of a run. Shards and rows have the names of their leases.
type history struct {
	*ledger
	unordered map[string]bool // topics whose keys have no order
	effects   []effect
	shards    map[string]shard
	rows      map[string]lease.Row
	left      int // packed records that consumers have counted as those of other shards
}

// A verdict is what is wrong, by kind.
type verdict map[string][]string

func (v verdict) add(kind, format string, args ...any) {
	v[kind] = append(v[kind], fmt.Sprintf(format, args...))
}

// String returns the number and the first examples of each kind.
func (v verdict) String() string {
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(v)) {
		lines = append(lines, fmt.Sprintf("%s, %d times: %s", kind, len(v[kind]), strings.Join(v[kind][:min(3, len(v[kind]))], "; ")))
	}
	return strings.Join(lines, "\n")
}

// judge returns what is wrong with a history.
func judge(h history) verdict {
	v := verdict{}
	h.judgeEffects(v)
	h.judgeShards(v)
	h.judgeRows(v)
	if h.left < h.foreign {
		v.add("left out uncounted", "%d of %d packed records of other shards are counted", h.left, h.foreign)
	}
	return v
}

// judgeEffects: each record that was put has one effect, with its bytes and its key, and after the records of its key
// that were put before it.
func (h history) judgeEffects(v verdict) {
	puts := map[digest]put{}
	for _, p := range h.puts {
		puts[p.digest] = p
	}
	times, last := map[digest]int{}, map[string]int{}
	for _, e := range h.effects {
		p, known := puts[e.digest]
		if !known || p.topic != e.topic || p.key != e.key {
			v.add("changed", "an effect of key %q in shard %s of %s", e.key, e.shard, e.topic)
			continue
		}
		if times[e.digest]++; times[e.digest] > 1 {
			v.add("twice", "record %d of key %q in %s", p.number, p.key, p.topic)
			continue
		}
		if p.key == "" || h.unordered[p.topic] {
			continue
		}
		at := p.topic + "/" + p.key
		if p.number < last[at] {
			v.add("out of order", "record %d of key %q in %s is after record %d", p.number, p.key, p.topic, last[at])
		}
		last[at] = max(last[at], p.number)
	}
	for _, p := range h.puts {
		if times[p.digest] == 0 {
			v.add("lost", "record %d of key %q in %s", p.number, p.key, p.topic)
		}
	}
}

// judgeShards: the effects of a shard have rising generations, and are after all effects of its parents.
func (h history) judgeShards(v verdict) {
	generations, ends := map[string]int64{}, map[string]int{}
	for i, e := range h.effects {
		of := e.topic + "/" + e.shard
		if e.generation < generations[of] {
			v.add("stale", "an effect of generation %d in %s is after one of generation %d", e.generation, of, generations[of])
		}
		generations[of], ends[of] = max(generations[of], e.generation), i
	}
	early := map[string]bool{}
	for i, e := range h.effects {
		of := e.topic + "/" + e.shard
		for _, parent := range h.shards[of].parents {
			if end, begun := ends[parent]; begun && i < end && !early[of] {
				early[of] = true
				v.add("before its parent", "%s begins before %s has ended", of, parent)
			}
		}
	}
}

// judgeRows: the row of each shard has the position of its last record, and is finished if the shard is closed. It is not
// set aside.
func (h history) judgeRows(v verdict) {
	for name, is := range h.shards {
		row, there := h.rows[name]
		want := h.last(name)
		if want == "" && is.closed {
			want = is.first
		}
		switch {
		case !there && want != "":
			v.add("no row", "%s", name)
		case row.Finished != is.closed:
			v.add("end of a shard", "%s: closed %t, finished %t", name, is.closed, row.Finished)
		case row.Quarantined || row.Removed:
			v.add("state of a row", "%s: quarantined %t, removed %t", name, row.Quarantined, row.Removed)
		case row.Checkpoint.Position != want:
			v.add("checkpoint", "%s is at %q, and its last record at %q", name, row.Checkpoint.Position, want)
		}
	}
	for _, name := range append(h.leases(), slices.Collect(maps.Keys(h.rows))...) {
		if _, there := h.shards[name]; !there {
			v.add("no shard", "%s", name)
		}
	}
}
