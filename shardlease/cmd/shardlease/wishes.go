package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const aboutWishes = `

The wish is stored in the table, and every plan follows it until it ends: after --for, or when 'shardlease
lift' ends it. On a terminal the command asks for a confirmation. Without one it needs --yes. In a group
without any record the command is refused with exit code 3; in a group of sessions, which has no plan, with
exit code 4.`

// A wishing stores or lifts a wish.
type wishing func(ctx context.Context, s shardlease.Supervisor, args []string, o *wishOrders) error

// WishOrders are the flags of a command that stores a wish.
type wishOrders struct {
	*orders
	lasts time.Duration
}

// wishCommand returns a command that stores a wish. The word to type is the last argument, or the group.
func (op *operator) wishCommand(c *cobra.Command, done func(args []string) string, apply wishing) *cobra.Command {
	c.Args = arguments
	o := &wishOrders{orders: op.orderFlags(c, true)}
	usual := time.Duration(0)
	if c.Name() == string(lease.WishPause) {
		usual = pauseFor
	}
	c.Flags().DurationVar(&o.lasts, "for", usual, "how long the wish lasts; 0: until it is lifted")
	c.RunE = do(func(ctx context.Context, args []string) error {
		if o.lasts < 0 {
			return usage("--for must not be negative")
		}
		if err := op.check(o.orders, false); err != nil {
			return err
		}
		if err := op.showWorkers(ctx, c.Name(), args); err != nil {
			return err
		}
		end, until := "", " until it is lifted"
		if o.lasts > 0 {
			end = fmt.Sprintf(" for %v", o.lasts)
			until = end
		}
		return op.apply(ctx, c.Name(), args, until, o, apply, done(args)+end)
	})
	return c
}

// apply asks, stores or lifts a wish, and prints what was done.
func (op *operator) apply(ctx context.Context, verb string, args []string, until string, o *wishOrders, apply wishing, done string) error {
	word := append([]string{op.at.group}, args...)[len(args)]
	if err := op.confirm(ctx, o.orders, word, fmt.Sprintf("This will %s in group %s%s.", strings.Join(append([]string{verb}, args...), " "), op.at.group, until)); err != nil {
		return err
	}
	s, w, err := op.supervise(ctx, o.by)
	if err != nil {
		return err
	}
	w.wishes = true
	if err := apply(ctx, s, args, o); err != nil {
		return w.marked(err)
	}
	_, err = fmt.Fprintln(op.out, done)
	return err
}

// showWorkers shows the workers that a wish is for, and how many shards they hold. It reports a worker or a
// shard that does not exist: it may come later, so that is no error.
func (op *operator) showWorkers(ctx context.Context, kind string, args []string) error {
	s, err := op.look(ctx)
	switch {
	case err != nil:
		return err
	case s.Sessions && kind != string(lease.WishRaise):
		return needsWorkers(s, kind)
	case len(args) == 0:
		return nil
	}
	worker := args[len(args)-1]
	op.showHeld(s, seatsOf(s, worker))
	if !slices.Contains(workerNames(s), worker) {
		fmt.Fprintf(op.problems, "shardlease: no worker named %s has a seat now\n", quoted(worker))
	}
	if kind == "pin" && s.Shard(args[0]) == nil {
		fmt.Fprintf(op.problems, "shardlease: no shard named %s has a row now\n", quoted(args[0]))
	}
	return nil
}

// seatsOf returns the incarnations of the workers with that name.
func seatsOf(s *inspect.Snapshot, name string) (list []lease.Incarnation) {
	for i := range s.Workers {
		if seat := &s.Workers[i].Seat; seat.Name == name {
			list = append(list, seat.Incarnation)
		}
	}
	return list
}

func (op *operator) cordonCommand() *cobra.Command {
	return op.wishCommand(&cobra.Command{
		Use: "cordon WORKER", Short: "Gives a worker no more shards", ValidArgsFunction: op.completeArgs(workerNames),
		Long:    `Gives the workers with that name no more shards. They keep the shards that they hold.` + aboutWishes,
		Example: "  shardlease cordon host-1 --why \"disk is full\" --for 2h",
	}, func(args []string) string { return "cordoned worker " + quoted(args[0]) },
		func(ctx context.Context, s shardlease.Supervisor, args []string, o *wishOrders) error {
			return s.Cordon(ctx, args[0], o.lasts, o.why)
		})
}

func (op *operator) drainCommand() *cobra.Command {
	return op.wishCommand(&cobra.Command{
		Use: "drain WORKER", Short: "Moves all shards away from a worker", ValidArgsFunction: op.completeArgs(workerNames),
		Long: `Moves all shards away from the workers with that name, by ordinary moves. They keep running, and keep the
shards for which no other worker has room.` + aboutWishes,
		Example: "  shardlease drain host-1 --why \"maintenance\"",
	}, func(args []string) string { return "draining worker " + quoted(args[0]) },
		func(ctx context.Context, s shardlease.Supervisor, args []string, o *wishOrders) error {
			return s.Drain(ctx, args[0], o.lasts, o.why)
		})
}

// pauseFor is how long a pause lasts without --for.
const pauseFor = 24 * time.Hour

