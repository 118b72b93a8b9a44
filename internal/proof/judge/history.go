package judge

import (
	"errors"
	"fmt"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Tenure is a generation of a shard.
type Tenure struct {
	Shard      string
	Generation int64
}

// TenureOf returns the tenure of a row's present generation.
func TenureOf(r lease.Row) Tenure { return Tenure{r.Shard, r.Generation} }

// A History is what became of each generation of each shard.
type History map[Tenure]Generation

// A Generation is what became of one generation of a shard.
type Generation struct {
	Owner   lease.Owner // zero: nobody
	From    string      // the position that was stored when the generation began
	Last    string      // the last position that was accepted in it
	Started bool        // a handler was started in it
	Ended   Ended
}

// Ended is how an owner's generation ended; zero: it has not.
type Ended struct {
	Reason lease.Reason
	Given  bool  // by its owner, not by another worker or an operator
	Next   int64 // the generation that began
}

// EndOf returns how a generation ended, as far as the row of its shard still shows it.
func EndOf(t Tenure, row lease.Row) (e Ended) {
	for _, past := range append(row.History(), row.Last) {
		if g := past.Generation; g > t.Generation && (e.Next == 0 || g < e.Next) {
			e = Ended{Reason: past.Reason, Next: g}
		}
	}
	return e
}

// Saw records an accepted write.
func (h History) Saw(a Accepted, order checkpoint.Order) {
	t := TenureOf(a.After)
	of := h[t]
	of.Owner = a.After.Owner
	if a.After.Generation > a.Before.Generation {
		of.From = a.After.Checkpoint.Position
		if !a.Before.Owner.IsZero() {
			old := h[TenureOf(a.Before)]
			old.Ended = Ended{a.After.Last.Reason, a.Write.Op == lease.OpSwap && !a.After.Quarantined, a.After.Generation}
			h[TenureOf(a.Before)] = old
		}
	}
	h[t] = of
	if is := a.After.Checkpoint; is.Mark != a.Before.Checkpoint.Mark && !a.After.Removed && !a.Before.Removed {
		t = Tenure{a.After.Shard, is.Generation}
		of = h[t]
		if order.Advance(t.Shard, checkpoint.Mark{Position: of.Last}, is.Mark) == nil { // otherwise the table went back
			of.Last = is.Position
		}
		h[t] = of
	}
}

// Start checks that a tenure starts once, for its owner, and where the stored position is, and records the start.
func (h History) Start(t Tenure, by lease.Incarnation, from string) error {
	of := h[t]
	var again, other, moved error
	if of.Started {
		again = fmt.Errorf("S3: %v was started before", t)
	}
	if of.Owner.Incarnation != by {
		other = fmt.Errorf("S3: %v is started by %s, and is %v's", t, by, of.Owner)
	}
	if of.From != from {
		moved = fmt.Errorf("S2: %v starts at %q, and %q is stored", t, from, of.From)
	}
	of.Started = true
	h[t] = of
	return errors.Join(again, other, moved)
}

// Committed checks that a position was stored in a tenure.
func (h History) Committed(t Tenure, position string, order checkpoint.Order) error {
	if last := h[t].Last; order.Advance(t.Shard, checkpoint.Mark{Position: position}, checkpoint.Mark{Position: last}) != nil {
		return fmt.Errorf("S4: position %s of %v is reported as accepted, but %q is stored", position, t, last)
	}
	return nil
}
