package inspect

import (
	"cmp"
	"slices"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Tally counts how the tenures of the workers or sessions with one name have ended, for one task.
type Tally struct {
	Worker, Task string
	// Released is how many tenures their holder ended, or handed over, or did not hand over in time.
	Released int
	Expired  int // how many ended because the holder was evicted: it had died or paused
	Forced   int // how many a command ended, or the adoption of a restored table
}

// Tallies counts how tenures have ended, as far as the rows remember: each row keeps the last changes of
// hands that fit in it, two or more, so the counts of a worker with quiet shards reach further back than those of
// one with busy shards. Removed rows are not counted. Compare the numbers of one tally, and not those of
// two. The list is sorted by worker and task.
func (s *Snapshot) Tallies() []Tally {
	var list []Tally
	at := map[[2]string]int{}
	for i := range s.Shards {
		row := &s.Shards[i].Row
		for _, t := range append(row.History(), row.Last) {
			if t.From == "" { // nobody held the shard
				continue
			}
			name := [2]string{t.From, t.Task}
			if _, known := at[name]; !known {
				at[name] = len(list)
				list = append(list, Tally{Worker: t.From, Task: t.Task})
			}
			list[at[name]].add(t.Reason)
		}
	}
	slices.SortFunc(list, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Task, b.Task))
	})
	return list
}

// add counts a tenure that has ended for that reason.
func (t *Tally) add(reason lease.Reason) {
	switch reason {
	case lease.ReasonExpired:
		t.Expired++
	case lease.ReasonForced, lease.ReasonAdopted:
		t.Forced++
	default:
		t.Released++
	}
}
