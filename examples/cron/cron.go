package main

import (
	"context"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Job runs at the times of a schedule, on one host of a fleet at a time.
type Job struct {
	// Name identifies the job in the fleet.
	Name string
	// Next returns the first time of the schedule after a given time. Parsers of crontab lines
	// provide such a function.
	Next func(after time.Time) time.Time
	// Deadline is how late a run may begin; later runs are skipped. Zero: no limit. If several
	// times of the schedule have passed, because no host was running or the previous run took
	// too long, the job runs only for the latest of them.
	Deadline time.Duration
	// Run does the work. Its writes must carry the fence: a run that outlives its lease cannot
	// know that, and then another host runs the job for the same time. A failed run is tried
	// again after a pause, by the host that holds the job then. When its host stops, a run
	// has the drain time to end.
	Run func(ctx context.Context, r Run) error
}

// A Run is one run of a job, for one time of its schedule.
type Run struct {
	Host  string    // the host that runs the job
	Due   time.Time // the time of the schedule
	Fence int64     // the fencing token, which grows when the job moves to another host
}

// Serve runs the jobs on this host, together with the other hosts, until ctx ends.
func Serve(ctx context.Context, store lease.Store, host string, ttl time.Duration, jobs ...Job) error {
	byName, names := map[string]Job{}, make([]string, len(jobs))
	for i, j := range jobs {
		byName[j.Name], names[i] = j, j.Name
	}
	w, err := shardlease.New(store, shardlease.Static(names...), shardlease.Config{
		Group: "cron", Name: host, TTL: ttl, Order: checkpoint.Lexical,
		// A job moves when another host joins, but not in the middle of a run.
		Handoff: rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		return byName[t.Shard().Name].hold(ctx, t, host)
	})
}

// position is the format of checkpoints, for schedules of whole seconds. The job has run for
// all times up to the checkpoint, or skipped them.
const position = "2006-01-02T15:04:05Z"

// hold runs the job for as long as this host holds it. The time of a run is committed when
// the run has ended, so an interrupted run is repeated.
func (j Job) hold(ctx context.Context, t *shardlease.Tenure, host string) error {
	last, err := time.Parse(position, t.Checkpoint().Position)
	if t.Checkpoint().IsZero() {
		last = time.Now().UTC() // a new job has no missed times
		err = t.Commit(t.Context(), last.Format(position))
	}
	for err == nil {
		due := j.due(last, time.Now())
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(due)):
		}
		if ctx.Err() != nil {
			return nil
		}
		if j.Deadline == 0 || time.Since(due) <= j.Deadline {
			err = j.Run(t.Context(), Run{Host: host, Due: due, Fence: t.Generation()})
		}
		if err == nil {
			err = t.Commit(t.Context(), due.UTC().Format(position))
		}
		last = due
	}
	return err
}

// due returns the time of the next run: the latest time of the schedule that has passed since
// last, or else the first one in the future.
func (j Job) due(last, now time.Time) time.Time {
	due := j.Next(last)
	for next := j.Next(due); !next.After(now); next = j.Next(due) {
		due = next
	}
	return due
}
