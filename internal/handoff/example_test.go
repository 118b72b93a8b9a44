package handoff_test

import (
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/handoff"
	"github.com/shardlease/shardlease-go/rebalance"
)

// The two sides of a cooperative move, step by step.
func Example() {
	terms := rebalance.Terms{Mode: rebalance.Cooperative, Drain: 20 * time.Second}
	fmt.Println("successor:", handoff.Successor(terms, handoff.Taking{}))
	fmt.Println("owner:    ", handoff.Owner(terms, handoff.Giving{Wanted: true}))
	fmt.Println("successor:", handoff.Successor(terms, handoff.Taking{Asked: true, Offered: true}))
	// Output:
	// successor: ask
	// owner:     offer
	// successor: accept
}
