package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
	"github.com/shardlease/shardlease-go/shardlease"
)

// A migration is the flags of the commands kcl import and kcl export.
type migration struct {
	from      kcl.Table
	shards    string // a file
	packed    string
	pending   string
	unstarted bool
	positions bool
}

func (k *keeper) kclCommand() *cobra.Command {
	return parent("kcl", "Migrates a consumer from the Kinesis Client Library, and back",
		`Migrates a consumer from the Kinesis Client Library (KCL) 2.x or 3.x to this library, and back: stop the old
fleet, move its positions, then start the new fleet. --table and --group are those of this library.

An import only reads the KCL's table, so a later export can return to it. Import and export first watch the
KCL's table for twice the failover time, and refuse it if an item changes meanwhile. docs/from-kcl.md has
the steps.`,
		"  shardlease kcl show --kcl-table orders-app\n"+
			"  aws kinesis list-shards --stream-name orders > shards.json\n"+
			"  shardlease kcl import --kcl-table orders-app --shards shards.json --table leases --group orders\n"+
			"  shardlease kcl export --kcl-table orders-app --shards shards.json --table leases --group orders",
		k.kclShowCommand(), k.kclImportCommand(), k.kclExportCommand())
}

// kclFlags adds the flags that all commands of kcl have.
func (m *migration) kclFlags(c *cobra.Command) {
	c.Flags().StringVar(&m.from.Name, "kcl-table", "", "the lease `TABLE` of the KCL; usually it has the name of its application")
	c.Flags().StringVar(&m.from.Stream, "stream", "", "the `STREAM`, if the table has leases of several: the value of the attribute streamName")
	c.Flags().BoolVar(&m.positions, "positions", false, "also print sequence numbers, which are user data")
}

// moveFlags adds the flags that import and export have.
func (m *migration) moveFlags(c *cobra.Command) {
	m.kclFlags(c)
	c.Flags().DurationVar(&m.from.Failover, "failover", 10*time.Second, "the longest failoverTimeMillis of the KCL's fleet")
	c.Flags().StringVar(&m.shards, "shards", "", "a `FILE` with the output of aws kinesis list-shards")
	c.Flags().StringVar(&m.packed, "packed", "refuse", "what to do with a checkpoint at a record that the KPL has packed with others: refuse it, use it as the checkpoint "+
		"of the whole entry, or keep the number of the record in the state or in the position, where shardlease/kinesis reads it")
}

// check reports flags that are missing or wrong, before anything is read.
func (m *migration) check(why string) error {
	switch {
	case m.from.Name == "":
		return usage("needs --kcl-table")
	case m.shards == "":
		return usage("needs --shards: %s", why)
	case m.from.Failover <= 0:
		return usage("--failover must be positive")
	case !slices.Contains([]string{"refuse", "whole", "state", "position"}, m.packed):
		return usage("--packed must be refuse, whole, state or position")
	}
	return nil
}

func (k *keeper) kclShowCommand() *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use: "show", Short: "Lists the leases of the KCL", Args: arguments,
		Long:    "Lists the leases in a table of the KCL. It only reads.",
		Example: "  shardlease kcl show --kcl-table orders-app --positions",
	}
	m.kclFlags(c)
	c.RunE = do(func(ctx context.Context, _ []string) (err error) {
		if m.from.Name == "" {
			return usage("needs --kcl-table")
		}
		if m.from.Client, err = k.tables.Client(ctx); err != nil {
			return err
		}
		leases, err := m.from.Leases(ctx)
		if err != nil {
			return err
		}
		return m.print(k.out, leases)
	})
	return c
}

// print prints leases of the KCL. Sequence numbers are user data; the words of the KCL are not.
func (m *migration) print(out io.Writer, leases []kcl.Lease) error {
	var b strings.Builder
	for _, l := range leases {
		owner := "no owner"
		if l.Owner != "" {
			owner = "owner " + l.Owner
		}
		fmt.Fprintf(&b, "%s: %s; %s, counter %d\n", clean(l.Shard), clean(m.place(l.Sequence, l.Sub)), clean(owner), l.Counter)
		if l.Pending != "" {
			fmt.Fprintf(&b, "  prepared: %s, %d bytes of state\n", clean(m.place(l.Pending, l.PendingSub)), len(l.PendingState))
		}
	}
	fmt.Fprintln(&b, counted(len(leases), "lease"))
	_, err := io.WriteString(out, b.String())
	return err
}

