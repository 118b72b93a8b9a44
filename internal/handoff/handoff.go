// Package handoff has the two pure machines of a move: the owner's and the successor's.
//
// Each is a function of what its side knows at a moment. Neither keeps anything, and the
// two sides communicate through the table alone.
//
// Invariant: every phase ends by itself. Whatever the other side does or leaves undone, and
// if nothing is ever heard of it again, some time later the function returns something else
// than to go on as before. The one exception has a name: [rebalance.Wait].
package handoff

import (
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A Giving is what the owner of a shard knows about a move that is requested.
type Giving struct {
	Wanted     bool // the request stands: its seat exists, and it names this generation
	Draining   bool // the handler was asked to wind down
	Drained    time.Duration
	Returned   bool // the handler has returned
	Offered    bool // the row carries an offer
	OfferedFor time.Duration
}

// A Give is what the owner does next.
type Give uint8

const (
	Serve    Give = iota // go on as before
	Drain                // ask the handler to wind down
	Offer                // store the latest mark, and that the successor may take over
	Withdraw             // withdraw the offer
	Yield                // hand over to the successor
	CutOff               // the drain time is over: end the handler's context, then hand over or release
	LetGo                // release the shard: the request does not stand any more
)

func (g Give) String() string {
	return [...]string{"serve", "drain", "offer", "withdraw", "yield", "cut off", "let go"}[min(g, LetGo)]
}

// Owner is the owner's side.
//
// Invariant: after the handler was asked to wind down the owner gives the shard
// up, to the successor or to nobody. It never resumes: the handler may have
// thrown away what it needs to go on.
func Owner(t rebalance.Terms, v Giving) Give {
	limit, limited := Limit(t)
	switch {
	case v.Returned && v.Wanted:
		return Yield
	case v.Returned:
		return LetGo
	case v.Draining && limited && v.Drained >= limit:
		return CutOff
	case v.Draining:
		return Serve
	case t.Mode != rebalance.Cooperative && v.Wanted:
		return Drain
	case v.Offered && (!v.Wanted || v.OfferedFor >= Standing(t)):
		return Withdraw
	case v.Wanted && !v.Offered:
		return Offer
	}
	return Serve
}

// Limit is how long the owner's handler may take to wind down; false: as long as it likes.
func Limit(t rebalance.Terms) (limit time.Duration, limited bool) {
	return t.Drain, t.AfterDrain != rebalance.Wait
}

// Standing is how long an offer stands.
func Standing(t rebalance.Terms) time.Duration { return max(2*t.Drain, 2*time.Second) }

// Patience is how long a successor waits for an owner that takes up to beat to notice a
// request: twice the drain time, and long enough for the owner to have noticed twice.
func Patience(t rebalance.Terms, beat time.Duration) time.Duration {
	return max(2*t.Drain, beat) + beat
}

// A Taking is what the successor knows about a move it wants.
type Taking struct {
	Planned      bool // the plan assigns it the shard
	Prepared     bool // its preparation has ended, well or not
	PreparingFor time.Duration
	Asked        bool // its seat carries the request
	AskedFor     time.Duration
	Offered      bool          // the row is offered to it
	Beat         time.Duration // how long the owner may take to notice
}

// A Take is what the successor does next.
type Take uint8

const (
	Stay    Take = iota // go on as before
	Prepare             // get ready, while the owner serves
	Ask                 // write the request
	Accept              // take over what is offered
	Seize               // force the owner out: it has not answered in time
	CallOff             // drop the request, or the preparation
)

func (t Take) String() string {
	return [...]string{"stay", "prepare", "ask", "accept", "seize", "call off"}[min(t, CallOff)]
}

// Successor is the successor's side.
//
// It prepares before it requests the shard, so that in neither mode anybody waits for a
// preparation: at its deadline the successor goes on unprepared.
func Successor(t rebalance.Terms, v Taking) Take {
	switch {
	case !v.Planned:
		return CallOff
	case !v.Asked && t.Prepare > 0 && !v.Prepared && v.PreparingFor < t.Prepare:
		return Prepare
	case !v.Asked:
		return Ask
	case v.Offered:
		return Accept
	case v.AskedFor < Patience(t, v.Beat):
		return Stay
	case t.Mode == rebalance.Cooperative:
		return CallOff
	case t.AfterDrain == rebalance.Force:
		return Seize
	}
	return Stay
}
