package storetest

import (
	"github.com/shardlease/shardlease-go/internal/proof/storm"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Rates are the probabilities, between 0 and 1, of the faults of a [Faulty] link.
type Rates struct {
	Lost      float64 // how likely a write never arrives; its caller gets an error
	ReplyLost float64 // how likely the answer to a write is lost; its caller gets an error
	Late      float64 // how likely a write arrives after a later one; its caller gets an error at once
	Twin      float64 // how likely the bytes of an answered write arrive again after a later one
	Arrive    float64 // how likely, before each write, one of the delayed writes arrives
	Read      float64 // how likely a Get or a List is not answered
}

// Faulty returns a link to store that loses, delays and repeats calls at random. The faults follow
// from the seed and the order of the calls alone: a test that makes its calls in the same order has
// the same faults.
func Faulty(store lease.Store, seed uint64, rates Rates) *Link {
	return NewLink(storm.NewNetwork(store, seed, storm.Rates(rates)))
}