// place returns where a checkpoint of the KCL is.
func (m *migration) place(sequence string, sub int64) string {
	isWord := slices.Contains([]string{"TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "SHARD_END"}, sequence)
	switch {
	case isWord:
		return sequence
	case m.positions:
		return fmt.Sprintf("%s, record %d", sequence, sub)
	}
	return "at a record"
}

func (k *keeper) kclImportCommand() *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use: "import", Short: "Creates lease rows from the leases of the KCL", Args: arguments,
		Long: `Creates a lease row for each lease of the KCL, and a finished row for each shard that was processed before.
It creates the lease table if it does not exist. It changes nothing in the table of the KCL, and no row that
exists and differs from its lease. After an interruption, repeat the command before you start a worker.`,
		Example: "  shardlease kcl import --kcl-table orders-app --shards shards.json --table leases --group orders",
	}
	m.moveFlags(c)
	c.Flags().StringVar(&m.pending, "pending", "refuse", "what to do with a prepared checkpoint: refuse it, or drop it with its state and begin at the lease's checkpoint")
	c.Flags().BoolVar(&m.unstarted, "unstarted", false, "accept LATEST and AT_TIMESTAMP: the consumer begins such shards like new ones")
	by := c.Flags().String("by", k.name, "the `NAME` of the operator, which is stored in the lease rows")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if err := m.check("the KCL deletes the leases of finished shards that Kinesis still lists, and these shards must not be processed again"); err != nil {
			return err
		}
		if m.pending != "refuse" && m.pending != "drop" {
			return usage("--pending must be refuse or drop")
		}
		if err := k.at.needsGroup(); err != nil {
			return err
		}
		return k.importLeases(ctx, &m, *by)
	})
	return c
}

// importLeases imports, and prints what was done, also if the import stopped early.
func (k *keeper) importLeases(ctx context.Context, m *migration, by string) (err error) {
	listing, err := listed(m.shards)
	if err != nil {
		return err
	}
	var shards []shardlease.Shard
	for _, s := range listing {
		shards = append(shards, shardlease.Shard{Name: s.Name, Parents: s.Parents})
	}
	if m.from.Client, err = k.tables.Client(ctx); err != nil {
		return err
	}
	if err := k.tables.Create(ctx, k.at.table, dynamostore.TableOptions{}); err != nil {
		return err
	}
	group, w, err := k.supervise(ctx, by)
	if err != nil {
		return err
	}
	outcomes, err := kcl.Import(ctx, m.from, group, kcl.ImportOptions{
		Shards: shards, Mark: m.mark(), Unstarted: m.unstarted, Word: m.word(), Pending: m.prepared(),
	})
	m.report(k.out, outcomes)
	return w.marked(err)
}

// report prints the rows of an import.
func (m *migration) report(out io.Writer, outcomes []kcl.Outcome) {
	made := 0
	for _, o := range outcomes {
		if o.Made {
			made++
		}
		row, name := o.Row, clean(o.Row.Shard)
		switch {
		case row.Finished:
			fmt.Fprintf(out, "%s: finished\n", name)
		case o.Start != "":
			fmt.Fprintf(out, "%s: at %s\n", name, o.Start)
		case m.positions:
			fmt.Fprintf(out, "%s: after %s\n", name, clean(row.Checkpoint.Position))
		default:
			fmt.Fprintf(out, "%s: at a record\n", name)
		}
	}
	fmt.Fprintf(out, "%s, %d of them new\n", counted(len(outcomes), "row"), made)
}

func (k *keeper) kclExportCommand() *cobra.Command {
	var m migration
	c := &cobra.Command{
		Use: "export", Short: "Writes the positions of a group into a table of the KCL", Args: arguments,
		Long: `Writes the positions of a group into a lease table of the KCL, for a fleet that returns to the KCL. Start no
worker of the group afterwards. After an interruption, repeat the command.`,
		Example: "  shardlease kcl export --kcl-table orders-app --shards shards.json --table leases --group orders",
	}
	m.moveFlags(c)
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if err := m.check("leases need the hash keys of their shards, and rows do not have them"); err != nil {
			return err
		}
		if err := k.at.needsGroup(); err != nil {
			return err
		}
		shards, err := listed(m.shards)
		if err != nil {
			return err
		}
		if m.from.Client, err = k.tables.Client(ctx); err != nil {
			return err
		}
		group, _, err := k.supervise(ctx, k.name)
		if err != nil {
			return err
		}
		leases, err := kcl.Export(ctx, group, m.from, kcl.ExportOptions{Checkpoint: m.checkpointOf, Shards: shards})
		if fault := m.print(k.out, leases); err == nil {
			return fault
		}
		if len(leases) > 0 && !isAnswer(err) && !errors.Is(err, kcl.ErrMoving) { // a lease was being written
			err = unanswered{err}
		}
		return err
	})
	return c
}

// listed reads the output of aws kinesis list-shards.
func listed(file string) ([]kcl.Shard, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list struct {
		Shards []struct {
			ShardId, ParentShardId, AdjacentParentShardId string
			HashKeyRange                                  struct{ StartingHashKey, EndingHashKey string }
		}
		NextToken string
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(list.Shards) == 0 || list.NextToken != "" {
		return nil, fmt.Errorf("%s: must list all shards of the stream", file)
	}
	var shards []kcl.Shard
	for _, s := range list.Shards {
		shard := kcl.Shard{Name: s.ShardId, StartingHashKey: s.HashKeyRange.StartingHashKey, EndingHashKey: s.HashKeyRange.EndingHashKey}
		for _, parent := range []string{s.ParentShardId, s.AdjacentParentShardId} {
			if parent != "" {
				shard.Parents = append(shard.Parents, parent)
			}
		}
		shards = append(shards, shard)
	}
	return shards, nil
}
