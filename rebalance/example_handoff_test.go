package rebalance_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A strategy of one's own: handlers that send mail must not overlap in a planned move,
// however long one takes; the rest must not pause in a deploy, and is moved without an
// overlap otherwise.
func ExampleHandoffFunc() {
	strategy := rebalance.HandoffFunc(func(shard string, why rebalance.Why) rebalance.Terms {
		if strings.HasPrefix(shard, "mail-") {
			return rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}
		}
		if why == rebalance.Leaving { // a deploy: no gap
			return rebalance.Terms{Mode: rebalance.Cooperative}
		}
		return rebalance.Terms{Mode: rebalance.Eager, Drain: 5 * time.Second}
	})
	const drain = 20 * time.Second // what a configuration says where a strategy does not
	fmt.Println(strategy.Terms("mail-7", rebalance.Balance).Fill(drain))
	fmt.Println(strategy.Terms("clicks-7", rebalance.Balance).Fill(drain))
	fmt.Println(strategy.Terms("clicks-7", rebalance.Leaving).Fill(drain))
	// Output:
	// eager 20s wait 0s
	// eager 5s force 0s
	// cooperative 20s force 0s
}
