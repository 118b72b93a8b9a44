package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// supervise plays a second program, which has started the runs and noticed that one of them
// died. It needs only the lease table to clean up. It returns when all jobs are finished.
func (f *fleet) supervise(ctx context.Context, supervisor shardlease.Supervisor, dead string) error {
	if err := f.release(ctx, supervisor, dead); err != nil {
		return err
	}
	err := until(ctx, func() (done bool, err error) {
		rows, err := supervisor.List(ctx)
		open := slices.DeleteFunc(rows, func(row lease.Row) bool { return row.Finished })
		for _, row := range open {
			if row.Quarantined {
				err = errors.Join(err, f.repair(ctx, supervisor, row))
			}
		}
		return len(open) == 0, err
	})
	if err == nil {
		f.out.Println("all jobs are done")
	}
	return err
}

// release releases the jobs of a dead run and evicts it, so that the other runs need not wait
// until its lease expires. It returns when they have claimed the jobs.
func (f *fleet) release(ctx context.Context, supervisor shardlease.Supervisor, task string) error {
	began := time.Now()
	rows, err := supervisor.ReleaseTask(ctx, task, "exit status 137")
	if err != nil {
		return err
	}
	for _, row := range rows {
		f.out.Printf("  %s: released, %s of %d steps are done", row.Shard, cmp.Or(row.Checkpoint.Position, "0"), steps)
	}
	for _, released := range rows {
		err := until(ctx, func() (bool, error) {
			row, err := supervisor.Get(ctx, released.Shard)
			return row.Generation > released.Generation, err
		})
		if err != nil {
			return err
		}
	}
	f.out.Printf("all of them were claimed again within %v; the lease time is %v", time.Since(began).Round(time.Millisecond), ttl)
	return nil
}

// repair repairs the cause of a quarantine, and then frees the job.
func (f *fleet) repair(ctx context.Context, supervisor shardlease.Supervisor, row lease.Row) error {
	f.broken.Store(false)
	f.out.Printf("the supervisor has repaired the tool, and frees %s", row.Shard)
	_, err := supervisor.Unquarantine(ctx, row.Shard, row.Generation, "the tool works again")
	return err
}

// until polls a condition until it holds.
func until(ctx context.Context, condition func() (bool, error)) error {
	for {
		if holds, err := condition(); holds || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
