package storetest

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
	Delivered Fate = iota // stored or refused, and answered
	Lost                  // it never arrives, and nobody says so
	ReplyLost             // stored or refused, and the answer is lost
	Late                  // it arrives some time later; the writer hears nothing
	Twin                  // stored or refused, and answered; the same bytes arrive once more later
	fates                 // how many there are
)

func (f Fate) String() string {
	return [...]string{"delivered", "lost", "reply lost", "late", "twin", "?"}[min(f, fates)]
}

// ErrNoAnswer is all that a writer learns of a write that was lost, is late, or
// whose answer was lost.
var ErrNoAnswer = errors.New("storetest: no answer")

// Rates are the chances, between 0 and 1, of what can happen to a call.
type Rates struct {
	Lost, ReplyLost, Late, Twin float64
	// Arrive is the chance, before each write, that one that is held arrives
	// first.
	Arrive float64
	// Read is the chance that a read is not answered.
	Read float64
}

// Faulty is a store behind a network that loses, delays and repeats. What it
// does follows from its seed and the order of the calls alone.
type Faulty struct {
	store lease.Store
	rates Rates

	mu     sync.Mutex
	chance *rand.Rand
	held   []lease.Write
	counts [fates]int
	silent int
}

var _ lease.Store = (*Faulty)(nil)

// NewFaulty puts the network in front of store.
func NewFaulty(store lease.Store, seed uint64, rates Rates) *Faulty {
	return &Faulty{store: store, rates: rates, chance: rand.New(rand.NewPCG(seed, 0))}
}

// Clone copies the network with all it holds, in front of another store. The
// copy draws its own chances, from seed.
func (f *Faulty) Clone(store lease.Store, seed uint64) *Faulty {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := NewFaulty(store, seed, f.rates)
	c.held, c.counts, c.silent = slices.Clone(f.held), f.counts, f.silent
	return c
}

// Write lets a fate be drawn for w.
func (f *Faulty) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	arriving, fate := f.draw()
	if arriving != nil {
		_, _ = f.store.Write(ctx, *arriving) // its answer goes nowhere, whatever it is
	}
	return f.Suffer(ctx, w, fate)
}

// draw decides which held write arrives now, if any, and what happens to the next.
func (f *Faulty) draw() (arriving *lease.Write, fate Fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.held) > 0 && f.chance.Float64() < f.rates.Arrive {
		arriving = new(f.pick(f.chance.IntN(len(f.held))))
	}
	x := f.chance.Float64()
	for i, rate := range []float64{f.rates.Lost, f.rates.ReplyLost, f.rates.Late, f.rates.Twin} {
		if x -= rate; x < 0 {
			return arriving, Lost + Fate(i)
		}
	}
	return arriving, Delivered
}

// Suffer makes the write with a fate that the caller chooses.
func (f *Faulty) Suffer(ctx context.Context, w lease.Write, fate Fate) (lease.Record, error) {
	if err := w.Check(); err != nil {
		return nil, err // no store sends it
	}
	f.mu.Lock()
	f.counts[fate]++
	if fate == Late || fate == Twin {
		f.held = append(f.held, lease.Write{Op: w.Op, Old: lease.Clone(w.Old), Next: lease.Clone(w.Next)})
	}
	f.mu.Unlock()
	if fate == Lost || fate == Late {
		return nil, fmt.Errorf("%v: %w", w, ErrNoAnswer)
	}
	r, err := f.store.Write(ctx, w)
	if fate == ReplyLost {
		if err == nil {
			f.mu.Lock()
			f.silent++
			f.mu.Unlock()
		}
		return nil, fmt.Errorf("%v: %w", w, ErrNoAnswer)
	}
	return r, err
}

// Held lists the writes that are still to arrive.
func (f *Faulty) Held() []lease.Write {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.held)
}

// Arrive lets one of the held writes arrive. Its answer goes nowhere; an error
// is one of the store itself.
func (f *Faulty) Arrive(ctx context.Context, i int) error {
	_, err := f.store.Write(ctx, f.take(i))
	if errors.Is(err, lease.ErrRefused) {
		return nil
	}
	return err
}

func (f *Faulty) take(i int) lease.Write {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pick(i)
}

func (f *Faulty) pick(i int) lease.Write {
	w := f.held[i]
	f.held = slices.Delete(f.held, i, i+1)
	return w
}

// Count is how many writes have had that fate.
func (f *Faulty) Count(fate Fate) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[fate]
}

// Silent is how many writes were stored while their answer was lost.
func (f *Faulty) Silent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.silent
}

// List reads, or is not answered.
func (f *Faulty) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	if f.unanswered() {
		return func(yield func(lease.Record, error) bool) { yield(nil, fmt.Errorf("%v: %w", q, ErrNoAnswer)) }
	}
	return f.store.List(ctx, q)
}

// Get reads, or is not answered.
func (f *Faulty) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if f.unanswered() {
		return nil, fmt.Errorf("%v: %w", k, ErrNoAnswer)
	}
	return f.store.Get(ctx, k)
}

func (f *Faulty) unanswered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rates.Read > 0 && f.chance.Float64() < f.rates.Read
}