func (op *operator) pauseCommand() *cobra.Command {
	return op.wishCommand(&cobra.Command{
		Use: "pause", Short: "Stops all moves of held shards",
		Long: `Stops all moves of held shards in the group. Shards without an owner are still claimed, and a worker that
shuts down still gives up its shards. 'shardlease resume' ends the pause. A pause ends after 24 hours, unless --for
says otherwise: while it lasts, every deploy has gaps.` + aboutWishes,
		Example: "  shardlease pause --why \"incident 42\" --for 1h",
	}, func([]string) string { return "paused the moves of group " + quoted(op.at.group) },
		func(ctx context.Context, s shardlease.Supervisor, _ []string, o *wishOrders) error {
			return s.Pause(ctx, cmp.Or(o.lasts, -1), o.why) // 0 has another meaning there
		})
}

func (op *operator) pinCommand() *cobra.Command {
	return op.wishCommand(&cobra.Command{
		Use: "pin SHARD WORKER", Short: "Moves a shard to a worker and keeps it there", ValidArgsFunction: op.completeArgs(shardNames, workerNames),
		Long: `Moves a shard to the worker with that name, and keeps it there. Plans ignore the pin while no such worker
runs, and while it is leaving, full, cordoned, drained or unwell.` + aboutWishes,
		Example: "  shardlease pin shard-7 host-1 --why \"debugging\" --for 30m",
	}, func(args []string) string {
		return "pinned shard " + quoted(args[0]) + " to worker " + quoted(args[1])
	},
		func(ctx context.Context, s shardlease.Supervisor, args []string, o *wishOrders) error {
			return s.Pin(ctx, args[0], args[1], o.lasts, o.why)
		})
}

func (op *operator) raiseCommand() *cobra.Command {
	return op.wishCommand(&cobra.Command{
		Use: "raise", Short: "Raises the fences of all sinks again, after one was restored",
		Long: `Makes every worker or session of the group raise the fences of all targets (Config.Targets) again, for all that it
holds: a sink that was restored from a backup has the fences of then, and accepts late writes of workers that were
replaced since. Restore the sink first. Handlers run meanwhile, and nothing moves.

The command stores a wish, and does not wait. 'shardlease check' names those that have not raised their fences yet. In
a group of workers the wish ends when all have; in a group of sessions, after --for or with 'shardlease lift raise'.`,
		Example: "  shardlease raise --why \"orders-db restored from a backup\"",
	}, func([]string) string { return "ordered to raise all fences of group " + quoted(op.at.group) + " again" },
		func(ctx context.Context, s shardlease.Supervisor, _ []string, o *wishOrders) error {
			return s.Raise(ctx, o.lasts, o.why)
		})
}

func (op *operator) resumeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "resume", Short: "Ends a pause", Args: arguments,
		Long:    `Ends the pause of the group, like 'shardlease lift pause'.`,
		Example: "  shardlease resume",
	}
	o := &wishOrders{orders: op.orderFlags(c, false)}
	c.RunE = do(func(ctx context.Context, _ []string) error { return op.lift(ctx, o, lease.WishPause, "") })
	return c
}

func (op *operator) liftCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "lift KIND [NAME]", Short: "Ends a wish, or all of them", Args: arguments,
		Long: `Ends a wish. KIND is ` + either(wishKinds(nil)) + `.
NAME is the worker, or the shard of a pin or a move; a pause and a raise have none. 'shardlease wishes' lists
the wishes.

'lift all' ends all wishes of the group. If the record of the wishes cannot be read, the command deletes that
record.`,
		Example:           "  shardlease lift drain host-1\n  shardlease lift pin shard-7\n  shardlease lift pause\n  shardlease lift all",
		ValidArgsFunction: op.completeArgs(wishKinds, wishSubjects),
	}
	o := &wishOrders{orders: op.orderFlags(c, false)}
	c.RunE = do(func(ctx context.Context, args []string) error {
		kind, name := lease.WishKind(args[0]), strings.Join(args[1:], "")
		subject, _, _ := kind.Names()
		switch {
		case !slices.Contains(wishKinds(nil), args[0]):
			return usage("unknown kind of wish %q: it must be %s", args[0], either(wishKinds(nil)))
		case subject == "" && len(args) == 2:
			return usage("lift %s has no name", kind)
		case kind == everyWish:
			return op.liftAll(ctx, o)
		case subject != "" && name == "":
			return usage("needs the name of the %s", subject)
		}
		return op.lift(ctx, o, kind, name)
	})
	return c
}

// everyWish is the KIND with which a person lifts all wishes.
const everyWish lease.WishKind = "all"

// liftAll ends all wishes.
func (op *operator) liftAll(ctx context.Context, o *wishOrders) error {
	if err := op.check(o.orders, false); err != nil {
		return err
	}
	return op.apply(ctx, "lift all wishes", nil, "", o, func(ctx context.Context, s shardlease.Supervisor, _ []string, _ *wishOrders) error {
		return s.LiftAll(ctx, o.why)
	}, "lifted all wishes of group "+quoted(op.at.group))
}

// lift ends a wish.
func (op *operator) lift(ctx context.Context, o *wishOrders, kind lease.WishKind, subject string) error {
	if err := op.check(o.orders, false); err != nil {
		return err
	}
	var args []string
	what := string(kind) + " of group " + quoted(op.at.group)
	if subject != "" {
		args, what = []string{subject}, string(kind)+" of "+quoted(subject)
	}
	return op.apply(ctx, "lift "+string(kind), args, "", o, func(ctx context.Context, s shardlease.Supervisor, _ []string, _ *wishOrders) error {
		err := s.Lift(ctx, kind, subject, o.why)
		if errors.Is(err, lease.ErrNotFound) {
			return missing("lift %s: no such wish", strings.TrimSpace(string(kind)+" "+clean(subject)))
		}
		return err
	}, "lifted the "+what)
}
