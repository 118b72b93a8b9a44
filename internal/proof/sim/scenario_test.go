package sim

import (
	"reflect"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

// TestScenarios suffers each kind of trouble alone, in both modes.
func TestScenarios(t *testing.T) {
	for _, s := range fixture.Sample(3, Scenarios()) {
		for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
			t.Run(s.Name+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				// A short run may be spared its trouble; of several, one is not.
				suffered := 0
				for seed := given.from; seed < given.from+20 && suffered == 0; seed++ {
					r := s.Run(mode, seed, given.trouble(short), nil)
					if r.Err != nil {
						t.Fatalf("%.3000v", r.Err)
					}
					suffered = r.Stats.Faults[s.Fault]
				}
				if suffered == 0 {
					t.Errorf("no %v happened", s.Fault)
				}
			})
		}
	}
}

// TestSameSeedSameTrace replays a round: everything that happens in it follows from
// its seed.
func TestSameSeedSameTrace(t *testing.T) {
	most := given.trouble(short)
	a, b, other := Round(given.from, most, nil), Round(given.from, most, func(string) {}), Round(given.from+1, most, nil)
	if a.Hash != b.Hash || !reflect.DeepEqual(a.Stats, b.Stats) {
		t.Errorf("seed %d: %x, and for who reads along %x", given.from, a.Hash, b.Hash)
	}
	if a.Hash == other.Hash {
		t.Errorf("another seed has the same trace: %x", a.Hash)
	}
	if a, b := Season(given.from, most, nil), Season(given.from, most, func(string) {}); a.Hash != b.Hash || !reflect.DeepEqual(a.Stats, b.Stats) {
		t.Errorf("season %d: %x, and for who reads along %x", given.from, a.Hash, b.Hash)
	}
}

// TestOneStartForOneEnd replaces a process twice before it has taken the first stop. Once its
// successor has stopped, nothing starts there.
func TestOneStartForOneEnd(t *testing.T) {
	w := newWorld(1, nil)
	w.set = drawRound(w.chance)
	w.populate()
	n := w.nodes[0]
	w.until(time.Minute, n.Up)
	for range 2 {
		if _, ok := endProcess(&w.faults, Stop, n); !ok {
			t.Fatal("the process was not told twice to stop")
		}
	}
	w.run(time.Millisecond)
	if !w.until(time.Hour, func() bool { return n.Up() && !n.leaver }) {
		t.Fatal("no process came after it")
	}
	w.run(10 * w.set.ttl)
	n.stop()
	w.run(time.Millisecond)
	if !w.until(w.set.drain+w.set.ttl, func() bool { return !n.Up() }) {
		t.Fatal("the next process does not stop")
	}
	if w.until(10*w.set.ttl, n.Up) {
		t.Error("a process starts that nobody has asked for")
	}
}
