// Package consumer is a shardlease handler for the shards of a Kinesis stream. It processes
// many records at a time, the records of one key in order, and each effect takes place once.
package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An Effect is the result of one record.
type Effect struct {
	// Record is the record that was processed.
	Record stream.Record
	// Value is the effect of the record. It is empty for a skipped record, and the data of
	// the record for a dead letter.
	Value []byte
	// Verdict is Skip or DeadLetter if the record failed and was left out.
	Verdict Verdict
	// Reason is why the record was left out.
	Reason string
}

// A Sink stores effects.
type Sink interface {
	// Write stores the effects that the sink does not have yet, for each key in order. If h
	// no longer holds the shard, Write must refuse them with checkpoint.ErrStale, in the
	// same atomic step in which it would store them.
	//
	// An effect of a record that was left out counts like any other: the sink must store the
	// verdict, and no later effect of that record. If one of the effects can never be stored,
	// Write stores none and returns a *RefusedError.
	Write(ctx context.Context, h lease.Hold, effects []Effect) error
	// Failed stores a failure of a record, if h still holds the shard, and returns how often
	// the record has failed, including this failure.
	Failed(ctx context.Context, h lease.Hold, r stream.Record, reason string) (times int, err error)
}

// A Consumer provides a handler for shardlease. Stream, Process and Sink are required.
type Consumer struct {
	Stream *stream.Stream
	// Process makes the effect of a record. Several calls run at a time, but never two for
	// the same key. It may be called again for the same record, so its other side effects
	// must be idempotent. An error or a panic is a failure of the record, and Poison decides
	// what follows.
	Process func(ctx context.Context, r stream.Record) (Effect, error)
	// Poison decides what follows when a record has failed. An error has the same effect as
	// Stop. The verdict is fenced like an effect; other side effects of Poison, such as
	// putting the record into a queue, may happen twice. Default: Stop.
	Poison func(ctx context.Context, f Failure) (Verdict, error)
	// Sink stores the effects.
	Sink Sink
	// Logger receives a line for each record that fails. Default: no logging.
	Logger *slog.Logger
	// Lanes is how many records of a shard are processed at a time. Default 4.
	Lanes int
	// InFlight is how many records of a shard may be read and not yet in the sink. Default
	// 10,000.
	InFlight int
	// Memory bounds, in bytes, what is read and not yet in the sink. Consumers may share one.
	// Default: one with its own defaults.
	Memory *stream.Memory
	// Lags receives how far each shard is behind. It may be nil.
	Lags *Lags

	once   sync.Once
	memory *stream.Memory
}

// Verify compares the leases of the group with the stream: it returns [stream.ErrRecreated]
// if one of them belongs to another stream of that name. A running worker checks this too, but
// not for finished shards, which it does not process. So call Verify before the worker starts.
func (c *Consumer) Verify(ctx context.Context, rows []lease.Row) error {
	for _, row := range rows {
		if err := c.Stream.Check(ctx, row.Checkpoint.State); err != nil {
			return fmt.Errorf("shard %s: %w", row.Shard, err)
		}
	}
	return nil
}

// Handle is the handler for shardlease.Worker.Run: it reads a shard until it has to wind
// down, and finishes it at its end.
//
// To wind down it stops reading, and waits until the records that it has read are in the sink
// and marked. The next worker starts after them.
//
// Each checkpoint has the identity of the stream as its state, so a stream that was created
// again under the same name is refused. The identity is not part of the shard's name, because
// imports and exports need the name that Kinesis uses.
func (c *Consumer) Handle(ctx context.Context, t *shardlease.Tenure) error {
	defer c.Lags.forget(t.Shard().Name)
	if err := c.Stream.Check(ctx, t.Checkpoint().State); err != nil {
		return err
	}
	identity, err := c.Stream.Identity(ctx)
	if err != nil {
		return err
	}
	p := c.start(ctx, t, identity)
	defer p.room.Close()
	err = c.feed(t, p)
	if fault := p.drain(); fault != nil {
		return fault
	}
	switch {
	case errors.Is(err, io.EOF):
		// The children start at once when the shard is finished, so all its effects must be in
		// the sink before: they precede those of the same keys in the children.
		if err := p.tracker.Wait(t.Context()); err != nil {
			return err
		}
		return c.finish(t, p, identity)
	case ctx.Err() != nil:
		return nil
	}
	return err
}

// finish finishes the shard. If the shard had no record, finish first marks its first sequence
// number, so that its row too has the identity of the stream.
func (c *Consumer) finish(t *shardlease.Tenure, p *pipeline, identity string) error {
	first := c.Stream.First(t.Shard().Name)
	if t.Checkpoint().IsZero() && !p.marked.Load() && first != "" {
		if err := t.MarkState(first, identity); err != nil {
			return err
		}
	}
	return t.Finish(t.Context())
}

// feed reads the shard and passes the entries to the pipeline.
func (c *Consumer) feed(t *shardlease.Tenure, p *pipeline) error {
	for batch, err := range c.Stream.Read(p.reading, t.Shard().Name, t.Checkpoint().Position, p.room) {
		if err != nil {
			return err
		}
		for _, entry := range batch.Entries {
			if err := p.accept(entry); err != nil {
				return err
			}
		}
		backlog := p.tracker.Backlog()
		if backlog.Begun == 0 { // otherwise empty reads would hide a record that hangs
			unmarked(t, batch)
		}
		c.Lags.record(t.Shard().Name, batch, backlog)
	}
	return nil
}

// unmarked reports a read after which nothing remains to mark. Kinesis often returns empty
// answers before the next record. If the next record is the one that failed in an earlier
// tenure, Progress would reset the count of attempts, and the shard would never be quarantined.
// So until the reader has caught up or a record is marked, unmarked calls Alive, which only
// reports that the tenure is not stalled, however many empty answers there are.
func unmarked(t *shardlease.Tenure, batch stream.Batch) {
	if t.Attempt() == 0 || batch.Behind == 0 {
		t.Progress()
	} else {
		t.Alive()
	}
}

func (c *Consumer) start(ctx context.Context, t *shardlease.Tenure, identity string) *pipeline {
	c.once.Do(func() { c.memory = cmp.Or(c.Memory, new(stream.Memory)) })
	p := &pipeline{
		process: c.Process, poison: c.Poison, sink: c.Sink, hold: t.Hold(), room: c.memory.Room(),
		lags: cmp.Or(c.Lags, new(Lags)), log: cmp.Or(c.Logger, slog.New(slog.DiscardHandler)), blocked: map[string]bool{},
		lanes: make([]chan item, max(cmp.Or(c.Lanes, 4), 1)),
		out:   make(chan item, most),
	}
	p.tracker = checkpoint.NewTracker(cmp.Or(c.InFlight, 10_000), func(position string) error {
		p.marked.Store(true)
		return t.MarkState(position, identity)
	})
	p.begin(t.Context(), ctx)
	return p
}
