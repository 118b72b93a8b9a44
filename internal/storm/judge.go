package storm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Judge is placed directly in front of a store that always answers. It sees every write that
// reaches the store, and checks what was stored against the promises:
//
//	S1  accepted checkpoints of a shard are ordered by generation, and made by
//	    the owner of that generation
//	S2  no position moves back; a new generation starts from the stored one
//	S3  generations only grow, and one generation has one owner
//	    and no write is applied twice
//
// A rewind by an operator and a removal are exceptions to S2 and are accepted. Seats are not
// checked, because nothing is promised about them except time.
type Judge struct {
	store lease.Store
	order checkpoint.Order

	mu     sync.Mutex
	rows   map[lease.Key]lease.Row
	owners map[lease.Key]map[int64]lease.Owner
	stored map[lease.WriteID]bool
	faults []error
}

var _ lease.Store = (*Judge)(nil)

// NewJudge returns a judge of an empty store. Positions are compared by order.
func NewJudge(store lease.Store, order checkpoint.Order) *Judge {
	return &Judge{
		store: store, order: order,
		rows:   map[lease.Key]lease.Row{},
		owners: map[lease.Key]map[int64]lease.Owner{},
		stored: map[lease.WriteID]bool{},
	}
}

// Clone returns a copy of the judge in front of a copy of the store.
func (j *Judge) Clone(store lease.Store) *Judge {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := NewJudge(store, j.order)
	c.rows, c.stored, c.faults = maps.Clone(j.rows), maps.Clone(j.stored), slices.Clone(j.faults)
	for key, owners := range j.owners {
		c.owners[key] = maps.Clone(owners)
	}
	return c
}

// Err returns an error for every promise that was broken.
func (j *Judge) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.faults...)
}

// Stored reports whether that write of a lease row was stored.
func (j *Judge) Stored(id lease.WriteID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stored[id]
}

// Count returns how many writes of lease rows were stored.
func (j *Judge) Count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.stored)
}

// Write passes w to the store and checks the result.
func (j *Judge) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r, err := j.store.Write(ctx, w)
	if err != nil {
		return r, err
	}
	if after, ok := r.(lease.Row); ok {
		before := j.rows[w.Key()]
		j.judge(w.ID(), after)
		if w.Op == lease.OpTransfer && after.Checkpoint != before.Checkpoint {
			j.fault("S2: %v moved the checkpoint", w)
		}
		old, _ := w.Old.(lease.Row)
		if !before.Owner.IsZero() && after.Checkpoint != before.Checkpoint && old.Owner != before.Owner {
			j.fault("S1: %v was not made by the owner of %v", w, before)
		}
	}
	return r, nil
}

// Saw checks a write that was stored, and the row that resulted. It is for a caller that sees
// more of the store than the judge. The caller must not omit any write.
func (j *Judge) Saw(id lease.WriteID, after lease.Row) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.judge(id, after)
}

func (j *Judge) fault(format string, args ...any) {
	j.faults = append(j.faults, fmt.Errorf(format, args...))
}

func (j *Judge) judge(id lease.WriteID, after lease.Row) {
	if j.stored[id] {
		j.fault("write %s was applied twice", id)
	}
	j.stored[id] = true
	key := after.Key()
	before := j.rows[key]
	j.rows[key] = after
	if after.Compare(before) <= 0 {
		j.fault("S3: the row went back from %v to %v", before, after)
	}
	owners := j.owners[key]
	if owners == nil {
		owners = map[int64]lease.Owner{}
		j.owners[key] = owners
	}
	if owner, known := owners[after.Generation]; known && owner != after.Owner {
		j.fault("S3: generation %d had the owner %v, and now has %v", after.Generation, owner, after.Owner)
	}
	owners[after.Generation] = after.Owner
	j.judgeCheckpoint(before, after)
}

func (j *Judge) judgeCheckpoint(before, after lease.Row) {
	was, is := before.Checkpoint, after.Checkpoint
	if was == is || after.Removed {
		return
	}
	if after.Generation > before.Generation && after.Owner.IsZero() && after.Last.Reason == lease.ReasonForced {
		return // a rewind
	}
	if is.Generation < was.Generation {
		j.fault("S1: a checkpoint of generation %d was stored over one of %d", is.Generation, was.Generation)
	}
	if is.Generation != before.Generation || before.Owner.IsZero() {
		j.fault("S1: a checkpoint of generation %d was stored while the row was %v", is.Generation, before)
	}
	if is.Mark == was.Mark {
		return // progress without a mark
	}
	if err := j.order.Advance(after.Shard, was.Mark, is.Mark); err != nil {
		j.fault("S2: %w", err)
	}
}

// Verify passes the call to the store.
func (j *Judge) Verify(ctx context.Context, group string) error { return j.store.Verify(ctx, group) }

// List passes the call to the store.
func (j *Judge) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return j.store.List(ctx, q)
}

// Get passes the call to the store.
func (j *Judge) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	return j.store.Get(ctx, k)
}
