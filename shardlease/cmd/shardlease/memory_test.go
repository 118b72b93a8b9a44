package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Memory is tables in memory, with faults.
type memory struct {
	all      map[string]*memstore.Store
	groups   map[place]bool
	restored bool   // the tables were restored
	fault    string // reads: no read is answered; lost: writes are stored, and not answered; denied: writes are not allowed
	slow     time.Duration
	extra    []lease.Key // records that cannot be read
}

func newMemory(names ...string) *memory {
	m := &memory{all: map[string]*memstore.Store{}, groups: map[place]bool{}}
	for _, name := range names {
		m.all[name] = new(memstore.Store)
	}
	return m
}

func (m *memory) Reader(ctx context.Context, at place) (inspect.Lister, error) {
	return m.Store(ctx, at, 0)
}

func (m *memory) Store(_ context.Context, at place, _ int) (lease.Store, error) {
	if m.all[at.table] == nil {
		return nil, fmt.Errorf("open table %q: %w", at.table, dynamostore.ErrNoTable)
	}
	m.groups[at] = true
	return faulty{m.all[at.table], m}, nil
}

func (m *memory) Groups(ctx context.Context, table string) ([]groupSize, error) {
	counted := census{}
	for at := range m.groups {
		for _, kind := range []lease.Kind{lease.KindLease, lease.KindSeat} {
			for r, err := range m.all[table].List(ctx, lease.Query{Group: at.group, Kind: kind}) {
				if err != nil {
					return nil, err
				}
				counted.add(at.group+"/"+kind.String(), r.Key().Name)
			}
		}
	}
	return counted.sorted(), nil
}

func (m *memory) Create(_ context.Context, table string, _ dynamostore.TableOptions) error {
	if m.all[table] == nil {
		m.all[table] = new(memstore.Store)
	}
	return nil
}

func (m *memory) Adopt(ctx context.Context, at place, _ int, by string) (n int, err error) {
	if !m.restored {
		return 0, nil
	}
	store := m.all[at.table]
	for r, err := range store.List(ctx, lease.Query{Group: at.group, Kind: lease.KindLease}) {
		if err != nil {
			return n, err
		}
		w, err := protocol.Adopt(r.(lease.Row), by, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
		if err != nil {
			return n, err
		}
		if _, err := store.Write(ctx, w); err != nil {
			return n, err
		}
		n++
	}
	m.restored = false
	return n, nil
}

func (m *memory) Client(context.Context) (*dynamodb.Client, error) {
	return nil, errors.New("memory has no tables of the KCL")
}

// Faulty is a table in memory with the faults of its memory.
type faulty struct {
	*memstore.Store
	of *memory
}

type denied struct{ error }

func (denied) ErrorCode() string { return "AccessDeniedException" }

var errNoAnswer = errors.New("no answer from the table")

// malformed returns the error for a record that cannot be read.
func malformed(k lease.Key) error {
	return &lease.MalformedError{Key: k, WriteID: "w", Cause: errors.New("invalid attribute owner")}
}

func (f faulty) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if f.of.slow > 0 {
			select {
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			case <-time.After(f.of.slow):
			}
		}
		if f.of.fault == "reads" {
			yield(nil, errNoAnswer)
			return
		}
		for _, k := range f.of.extra {
			if k.Kind.Listed() == q.Kind && !yield(nil, malformed(k)) {
				return
			}
		}
		for r, err := range f.Store.List(ctx, q) {
			if spoilt := r != nil && slices.Contains(f.of.extra, r.Key()); !spoilt && !yield(r, err) {
				return
			}
		}
	}
}

func (f faulty) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	if f.of.fault == "reads" {
		return nil, errNoAnswer
	}
	if slices.Contains(f.of.extra, k) {
		return nil, malformed(k)
	}
	return f.Store.Get(ctx, k)
}

func (f faulty) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	switch f.of.fault {
	case "denied":
		return nil, denied{errors.New("not authorized to perform dynamodb:UpdateItem")}
	case "lost":
		_, _ = f.Store.Write(ctx, w)
		return nil, errNoAnswer
	}
	if at := slices.Index(f.of.extra, w.Key()); at >= 0 {
		if w.Op != lease.OpDelete {
			return nil, malformed(w.Key())
		}
		f.of.extra = slices.Delete(f.of.extra, at, at+1)
		return nil, nil
	}
	return f.Store.Write(ctx, w)
}

func (f faulty) Verify(ctx context.Context, group string) error {
	if f.of.restored {
		return &dynamostore.RestoredError{Group: group, Recorded: "old", Now: "new"}
	}
	return f.Store.Verify(ctx, group)
}

// words splits a line; a word in quotes is a Go string.
func words(line string) (list []string, err error) {
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
		if rest[0] != '"' {
			word, after, _ := strings.Cut(rest, " ")
			list, rest = append(list, word), after
			continue
		}
		word, after, err := unquotePrefix(rest)
		if err != nil {
			return nil, err
		}
		list, rest = append(list, word), after
	}
	return list, nil
}
