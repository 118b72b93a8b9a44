package zombie

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

// A Ledger is a guard of one's own: it keeps lines, and a fence for each group and shard.
type Ledger struct {
	mu     sync.Mutex
	fences map[string]int64
	lines  []string
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{fences: map[string]int64{}} }

// Do runs an effect in the step that raises the fence.
func (l *Ledger) Do(ctx context.Context, t fence.Token, effect func(context.Context, *[]string) error) error {
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

// Service returns a service with a ledger of its own.
func Service() http.Handler {
	l, mux := NewLedger(), http.NewServeMux()
	mux.Handle("POST /fence", fencehttp.Handler[*[]string]{Guard: l})
	mux.Handle("POST /lines", fencehttp.Handler[*[]string]{Guard: l, Effect: func(_ http.ResponseWriter, r *http.Request, lines *[]string) error {
		text, err := io.ReadAll(r.Body)
		*lines = append(*lines, string(text))
		return err
	}})
	return mux
}

// OverHTTP returns the sink of a [Service] at that address. The client has a fencehttp.Transport.
func OverHTTP(client *http.Client, url string) Sink {
	return Sink{Raise: fencehttp.Raise(client, url+"/fence"), Write: func(ctx context.Context, text string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/lines", strings.NewReader(text))
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
