package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// In these tests the workers of a fleet have different lease times, as during the rollout of a
// change of TTL.

// A tally counts the evictions that are sent, and those that are refused.
type tally struct{ evictions, refused atomic.Int32 }

// over counts the evictions over the link, and makes its listings slow.
func (c *tally) over(link *storetest.Link, slow time.Duration) {
	link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		r, err := send()
		if w.Op == lease.OpDelete {
			c.evictions.Add(1)
			if _, is := errors.AsType[*lease.RefusedError](err); is {
				c.refused.Add(1)
			}
		}
		return r, err
	})
	link.OnList(func(_ context.Context, _ lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		time.Sleep(slow)
		return send()
	})
}

// TestMixedLeaseTimes: workers with a long lease list the seats again before they evict a
// worker with a short lease. In a minute without faults none of them sends an eviction.
// (Before, each sent 3.3 a second when the short lease was 300 ms, all refused.) When the
// worker with the short lease dies, its shards are held again within T + h + 0.5 s of its
// own lease.
func TestMixedLeaseTimes(t *testing.T) {
	t.Parallel()
	for _, m := range []mixed{
		{long: 10 * time.Second, short: 300 * time.Millisecond},
		{long: 10 * time.Second, short: time.Second, slow: 250 * time.Millisecond}, // after such a listing a worker waits for 1 s
		{long: 30 * time.Second, short: 3 * time.Second},
	} {
		t.Run(fmt.Sprintf("%v among %v, listings take %v", m.short, m.long, m.slow), func(t *testing.T) {
			moments := fixture.Size(2, 10)
			for at := range moments { // the worker dies at different moments between two polls
				m.dies = time.Duration(at) * m.short / time.Duration(moments)
				bubble(t, m.test)
			}
		})
	}
}

type mixed struct{ long, short, slow, dies time.Duration }

func (m mixed) test(t *testing.T) {
	s := newStage(t, 8)
	counted := new(tally)
	for i := range 3 {
		link := storetest.NewLink(s.store)
		counted.over(link, m.slow)
		s.enterOn(link, fmt.Sprint(i), shardlease.Config{Handoff: rebalance.Eager, TTL: m.long}, serve)
	}
	a := s.enter("short", shardlease.Config{Handoff: rebalance.Eager, TTL: m.short}, serve)
	s.shared(m.long, "0", "1", "2", "short")
	time.Sleep(m.long)
	before, calls := counted.evictions.Load(), len(s.all())
	time.Sleep(time.Minute + m.dies)
	if n := counted.evictions.Load() - before; n > 0 || len(s.all()) > calls {
		t.Errorf("in a minute without faults %d evictions were sent (%d refused since the start) and %d tenures began", n, counted.refused.Load(), len(s.all())-calls)
	}
	a.die()
	took := s.within(time.Minute, "the others hold everything", func() bool {
		r := s.running()
		return r["0"]+r["1"]+r["2"] == 8
	})
	t.Logf("held again %v after the death", took)
	const rests = 4 // after a listing a worker waits this many times as long as the listing took
	if took > m.short+m.short/3+500*time.Millisecond+2*(1+rests)*m.slow {
		t.Errorf("held again after %v", took)
	}
}
