// Workitems runs agent jobs: long pieces of work, each of which one run of an agent
// may do at a time, and which must survive that run.
//
//	go run ./examples/workitems
//
// A job is a shard. Its lease row has everything that others keep in a table of their
// own: who works on it and for which task, how far it has come, how often it failed,
// and that it is done. Two runs share six jobs. One run dies; a supervisor knows that
// before any lease runs out, and releases what the dead task still holds. One job
// fails and is tried again, ever more slowly, until it is set aside; the supervisor
// mends what was wrong and puts it back.
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
	steps   = 8 // of a job
	perStep = 150 * time.Millisecond
	ttl     = 2 * time.Second // the default is 10 s
)

// jobs lists the jobs there are. A real program asks its queue or its database; a job
// that is finished and listed no more is forgotten.
func jobs(context.Context) ([]shardlease.Shard, error) {
	var shards []shardlease.Shard
	for i := range 6 {
		shards = append(shards, shardlease.Shard{Name: fmt.Sprintf("job-%d", i+1)})
	}
	return shards, nil
}

// An office is where the runs work.
type office struct {
	store  memstore.Store
	out    *log.Logger
	broken atomic.Bool // what job-4 needs
}

// A shift is one run of an agent: one worker.
type shift struct {
	office *office
	task   string
	link   *storetest.Link
	dead   atomic.Bool
	stop   context.CancelFunc
	gone   chan error
}

// begin starts a run.
func (o *office) begin(ctx context.Context, task string, room int) (*shift, error) {
	s := &shift{office: o, task: task, link: storetest.NewLink(&o.store), gone: make(chan error, 1)}
	w, err := shardlease.New(s.link, shardlease.SourceFunc(jobs), shardlease.Config{
		Group: group, Name: "agent of " + task, Task: task,
		Handoff:     rebalance.Eager, // nobody does a step twice because a job moves
		MaxShards:   room,
		TTL:         ttl,
		Drain:       ttl,
		AuditEvery:  ttl, // how soon a job is seen that the supervisor has put back
		MaxAttempts: 3,
		Backoff:     200 * time.Millisecond, // then twice that; the default begins at 1 s
		Commit:      checkpoint.Policy{Marks: 1},
		Observe:     s.note,
	})
	if err != nil {
		return nil, err
	}
	ctx, s.stop = context.WithCancel(ctx)
	go func() { s.gone <- w.Run(ctx, s.work) }()
	return s, nil
}

var errBroken = errors.New("a tool that the job needs is broken")

// work does a job, step by step, from where it was left.
func (s *shift) work(ctx context.Context, t *shardlease.Tenure) error {
	done, _ := strconv.Atoi(t.Checkpoint().Position)
	s.office.out.Printf("  %s: %s works on it from step %d of %d on; failed before: %d", t.Shard().Name, s.task, done+1, steps, t.Attempt())
	for done < steps {
		select {
		case <-ctx.Done():
			return context.Cause(ctx) // another run goes on from the last step
		case <-time.After(perStep):
		}
		if s.dead.Load() {
			return nil
		}
		if t.Shard().Name == "job-4" && s.office.broken.Load() {
			s.office.out.Printf("  %s: failed under %s: %v", t.Shard().Name, s.task, errBroken)
			return errBroken
		}
		done++
		if err := t.Mark(strconv.Itoa(done)); err != nil {
			return err
		}
	}
	return t.Finish(t.Context())
}

// note tells what becomes of jobs.
func (s *shift) note(e event.Event) {
	if s.dead.Load() {
		return
	}
	switch {
	case e.Kind == event.Quarantined:
		s.office.out.Printf("  %s: set aside after %d failures", e.Shard, e.Attempt)
	case e.Kind == event.Ended && e.Cause == event.CauseFinished:
		s.office.out.Printf("  %s: done by %s", e.Shard, s.task)
	}
}

// die is what SIGKILL would do, as far as that can be shown in one process: from now
// on nobody hears of this run, and it does nothing. Its goroutines end by and by.
func (s *shift) die() {
	s.dead.Store(true)
	s.link.Silence()
	s.stop()
}

func run(ctx context.Context, out io.Writer) (err error) {
	o := &office{out: log.New(out, "", 0)}
	o.broken.Store(true)
	var shifts []*shift
	defer func() {
		for _, s := range shifts {
			s.stop()
		}
		for _, s := range shifts {
			err = errors.Join(err, <-s.gone)
		}
	}()
	boss := shardlease.Supervisor{Store: &o.store, Group: group, By: "supervisor"}
	for _, r := range []struct {
		task string
		room int // how many jobs it can do at a time
	}{{"run-1", 3}, {"run-2", 6}} {
		s, err := o.begin(ctx, r.task, r.room)
		if err != nil {
			return err
		}
		shifts = append(shifts, s)
		if err := until(ctx, func() (bool, error) { return atWork(ctx, boss, r.task) }); err != nil {
			return err
		}
	}
	o.out.Println("run-1 is killed")
	shifts[0].die()
	return o.supervise(ctx, boss, "run-1")
}

// atWork reports whether a run has got somewhere with two jobs.
func atWork(ctx context.Context, boss shardlease.Supervisor, task string) (bool, error) {
	rows, err := boss.ByTask(ctx, task)
	rows = slices.DeleteFunc(rows, func(row lease.Row) bool { return row.Checkpoint.Position < "2" })
	return len(rows) >= 2, err
}
