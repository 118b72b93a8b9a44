package main

import (
	"context"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Job is run at the times of a schedule, on one of any number of hosts.
type Job struct {
	Name string
	// Next is the first time of the schedule after a moment. The parsers of cron lines
	// give such a function.
	Next func(after time.Time) time.Time
	// Deadline is how late a run may begin; later than that it is skipped. Zero: however
	// late. What was missed while nobody was up, or while the run before took too long, is
	// caught up once: of all the times that have passed only the latest is run for.
	Deadline time.Duration
	// Run does the work. What it writes has to carry the fence: a run that outlives its
	// lease cannot know that, and then the same time is run for on another host. A run
	// that fails is tried again after a rest, by whoever gets the job then. When its host is
	// told to stop, a run has the drain time to end in.
	Run func(ctx context.Context, r Run) error
}

// A Run is one of a job, for one time of its schedule.
type Run struct {
	Host  string
	Due   time.Time
	Fence int64 // grows with every change of hosts
}

// Serve makes this one of the hosts that run the jobs, until ctx ends.
func Serve(ctx context.Context, store lease.Store, host string, ttl time.Duration, jobs ...Job) error {
	byName, names := map[string]Job{}, make([]string, len(jobs))
	for i, j := range jobs {
		byName[j.Name], names[i] = j, j.Name
	}
	w, err := shardlease.New(store, shardlease.Static(names...), shardlease.Config{
		Group: "cron", Name: host, TTL: ttl, Order: checkpoint.Lexical,
		// A job moves when another host comes, but not in the middle of a run.
		Handoff: rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
		return byName[t.Shard().Name].hold(ctx, t, host)
	})
}

// position is a time as a checkpoint, of a schedule of whole seconds. Everything up to it
// has been run for, or skipped.
const position = "2006-01-02T15:04:05Z"

// hold runs the job for as long as it is this host's. The time of a run is marked when
// the run has ended; so one that was cut off is done once more.
func (j Job) hold(ctx context.Context, t *shardlease.Tenure, host string) error {
	last, err := time.Parse(position, t.Checkpoint().Position)
	if t.Checkpoint().IsZero() {
		last = time.Now().UTC() // a new job has missed nothing
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

// due is the time to run for next: of those that have passed the latest, else the first
// to come.
func (j Job) due(last, now time.Time) time.Time {
	due := j.Next(last)
	for next := j.Next(due); !next.After(now); next = j.Next(due) {
		due = next
	}
	return due
}
