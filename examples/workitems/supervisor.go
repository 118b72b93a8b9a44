package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A supervisor takes away items that make no progress. It need not know whether a worker is dead, hangs in
// a tool or is only slow. If the worker is only slow, another worker repeats one step, and the fence of the
// tool refuses what the first worker still sends.
type supervisor struct {
	shardlease.Supervisor
	patience time.Duration
	to       string              // the run that gets the items that are taken away; empty: any run
	seen     map[string]sighting // by item
}

// A sighting is the last change of an item's row that the supervisor has seen.
type sighting struct {
	counter int64 // grows with each write of the row: an acquisition, a step, a release
	at      time.Time
}

// run lists the items until ctx ends. Several supervisors may run: each release states the generation that
// the supervisor has seen, so no release ends the tenure of a later holder.
func (s *supervisor) run(ctx context.Context) error {
	for {
		rows, err := s.List(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, row := range s.stuck(rows, time.Now()) {
			why := fmt.Sprintf("no step for %v", s.patience)
			err := s.take(ctx, row, why)
			if errors.Is(err, lease.ErrOutdated) {
				continue // the item has changed hands since
			}
			if err != nil {
				return err
			}
			fmt.Printf("%s: taken away from %s after step %q of generation %d: %s\n", row.Shard, row.Owner.Task, row.Checkpoint.Position, row.Generation, why)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.patience / 4):
		}
	}
}

// take takes an item away from its holder, and reserves it for the run s.to. The reservation lasts for the patience of
// the supervisor. If s.to is empty or names the holder itself, take only releases the item.
func (s *supervisor) take(ctx context.Context, row lease.Row, why string) (err error) {
	if s.to == "" || s.to == row.Owner.Name {
		_, err = s.ForceRelease(ctx, row.Shard, row.Generation, why)
	} else {
		_, err = s.Reassign(ctx, row.Shard, row.Generation, s.to, s.patience, why)
	}
	return err
}

// stuck returns the rows of held items that have not changed for as long as the patience of the
// supervisor. The supervisor measures that time on its own clock, from when it first saw the present row.
func (s *supervisor) stuck(rows []lease.Row, now time.Time) (stuck []lease.Row) {
	seen := map[string]sighting{}
	for _, row := range rows {
		last, ok := s.seen[row.Shard]
		if !ok || last.counter != row.Counter {
			last = sighting{row.Counter, now}
		}
		seen[row.Shard] = last
		if !row.Owner.IsZero() && now.Sub(last.at) >= s.patience {
			stuck = append(stuck, row)
		}
	}
	s.seen = seen
	return stuck
}
