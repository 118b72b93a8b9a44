// Package judge checks what a fleet does against the promises. Every world of the tests uses it: the simulator, the
// explorers, the storm, the measurement of large fleets, the engine's tests, and the real processes of integration.
//
// Of every accepted write of a lease row, [Accepted.Check] checks what the rows show:
//
//	S1  the accepted checkpoints of a shard are ordered by generation, and all writes under a
//	    generation are made by its owner
//	S2  no position moves back, and no transfer changes the checkpoint
//	S3  generations only grow, one generation has one owner, and no write is applied twice
//
// An operator's rewind and a removal are exceptions to S2. A [Judge] also remembers what two rows do not show: earlier
// writes, and in a [History] what became of each generation. A [Store] is a judge in front of a store.
//
// A world that sees workers, sessions or handlers also checks what they do. It passes what it alone knows in a narrow
// struct. For a fact that it does not know, it passes the value that excuses the worker:
//
//	[History.Start]      a tenure starts once, for its owner, where the stored position is (S2, S3)
//	[History.Committed]  a commit that is reported as accepted was stored (S4)
//	[End]                a handler is told to wind down, or a tenure ends, only for a reason (S4)
//	[Handover]           a worker takes a shard, or gives it up, only if it is entitled to (S4)
//	[Seats]              nobody is evicted before its time (S4)
//	[Revision]           no worker replaces a plan or a target by an earlier one
//	[Register]           accepted effects follow generations, and each generation has one process
package judge

