package lease

import (
	"errors"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// A Guarded is a value that is written under a generation: the smallest thing that can be
// fenced. memstore and dynamostore have registers of guarded values, for sinks and for the
// tests of users. A Guarded with nothing but a name has not been written yet.
//
// Invariant: its generation never decreases. A guarded value is therefore never deleted: it
// would accept the next stale write as its first.
type Guarded struct {
	// Name is the name of the shard, or begins with it. A name belongs to one shard forever,
	// because generations of different shards cannot be compared.
	Name       string
	Generation int64
	Value      string // at most checkpoint.MaxState bytes
}

// Put returns g after a write under a generation. It returns a [*checkpoint.StaleError] if g has
// been written under a higher one, and an [*checkpoint.InvalidError] if the value cannot be
// stored.
//
// A caller has to replace g by the result in one atomic step. To call Put and write later
// protects nothing, because the shard may change hands in between.
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

// Replace is Put of a value, or, if value is nil, of the value that g has: then it only raises the generation. A worker
// that takes a shard over raises the values of the shard, so that no lower generation overwrites them before the worker
// writes.
func (g Guarded) Replace(generation int64, value *string) (Guarded, error) {
	if value == nil {
		value = &g.Value
	}
	return g.Put(generation, *value)
}
