package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/internal/proof/story"
	"github.com/shardlease/shardlease-go/rebalance"
)

func demoCommand(out io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use: "demo", Short: "Shows in twelve seconds what the library does", Args: arguments,
		Long: `Runs a fleet in memory for about twelve seconds: workers join, one is killed, one is paused for longer than its
lease, one leaves. It needs no table and no AWS.`,
		Example: "  shardlease demo\n  shardlease demo --mode cooperative",
	}
	mode := c.Flags().String("mode", "eager", "how shards move: eager (a gap, no overlap) or cooperative (an overlap, usually no gap)")
	completeFlagWith(c, "mode", "eager", "cooperative")
	c.RunE = do(func(ctx context.Context, _ []string) error {
		if err := new(rebalance.Mode).UnmarshalText([]byte(*mode)); err != nil {
			return usage("--mode: %v", err)
		}
		err := story.Tell(ctx, *mode, out)
		if errors.Is(err, context.Canceled) {
			return nil // interrupted
		}
		return err
	})
	return c
}
