package shardlease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Finish marks a shard as finished at its checkpoint: nobody claims it again, and its children may start. It is for a
// shard whose remaining records nobody needs, or nobody can read any more. If a worker holds the shard, the same write
// takes it from that worker, whose writes are refused afterwards. A quarantine ends. Rewind makes the shard unfinished
// again.
//
// In the row, the reason is [lease.ReasonForced], unlike that of [Tenure.Finish].
func (s Supervisor) Finish(ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
	row, ended, err := s.command(ctx, "finish", shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Conclude(row, s.stated(seen, why), st)
	})
	return s.announced(ctx, lease.Act{Did: "finish", Why: why}, row, ended, err)
}

// Rewind moves the checkpoint of a shard, in either direction; a zero mark rewinds it to the very
// beginning. A finished shard is unfinished afterwards, and a quarantined one stays quarantined. If a worker holds the
// shard, the same write takes it from that worker, whose commits are refused afterwards.
func (s Supervisor) Rewind(ctx context.Context, shard string, seen int64, to checkpoint.Mark, why string) (lease.Row, error) {
	if err := ordered(s.Order, s.key(shard), to); err != nil {
		return lease.Row{}, err
	}
	row, ended, err := rewind(ctx, s, shard, seen, to, why)
	return s.announced(ctx, lease.Act{Did: "rewind", Why: why}, row, ended, err)
}

// RewindAll rewinds every shard of the group that is not finished, each as [Supervisor.Rewind] does. It returns the
// rewound rows; the error names the shards that it could not rewind. If it is interrupted, some shards are rewound and
// the others are not: call it again. One wish of the kind "look" makes the workers list all rows; in a fleet of more than eight
// workers they notice within a lease time more than a command for one shard.
//
// A pause has to stand ([Supervisor.Pause]), so that no shard moves meanwhile. Otherwise RewindAll returns a
// [*lease.RuleError], and writes nothing.
func (s Supervisor) RewindAll(ctx context.Context, to checkpoint.Mark, why string) ([]lease.Row, error) {
	err := s.check(true)
	if err == nil {
		err = ordered(s.Order, s.key("*"), to)
	}
	if err == nil {
		err = paused(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	rows, err := s.List(ctx)
	errs := []error{err}
	var rewound []lease.Row
	ended := int64(0)
	defer func() { s.countEnds(ctx, ended) }()
	for _, row := range rows {
		if row.Finished {
			continue
		}
		const tries = 3
		now, n, err := rewind(ctx, s, row.Shard, row.Generation, to, why)
		for try := 1; errors.Is(err, lease.ErrOutdated) && !now.Finished && try < tries; try++ { // it was claimed or released since it was listed
			ended += n
			now, n, err = rewind(ctx, s, row.Shard, now.Generation, to, why)
		}
		ended += n
		if isInvalid(err) && len(rewound) == 0 {
			return nil, err
		}
		if err == nil {
			rewound = append(rewound, now)
		}
		errs = append(errs, err)
	}
	if len(rewound) > 0 {
		s.look(ctx, protocol.LookAll) // one for each would leave no room for the wishes of operators
	}
	return changed(ctx, s, lease.Act{Did: "rewind", Why: why}, rewound, errors.Join(errs...))
}

// paused returns an error if no pause stands.
func paused(ctx context.Context, s Supervisor) error {
	now, err := s.wishes(ctx)
	stands := func(w lease.Wish) bool { return w.Kind == lease.WishPause && w.Stands(time.Now()) }
	if err == nil && !slices.ContainsFunc(now.List, stands) {
		err = &lease.RuleError{Transition: "rewind of all shards", Key: now.Key(), Rule: protocol.ErrNotPaused}
	}
	return err
}

// ordered returns an error if the order of the group cannot read the position.
func ordered(order checkpoint.Order, at lease.Key, to checkpoint.Mark) error {
	if to.IsZero() {
		return nil
	}
	if err := order.Advance(at.Name, checkpoint.Mark{}, to); err != nil {
		return fmt.Errorf("rewind %v: %w", at, err)
	}
	return nil
}

func rewind(ctx context.Context, s Supervisor, shard string, seen int64, to checkpoint.Mark, why string) (lease.Row, int64, error) {
	return s.command(ctx, "rewind", shard, func(row lease.Row, st protocol.Stamp) (lease.Write, error) {
		return protocol.Rewind(row, s.stated(seen, why), to, st)
	})
}
