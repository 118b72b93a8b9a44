package fencetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
)

// testReports is what func TestReports(t *testing.T) would be in your package. The sink keeps one
// report for each shard, in a register.
func testReports(t *testing.T) {
	fencetest.Play(t, func(*fencetest.T) fencetest.Sink {
		reports := new(memstore.Register)
		return fencetest.Sink{
			Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
				return reports.Put(ctx, f.Shard, f.Generation, string(effect))
			},
			Raise: func(ctx context.Context, f fencetest.Fence) error { return reports.Raise(ctx, f.Shard, f.Generation) },
			Effects: func(ctx context.Context, shard string) ([][]byte, error) {
				report, err := reports.Get(ctx, shard)
				if report.Value == "" { // it was never written, or only its generation was raised
					return nil, err
				}
				return [][]byte{[]byte(report.Value)}, err
			},
			Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
		}
	})
}

// Play drives your own sink with writers that it pauses, replaces and wakes up.
func ExamplePlay() {
	_ = testReports // go test calls it
}

// testLedger is what func TestLedger(t *testing.T) would be in your package. The sink recognizes
// the effects that it has applied.
func testLedger(t *testing.T) {
	fencetest.PlayRepeats(t, func(t *fencetest.T) fencetest.Sink {
		l := &ledger{step: t.Pause, known: map[string]bool{}, entries: map[string][][]byte{}}
		return fencetest.Sink{Apply: l.apply, Effects: l.list}
	})
}

// The effect happens once, although writers may send it again. This sink uses no context, so it calls
// Pause between the steps of its storage, where PlayRepeats can then stop a writer.
func ExamplePlayRepeats() {
	_ = testLedger // go test calls it
}

// A journal compares and appends under one lock.
type journal struct {
	between func() // is called between the two

	mu      sync.Mutex
	fences  map[string]int64
	entries map[string][][]byte
}

func (j *journal) write(_ context.Context, f fencetest.Fence, entry []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if observed := j.fences[f.Shard]; f.Generation < observed {
		return &checkpoint.StaleError{Shard: f.Shard, Mine: f.Generation, Observed: observed}
	}
	j.between()
	j.fences[f.Shard] = f.Generation
	j.entries[f.Shard] = append(j.entries[f.Shard], entry)
	return nil
}

// raise is what the worker calls when it takes the shard over.
func (j *journal) raise(_ context.Context, f fencetest.Fence) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if observed := j.fences[f.Shard]; f.Generation < observed {
		return &checkpoint.StaleError{Shard: f.Shard, Mine: f.Generation, Observed: observed}
	}
	j.fences[f.Shard] = f.Generation
	return nil
}

func (j *journal) list(_ context.Context, shard string) ([][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries[shard], nil
}

// testJournal is what func TestJournal(t *testing.T) would be in your package.
func testJournal(t *testing.T) {
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
		j := &journal{between: t.Pause, fences: map[string]int64{}, entries: map[string][][]byte{}}
		return fencetest.Sink{Apply: j.write, Raise: j.raise, Effects: j.list, MustPause: true}
	})
}

// A sink that uses no context calls Pause between its comparison and its write. With MustPause the
// test fails if Play has stopped no writer there.
func ExampleT_Pause() {
	_ = testJournal // go test calls it
}
