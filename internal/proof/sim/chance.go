package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
)

// A chance is a source of random numbers.
type chance struct{ *rand.Rand }

func newChance(seed, stream uint64) chance { return chance{rand.New(rand.NewPCG(seed, stream))} }

// between draws a duration.
func (c chance) between(from, to time.Duration) time.Duration {
	if to <= from {
		return from
	}
	return from + time.Duration(c.Int64N(int64(to-from)))
}

// spread draws a duration whose logarithm is evenly distributed.
func (c chance) spread(from, to time.Duration) time.Duration {
	d := float64(from) * math.Pow(float64(to)/float64(from), c.Float64())
	return time.Duration(d).Round(time.Millisecond)
}

// likely draws whether something of that probability happens.
func (c chance) likely(p float64) bool { return p > 0 && c.Float64() < p }

// pick draws one element.
func pick[T any](c chance, from ...T) T { return from[c.IntN(len(from))] }

// A record is what became of a simulation: the hash of all that happened, and the promises that were broken.
type record struct {
	time   *virtual.Time
	seed   uint64
	hash   uint64
	log    func(string) // gets a line for everything that happens; may be nil
	broken []error
}

// blame notes a broken promise. The simulation ends at the first.
func (r *record) blame(format string, args ...any) {
	err := fmt.Errorf("seed %d at %v: "+format, append([]any{r.seed, r.time.Now()}, args...)...)
	r.broken = append(r.broken, err)
	if r.log != nil {
		r.log(err.Error())
	}
}

// check notes the promise that an error says is broken, if there is one.
func (r *record) check(err error) {
	if err != nil {
		r.blame("%w", err)
	}
}

// sound reports whether no promise was broken.
func (r *record) sound() bool { return len(r.broken) == 0 }

// trace adds what happened to the hash and to the log.
func (r *record) trace(what, who string, text func() string) {
	r.mix(uint64(r.time.Now()))
	for i := range len(what) {
		r.mix(uint64(what[i]))
	}
	for i := range len(who) {
		r.mix(uint64(who[i]))
	}
	if r.log != nil {
		line := fmt.Sprintf("%10.3fs %-5s %s", r.time.Now().Seconds(), who, what)
		if text != nil {
			line += " " + text()
		}
		r.log(line)
	}
}

// note adds a line to the log and nothing to the hash.
func (r *record) note(who, format string, args ...any) {
	if r.log != nil {
		r.log(fmt.Sprintf("%10.3fs %-5s ", r.time.Now().Seconds(), who) + fmt.Sprintf(format, args...))
	}
}

func (r *record) mix(v uint64) { r.hash = (r.hash ^ v) * 1099511628211 }
