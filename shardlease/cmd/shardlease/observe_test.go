package main

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// slow are tables that answer each listing only after a time.
type slow struct {
	*places
	by time.Duration
}

func (s slow) Reader(ctx context.Context, at place) (inspect.Lister, error) {
	from, err := s.places.Reader(ctx, at)
	return slowly{from, s.by}, err
}

type slowly struct {
	inspect.Lister
	by time.Duration
}

func (s slowly) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		select {
		case <-time.After(s.by):
			s.Lister.List(ctx, q)(yield)
		case <-ctx.Done():
			yield(nil, ctx.Err())
		}
	}
}

// TestObservesForAsLongAsAsked: between the first and the last look is at least the time of --observe, however slow
// the table answers. So 14 s show that all workers are dead, whose heartbeats must stand still for 13.8 s.
func TestObservesForAsLongAsAsked(t *testing.T) {
	for _, by := range []time.Duration{0, 500 * time.Millisecond, 800 * time.Millisecond, 1900 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			defer s.end()
			s.join("a", "b", "c")
			time.Sleep(10 * time.Minute)
			s.kill("a", "b", "c")
			var out bytes.Buffer
			p := &program{
				in: strings.NewReader(""), out: &out, problems: &out, now: time.Now, tables: slow{s.places, by},
				env: func(name string) (string, bool) { value, ok := s.env[name]; return value, ok },
			}
			want, begun := checkCritical, time.Now()
			if by == time.Hour {
				want = checkUnknown
			}
			if code := p.run(t.Context(), []string{"check", "--observe", "14s"}); code != want {
				t.Errorf("with a table that takes %v: code %d\n%s", by, code, &out)
			}
			if took := time.Since(begun); took > 24*time.Second {
				t.Errorf("with a table that takes %v, it takes %v", by, took)
			}
		})
	}
}
