package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const aboutChanges = `

On a terminal the command shows the row and asks for the name of the shard. Without one it needs
--generation N and --yes. If the shard has changed hands since that generation, the command is refused
with exit code 4: look at it again, and decide again.`

const aboutDelay = `

A lease by name keeps the lock delay of its former holder, which may still run: no session acquires the lease for
that long. With --no-delay one may acquire it at once.`

// A change changes the lease row of a shard as it was seen: a method of Supervisor.
type change func(s shardlease.Supervisor, ctx context.Context, shard string, seen int64, why string) (lease.Row, error)

// Terms are the check of the flags of a command. They return how the flags change the shard: the end of
// the question whether to change it, and the name of a worker that has to have a seat for it, if any.
type terms func() (how, to string, err error)

// changeCommand returns a command that changes one lease row. The words complete the sentences "This will
// … the shard" and "… shard".
func (op *operator) changeCommand(c *cobra.Command, verb, done string, check terms, apply change) *cobra.Command {
	c.Args = arguments
	c.ValidArgsFunction = op.completeArgs(shardNames)
	o := op.shardFlags(c)
	c.RunE = op.changing(c, o, verb, done, check, apply)
	if verb == "release" || verb == "reassign" {
		o.delayFlag(c)
	}
	return c
}

// changing returns the RunE of a command that changes one lease row.
func (op *operator) changing(c *cobra.Command, o *orders, verb, done string, check terms, apply change) func(*cobra.Command, []string) error {
	return do(func(ctx context.Context, args []string) error {
		if err := op.check(o, true); err != nil {
			return err
		}
		how, to, err := check()
		if err != nil {
			return err
		}
		before, words, err := op.agreed(ctx, args[0], o, verb, how, to)
		if err != nil {
			return err
		}
		s, w, err := op.supervise(ctx, o.by)
		if err != nil {
			return err
		}
		s.NoDelay = o.noDelay
		after, err := apply(s, ctx, before.Shard, before.Generation, o.why)
		if err != nil {
			return w.marked(err)
		}
		_, err = fmt.Fprintf(op.out, "%s %s %s%s: generation %d ended, generation %d began%s\n",
			done, words.shard, quoted(args[0]), heldBy(before), before.Generation, after.Last.Generation, delayed(after))
		return err
	})
}

// always is the check of a command whose flags need none.
func always() (how, to string, err error) { return "", "", nil }

// delayed returns what the command prints about the lock delay that it has left in these rows.
func delayed(rows ...lease.Row) string {
	longest := time.Duration(0)
	for _, row := range rows {
		longest = max(longest, row.Reserved.Delay)
	}
	if longest == 0 {
		return ""
	}
	return fmt.Sprintf("; by its lock delay, no session acquires it for %s", span(longest))
}

// heldBy names the owner that a change has taken the shard from.
func heldBy(row lease.Row) string {
	if row.Owner.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (held by %s, incarnation %s)", quoted(row.Owner.Name), clean(string(row.Owner.Incarnation)))
}

// agreed shows the row, and returns it if a person or the flags agree to the change. It also returns the
// vocabulary of the group. If the worker to has no seat, the change is refused: the name may be mistyped, and nobody
// would process the shard.
func (op *operator) agreed(ctx context.Context, shard string, o *orders, verb, how, to string) (lease.Row, vocabulary, error) {
	s, of, err := op.lookAt(ctx, shard)
	if err != nil {
		return lease.Row{}, vocabulary{}, err
	}
	view := detail(s, of, warningsAbout(s.Warnings(), shard), false)
	if err := view.print(op.problems, true); err != nil {
		return lease.Row{}, vocabulary{}, err
	}
	row, called := of.Row, wordsOf(s)
	if to != "" && !slices.Contains(workerNames(s), to) {
		hint := ""
		if verb != "move" {
			hint = fmt.Sprintf(", so nobody would process the %s; add --absent if the %s will come", called.shard, called.worker)
		}
		return row, called, missing("no %s named %s has a seat now%s", called.worker, quoted(to), hint)
	}
	if o.generation != 0 && o.generation != row.Generation {
		return row, called, fmt.Errorf("generation %d was given, and the %s has generation %d: %w", o.generation, called.shard, row.Generation,
			&lease.RuleError{Transition: verb, Key: row.Key(), Rule: lease.ErrOutdated})
	}
	return row, called, op.confirm(ctx, o, shard, fmt.Sprintf("This will %s the %s%s.", verb, called.shard, how))
}

