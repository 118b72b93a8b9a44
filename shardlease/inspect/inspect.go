// Package inspect shows the state of a fleet from outside: which worker holds which shard, which
// shards are moving, what is wrong, and what to do about it. It reads the lease table, writes
// nothing, and needs no worker.
//
// [Look] takes a [Snapshot] of a group, and [Snapshot.Warnings] lists what is wrong with it. [Diff] lists the changes
// between two snapshots. [Watch] looks again and again, at about the cost of one more worker.
//
// # Told and observed
//
// A single look knows ages only from the times that workers stored, by their own wall clocks. Such
// an age is told. From the second look on, an [Observer] measures with the reader's own clock. Such
// an age is observed. Warnings allow told ages a minute of clock difference. Some ages are stored
// nowhere, for example how long a request stands. Only an Observer knows them.
package inspect

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Lister is the part of [lease.Store] that inspection needs. It cannot write.
//
// The Verify of some stores records the identity of the table for a group that has no rows yet.
// This package therefore verifies only groups that have rows.
type Lister interface {
	List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error]
	Get(ctx context.Context, k lease.Key) (lease.Record, error)
	Verify(ctx context.Context, group string) error
}

var _ Lister = lease.Store(nil)

// Options are the settings of one look. The zero Options are ready to use.
type Options struct {
	Now func() time.Time // the reader's clock; nil: time.Now
	// Consistent makes the look read the rows consistently, at twice the price. Otherwise the rows
	// may be some seconds old. The seats are always read consistently.
	Consistent bool
	// NoTargets leaves out the target assignments, which are a query of their own. The targets of
	// shards are unknown then.
	NoTargets bool
	// Ends is how far back Snapshot.Ends reaches, in whole hours. Default a day; negative: there are none.
	Ends time.Duration
	// MaxBackoff is the longest rest of a failed shard, as the workers are configured. No row and no
	// seat has it. Default 5 min, or the backoff of the workers if that is longer.
	MaxBackoff time.Duration
	// Quiet is how long a held shard may go without an accepted checkpoint before the no-progress
	// warning reports it, although its worker reports no silent handler. Default 15 min; negative:
	// forever.
	Quiet time.Duration
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// Look reads the rows of a group, then the seats with the plan and the wishes, then the targets and the counts of
// ends, and verifies the table. A group that has no records gives an empty snapshot.
func Look(ctx context.Context, l Lister, group string, o Options) (*Snapshot, error) {
	r := reading{ctx: ctx, from: l, group: group, options: o}
	if err := r.readRows(); err != nil {
		return nil, err
	}
	if err := r.readSeats(); err != nil {
		return nil, err
	}
	if err := r.readTargets(); err != nil {
		return nil, err
	}
	if err := r.readEnds(); err != nil {
		return nil, err
	}
	if err := r.verify(); err != nil {
		return nil, err
	}
	return r.snapshot(), nil
}

// LookAt reads the row of one shard, the rows of its parents, the seats with the plan and the
// wishes, and of a shard that moves the target of its successor. It returns [lease.ErrNotFound] if the shard has no row, and shows a removed shard as
// [Removed]. A parent that cannot be read is listed in Snapshot.Unreadable. The snapshot has the
// shard and its parents; [Snapshot.Shard] finds the shard. Its reads of rows are consistent.
func LookAt(ctx context.Context, l Lister, group, shard string, o Options) (*Snapshot, error) {
	r := reading{ctx: ctx, from: l, group: group, options: o, partial: true}
	row, err := r.readRow(shard)
	if err != nil {
		return nil, fmt.Errorf("look at shard %q: %w", shard, err)
	}
	for _, parent := range row.Parents {
		if err := r.readParent(parent); err != nil {
			return nil, fmt.Errorf("look at parent %q of shard %q: %w", parent, shard, err)
		}
	}
	r.rowsAt = o.now()
	if err := r.readSeats(); err != nil {
		return nil, err
	}
	if err := r.readMove(row); err != nil {
		return nil, err
	}
	if err := r.verify(); err != nil {
		return nil, err
	}
	return r.snapshot(), nil
}
