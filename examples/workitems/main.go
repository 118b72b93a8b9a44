// Workitems distributes long jobs over the runs of an agent. One run works on a job at a
// time, and a job must survive the run that works on it.
//
//	go run ./examples/workitems
//
// Each job is a shard. Its lease row stores everything for which a program would otherwise
// need a table of its own: which run works on the job and for which task, the last completed
// step, the number of failures, and whether the job is done. Two runs share six jobs. One run
// dies; a supervisor detects that before any lease expires, and releases the jobs of the dead
// run. One job fails and is tried again after growing pauses, until it is quarantined; the
// supervisor repairs the cause and takes the job out of quarantine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workitems:", err)
		os.Exit(1)
	}
}

const (
	group   = "agent-jobs"
	steps   = 8 // per job
	perStep = 150 * time.Millisecond
	ttl     = 2 * time.Second // the default is 10 s
)

// jobs lists all jobs. A real program reads its queue or its database. The row of a job that
// is finished and no longer listed is removed.
func jobs(context.Context) ([]shardlease.Shard, error) {
	var shards []shardlease.Shard
	for i := range 6 {
		shards = append(shards, shardlease.Shard{Name: fmt.Sprintf("job-%d", i+1)})
	}
	return shards, nil
}

// A fleet is the set of all runs, and what they share.
type fleet struct {
	store  memstore.Store
	out    *log.Logger
	broken atomic.Bool // the tool that job-4 needs is broken
}

// An agent is one run of the agent: one worker.
type agent struct {
	fleet *fleet
	task  string
	link  *storetest.Link
	dead  atomic.Bool
	stop  context.CancelFunc
	ended chan error
}

// start starts a run that works on up to room jobs at a time.
func (f *fleet) start(ctx context.Context, task string, room int) (*agent, error) {
	a := &agent{fleet: f, task: task, link: storetest.NewLink(&f.store), ended: make(chan error, 1)}
	w, err := shardlease.New(a.link, shardlease.SourceFunc(jobs), shardlease.Config{
		Group: group, Name: "agent of " + task, Task: task,
		Handoff:     rebalance.Eager, // no step is done twice when a job moves
		MaxShards:   room,
		TTL:         ttl,
		Drain:       ttl,
		AuditEvery:  ttl, // how soon a run finds a job that the supervisor has freed
		MaxAttempts: 3,
		Backoff:     200 * time.Millisecond, // it doubles; the default begins at 1 s
		Commit:      checkpoint.Policy{Marks: 1},
		Observe:     a.note,
	})
	if err != nil {
		return nil, err
	}
	ctx, a.stop = context.WithCancel(ctx)
	go func() { a.ended <- w.Run(ctx, a.work) }()
	return a, nil
}

var errBroken = errors.New("a tool that the job needs is broken")

// work is the handler: it does a job step by step, starting at the checkpoint.
func (a *agent) work(ctx context.Context, t *shardlease.Tenure) error {
	done, _ := strconv.Atoi(t.Checkpoint().Position)
	a.fleet.out.Printf("  %s: %s starts at step %d of %d; earlier failures: %d", t.Shard().Name, a.task, done+1, steps, t.Attempt())
	for done < steps {
		select {
		case <-ctx.Done():
			return context.Cause(ctx) // another run continues after the last step
		case <-time.After(perStep):
		}
		if a.dead.Load() {
			return nil
		}
		if t.Shard().Name == "job-4" && a.fleet.broken.Load() {
			a.fleet.out.Printf("  %s: failed under %s: %v", t.Shard().Name, a.task, errBroken)
			return errBroken
		}
		done++
		if err := t.Mark(strconv.Itoa(done)); err != nil {
			return err
		}
	}
	return t.Finish(t.Context())
}

// note prints the events that end a job or set it aside.
func (a *agent) note(e event.Event) {
	if a.dead.Load() {
		return
	}
	switch {
	case e.Kind == event.Quarantined:
		a.fleet.out.Printf("  %s: quarantined after %d failures", e.Shard, e.Attempt)
	case e.Kind == event.Ended && e.Cause == event.CauseFinished:
		a.fleet.out.Printf("  %s: done by %s", e.Shard, a.task)
	}
}

// die simulates SIGKILL within one process: from now on the run reaches neither the store nor
// its jobs. Its goroutines end a little later.
func (a *agent) die() {
	a.dead.Store(true)
	a.link.Silence()
	a.stop()
}

func run(ctx context.Context, out io.Writer) (err error) {
	f := &fleet{out: log.New(out, "", 0)}
	f.broken.Store(true)
	var agents []*agent
	defer func() {
		for _, a := range agents {
			a.stop()
		}
		for _, a := range agents {
			err = errors.Join(err, <-a.ended)
		}
	}()
	supervisor := shardlease.Supervisor{Store: &f.store, Group: group, By: "supervisor"}
	for _, r := range []struct {
		task string
		room int // how many jobs the run may hold
	}{{"run-1", 3}, {"run-2", 6}} {
		a, err := f.start(ctx, r.task, r.room)
		if err != nil {
			return err
		}
		agents = append(agents, a)
		if err := until(ctx, func() (bool, error) { return atWork(ctx, supervisor, r.task) }); err != nil {
			return err
		}
	}
	f.out.Println("run-1 is killed")
	agents[0].die()
	return f.supervise(ctx, supervisor, "run-1")
}

// atWork reports whether a run has completed two steps of two jobs.
func atWork(ctx context.Context, supervisor shardlease.Supervisor, task string) (bool, error) {
	rows, err := supervisor.ByTask(ctx, task)
	rows = slices.DeleteFunc(rows, func(row lease.Row) bool { return row.Checkpoint.Position < "2" })
	return len(rows) >= 2, err
}
