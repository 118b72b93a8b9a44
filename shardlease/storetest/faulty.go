package storetest

import (
	"github.com/shardlease/shardlease-go/internal/storm"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Rates are the chances, between 0 and 1, of the faults of a [Faulty] link.
type Rates struct {
	Lost      float64 // a write never arrives; the caller gets an error
	ReplyLost float64 // a write is stored or refused; the caller gets an error
	Late      float64 // a write arrives after a later one; the caller gets an error at once
	Twin      float64 // a write is answered, and the same bytes arrive once more after a later one
	Arrive    float64 // before a write, one that is late arrives
	Read      float64 // a Get or a List is not answered
}

// Faulty returns a link to store that loses, delays and repeats calls at random. What it
// does follows from the seed and the order of the calls alone, so a test that makes its
// calls in the same order sees the same faults.
func Faulty(store lease.Store, seed uint64, rates Rates) *Link {
	return NewLink(storm.NewNetwork(store, seed, storm.Rates(rates)))
}
