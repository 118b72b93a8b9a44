package rebalance

import "time"

// Why says why a shard is to move.
type Why uint8

const (
	Balance Why = iota + 1 // to make the load even
	Leaving                // its owner is on its way out
)

func (w Why) String() string {
	if w == Leaving {
		return "leaving"
	}
	return "balance"
}

// A Handoff chooses the terms of one move of one shard. The successor asks it, and
// writes down what it says; both sides then go by that. It must be quick and
// depend on nothing but its arguments.
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

// Fill gives the terms that a strategy left open their value: a zero Drain is
// the default, a negative one or a negative Prepare is none at all.
func (t Terms) Fill(drain time.Duration) Terms {
	if t.Drain == 0 {
		t.Drain = drain
	}
	t.Drain, t.Prepare = max(t.Drain, 0), max(t.Prepare, 0)
	return t
}

// The two sides of a move are two small machines. Each is a function of what
// its side knows at a moment; neither keeps anything, and neither asks the other
// but through the table.
//
// Invariant: every phase ends by itself. Whatever the other side does or leaves
// undone, and if it is never heard of again, some time later the function says
// something else than to go on as before. The one exception has a name: [Wait].

// A Giving is what the owner of a shard knows about a move it is asked for.
type Giving struct {
	Wanted     bool // the want stands: its seat is there, and names this generation
	Draining   bool // the handler was told to wind down
	Drained    time.Duration
	Returned   bool // the handler has returned
	Offered    bool // the row carries an offer
	OfferedFor time.Duration
}

// A Give is what the owner does next.
type Give uint8

const (
	Serve    Give = iota // go on as before
	Drain                // tell the handler to wind down
	Offer                // store the latest mark, and that the successor may take
	Withdraw             // take the offer back
	Yield                // hand over to the successor
	CutOff               // end the handler's context, then hand over or let go: the drain time is over
	LetGo                // give the shard back to nobody: who wanted it does so no more
)

func (g Give) String() string {
	return [...]string{"serve", "drain", "offer", "withdraw", "yield", "cut off", "let go"}[min(g, LetGo)]
}

// Give is the owner's side.
//
// Invariant: after the handler was told to wind down the owner gives the shard
// up, to the successor or to nobody. It never resumes: the handler may have
// thrown away what it needs to go on.
func (t Terms) Give(v Giving) Give {
	limit, limited := t.Limit()
	switch {
	case v.Returned && v.Wanted:
		return Yield
	case v.Returned:
		return LetGo
	case v.Draining && limited && v.Drained >= limit:
		return CutOff
	case v.Draining:
		return Serve
	case t.Mode != Cooperative && v.Wanted:
		return Drain
	case v.Offered && (!v.Wanted || v.OfferedFor >= t.Standing()):
		return Withdraw
	case v.Wanted && !v.Offered:
		return Offer
	}
	return Serve
}

// Limit is how long the owner's handler may take to wind down, unless it may take as
// long as it likes.
func (t Terms) Limit() (limit time.Duration, limited bool) { return t.Drain, t.AfterDrain != Wait }

// Standing is how long an offer stands.
func (t Terms) Standing() time.Duration { return max(2*t.Drain, 2*time.Second) }

// Patience is how long a successor waits for an owner that takes so long to look: for
// twice the drain time, and for it to have looked twice.
func (t Terms) Patience(beat time.Duration) time.Duration { return max(2*t.Drain, beat) + beat }

// A Taking is what the successor knows about a move it wants.
type Taking struct {
	Planned      bool // the plan gives it the shard
	Prepared     bool // its preparation has ended, well or not
	PreparingFor time.Duration
	Asked        bool // its seat carries the want
	AskedFor     time.Duration
	Offered      bool          // the row is offered to it
	Beat         time.Duration // how long the owner may take to notice
}

// A Take is what the successor does next.
type Take uint8

const (
	Stay    Take = iota // go on as before
	Prepare             // get ready, while the owner serves
	Ask                 // write the want
	Accept              // take what is offered
	Seize               // take it without being asked back: the owner did not answer in time
	CallOff             // drop the want, or the preparation
)

func (t Take) String() string {
	return [...]string{"stay", "prepare", "ask", "accept", "seize", "call off"}[min(t, CallOff)]
}

// Take is the successor's side.
//
// It prepares before it asks, so that in neither mode anybody waits for a
// preparation: at its deadline the successor goes on unprepared.
func (t Terms) Take(v Taking) Take {
	switch {
	case !v.Planned:
		return CallOff
	case !v.Asked && t.Prepare > 0 && !v.Prepared && v.PreparingFor < t.Prepare:
		return Prepare
	case !v.Asked:
		return Ask
	case v.Offered:
		return Accept
	case v.AskedFor < t.Patience(v.Beat):
		return Stay
	case t.Mode == Cooperative:
		return CallOff
	case t.AfterDrain == Force:
		return Seize
	}
	return Stay
}
