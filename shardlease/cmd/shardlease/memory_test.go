package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// Memory is tables in memory, with faults. Commands and workers use it at the same time.
type memory struct {
	all map[string]*memstore.Store

	mu     sync.Mutex // guards groups and faults
	groups map[place]bool
	faults
}

// Faults are what is wrong with all tables of a memory.
type faults struct {
	restored bool          // the tables were restored
	fault    string        // reads: no read is answered; lost: writes are stored, and not answered; denied: writes are not allowed
	slow     time.Duration // how long each listing takes
	spoilt   []lease.Key   // records that cannot be read, and that need not be stored
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
	m.change(func() { m.groups[at] = true })
	return m.link(at.table), nil
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
	m.change(func() { m.restored = false })
	return n, nil
}

// Repair makes a row readable by forgetting that it is spoilt, and deletes a seat.
func (m *memory) Repair(ctx context.Context, at place, k lease.Key, by, why string, agree func(next lease.Record, lost []string) error) (lease.Record, error) {
	if !slices.Contains(m.now().spoilt, k) {
		return nil, &lease.RuleError{Transition: "repair", Key: k, Rule: protocol.ErrReadable}
	}
	var next lease.Record
	if stored, err := m.all[at.table].Get(ctx, k); err == nil && k.Kind == lease.KindLease {
		row, err := protocol.Mend(stored.(lease.Row), protocol.Command{By: by, Note: why}, true, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
		if err != nil {
			return nil, err
		}
		next = row
	}
	if err := agree(next, []string{"owner"}); err != nil {
		return nil, err
	}
	if m.now().fault == "lost" {
		return nil, errNoAnswer
	}
	m.spoil(k, false)
	return next, nil
}

func (m *memory) Client(context.Context) (*dynamodb.Client, error) {
	return nil, errors.New("memory has no tables of the KCL")
}

// change changes the faults.
func (m *memory) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// spoil makes a record unreadable, or readable again.
func (m *memory) spoil(k lease.Key, is bool) {
	m.change(func() {
		m.spoilt = slices.DeleteFunc(slices.Clone(m.spoilt), func(other lease.Key) bool { return other == k })
		if is {
			m.spoilt = append(m.spoilt, k)
		}
	})
}

// now returns the faults.
func (m *memory) now() faults {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults
}

type denied struct{ error }

func (denied) ErrorCode() string { return "AccessDeniedException" }

var errNoAnswer = errors.New("no answer from the table")

// malformed returns the error for a record that cannot be read, with the id of its last write if it is stored.
func malformed(store lease.Store, k lease.Key) error {
	fault := &lease.MalformedError{Key: k, WriteID: "w", Cause: errors.New("invalid attribute owner")}
	if r, err := store.Get(context.Background(), k); err == nil {
		fault.WriteID = r.Written()
	}
	return fault
}

// link returns a link to a table, with the faults of the memory.
func (m *memory) link(table string) *storetest.Link {
	store := m.all[table]
	link := storetest.NewLink(store)
	link.OnList(func(ctx context.Context, q lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			now := m.now()
			if now.slow > 0 {
				select {
				case <-ctx.Done():
					yield(nil, ctx.Err())
					return
				case <-time.After(now.slow):
				}
			}
			if now.fault == "reads" {
				yield(nil, errNoAnswer)
				return
			}
			for _, k := range now.spoilt {
				if k.Kind.Listed() == q.Kind && !yield(nil, malformed(store, k)) {
					return
				}
			}
			for r, err := range send() {
				if spoilt := r != nil && slices.Contains(now.spoilt, r.Key()); !spoilt && !yield(r, err) {
					return
				}
			}
		}
	})
	link.OnGet(func(_ context.Context, k lease.Key, send func() (lease.Record, error)) (lease.Record, error) {
		switch now := m.now(); {
		case now.fault == "reads":
			return nil, errNoAnswer
		case slices.Contains(now.spoilt, k):
			return nil, malformed(store, k)
		}
		return send()
	})
	link.OnWrite(func(ctx context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		switch fault := m.now().fault; {
		case fault == "denied":
			return nil, denied{errors.New("not authorized to perform dynamodb:UpdateItem")}
		case fault == "lost":
			_, _ = send()
			return nil, errNoAnswer
		}
		r, err := send()
		if _, gone := store.Get(ctx, w.Key()); w.Spoilt && gone != nil {
			err = nil // it may never have been stored
		}
		if err == nil && w.Op == lease.OpDelete {
			m.spoil(w.Key(), false)
		}
		return r, err
	})
	link.OnVerify(func(_ context.Context, group string, send func() error) error {
		if m.now().restored {
			return &dynamostore.RestoredError{Group: group, Recorded: "old", Now: "new"}
		}
		return send()
	})
	return link
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
