// Package tenuretest provides tenures for tests of a handler without a fleet. The tenure is
// real: a worker holds one shard of a store in memory. In a bubble of testing/synctest it
// takes no time. To test a failover between workers, use a storetest.Link.
package tenuretest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Tenure is the tenure of a worker that runs until the test ends.
type Tenure struct {
	*shardlease.Tenure
	Table shardlease.Supervisor // reads the lease row; its ForceRelease fences the tenure
	Stop  func()                // shuts the worker down, which ends the handler's ctx

	called   atomic.Bool     // Call was called
	ctx      context.Context // the ctx of the worker's handler
	begun    chan struct{}   // closed when Tenure and ctx are set
	returned chan error      // the result of the handler under test
	ended    chan struct{}   // closed when the end of the tenure is stored
}

// Begin returns a tenure of a shard that starts at a mark; the zero mark is the beginning
// of the shard. The zero config is valid: Begin sets a group and a mode. It raises an EventQueue
// that is shorter than the default, because Call waits for the event that ends the tenure.
func Begin(t testing.TB, config shardlease.Config, shard string, from checkpoint.Mark) *Tenure {
	t.Helper()
	config.Group = cmp.Or(config.Group, "tenuretest")
	if config.Handoff == nil {
		config.Handoff = rebalance.Eager
	}
	if config.EventQueue > 0 {
		config.EventQueue = max(config.EventQueue, 1024)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	tn := &Tenure{
		Table: shardlease.Supervisor{Store: new(memstore.Store), Group: config.Group, By: "tenuretest"}, Stop: stop,
		begun: make(chan struct{}), returned: make(chan error, 1), ended: make(chan struct{}),
	}
	observe := config.Observe
	config.Observe = func(e event.Event) {
		if e.Kind == event.Ended && e.Generation == tn.Generation() {
			defer close(tn.ended) // also if observe panics
		}
		if observe != nil {
			observe(e)
		}
	}
	w, err := shardlease.New(tn.Table.Store, shardlease.Static(shard), config)
	if err == nil && !from.IsZero() {
		err = tn.createRow(ctx, shard, from)
	}
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- w.Run(ctx, tn.hold) }()
	<-tn.begun
	t.Cleanup(func() { stop(); tn.end(nil); <-gone })
	return tn
}

// Call calls the handler with the tenure and returns its error. It returns when the
// handler's last mark and the end of the tenure are stored. A tenure has one call: a second
// Call returns an error and does not call the handler. Call does not recover a panic of the
// handler, so a panic fails the test; a worker recovers it and counts a failed attempt.
func (tn *Tenure) Call(handler shardlease.Handler) (err error) {
	if tn.called.Swap(true) {
		return errCalled
	}
	defer func() { tn.end(err); <-tn.ended }()
	return handler(tn.ctx, tn.Tenure)
}

var errCalled = errors.New("tenuretest: this tenure has had its call: Begin another")

// createRow creates a row with a checkpoint.
func (tn *Tenure) createRow(ctx context.Context, shard string, from checkpoint.Mark) error {
	w, err := protocol.Begin(tn.Table.Group, shard, nil, tn.Table.By, protocol.Stamp{ID: lease.WriteID(rand.Text()), At: time.Now()})
	if err != nil {
		return err
	}
	if _, err := tn.Table.Store.Write(ctx, w); err != nil {
		return err
	}
	_, err = tn.Table.Rewind(ctx, shard, w.Next.(lease.Row).Generation, from, "the start of a test")
	return err
}

// hold is the worker's handler. A tenure after the first one waits for the end of the test.
func (tn *Tenure) hold(ctx context.Context, of *shardlease.Tenure) error {
	if tn.Tenure != nil {
		<-ctx.Done()
		return nil
	}
	tn.Tenure, tn.ctx = of, ctx
	close(tn.begun)
	return <-tn.returned
}

// end ends the first tenure, the first time that it is called.
func (tn *Tenure) end(err error) {
	select {
	case tn.returned <- err:
	default:
	}
}
