package telemetry

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestProgramOfThePage: the program of docs/metrics.md serves metrics.
func TestProgramOfThePage(t *testing.T) {
	err := measured(new(memstore.Store), shardlease.Static("a"), func(*shardlease.Worker) error {
		r := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
		if text := r.Body.String(); !strings.Contains(text, `shardlease_held{group="orders"`) {
			t.Errorf("got\n%s", text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

type still struct{ *memstore.Store }

func (still) Write(context.Context, lease.Write) (lease.Record, error) { return nil, nil }

// BenchmarkCommit is what the measurement of a commit costs with the SDK.
func BenchmarkCommit(b *testing.B) {
	s := newScene(b)
	store := s.telemetry.Store(still{new(memstore.Store)})
	row := lease.Row{Group: group, Shard: "a", Generation: 3, Owner: lease.Owner{Name: "w", Incarnation: "w"}}
	w := lease.Write{Op: lease.OpSwap, Old: row, Next: row}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := store.Write(b.Context(), w); err != nil {
			b.Fatal(err)
		}
	}
}
