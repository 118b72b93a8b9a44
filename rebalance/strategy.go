package rebalance

import "time"

// Why is the cause of a planned move. A move that has several causes has the strongest: Leaving, then Pinned, Ordered,
// Returned, Drained, and last Balance. A cordon moves nothing. The zero Why is unknown: an earlier version of the library
// planned the move.
type Why uint8

const (
	Balance  Why = iota + 1 // the planner decided so, for example to make the load even
	Leaving                 // the owner is shutting down
	Drained                 // an operator drains the owner
	Pinned                  // an operator has pinned the shard to the successor
	Ordered                 // an operator has ordered this one move
	Returned                // the worker to which the plan had assigned the shard declines it
)

// String returns the cause as one word; an operator's is the name of the command.
func (w Why) String() string {
	names := [...]string{
		Balance: "balance", Leaving: "leaving", Drained: "drain", Pinned: "pin", Ordered: "move", Returned: "return",
	}
	if w == 0 || int(w) >= len(names) {
		return "unknown"
	}
	return names[w]
}

// A Handoff is a strategy: it chooses the terms of one move of one shard. The successor calls its
// strategy and writes the terms into its request, and both sides follow the terms in the request.
// A strategy must be quick and depend on nothing but its arguments.
//
// A [Mode], a literal [Terms] and a [HandoffFunc] are strategies.
type Handoff interface {
	Terms(shard string, why Why) Terms
}

// Terms makes a Mode a strategy: every move has that mode and otherwise the defaults.
func (m Mode) Terms(string, Why) Terms { return Terms{Mode: m} }

// Terms makes Terms a strategy: every move has these terms.
func (t Terms) Terms(string, Why) Terms { return t }

// A HandoffFunc is a user's own strategy, for example eager for shards with side effects and
// cooperative for the rest.
type HandoffFunc func(shard string, why Why) Terms

// Terms calls f.
func (f HandoffFunc) Terms(shard string, why Why) Terms { return f(shard, why) }

// Fill returns t with the drain time filled in: a zero Drain becomes drain. A negative Drain or
// Prepare becomes zero, which means no time at all.
func (t Terms) Fill(drain time.Duration) Terms {
	if t.Drain == 0 {
		t.Drain = drain
	}
	t.Drain, t.Prepare = max(t.Drain, 0), max(t.Prepare, 0)
	return t
}
