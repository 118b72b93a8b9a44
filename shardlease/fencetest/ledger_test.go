package fencetest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/fencetest"
)

// A ledger is a sink that recognizes effects, and a test double of its storage: it calls step where
// the real storage would be called.
type ledger struct {
	step func()

	mu      sync.Mutex
	known   map[string]bool
	entries map[string][][]byte // by shard
}

func (l *ledger) apply(_ context.Context, f fencetest.Fence, effect []byte) error {
	l.step()
	defer l.step()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known[string(effect)] {
		l.known[string(effect)] = true
		l.entries[f.Shard] = append(l.entries[f.Shard], effect)
	}
	return nil
}

func (l *ledger) list(_ context.Context, shard string) ([][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[shard], nil
}

func TestReports(t *testing.T) { testReports(t) }

func TestLedger(t *testing.T) { testLedger(t) }

func TestJournal(t *testing.T) { testJournal(t) }
