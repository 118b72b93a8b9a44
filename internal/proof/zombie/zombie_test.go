package zombie_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	l := zombie.NewLedger()
	return zombie.Sink{Raise: fence.Raise(l), Write: func(ctx context.Context, text string) error {
		return fence.Do(ctx, l, func(_ context.Context, lines *[]string) error { *lines = append(*lines, text); return nil })
	}}
}

func overHTTP(*testing.T) zombie.Sink {
	client := &http.Client{Transport: &fencehttp.Transport{Base: direct{zombie.Service()}}}
	return zombie.OverHTTP(client, "http://ledger")
}

// TestLateEffectIsRefused: an hour after the idle successor has started, the late effect of the earlier owner is refused
// by each kind of sink. Without the raise the sink accepts it.
func TestLateEffectIsRefused(t *testing.T) {
	for name, open := range map[string]func(*testing.T) zombie.Sink{"register": register, "guard": guard, "HTTP": overHTTP} {
		t.Run(name, func(t *testing.T) { zombie.Check(t, open) })
	}
}
