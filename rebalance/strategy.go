package rebalance

import "time"

// Why is the reason of a planned move.
type Why uint8

const (
	Balance Why = iota + 1 // to make the load even
	Leaving                // the owner is shutting down
)

func (w Why) String() string {
	if w == Leaving {
		return "leaving"
	}
	return "balance"
}

// A Handoff is a strategy: it chooses the terms of one move of one shard. The successor
// asks its strategy and writes the terms into its request; both sides then follow what is
// written. A strategy must be quick and depend on nothing but its arguments.
//
// A [Mode], a literal [Terms] and a [HandoffFunc] are strategies.
type Handoff interface {
	Terms(shard string, why Why) Terms
}

// Terms makes a Mode a strategy: every move in that mode, with the defaults.
func (m Mode) Terms(string, Why) Terms { return Terms{Mode: m} }

// Terms makes Terms a strategy: every move on these.
func (t Terms) Terms(string, Why) Terms { return t }

// A HandoffFunc is a strategy of a user's own: eager for shards with side
// effects, say, and cooperative for the rest.
type HandoffFunc func(shard string, why Why) Terms

// Terms calls f.
func (f HandoffFunc) Terms(shard string, why Why) Terms { return f(shard, why) }

// Fill returns t with a value for what a strategy left open: a zero Drain becomes drain, a
// negative Drain or Prepare becomes zero, which is no time at all.
func (t Terms) Fill(drain time.Duration) Terms {
	if t.Drain == 0 {
		t.Drain = drain
	}
	t.Drain, t.Prepare = max(t.Drain, 0), max(t.Prepare, 0)
	return t
}
