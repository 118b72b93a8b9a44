package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func (op *operator) repairCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "repair SHARD|INCARNATION", Short: "Makes the row of a shard, or a seat, readable again", Args: arguments,
		Long: `Makes a lease row or a seat readable again that somebody has spoilt. It keeps every attribute that can be read,
and names those that it drops. It refuses the record of a newer version: update the command instead.

A lease row loses its owner, and begins a generation above all that can have been issued, by the clock of this
machine, which must not be behind. The command quarantines the shard if it cannot read the checkpoint, or whether
the shard is finished, removed or quarantined, or if the lease has a lock delay: rewind it if needed, then
unquarantine it. A seat stays its worker's; one that is useless without what cannot be read is deleted, and its
worker takes another.

On a terminal the command shows what the record becomes, and asks for the name. Without one it needs --yes.
If the record changes meanwhile, nothing is written, and the exit code is 4. Heartbeats of a seat's worker do not
prevent its repair.`,
		Example:           "  shardlease repair shard-7 --why \"edited by hand\"",
		ValidArgsFunction: op.completeArgs(unreadableNames),
	}
	o := op.orderFlags(c, true)
	c.RunE = do(func(ctx context.Context, args []string) error {
		if err := op.check(o, false); err != nil {
			return err
		}
		s, err := op.look(ctx)
		if err != nil {
			return err
		}
		key, err := unreadable(s, args[0])
		if err != nil {
			return err
		}
		agreed := false
		next, err := op.tables.Repair(ctx, *op.at, key, o.by, o.why, func(next lease.Record, lost []string) error {
			becomes := "It will be deleted, and its worker takes another: a seat needs these."
			if next != nil {
				becomes = "It becomes: " + next.String()
			}
			fmt.Fprintf(op.problems, "these attributes of the %s cannot be kept: %s\n%s\n", recordWord(s, key.Kind), clean(strings.Join(lost, ", ")), clean(becomes))
			err := op.confirm(ctx, o, args[0], fmt.Sprintf("This will repair the %s.", recordWord(s, key.Kind)))
			agreed = err == nil
			return err
		})
		if _, rule := errors.AsType[*lease.RuleError](err); err != nil && agreed && !rule && !isAnswer(err) {
			return unanswered{err}
		}
		if err != nil {
			return err
		}
		act, done := lease.Act{Did: "repair", Subject: args[0], Why: o.why}, "deleted"
		if next != nil {
			done = "repaired"
		}
		row, isRow := next.(lease.Row)
		if act.Generation = row.Generation; isRow && row.Quarantined {
			done += " and quarantined"
		}
		fmt.Fprintf(op.out, "%s %s %s\n", done, recordWord(s, key.Kind), quoted(args[0]))
		op.record(ctx, o.by, act)
		return nil
	})
	return c
}

// recordWord returns what a person calls the record of a kind.
func recordWord(s *inspect.Snapshot, kind lease.Kind) string {
	if kind == lease.KindSeat {
		return "seat"
	}
	return wordsOf(s).shard
}

// unreadable returns the key of the lease row or the seat with that name, which has to be one that cannot be read.
func unreadable(s *inspect.Snapshot, name string) (lease.Key, error) {
	at := slices.IndexFunc(s.Unreadable, func(u inspect.Unreadable) bool { return u.Key.Name == name && isRepairable(u.Key.Kind) })
	if at < 0 {
		return lease.Key{}, missing("group %s has no lease row and no seat %s that cannot be read", quoted(s.Group), quoted(name))
	}
	return s.Unreadable[at].Key, nil
}

func isRepairable(kind lease.Kind) bool { return kind == lease.KindLease || kind == lease.KindSeat }

// unreadableNames returns the names of the lease rows and seats that cannot be read.
func unreadableNames(s *inspect.Snapshot) (names []string) {
	for _, u := range s.Unreadable {
		if isRepairable(u.Key.Kind) {
			names = append(names, u.Key.Name)
		}
	}
	return names
}