func (op *operator) releaseCommand() *cobra.Command {
	return op.changeCommand(&cobra.Command{
		Use: "release SHARD", Short: "Takes a shard from its owner",
		Long: `Takes a shard from its owner; any worker may claim it, also the former owner. It is for an owner that is
dead or whose handler hangs. The late writes of the former owner are refused. If nobody holds the shard, the
command ends its reservation.` + aboutDelay + aboutChanges,
		Example: "  shardlease release shard-7 --why \"handler hangs\"\n  shardlease release shard-7 --why \"handler hangs\" --generation 41 --yes",
	}, "release", "released", always, shardlease.Supervisor.ForceRelease)
}

func (op *operator) reassignCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "reassign SHARD", Short: "Takes a shard from its owner, and reserves it for another worker",
		Long: `Takes a shard from its owner, and reserves it for the worker or session --to. No other one claims the shard
until the time --for is over, or until another command changes the shard. The command is for an owner that is
dead or whose handler hangs, and for a shard that is reserved for the wrong name. In a group of workers it also
pins the shard for the same time.` + aboutDelay + aboutChanges,
		Example: "  shardlease reassign shard-7 --to worker-3 --why \"handler hangs\"",
	}
	to := c.Flags().String("to", "", "the `NAME` of the worker or session for which the shard is reserved")
	absent := c.Flags().Bool("absent", false, "the worker or session --to may have no seat yet")
	within := c.Flags().Duration("for", time.Minute, "how long no other worker or session claims the shard")
	check := func() (how, name string, err error) {
		if err := (lease.Reservation{For: *to, Lasts: time.Millisecond}).Validate(); err != nil {
			return "", "", usage("needs --to NAME: the name of a worker or session")
		}
		if err := (lease.Reservation{For: *to, Lasts: within.Truncate(time.Millisecond)}).Validate(); err != nil {
			return "", "", usage("--for must be from 1ms to 24h")
		}
		how = fmt.Sprintf(" to %s, and keep it from all others for %v", quoted(*to), *within)
		if *absent {
			return how, "", nil
		}
		return how, *to, nil
	}
	return op.changeCommand(c, "reassign", "reassigned", check, func(s shardlease.Supervisor, ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
		return s.Reassign(ctx, shard, seen, *to, *within, why)
	})
}

func (op *operator) quarantineCommand() *cobra.Command {
	return op.changeCommand(&cobra.Command{
		Use: "quarantine SHARD", Short: "Keeps a shard from all workers",
		Long: `Keeps a shard from all workers, whether it is held or not, until the command unquarantine. Its handler is
stopped if it runs. The checkpoint stays.` + aboutChanges,
		Example: "  shardlease quarantine shard-7 --why \"poison record\"",
	}, "quarantine", "quarantined", always, shardlease.Supervisor.Quarantine)
}

func (op *operator) unquarantineCommand() *cobra.Command {
	return op.changeCommand(&cobra.Command{
		Use: "unquarantine SHARD", Short: "Lets workers claim a quarantined shard again",
		Long:    `Lets workers claim a quarantined shard again, and sets its failed attempts to 0.` + aboutChanges,
		Example: "  shardlease unquarantine shard-7 --why \"handler is fixed\"",
	}, "free", "unquarantined", always, shardlease.Supervisor.Unquarantine)
}

func (op *operator) removeCommand() *cobra.Command {
	return op.changeCommand(&cobra.Command{
		Use: "remove SHARD", Short: "Replaces the row of a shard by a tombstone",
		Long: `Replaces the row of a shard that no worker holds by a tombstone. The checkpoint is lost: if a source lists
the shard, now or later, it starts from its beginning.` + aboutChanges,
		Example: "  shardlease remove shard-7 --why \"stream was replaced\"",
	}, "remove", "removed", always, shardlease.Supervisor.Remove)
}

// expel carries out a command that releases rows. It prints a line with the rows that the command has released, also if
// the command has failed later.
func (op *operator) expel(ctx context.Context, seen *inspect.Snapshot, o *orders, done string, release func(shardlease.Supervisor) ([]lease.Row, error)) error {
	s, w, err := op.supervise(ctx, o.by)
	if err != nil {
		return err
	}
	s.NoDelay = o.noDelay
	rows, err := release(s)
	if err == nil || len(rows) > 0 {
		op.printReleased(seen, done, rows)
	}
	return w.marked(err)
}

func (op *operator) printReleased(s *inspect.Snapshot, done string, rows []lease.Row) {
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = quoted(row.Shard)
	}
	slices.Sort(names)
	line := fmt.Sprintf("%s: released %s", done, counted(len(names), wordsOf(s).shard))
	if len(names) > 0 {
		line += ": " + strings.Join(names, ", ") + delayed(rows...)
	}
	fmt.Fprintln(op.out, line)
}
