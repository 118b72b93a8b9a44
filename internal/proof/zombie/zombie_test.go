package zombie_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A ledger is a guard of one's own.
type ledger struct {
	mu     sync.Mutex
	fences map[string]int64
	lines  []string
}

func (l *ledger) Do(ctx context.Context, t fence.Token, effect func(context.Context, *[]string) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if observed := l.fences[t.Group+"/"+t.Shard]; t.Generation < observed {
		return t.Refused(observed)
	}
	if err := effect(ctx, &l.lines); err != nil {
		return err
	}
	l.fences[t.Group+"/"+t.Shard] = t.Generation
	return nil
}

// direct calls a handler without a network, which would keep time from passing in a bubble.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Body == nil { // as a server gets it
		r.Body = http.NoBody
	}
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

func register(*testing.T) zombie.Sink {
	r := new(memstore.Register)
	return zombie.Sink{Raise: r.Raise, Write: func(ctx context.Context, text string) error {
		t, _ := fence.FromContext(ctx)
		return r.Put(ctx, t.Shard, t.Generation, text)
	}}
}

func guard(*testing.T) zombie.Sink {
	l := &ledger{fences: map[string]int64{}}
	return zombie.Sink{Raise: fence.Raise(l), Write: func(ctx context.Context, text string) error {
		return fence.Do(ctx, l, func(_ context.Context, lines *[]string) error { *lines = append(*lines, text); return nil })
	}}
}

func overHTTP(*testing.T) zombie.Sink {
	l := &ledger{fences: map[string]int64{}}
	mux := http.NewServeMux()
	mux.Handle("POST /fence", fencehttp.Handler[*[]string]{Guard: l})
	mux.Handle("POST /lines", fencehttp.Handler[*[]string]{Guard: l, Effect: func(_ http.ResponseWriter, r *http.Request, lines *[]string) error {
		text, err := io.ReadAll(r.Body)
		*lines = append(*lines, string(text))
		return err
	}})
	client := &http.Client{Transport: &fencehttp.Transport{Base: direct{mux}}}
	return zombie.Sink{Raise: fencehttp.Raise(client, "http://ledger/fence"), Write: func(ctx context.Context, text string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://ledger/lines", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		return errors.Join(fencehttp.Check(response), response.Body.Close())
	}}
}

// TestLateEffectIsRefused: an hour after the idle successor has started, the late effect of the earlier owner is refused
// by each kind of sink. Without the raise the sink accepts it.
func TestLateEffectIsRefused(t *testing.T) {
	for name, open := range map[string]func(*testing.T) zombie.Sink{"register": register, "guard": guard, "HTTP": overHTTP} {
		t.Run(name, func(t *testing.T) { zombie.Check(t, open) })
	}
}
