package rebalance_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A user's own strategy. Handlers that send mail must not overlap in a planned move, however long
// one takes. The other shards must not have a gap in a deploy, or when an operator drains a worker; in other moves they must not
// overlap.
func ExampleHandoffFunc() {
	strategy := rebalance.HandoffFunc(func(shard string, why rebalance.Why) rebalance.Terms {
		if strings.HasPrefix(shard, "mail-") {
			return rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}
		}
		if why == rebalance.Leaving || why == rebalance.Drained { // a deploy: no gap
			return rebalance.Terms{Mode: rebalance.Cooperative}
		}
		return rebalance.Terms{Mode: rebalance.Eager, Drain: 5 * time.Second}
	})
	const drain = 20 * time.Second // the configured drain time, for terms without their own
	fmt.Println(strategy.Terms("mail-7", rebalance.Balance).Fill(drain))
	fmt.Println(strategy.Terms("clicks-7", rebalance.Balance).Fill(drain))
	fmt.Println(strategy.Terms("clicks-7", rebalance.Drained).Fill(drain))
	// Output:
	// eager 20s wait default
	// eager 5s force default
	// cooperative 20s force default
}
