package storm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Fate is what the network does with one write.
type Fate uint8

const (
	Delivered Fate = iota // the write reaches the store and is answered
	Lost                  // the write never arrives, and its writer gets no answer
	ReplyLost             // the write reaches the store, and its answer is lost
	Late                  // the write arrives some time later, and its writer gets no answer
	Twin                  // the write reaches the store and is answered; the same bytes arrive again later
	Fates                 // the number of fates
)

func (f Fate) String() string {
	return [...]string{"delivered", "lost", "reply lost", "late", "twin", "?"}[min(f, Fates)]
}

// ErrNoAnswer is the error of a write that was lost or is late, or whose answer was lost.
var ErrNoAnswer = errors.New("no answer from the network")

// Rates are the probabilities, between 0 and 1, of what can happen to a call.
type Rates struct {
	Lost, ReplyLost, Late, Twin float64
	// Arrive is the probability, before each write, that a delayed write arrives first.
	Arrive float64
	// Read is the probability that a read is not answered.
	Read float64
}

// A Network is a store behind a network that loses, delays and repeats calls. Its faults follow
// from its seed and the order of the calls alone.
type Network struct {
	store lease.Store
	rates Rates

	mu     sync.Mutex
	chance *rand.Rand
	held   []lease.Write
	counts [Fates]int
	silent int
}

var _ lease.Store = (*Network)(nil)

// NewNetwork returns a network in front of store.
func NewNetwork(store lease.Store, seed uint64, rates Rates) *Network {
	return &Network{store: store, rates: rates, chance: rand.New(rand.NewPCG(seed, 0))}
}

// Clone returns a copy of the network, with its delayed writes, in front of another store. The
// copy has its own random numbers, from seed.
func (n *Network) Clone(store lease.Store, seed uint64) *Network {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := NewNetwork(store, seed, n.rates)
	c.held, c.counts, c.silent = slices.Clone(n.held), n.counts, n.silent
	return c
}

// Write makes the write with a random fate.
func (n *Network) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	arriving, fate := n.draw()
	if arriving != nil {
		_, _ = n.store.Write(ctx, *arriving) // nobody receives its answer
	}
	return n.Suffer(ctx, w, fate)
}

// draw decides at random which delayed write arrives now, if any, and the fate of the next write.
func (n *Network) draw() (arriving *lease.Write, fate Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.held) > 0 && n.chance.Float64() < n.rates.Arrive {
		arriving = new(n.pick(n.chance.IntN(len(n.held))))
	}
	x := n.chance.Float64()
	for i, rate := range []float64{n.rates.Lost, n.rates.ReplyLost, n.rates.Late, n.rates.Twin} {
		if x -= rate; x < 0 {
			return arriving, Lost + Fate(i)
		}
	}
	return arriving, Delivered
}

// Suffer makes the write with the given fate.
func (n *Network) Suffer(ctx context.Context, w lease.Write, fate Fate) (lease.Record, error) {
	if err := w.Check(); err != nil {
		return nil, err // no store would send it
	}
	n.mu.Lock()
	n.counts[fate]++
	if fate == Late || fate == Twin {
		n.held = append(n.held, lease.Write{Op: w.Op, Old: lease.Clone(w.Old), Next: lease.Clone(w.Next), Spoilt: w.Spoilt})
	}
	n.mu.Unlock()
	if fate == Lost || fate == Late {
		return nil, fmt.Errorf("%v: %w", w, ErrNoAnswer)
	}
	r, err := n.store.Write(ctx, w)
	if fate == ReplyLost {
		if err == nil {
			n.mu.Lock()
			n.silent++
			n.mu.Unlock()
		}
		return nil, fmt.Errorf("%v: %w", w, ErrNoAnswer)
	}
	return r, err
}

// Held returns the writes that have not arrived yet.
func (n *Network) Held() []lease.Write {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.held)
}

// Arrive delivers a delayed write. Nobody receives its answer; the returned error is a fault of
// the store itself.
func (n *Network) Arrive(ctx context.Context, i int) error {
	_, err := n.store.Write(ctx, n.take(i))
	if errors.Is(err, lease.ErrRefused) {
		return nil
	}
	return err
}

func (n *Network) take(i int) lease.Write {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pick(i)
}

func (n *Network) pick(i int) lease.Write {
	w := n.held[i]
	n.held = slices.Delete(n.held, i, i+1)
	return w
}

// Count returns how many writes had that fate.
func (n *Network) Count(fate Fate) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts[fate]
}

// Silent returns how many writes were stored while their answer was lost.
func (n *Network) Silent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.silent
}

// Verify passes the call to the store.
func (n *Network) Verify(ctx context.Context, group string) error { return n.store.Verify(ctx, group) }

// List lists the records, or is not answered.
func (n *Network) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	if n.unanswered() {
		return func(yield func(lease.Record, error) bool) { yield(nil, fmt.Errorf("%v: %w", q, ErrNoAnswer)) }
	}
	return n.store.List(ctx, q)
}

// Get reads a record, or is not answered.
func (n *Network) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if n.unanswered() {
		return nil, fmt.Errorf("%v: %w", k, ErrNoAnswer)
	}
	return n.store.Get(ctx, k)
}

func (n *Network) unanswered() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rates.Read > 0 && n.chance.Float64() < n.rates.Read
}
