package engine_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

// holding returns the only worker of a fleet, which holds so many shards.
func holding(t testing.TB, shards int) *member {
	t.Helper()
	f := newFleet(t, shards, 0, rebalance.Eager)
	n := f.join()
	f.until(time.Minute, f.held)
	f.Run(5 * time.Second)
	return n
}

// BenchmarkStep is what one step costs with many held shards: a mark, a commit from
// the mark to its answer, and a step in which only time has passed.
func BenchmarkStep(b *testing.B) {
	for _, shards := range []int{10, 1000, 10_000} {
		n := holding(b, shards)
		id := n.tenures()[0]
		seq := uint64(0)
		mark := func(flush bool) engine.Marks {
			seq++
			in := engine.Marks{Tenure: id, Mark: checkpoint.Mark{Position: strconv.FormatUint(seq, 10)}, Seq: seq}
			if flush {
				in.Flush = seq
			}
			return in
		}
		b.Run(fmt.Sprintf("mark/%d", shards), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.Engine.Step(n.Moment(), mark(false))
			}
		})
		b.Run(fmt.Sprintf("commit/%d", shards), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.commit(b, mark(true))
			}
		})
		b.Run(fmt.Sprintf("tick/%d", shards), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.Engine.Step(n.Moment(), engine.Tick{})
			}
		})
	}
}

// commit goes from a mark to its answer, without a network.
func (n *member) commit(t testing.TB, in engine.Input) {
	t.Helper()
	out, _ := n.Engine.Step(n.Moment(), in)
	for _, o := range out {
		send, ok := o.(engine.Send)
		if !ok {
			continue
		}
		r, err := n.of.store.Write(t.Context(), send.Write)
		n.Engine.Step(n.Moment(), engine.Settled{Write: send.Write, Record: r, Err: err})
		return
	}
	t.Fatalf("nothing was sent, but %v", out)
}

// TestStepsDoNotGrowWithShards: a step looks at the shards that it concerns, and not at all that are held.
func TestStepsDoNotGrowWithShards(t *testing.T) {
	const few, most = 400, 5
	many := fixture.Size(2_500, 10_000)
	for name, step := range map[string]func(n *member, held []engine.Tenure, i int){
		"time has passed": func(n *member, _ []engine.Tenure, _ int) { n.Engine.Step(n.Moment(), engine.Tick{}) },
		"a commit": func(n *member, held []engine.Tenure, i int) {
			seq := uint64(i + 1)
			n.commit(n.of.TB, engine.Marks{Tenure: held[0], Mark: checkpoint.Mark{Position: strconv.Itoa(i + 1)}, Seq: seq, Flush: seq})
		},
		"a shard is given up in a shutdown": func(n *member, held []engine.Tenure, i int) {
			half := len(held) / 2
			if i == 0 {
				n.Engine.Step(n.Moment(), engine.Stop{})
				for _, id := range held[:half] {
					n.commit(n.of.TB, engine.Returned{Tenure: id})
				}
			}
			n.commit(n.of.TB, engine.Returned{Tenure: held[half+i]})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ratio := float64(fastest(t, many, step)) / float64(fastest(t, few, step))
			t.Logf("a step takes %.1f times as long with %d shards as with %d", ratio, many, few)
			if ratio > most {
				t.Errorf("at most %d times", most)
			}
		})
	}
}

// fastest returns the shortest time of ten consecutive steps among 200.
func fastest(t *testing.T, shards int, step func(n *member, held []engine.Tenure, i int)) time.Duration {
	n := holding(t, shards)
	held, shortest := n.tenures(), time.Hour
	for i := 0; i < 200; i += 10 {
		began := time.Now()
		for j := range 10 {
			step(n, held, i+j)
		}
		shortest = min(shortest, time.Since(began))
	}
	return shortest
}
