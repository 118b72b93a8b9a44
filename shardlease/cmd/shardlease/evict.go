package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func (op *operator) evictCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "evict WORKER|INCARNATION", Short: "Releases the shards of a worker and deletes its seat", Args: arguments,
		Long: `Releases the shards of a worker and deletes its seat, so that other workers claim the shards at once. It is
for a worker that is dead or stuck. A worker that still runs takes a new seat, and may get the same shards
again. If several workers have the name, the command lists their incarnations and changes nothing.` + aboutDelay + `

On a terminal the command asks for the name. Without one it needs --yes.`,
		Example:           "  shardlease evict host-1 --why \"machine is gone\"\n  shardlease evict 3KQ7WZ5N --why \"machine is gone\" --yes",
		ValidArgsFunction: op.completeArgs(workerNames),
	}
	o := op.orderFlags(c, true)
	o.delayFlag(c)
	c.RunE = do(func(ctx context.Context, args []string) error {
		if err := op.check(o, false); err != nil {
			return err
		}
		snapshot, err := op.look(ctx)
		if err != nil {
			return err
		}
		inc, err := incarnation(snapshot, args[0])
		if err != nil {
			return err
		}
		op.showHeld(snapshot, []lease.Incarnation{inc})
		if err := op.confirm(ctx, o, args[0], fmt.Sprintf("This will evict the %s.", wordsOf(snapshot).worker)); err != nil {
			return err
		}
		done := fmt.Sprintf("evicted %s, incarnation %s", quoted(args[0]), clean(string(inc)))
		return op.expel(ctx, snapshot, o, done, func(s shardlease.Supervisor) ([]lease.Row, error) {
			rows, err := s.Evict(ctx, inc, o.why)
			if err != nil && len(rows) == 0 && snapshot.Worker(inc) != nil && unseated(ctx, s, inc) { // otherwise nothing says so
				op.printReleased(snapshot, done, rows)
			}
			return rows, err
		})
	})
	return c
}

// unseated reports whether a worker has no seat, as far as the table answers.
func unseated(ctx context.Context, s shardlease.Supervisor, inc lease.Incarnation) bool {
	_, err := s.Store.Get(ctx, lease.Key{Group: s.Group, Kind: lease.KindSeat, Name: string(inc)})
	return errors.Is(err, lease.ErrNotFound)
}

// incarnation returns the incarnation that an operator means: the incarnation itself, or the only worker
// of that name.
func incarnation(s *inspect.Snapshot, name string) (lease.Incarnation, error) {
	var seats, owners []lease.Incarnation
	for i := range s.Workers {
		switch seat := &s.Workers[i].Seat; name {
		case string(seat.Incarnation):
			return seat.Incarnation, nil
		case seat.Name:
			seats = append(seats, seat.Incarnation)
		}
	}
	for i := range s.Shards { // an owner without a seat
		switch o := s.Shards[i].Owner; {
		case o.IsZero():
		case string(o.Incarnation) == name:
			return o.Incarnation, nil
		case o.Name == name && !slices.Contains(owners, o.Incarnation):
			owners = append(owners, o.Incarnation)
		}
	}
	for _, u := range s.Unreadable {
		if u.Key.Kind == lease.KindSeat && u.Key.Name == name {
			return lease.Incarnation(name), nil
		}
	}
	if len(seats) == 0 {
		seats = owners
	}
	switch len(seats) {
	case 0:
		return "", missing("no such worker %s in group %s", quoted(name), quoted(s.Group))
	case 1:
		return seats[0], nil
	}
	return "", usage("%d workers are named %s: choose an incarnation: %s", len(seats), quoted(name), joinedNames(seats))
}

func joinedNames[T ~string](list []T) string {
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = clean(string(name))
	}
	return strings.Join(names, ", ")
}

// showHeld shows the seats of some workers, and how many shards they hold.
func (op *operator) showHeld(s *inspect.Snapshot, workers []lease.Incarnation) {
	for _, inc := range workers {
		held := 0
		for i := range s.Shards {
			if s.Shards[i].Owner.Incarnation == inc {
				held++
			}
		}
		seat := "has no seat"
		if w := s.Worker(inc); w != nil {
			seat = fmt.Sprintf("is %s, last heartbeat %s ago", workerState(w), old(w.Silent))
		}
		fmt.Fprintf(op.problems, "incarnation %s %s, holds %s\n", clean(string(inc)), clean(seat), counted(held, wordsOf(s).shard))
	}
}

func (op *operator) releaseTaskCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "release-task TASK", Short: "Releases what a task and its descendants hold", Args: arguments,
		Long: `Evicts every worker of a task and of its descendants, for example of a run that has died: the command releases
the workers' shards and deletes their seats. The descendants of the task deploy are the tasks whose names
begin with deploy/. A session with another task loses only the leases that it holds for these tasks. Stop the
task first: otherwise its workers take new seats and claim shards again.` + aboutDelay + `

On a terminal the command asks for the name of the task. Without one it needs --yes.`,
		Example:           "  shardlease release-task run-17 --why \"run was cancelled\"",
		ValidArgsFunction: op.completeArgs(taskNames),
	}
	o := op.orderFlags(c, true)
	o.delayFlag(c)
	c.RunE = do(func(ctx context.Context, args []string) error {
		if err := op.check(o, false); err != nil {
			return err
		}
		if args[0] == "" {
			return usage("the task must not be empty: every worker without one has the empty task")
		}
		snapshot, err := op.look(ctx)
		if err != nil {
			return err
		}
		workers, lent := servants(snapshot, args[0])
		if len(workers)+lent == 0 {
			return missing("no such task %s: no worker of group %s serves it", quoted(args[0]), quoted(op.at.group))
		}
		op.showHeld(snapshot, workers)
		ask := fmt.Sprintf("This will evict %s", counted(len(workers), wordsOf(snapshot).worker))
		if lent > 0 {
			ask += fmt.Sprintf(" and release %s of sessions with another task", counted(lent, "lease"))
		}
		if err := op.confirm(ctx, o, args[0], ask+"."); err != nil {
			return err
		}
		done := fmt.Sprintf("evicted %s of task %s", counted(len(workers), wordsOf(snapshot).worker), quoted(args[0]))
		return op.expel(ctx, snapshot, o, done, func(s shardlease.Supervisor) ([]lease.Row, error) {
			return s.ReleaseTask(ctx, args[0], o.why)
		})
	})
	return c
}

// servants returns the incarnations whose seats have a task or a descendant of it, and those that have no seat
// and own a lease for such a task. It also returns how many leases for these tasks are held by sessions whose
// seats have another task.
func servants(s *inspect.Snapshot, task string) (workers []lease.Incarnation, lent int) {
	for i := range s.Workers {
		if seat := &s.Workers[i].Seat; seat.Owner().Serves(task) {
			workers = append(workers, seat.Incarnation)
		}
	}
	for i := range s.Shards {
		o := s.Shards[i].Owner
		if !o.Serves(task) {
			continue
		}
		if w := s.Worker(o.Incarnation); w != nil && !w.Seat.Owner().Serves(task) {
			lent++
		} else {
			workers = append(workers, o.Incarnation)
		}
	}
	slices.Sort(workers)
	return slices.Compact(workers), lent
}
