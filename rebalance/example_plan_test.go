package rebalance_test

import (
	"fmt"
	"strings"

	"github.com/shardlease/shardlease-go/rebalance"
)

// Worker 0 holds six shards, and a second worker joins: three shards move and three stay.
func ExampleEven() {
	v := rebalance.View{Workers: []rebalance.Worker{
		{Name: "a", Tie: rebalance.Tie("a-incarnation")},
		{Name: "b", Tie: rebalance.Tie("b-incarnation")},
	}}
	for _, name := range []string{"s1", "s2", "s3", "s4", "s5", "s6"} {
		v.Shards = append(v.Shards, rebalance.Place{Name: name, Owner: 0, Tie: rebalance.Tie(name)})
	}
	plan := rebalance.Even{}.Plan(v)
	for i, w := range plan {
		if w != v.Shards[i].Owner {
			fmt.Println(v.Shards[i].Name, "moves to", v.Workers[w].Name)
		}
	}
	// Output:
	// s1 moves to b
	// s2 moves to b
	// s5 moves to b
}

// zoned is a planner that keeps shards in their zone: "eu/orders-7" is assigned to workers whose
// name begins with "eu/", and to nobody while there are none. Then any worker with room gets it, and keeps
// it until a worker of the zone joins. Within a zone it plans like Even, because a planner can call
// another one with a part of its view.
type zoned struct{ rebalance.Even }

// Name differs from Even's: the plan says which planner has made it.
func (zoned) Name() string { return "zoned/1" }

func (z zoned) Plan(v rebalance.View) []int {
	plan := make([]int, len(v.Shards))
	zones := map[string]bool{}
	for i, shard := range v.Shards {
		plan[i] = rebalance.Nobody
		zones[zoneOf(shard.Name)] = true
	}
	for zone := range zones { // in any order, because the zones are independent
		z.planZone(zone, v, plan)
	}
	return plan
}

func (z zoned) planZone(zone string, v rebalance.View, plan []int) {
	var part rebalance.View
	var shards, workers []int // the indices in v of the shards and workers of part
	seats := map[int]int{}    // the index in part of each worker of v
	for w, worker := range v.Workers {
		if zoneOf(worker.Name) == zone {
			seats[w] = len(workers)
			part.Workers, workers = append(part.Workers, worker), append(workers, w)
		}
	}
	for i, shard := range v.Shards {
		if zoneOf(shard.Name) != zone {
			continue
		}
		seat, ok := seats[shard.Owner]
		if !ok {
			seat = rebalance.Nobody // free, or held by a worker of another zone: it has to be placed
		}
		shard.Owner = seat
		part.Shards, shards = append(part.Shards, shard), append(shards, i)
	}
	for i, w := range z.Even.Plan(part) {
		if w != rebalance.Nobody {
			plan[shards[i]] = workers[w]
		}
	}
}

func zoneOf(name string) string {
	zone, _, _ := strings.Cut(name, "/")
	return zone
}

// A user's own planner: shards stay in their zone.
func ExamplePlanner() {
	var planner rebalance.Planner = zoned{}
	v := rebalance.View{}
	for _, name := range []string{"eu/1", "us/1"} {
		v.Workers = append(v.Workers, rebalance.Worker{Name: name, Tie: rebalance.Tie(name)})
	}
	for _, name := range []string{"eu/orders-0", "eu/orders-1", "jp/orders-0", "us/orders-0"} {
		v.Shards = append(v.Shards, rebalance.Place{Name: name, Owner: rebalance.Nobody, Tie: rebalance.Tie(name)})
	}
	for i, w := range planner.Plan(v) {
		if w == rebalance.Nobody {
			fmt.Println(v.Shards[i].Name, "has no worker of its zone")
			continue
		}
		fmt.Println(v.Shards[i].Name, "goes to", v.Workers[w].Name)
	}
	// Output:
	// eu/orders-0 goes to eu/1
	// eu/orders-1 goes to eu/1
	// jp/orders-0 has no worker of its zone
	// us/orders-0 goes to us/1
}
