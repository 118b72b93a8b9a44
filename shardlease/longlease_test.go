package shardlease_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestLongLeaseTimeRetriesSoon: under a lease time of a day, one call fails at once, or is not
// answered. Every call is repeated within its limit of 30 s and a pause of 10 s, so the first tenure
// begins, and its first commit is stored, within a minute. Before, a commit took 15 minutes, the
// first Verify an hour, and a claim without an answer almost six hours.
func TestLongLeaseTimeRetriesSoon(t *testing.T) {
	for _, what := range []string{"seat create", "seat swap", "row create", "row transfer", "commit", "verify", "list seat", "list lease"} {
		for _, silent := range []bool{false, true} {
			if silent && what == "list lease" {
				continue // may take five minutes: there may be many rows
			}
			subtest(t, fmt.Sprintf("%s/%t", what, silent), func(t *testing.T) {
				s := newStage(t, 1)
				committed := make(chan time.Time, 1)
				began := time.Now()
				s.enterOn(failing(s, what, silent), "a", shardlease.Config{TTL: 24 * time.Hour, Handoff: rebalance.Eager}, func(ctx context.Context, tn *shardlease.Tenure) error {
					if err := tn.Commit(tn.Context(), "1"); err != nil {
						return err
					}
					committed <- time.Now()
					<-ctx.Done()
					return nil
				})
				if took := (<-committed).Sub(began); took > time.Minute {
					t.Errorf("the first commit was stored after %v", took)
				}
			})
		}
	}
}

// failing returns a link on which the first call of that description fails: at once, or when its
// context ends.
func failing(s *stage, what string, silent bool) *storetest.Link {
	link := storetest.NewLink(s.store)
	var failed atomic.Bool
	fails := func(ctx context.Context, call string) error {
		if call != what || !failed.CompareAndSwap(false, true) {
			return nil
		}
		if silent {
			<-ctx.Done()
		}
		return storetest.ErrCut
	}
	link.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if err := fails(ctx, describe(w)); err != nil {
			return nil, err
		}
		return send()
	})
	link.OnVerify(func(ctx context.Context, _ string, send func() error) error {
		if err := fails(ctx, "verify"); err != nil {
			return err
		}
		return send()
	})
	link.OnList(func(ctx context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		if err := fails(ctx, "list "+q.Kind.String()); err != nil {
			return func(yield func(lease.Record, error) bool) { yield(nil, err) }
		}
		return send()
	})
	return link
}
