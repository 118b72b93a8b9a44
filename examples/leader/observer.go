package main

import (
	"context"
	"fmt"
	"os"

	"github.com/shardlease/shardlease-go/shardlease"
)

// observe prints each change of the leader, until ctx ends. The session holds nothing, so it does not need
// Run, and sends only reads to the table.
func observe(ctx context.Context, session *shardlease.Session) error {
	generation := int64(-1)
	for row, err := range session.Watch(ctx, name) {
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, "leader:", err) // Watch reads again
		case row.Generation == generation:
			// The leader has only committed.
		case row.Owner.IsZero():
			fmt.Printf("nobody leads: generation %d\n", row.Generation)
		default:
			fmt.Printf("%s leads under generation %d\n", row.Owner.Name, row.Generation)
		}
		if err == nil {
			generation = row.Generation
		}
	}
	return nil
}
