package rebalance_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A strategy of one's own: shards whose handlers send mail must never overlap,
// however long a handler takes; the rest must never pause. Shards of a worker
// that is leaving get less time.
func ExampleHandoffFunc() {
	strategy := rebalance.HandoffFunc(func(shard string, why rebalance.Why) rebalance.Terms {
		if strings.HasPrefix(shard, "mail-") {
			return rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}
		}
		terms := rebalance.Terms{Mode: rebalance.Cooperative}
		if why == rebalance.Leaving {
			terms.Drain = 5 * time.Second
		}
		return terms
	})
	const drain = 20 * time.Second // what a configuration says where a strategy does not
	fmt.Println(strategy.Terms("mail-7", rebalance.Balance).Fill(drain))
	fmt.Println(strategy.Terms("clicks-7", rebalance.Balance).Fill(drain))
	fmt.Println(strategy.Terms("clicks-7", rebalance.Leaving).Fill(drain))
	// Output:
	// eager 20s wait 0s
	// cooperative 20s force 0s
	// cooperative 5s force 0s
}

// The two sides of a cooperative move, step by step.
func ExampleTerms_Give() {
	terms := rebalance.Terms{Mode: rebalance.Cooperative, Drain: 20 * time.Second}
	fmt.Println("successor:", terms.Take(rebalance.Taking{Planned: true}))
	fmt.Println("owner:    ", terms.Give(rebalance.Giving{Wanted: true}))
	fmt.Println("successor:", terms.Take(rebalance.Taking{Planned: true, Asked: true, Offered: true}))
	// Output:
	// successor: ask
	// owner:     offer
	// successor: accept
}
