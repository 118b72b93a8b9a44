package engine_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/rebalance"
)

// holding is a world of one worker that holds so many shards.
func holding(b *testing.B, shards int) *node {
	b.Helper()
	w := newWorld(b, shards)
	n := w.join("a", config(rebalance.Eager))
	w.until(time.Minute, func() bool { return len(n.Handlers) == shards })
	w.run(5 * time.Second)
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
func (n *node) commit(b *testing.B, in engine.Marks) {
	b.Helper()
	out, _ := n.Engine.Step(n.Moment(), in)
	for _, o := range out {
		send, ok := o.(engine.Send)
		if !ok {
			continue
		}
		r, err := n.w.store.Write(b.Context(), send.Write)
		n.Engine.Step(n.Moment(), engine.Settled{Write: send.Write, Record: r, Err: err})
		return
	}
	b.Fatalf("nothing was sent, but %v", out)
}
