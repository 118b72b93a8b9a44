package sim

import (
	"testing"

	"github.com/shardlease/shardlease-go/rebalance"
)

// TestScenarios suffers each kind of trouble alone, in both modes.
func TestScenarios(t *testing.T) {
	for _, s := range Scenarios() {
		for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
			t.Run(s.Name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				if r := s.Run(mode, given.from, given.trouble(), nil); r.Err != nil {
					t.Errorf("%.3000v", r.Err)
				}
			})
		}
	}
}

// TestSameSeedSameTrace replays a round: everything that happens in it follows from
// its seed.
func TestSameSeedSameTrace(t *testing.T) {
	most := given.trouble()
	a, b, other := Round(given.from, most, nil), Round(given.from, most, func(string) {}), Round(given.from+1, most, nil)
	if a.Hash != b.Hash || a.Stats != b.Stats {
		t.Errorf("seed %d: %x, and for who reads along %x", given.from, a.Hash, b.Hash)
	}
	if a.Hash == other.Hash {
		t.Errorf("another seed has the same trace: %x", a.Hash)
	}
}
