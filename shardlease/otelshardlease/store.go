package otelshardlease

import (
	"context"
	"errors"
	"iter"
	"maps"
	"reflect"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Store returns a store that passes each call to the given one, and records how long it took. It changes no argument and no
// answer.
func (t *Telemetry) Store(s lease.Store) lease.Store {
	if r := reflect.ValueOf(s); s == nil || r.Kind() == reflect.Pointer && r.IsNil() {
		return s // shardlease.New reports it
	}
	return &store{t, s}
}

type store struct {
	to *Telemetry
	lease.Store
}

func (s *store) List(ctx context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	all := s.Store.List(ctx, q)
	if all == nil { // a store that returns nil instead of a listing is reported by the worker
		return nil
	}
	return func(yield func(lease.Record, error) bool) {
		began, last := time.Now(), error(nil)
		for r, err := range all {
			if last = err; !yield(r, err) {
				break
			}
		}
		s.record(ctx, q.Group, listOf(q.Kind), began, last)
	}
}

func (s *store) Get(ctx context.Context, k lease.Key) (lease.Record, error) {
	began := time.Now()
	r, err := s.Store.Get(ctx, k)
	s.record(ctx, k.Group, get, began, err)
	return r, err
}

func (s *store) Write(ctx context.Context, w lease.Write) (lease.Record, error) {
	began := time.Now()
	r, err := s.Store.Write(ctx, w)
	s.record(ctx, w.Key().Group, writeOf(w), began, err)
	return r, err
}

func (s *store) Verify(ctx context.Context, group string) error {
	began := time.Now()
	err := s.Store.Verify(ctx, group)
	s.record(ctx, group, verify, began, err)
	return err
}

func (s *store) record(ctx context.Context, group string, op operation, began time.Time, err error) {
	options := s.to.callsOf(group)[op][outcomeOf(err)]
	s.to.instruments.store.Record(ctx, time.Since(began).Seconds(), options...)
}

// An operation is a kind of call of the store.
type operation uint8

const (
	listLeases operation = iota
	listSeats
	listTargets
	get
	verify
	heartbeat // a swap of a seat
	commit    // a swap of a lease row under the same generation: a checkpoint, or the progress or an offer of the owner
	claim     // a transfer of a lease row to a worker
	write     // every other write
	operations
)

var operationNames = [operations]string{"list-leases", "list-seats", "list-targets", "get", "verify", "heartbeat", "commit", "claim", "write"}

func listOf(k lease.Kind) operation {
	switch k.Listed() {
	case lease.KindLease:
		return listLeases
	case lease.KindTarget:
		return listTargets
	}
	return listSeats
}

func writeOf(w lease.Write) operation {
	switch next := w.Next.(type) {
	case lease.Seat:
		if w.Op == lease.OpSwap {
			return heartbeat
		}
	case lease.Row:
		old, _ := w.Old.(lease.Row)
		switch {
		case w.Op == lease.OpSwap && next.Generation == old.Generation:
			return commit
		case w.Op == lease.OpTransfer && !next.Owner.IsZero():
			return claim
		}
	}
	return write
}

// An outcome is how a call ended.
type outcome uint8

const (
	answered  outcome = iota // the store has answered, also that there is no record, or one that cannot be read, or that the table went back
	refused                  // the condition of the write did not hold
	queued                   // the call has sent nothing, because it had waited for too long in the store
	cancelled                // the caller has given the call up
	failed                   // any other error; whether a write was stored is then unknown
	outcomes
)

var outcomeNames = [outcomes]string{"ok", "refused", "queued", "cancelled", "failed"}

func outcomeOf(err error) outcome {
	switch {
	case err == nil, errors.Is(err, lease.ErrNotFound), errors.Is(err, lease.ErrMalformed), errors.Is(err, lease.ErrWentBack):
		return answered
	case errors.Is(err, lease.ErrRefused):
		return refused
	case errors.Is(err, lease.ErrQueued):
		return queued
	case errors.Is(err, context.Canceled):
		return cancelled
	}
	return failed
}

// calls are the options to record a call with, made in advance: to make them for each commit would allocate.
type calls [operations][outcomes][]metric.RecordOption

// callsOf returns the options for a group.
func (t *Telemetry) callsOf(group string) *calls {
	for {
		known := t.stores.Load()
		if c := (*known)[group]; c != nil {
			return c
		}
		c := t.newCalls(group)
		with := maps.Clone(*known)
		with[group] = c
		if t.stores.CompareAndSwap(known, &with) {
			t.begin(group)
			return c
		}
	}
}

func (t *Telemetry) newCalls(group string) *calls {
	c := new(calls)
	for op := range operations {
		for out := range outcomes {
			c[op][out] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(t.of(group,
				attribute.String("operation", operationNames[op]), attribute.String("outcome", outcomeNames[out]))...))}
		}
	}
	return c
}
