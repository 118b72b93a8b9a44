// Package handoff decides the steps of a move, as two pure functions: one for the owner and one for
// the successor.
//
// The arguments of each function are what its side knows now. Neither function keeps state, and the
// two sides communicate through the table alone.
//
// Invariant: every phase ends by itself. Even if the other side never does anything again, each
// function returns after some time a step that ends the phase. The only exception is
// [rebalance.Wait].
package handoff

import (
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A Giving is what the owner of a shard knows about the move of that shard.
type Giving struct {
	Wanted     bool          // the request stands: the requester's seat exists, and the request names this generation
	Draining   bool          // the soft context has ended, so the handler should wind down
	Drained    time.Duration // how long ago the soft context ended
	Returned   bool          // the handler has returned
	Offered    bool          // the row has an offer
	OfferedFor time.Duration // how long the offer has stood
}

// A Give is the next step of the owner.
type Give uint8

const (
	Serve    Give = iota // continue as before
	Drain                // end the soft context of the handler
	Offer                // store the latest mark, and an offer to the successor
	Withdraw             // withdraw the offer
	Yield                // hand the shard over to the successor
	CutOff               // the drain time is over: end the handler's hard context, then hand over or release
	LetGo                // release the shard: the request no longer stands
)

func (g Give) String() string {
	return [...]string{"serve", "drain", "offer", "withdraw", "yield", "cut off", "let go"}[min(g, LetGo)]
}

// Owner returns the owner's next step.
//
// Invariant: once the soft context of its handler has ended, the owner gives the shard up, to the
// successor or to nobody. The owner never resumes, because the handler may have discarded what it
// needs to continue.
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

// Limit returns how long the owner's handler may take to wind down; false: there is no limit.
func Limit(t rebalance.Terms) (limit time.Duration, limited bool) {
	return t.Drain, t.AfterDrain != rebalance.Wait
}

// Standing returns how long an offer stands before the owner withdraws it.
func Standing(t rebalance.Terms) time.Duration { return max(2*t.Drain, 2*time.Second) }

// Patience returns how long a successor waits for the owner after the successor has written its
// request. The owner may take up to beat to notice the request. After that it has twice the drain
// time, or beat if that is longer.
func Patience(t rebalance.Terms, beat time.Duration) time.Duration {
	return max(2*t.Drain, beat) + beat
}

// A Taking is what the successor knows about a move of a shard to itself.
type Taking struct {
	Prepared     bool          // the preparation has ended, with or without an error
	PreparingFor time.Duration // how long ago the preparation began
	Asked        bool          // this worker requests the shard
	AskedFor     time.Duration // how long ago others could first see the request; 0: they cannot yet
	Offered      bool          // the row is offered to this worker
	Beat         time.Duration // how long the owner may take to notice the request
}

// A Take is the next step of the successor.
type Take uint8

const (
	Stay    Take = iota // continue as before
	Prepare             // prepare, while the owner still processes the shard
	Ask                 // write the request
	Accept              // take the shard over by accepting the offer
	Seize               // take the shard from the owner, which has not answered in time
	CallOff             // drop the request, or the preparation
)

func (t Take) String() string {
	return [...]string{"stay", "prepare", "ask", "accept", "seize", "call off"}[min(t, CallOff)]
}

// Successor returns the successor's next step.
//
// The successor prepares before it requests the shard, so that nobody waits for a preparation in
// either mode. If the preparation does not end before its deadline, the successor requests the
// shard unprepared.
func Successor(t rebalance.Terms, v Taking) Take {
	switch {
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
