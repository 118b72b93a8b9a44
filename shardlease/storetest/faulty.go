package storetest

import (
	"github.com/shardlease/shardlease-go/internal/storm"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Rates are the probabilities, between 0 and 1, of the faults of a [Faulty] link.
type Rates struct {
	Lost      float64 // that a write never arrives and its caller gets an error
	ReplyLost float64 // that a write reaches the store and its caller gets an error
	Late      float64 // that a write arrives after a later one and its caller gets an error at once
	Twin      float64 // that a write is answered and the same bytes arrive again after a later one
	Arrive    float64 // that, before a write, one of the delayed writes arrives
	Read      float64 // that a Get or a List is not answered
}

// Faulty returns a link to store that loses, delays and repeats calls at random. The faults follow
// from the seed and the order of the calls alone: a test that makes its calls in the same order has
// the same faults.
func Faulty(store lease.Store, seed uint64, rates Rates) *Link {
	return NewLink(storm.NewNetwork(store, seed, storm.Rates(rates)))
}
