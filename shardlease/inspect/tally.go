package inspect

import (
	"cmp"
	"slices"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Tally counts how the tenures of the workers or sessions with one name have ended, for one task.
type Tally struct {
	Worker, Task string
	// Released counts the tenures that the holder released, finished, failed or handed over, and those that
	// a successor took over because the holder did not hand over in time.
	Released int
	Expired  int // the tenures that ended because the holder was evicted: it had died, or was paused
	Forced   int // the tenures that a command has ended, or the adoption of a restored table
}

// Tallies counts how tenures have ended, as far as the rows remember. Each row keeps as many of the last
// changes of hands as fit in it, at least two. So the counts for a worker whose shards rarely change hands
// reach further back than those for another worker: compare the numbers within one tally, and not those of
// two tallies. Tallies does not count removed rows. The list is sorted by worker and task.
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
	switch protocol.EndingOf(reason) {
	case protocol.Evicted:
		t.Expired++
	case protocol.Commanded:
		t.Forced++
	default:
		t.Released++
	}
}
