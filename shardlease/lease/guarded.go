package lease

import (
	"errors"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// A Guarded is a value that is written under a generation: the smallest thing that
// can be fenced. memstore and dynamostore have registers of them, for sinks and for
// users' own tests. The zero value, but for its name, is one that nobody has written.
//
// Invariant: its generation never goes down. So what is guarded is never deleted, or
// it would take the next stale write for its first.
type Guarded struct {
	// Name is that of the shard, or begins with it: generations of different shards
	// say nothing about each other, so a name belongs to one shard for ever.
	Name       string
	Generation int64
	Value      string // at most checkpoint.MaxState bytes
}

// Put is g as written under a generation: a [*checkpoint.StaleError] where it has been
// written under a higher one, an [*checkpoint.InvalidError] for what cannot be stored.
//
// It is a rule for whoever can replace g by the result in one atomic step. To ask
// first and to write afterwards is worth nothing: between the two the shard changes
// hands.
func (g Guarded) Put(generation int64, value string) (Guarded, error) {
	errs := []error{validName("name", g.Name), positive("generation", generation)}
	if len(value) > checkpoint.MaxState {
		errs = append(errs, tooLong("value", len(value), checkpoint.MaxState))
	}
	if err := errors.Join(errs...); err != nil {
		return g, err
	}
	if generation < g.Generation {
		return g, &checkpoint.StaleError{Shard: g.Name, Mine: generation, Observed: g.Generation}
	}
	return Guarded{Name: g.Name, Generation: generation, Value: value}, nil
}
