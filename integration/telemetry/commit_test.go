package telemetry

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestProgramOfThePage: the program of docs/metrics.md serves the metrics of its worker and of the group.
func TestProgramOfThePage(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	defer http.DefaultClient.CloseIdleConnections()
	store := new(memstore.Store)
	telemetry, _, err := measured(store, shardlease.Static("a"), at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() { watch(ctx, telemetry, store) })
	defer watcher.Wait()
	defer stop()
	for _, want := range []string{`shardlease_held{group="orders"`, `shardlease_check_status{group="orders"`} {
		text := ""
		for end := time.Now().Add(time.Minute); !strings.Contains(text, want) && time.Now().Before(end); wait(t.Context(), 10*time.Millisecond) {
			r, err := http.Get("http://" + at.Addr().String() + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			all, _ := io.ReadAll(r.Body)
			_ = r.Body.Close()
			text = string(all)
		}
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
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
