// Package ledger is the sink of the examples that run as several processes: an HTTP service that keeps
// effects in memory, and compares their fencing tokens. In production, use a guard that works in a
// database, such as the one of package fencesql.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencehttp"
)

// An Effect is what a request has written, and the token of the request.
type Effect struct {
	Token fence.Token
	Path  string // identifies the effect: a second request with this path changes nothing
	Text  string
}

// A Ledger is a fence.Guard. A PUT request with a token adds an effect. The zero value is ready to use.
type Ledger struct {
	Log io.Writer // gets a line for each effect and each refusal; nil: nothing is logged

	mu      sync.Mutex
	effects []Effect
	refused []fence.Token
	fences  map[fence.Token]int64 // the highest generation, by a token whose generation is zero
}

var _ fence.Guard[*Ledger] = (*Ledger)(nil)

// Do compares the token and runs the effect while it holds the mutex, so both are one step.
func (l *Ledger) Do(ctx context.Context, t fence.Token, effect func(context.Context, *Ledger) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := t
	lease.Generation = 0
	if highest := l.fences[lease]; t.Generation < highest {
		l.refused = append(l.refused, t)
		l.log("refused: %v, because the ledger has seen generation %d", t, highest)
		return t.Refused(highest)
	}
	if err := effect(ctx, l); err != nil {
		return err
	}
	if l.fences == nil {
		l.fences = map[fence.Token]int64{}
	}
	l.fences[lease] = t.Generation
	return nil
}

// ServeHTTP adds the effect of a request.
func (l *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fencehttp.Handler[*Ledger]{Guard: l, Effect: add}.ServeHTTP(w, r)
}

// add adds the effect of a request, unless the ledger has that effect. A fence keeps out late effects, and
// not repeated ones: a worker repeats an effect if its predecessor died between the effect and the commit.
func add(_ http.ResponseWriter, r *http.Request, l *Ledger) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	token, _ := fence.FromContext(r.Context())
	for _, e := range l.effects {
		if e.Path == r.URL.Path {
			return nil
		}
	}
	l.effects = append(l.effects, Effect{token, r.URL.Path, string(text)})
	l.log("accepted: %s under %v", r.URL.Path, token)
	return nil
}

func (l *Ledger) log(format string, args ...any) {
	if l.Log != nil {
		fmt.Fprintf(l.Log, format+"\n", args...)
	}
}

// Serve serves an empty ledger until ctx ends.
func Serve(ctx context.Context, address string, log io.Writer) error {
	server := &http.Server{Addr: address, Handler: &Ledger{Log: log}}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Effects returns all effects, in the order in which they were accepted.
func (l *Ledger) Effects() []Effect {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.effects)
}

// Refused returns the tokens that were refused because the ledger had seen a higher generation.
func (l *Ledger) Refused() []fence.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.refused)
}
