package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func (op *operator) finishCommand() *cobra.Command {
	return op.changeCommand(&cobra.Command{
		Use: "finish SHARD", Short: "Marks a shard as processed to its end",
		Long: `Marks a shard as processed to its end, although it is not: nobody claims it again, and its children may start.
The records after its checkpoint are skipped. If a worker holds the shard, the same write takes it from that
worker; a quarantine ends. A commit in the same moment refuses the write, and the command reads the row again.
'shardlease rewind' makes the shard unfinished.` + aboutChanges,
		Example: "  shardlease finish shard-7 --why \"its records have expired\"",
	}, "finish", "finished", always, shardlease.Supervisor.Finish)
}

// A target is the position of a rewind, as the flags have it.
type target struct {
	to, state, order string
	start            bool
}

// mark returns the position.
func (g *target) mark() checkpoint.Mark { return checkpoint.Mark{Position: g.to, State: g.state} }

// check checks the flags, and returns the position as the end of a question.
func (g *target) check() (how, name string, err error) {
	if (g.to != "") == g.start {
		return "", "", usage("needs either --to POSITION or --start")
	}
	if g.start && g.state != "" {
		return "", "", usage("--start has no state")
	}
	if g.start {
		return " to its very beginning", "", nil
	}
	how = " to position " + quoted(g.to) // it is user data, and the operator has just typed it
	if g.state != "" {
		how += " with state " + quoted(g.state)
	}
	return how, "", checkPosition(g.order, g.mark())
}

func (op *operator) rewindCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "rewind SHARD", Short: "Makes the next tenure of a shard start at another position",
		Long: `Makes the next tenure of a shard start at another position: --to a position, everything up to which counts as
processed, or --start for the very beginning. A position may be before or after the checkpoint. A finished
shard is unfinished afterwards, and a quarantined one stays quarantined. If a worker holds the shard, the same
write takes it from that worker. A commit in the same moment refuses the write, and the command reads the row
again.

With --all instead of SHARD it rewinds every shard of the group that is not finished, one after the other. The
group has to be paused: see 'shardlease pause'. Handlers run meanwhile. On a terminal this form asks for the name of the
group; without one it needs --yes. If it is interrupted, repeat it.

Positions have the form that the handlers of the group use. --order checks that form.` + aboutChanges,
		Example: "  shardlease rewind shard-7 --to 49590338271490256608559692538361571095921575989136588898 --order number --why \"reprocess\"\n" +
			"  shardlease rewind shard-7 --start --why \"reprocess all\"\n  shardlease rewind --all --start --why \"reprocess all\"",
	}
	g := new(target)
	c.Flags().StringVar(&g.to, "to", "", "the `POSITION`")
	c.Flags().StringVar(&g.state, "mark-state", "", "the `STATE` that the handlers keep with a position")
	c.Flags().BoolVar(&g.start, "start", false, "the very beginning")
	c.Flags().StringVar(&g.order, "order", "none", "how the handlers compare positions: "+either(orderNames()))
	all := c.Flags().Bool("all", false, "every shard of the paused group that is not finished, instead of SHARD")
	completeFlagWith(c, "order", orderNames()...)
	o := op.shardFlags(c)
	one := op.changing(c, o, "rewind", "rewound", g.check, func(s shardlease.Supervisor, ctx context.Context, shard string, seen int64, why string) (lease.Row, error) {
		return s.Rewind(ctx, shard, seen, g.mark(), why)
	})
	c.ValidArgsFunction = op.completeArgs(shardNames)
	c.Args = func(c *cobra.Command, args []string) error {
		switch {
		case !*all:
			return arguments(c, args)
		case len(args) > 0:
			return usage("--all rewinds every shard: it needs no SHARD")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if *all {
			return op.rewindAll(c, o, g)
		}
		return one(c, args)
	}
	return c
}

// rewindAll rewinds all shards of a paused group.
func (op *operator) rewindAll(c *cobra.Command, o *orders, g *target) error {
	if o.generation != 0 {
		return usage("--all has no --generation: each shard has its own")
	}
	if err := op.check(o, false); err != nil {
		return err
	}
	how, _, err := g.check()
	if err != nil {
		return err
	}
	ctx := c.Context()
	seen, err := op.look(ctx)
	if err != nil {
		return err
	}
	if err := needsPause(seen); err != nil {
		return err
	}
	held, finished := 0, 0
	for i := range seen.Shards {
		switch of := &seen.Shards[i]; {
		case of.State == inspect.Finished:
			finished++
		case !of.Owner.IsZero():
			held++
		}
	}
	ask := fmt.Sprintf("This will rewind %s of group %s%s, %d of them held. Finished ones stay finished: %d.",
		counted(len(seen.Shards)-finished, "shard"), op.at.group, how, held, finished)
	if err := op.confirm(ctx, o, op.at.group, ask); err != nil {
		return err
	}
	s, w, err := op.supervise(ctx, o.by)
	if err != nil {
		return err
	}
	rows, err := s.RewindAll(ctx, g.mark(), o.why)
	if err == nil || len(rows) > 0 {
		fmt.Fprintf(op.out, "rewound %s of group %s\n", counted(len(rows), "shard"), quoted(op.at.group))
	}
	return w.marked(err)
}

// needsPause returns an error if the moves of the group are not paused.
func needsPause(s *inspect.Snapshot) error {
	const verb = "rewind of all shards"
	if err := needsWorkers(s, verb); err != nil || pauseOf(s) != nil {
		return err
	}
	return &lease.RuleError{Transition: verb, Key: lease.Wishes{Group: s.Group}.Key(), Rule: "moves are not paused: 'shardlease pause' comes first"}
}

// pauseOf returns the pause that stands, or nil.
func pauseOf(s *inspect.Snapshot) *lease.Wish {
	at := slices.IndexFunc(s.Wishes, func(w lease.Wish) bool { return w.Kind == lease.WishPause && w.Stands(s.At) })
	if at < 0 {
		return nil
	}
	return &s.Wishes[at]
}

func orderNames() []string { return []string{"none", "text", "number"} }

// checkPosition reports a position that cannot be stored, or that its order cannot read. It does not
// repeat the position.
func checkPosition(name string, mark checkpoint.Mark) error {
	orders := map[string]checkpoint.Order{"none": nil, "text": checkpoint.Lexical, "number": checkpoint.Decimal}
	order, known := orders[name]
	if !known {
		return usage("--order must be %s", either(orderNames()))
	}
	if err := order.Advance("", checkpoint.Mark{}, mark); err != nil {
		return usage("--to is no position of --order %s", name)
	}
	return nil
}