import (
	"errors"
	"fmt"
	"maps"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An Accepted is a write of a lease row that a store has accepted.
type Accepted struct {
	Before lease.Row // the row before the write; zero if there was none
	After  lease.Row
	Write  lease.Write // zero if only the rows are known
	By     string      // the name of the worker that sent the write; empty if it is not known
}

// Check returns an error for every promise that the write has broken. Positions are compared by
// order.
func (a Accepted) Check(order checkpoint.Order) error {
	var faults []error
	switch is, was := a.After.Counter, a.Before.Counter; {
	case a.After.Compare(a.Before) <= 0:
		faults = append(faults, fmt.Errorf("S3: the row went back from %v to %v", a.Before, a.After))
	case is != was+1 && is != 1 && was > 0: // 1: a new row
		faults = append(faults, fmt.Errorf("S3: a write between %v and %v was applied twice, or was not seen", a.Before, a.After))
	}
	if a.After.Generation == a.Before.Generation && a.After.Owner != a.Before.Owner {
		faults = append(faults, fmt.Errorf("S3: generation %d had the owner %v, and now has %v", a.After.Generation, a.Before.Owner, a.After.Owner))
	}
	moved := a.Before.Checkpoint != a.After.Checkpoint
	if (moved && !a.rewinds() || a.After.Generation == a.Before.Generation) && !a.byOwner() {
		faults = append(faults, fmt.Errorf("S1: %v of %q was not made by the owner of %v", a.Write, a.By, a.Before))
	}
	if moved {
		faults = append(faults, a.checkpoint(order)...)
	}
	return errors.Join(faults...)
}

// checkpoint checks a write that has changed the checkpoint.
func (a Accepted) checkpoint(order checkpoint.Order) (faults []error) {
	was, is := a.Before.Checkpoint, a.After.Checkpoint
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if a.Write.Op == lease.OpTransfer {
		fault("S2: %v moved the checkpoint", a.Write)
	}
	if a.After.Removed || a.rewinds() {
		return faults
	}
	if is.Generation < was.Generation {
		fault("S1: a checkpoint of generation %d was stored over one of %d", is.Generation, was.Generation)
	}
	if is.Generation != a.Before.Generation || a.Before.Owner.IsZero() {
		fault("S1: a checkpoint of generation %d was stored while the row was %v", is.Generation, a.Before)
	}
	if is.Mark == was.Mark {
		return faults // progress without a mark
	}
	if err := order.Advance(a.After.Shard, was.Mark, is.Mark); err != nil {
		fault("S2: %w", err)
	}
	return faults
}

// byOwner reports whether the owner of the row before made the write, if there was one, and as far as that is known.
func (a Accepted) byOwner() bool {
	if a.Before.Owner.IsZero() {
		return true
	}
	if a.By != "" && a.By != a.Before.Owner.Name {
		return false
	}
	old, _ := a.Write.Old.(lease.Row)
	return a.Write.Op == 0 || old.Owner == a.Before.Owner
}

// rewinds reports whether the write is an operator's rewind: it begins a generation without an owner.
func (a Accepted) rewinds() bool {
	return a.After.Owner.IsZero() && a.After.Generation > a.Before.Generation && a.After.Last.Reason == lease.ReasonForced && a.After.Last.Did == "rewound"
}

// A Judge checks the writes of the leases of one group, and remembers their history. It must see every write.
type Judge struct {
	History
	order checkpoint.Order
	rows  map[string]lease.Row
	// Invariant: a write that is in neither map was stored before the last two calls of Forget, or never.
	stored map[lease.WriteID]bool // the writes since the last call of Forget
	older  map[lease.WriteID]bool // the writes between the last two calls
}

// New returns a judge of an empty table. Positions are compared by order.
func New(order checkpoint.Order) *Judge {
	return &Judge{History{}, order, map[string]lease.Row{}, map[lease.WriteID]bool{}, map[lease.WriteID]bool{}}
}

// Clone returns a copy of the judge.
func (j *Judge) Clone() *Judge {
	return &Judge{maps.Clone(j.History), j.order, maps.Clone(j.rows), maps.Clone(j.stored), maps.Clone(j.older)}
}

// Accepted records a write by the worker of that name, and the row that resulted. It returns an
// error for every promise that the write has broken.
func (j *Judge) Accepted(w lease.Write, by string, after lease.Row) error {
	return j.saw(w.ID(), Accepted{Before: j.Row(after.Shard), After: after, Write: w, By: by})
}

// Saw is Accepted for a caller that knows only the id of the write.
func (j *Judge) Saw(id lease.WriteID, after lease.Row) error {
	return j.saw(id, Accepted{Before: j.Row(after.Shard), After: after})
}

func (j *Judge) saw(id lease.WriteID, a Accepted) error {
	var twice, two error
	if j.Stored(id) {
		twice = fmt.Errorf("S3: write %s was applied twice", id)
	}
	j.stored[id] = true
	j.rows[a.After.Shard] = a.After
	// Only a table that went back can hide this from Check.
	if of, known := j.History[TenureOf(a.After)]; known && of.Owner != a.After.Owner && a.Before.Generation != a.After.Generation {
		two = fmt.Errorf("S3: generation %d had the owner %v, and now has %v", a.After.Generation, of.Owner, a.After.Owner)
	}
	j.History.Saw(a, j.order)
	return errors.Join(twice, two, a.Check(j.order))
}

// Row returns the row of a shard as the last write left it; the zero row if there was none.
func (j *Judge) Row(shard string) lease.Row { return j.rows[shard] }

// Stored reports whether that write was stored and is not forgotten.
func (j *Judge) Stored(id lease.WriteID) bool { return j.stored[id] || j.older[id] }

// Forget forgets the ids of the writes before the previous call of Forget. The caller has to know that none of these
// writes is still under way. The history is never forgotten.
func (j *Judge) Forget() { j.older, j.stored = j.stored, map[lease.WriteID]bool{} }

// Restored tells the judge that the table went back in time, to these rows. A write that was stored before may then be
// stored once more. A generation keeps its owner.
func (j *Judge) Restored(rows []lease.Row) {
	clear(j.rows)
	clear(j.stored)
	clear(j.older)
	for _, r := range rows {
		j.rows[r.Shard] = r
	}
}
