package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/shardlease/shardlease-go/shardlease/fencetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRepeatedOperationHappensOnce: the successor repeats the payment of record 3, and so does
// the worker that wakes up; the bank pays once.
func TestRepeatedOperationHappensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		const end = "a wakes up, and cannot know that\n  a writes record 3: done\n" +
			"the bank paid 100 for 4 operations; it paid nothing for 2 repeated requests\n"
		if !strings.Contains(out.String(), "b writes record 3: done") || !strings.HasSuffix(out.String(), end) {
			t.Errorf("unexpected output:\n%s", out.String())
		}
	})
}

// TestOperationsHappenOnce: the bank executes an operation once, however often and from wherever it is requested.
func TestOperationsHappenOnce(t *testing.T) {
	fencetest.PlayRepeats(t, func(t *fencetest.T) fencetest.Sink {
		b := &bank{done: map[string]bool{}}
		return fencetest.Sink{
			Apply: func(_ context.Context, f fencetest.Fence, effect []byte) error {
				t.Pause() // the request, and below its answer, may arrive late
				defer t.Pause()
				b.pay(f.Shard+"/"+string(effect), 1)
				return nil
			},
			Effects: func(_ context.Context, shard string) (effects [][]byte, _ error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, p := range b.payments {
					if effect, ok := strings.CutPrefix(p.id, shard+"/"); ok {
						effects = append(effects, []byte(effect))
					}
				}
				return effects, nil
			},
		}
	})
}
