package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func (op *operator) moveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "move SHARD", Short: "Moves a shard from its living holder to another worker", Args: arguments,
		Long: `Moves a shard, or a lease by name, from its living holder to the worker or session --to. It stores a wish, and
does not wait; 'shardlease get' shows that the move is under way. For a holder that is dead or hangs, use
'shardlease reassign'.

In a group of workers the move is an ordinary one, eager or cooperative as configured, and afterwards plans may
move the shard like any other. In a group of sessions the holder's soft context ends, and the holder has its
drain time to release the lease; then the context of its tenure ends. Nobody but the session --to acquires the
lease until the time --for is over. After a holder that was cut off, its lock delay passes first.

The wish ends when the move is done, after --for, or by 'shardlease lift move SHARD'. A move that cannot happen
now is refused with exit code 4, and a worker or session --to that does not run with exit code 3.` + aboutChanges,
		Example:           "  shardlease move shard-7 --to worker-3 --why \"warm cache\"\n  shardlease move deploy --to host-2 --why \"host-1 is rebooted\" --generation 41 --yes",
		ValidArgsFunction: op.completeArgs(shardNames),
	}
	o := op.shardFlags(c)
	to := c.Flags().String("to", "", "the `NAME` of the worker or session that gets the shard")
	within := c.Flags().Duration("for", 10*time.Minute, "when the move ends, if it is not done before")
	op.completeFlag(c, "to", workerNames)
	c.RunE = do(func(ctx context.Context, args []string) error {
		if err := op.check(o, true); err != nil {
			return err
		}
		if err := (lease.Reservation{For: *to, Lasts: time.Millisecond}).Validate(); err != nil {
			return usage("needs --to NAME: the name of a worker or session")
		}
		if (lease.Reservation{For: "-", Lasts: within.Truncate(time.Millisecond)}).Validate() != nil {
			return usage("--for must be from 1ms to 24h")
		}
		before, words, err := op.agreed(ctx, args[0], o, "move", " to "+quoted(*to), *to)
		if err != nil {
			return err
		}
		s, w, err := op.supervise(ctx, o.by)
		if err != nil {
			return err
		}
		w.wishes = true
		if _, err := s.Move(ctx, before.Shard, before.Generation, *to, *within, o.why); err != nil {
			return w.marked(err)
		}
		_, err = fmt.Fprintf(op.out, "ordered the move of %s %s%s to %s; the order ends in %v if the move is not done before\n",
			words.shard, quoted(args[0]), heldBy(before), quoted(*to), *within)
		return err
	})
	return c
}

// ordered returns the move of a shard that an operator has ordered, if it stands. A lease by name moves only under the
// generation that the operator has seen.
func ordered(s *inspect.Snapshot, of *inspect.Shard) *lease.Wish {
	for i := range s.Wishes {
		w := &s.Wishes[i]
		if w.Kind == lease.WishMove && w.Subject == of.Name && w.Stands(s.At) && (!s.Sessions || w.Generation == of.Row.Generation) {
			return w
		}
	}
	return nil
}
