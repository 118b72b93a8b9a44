package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A keeper creates and adopts tables, and moves groups from the KCL into a table and back.
type keeper struct{ *operator }

func (k *keeper) tableCommand() *cobra.Command {
	return parent("table", "Creates, verifies and adopts lease tables",
		"Creates a lease table, verifies that a group may use a table, and adopts the rows of a restored table.",
		"  shardlease table create --table leases\n  shardlease table verify --table leases --group orders",
		k.createCommand(), k.verifyCommand(), k.adoptCommand())
}

func (k *keeper) createCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "create", Short: "Creates the lease table, unless it exists", Args: arguments,
		Long: `Creates the lease table and waits until it is active. A table that exists is not changed. The new table is
paid by request, and has protection from deletion, point-in-time recovery and time to live.`,
		Example: "  shardlease table create --table leases",
	}
	var o dynamostore.TableOptions
	c.Flags().BoolVar(&o.NoDeletionProtection, "no-deletion-protection", false, "create the table without protection from deletion")
	c.Flags().BoolVar(&o.NoPointInTimeRecovery, "no-point-in-time-recovery", false, "leave point-in-time recovery off")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if err := k.at.needsTable(); err != nil {
			return err
		}
		if err := k.tables.Create(ctx, k.at.table, o); err != nil {
			return err
		}
		_, err := fmt.Fprintf(k.out, "table %s is active\n", quoted(k.at.table))
		return err
	})
	return c
}

func (k *keeper) verifyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "verify", Short: "Verifies that the group may use the table", Args: arguments,
		Long: `Verifies that the table is a lease table, and that it is the one that the group has always used. If it was
restored or replaced, the exit code is 4. With --worker the command also tries every permission that a
worker needs; these tries write nothing.`,
		Example: "  shardlease table verify --table leases --group orders\n  shardlease table verify --worker",
	}
	worker := c.Flags().Bool("worker", false, "also try every permission that a worker needs")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		from, err := k.open(ctx)
		if err != nil {
			return err
		}
		if *worker {
			if _, err := k.tables.Store(ctx, *k.at, 0); err != nil {
				return err
			}
		}
		if err := from.Verify(ctx, k.at.group); err != nil {
			return err
		}
		_, err = fmt.Fprintf(k.out, "table %s is the one of group %s\n", quoted(k.at.table), quoted(k.at.group))
		return err
	})
	return c
}

func (k *keeper) adoptCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "adopt", Short: "Takes the rows of a restored table into use", Args: arguments,
		Long: `Takes the rows of a group into use after the table was restored or replaced. Every row loses its owner, and
gets a generation above all that can have been issued since the backup. First make sure that no worker
uses the old table: docs/operations.md has the steps. The command may be repeated, and does nothing if the
group uses this table already.

On a terminal the command asks for the name of the group. Without one it needs --yes.`,
		Example: "  shardlease table adopt --table leases-restored --group orders --yes",
	}
	o := k.orderFlags(c, false)
	buckets := c.Flags().Int("buckets", 0, "the number of buckets of the group, if its record was lost")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if *buckets < 0 {
			return usage("--buckets must not be negative")
		}
		if err := k.check(o, false); err != nil {
			return err
		}
		if err := k.confirm(ctx, o, k.at.group, fmt.Sprintf("This will adopt the rows of group %s in table %s.", k.at.group, k.at.table)); err != nil {
			return err
		}
		n, err := k.tables.Adopt(ctx, *k.at, *buckets, o.by)
		if err == nil || n > 0 {
			fmt.Fprintf(k.out, "adopted %s of group %s\n", counted(n, "row"), quoted(k.at.group))
		}
		if n > 0 {
			k.record(ctx, o.by, lease.Act{Did: "adopt", Rows: int64(n), Why: o.why})
		}
		if err != nil {
			err = errors.Join(err, errors.New("the table is not recorded for the group: repair the cause, and repeat the command"))
		}
		return err
	})
	return c
}
