// Package consumer processes the shards of a Kinesis stream as tenures of shardlease:
// many records at a time, those of one key in their order, with effects that take place
// once.
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

// An Effect is what came of one record.
type Effect struct {
	Record stream.Record
	Value  []byte
	// Verdict is Skip or DeadLetter where the record failed and was left out, for this
	// Reason. Value is then nothing, or the data of the record.
	Verdict Verdict
	Reason  string
}

// A Sink keeps effects.
type Sink interface {
	// Write keeps effects that it does not have yet, in their order for each key, while
	// the hold stands. It must refuse those of a hold that does not stand any more, in
	// the same atomic step in which it would keep them, with checkpoint.ErrStale.
	//
	// A record that was left out takes part in this like any other: it must be on record,
	// and have no effect later. Where there is an effect that can never be kept, none are,
	// and the error is a *RefusedError.
	Write(ctx context.Context, h lease.Hold, effects []Effect) error
	// Failed puts on record that a record failed, while the hold stands, and gives how
	// often it has, this time included.
	Failed(ctx context.Context, h lease.Hold, r stream.Record, reason string) (times int, err error)
}

// A Consumer is a handler of shardlease. Stream, Process and Sink are required.
type Consumer struct {
	Stream *stream.Stream
	// Process makes an effect of a record. Several are called at a time, but never two
	// for the same key. It may be called again for a record that was processed before:
	// what it does beside its effect it has to do twice without harm. An error or a panic
	// is a failure of the record: Poison decides what becomes of it.
	Process func(ctx context.Context, r stream.Record) (Effect, error)
	// Poison decides what becomes of a record that failed. An error stops as Stop does.
	// The verdict takes effect with the fence, as an effect does; what Poison does beside
	// it, such as to put the record into a queue, may be done twice. Default: Stop.
	Poison func(ctx context.Context, f Failure) (Verdict, error)
	Sink   Sink
	// Logger hears of each record that fails. Default: nothing.
	Logger *slog.Logger
	// Lanes is how many records of a shard are processed at a time. Default 4.
	Lanes int
	// InFlight is how many records of a shard may be on their way through the lanes to the
	// sink. Default 10,000.
	InFlight int
	// Memory bounds, in bytes, what is read and not yet in the sink. Consumers may share one.
	// Default: one with its own defaults.
	Memory *stream.Memory
	// Lags is told how far each shard is. It may be nil.
	Lags *Lags

	once   sync.Once
	memory *stream.Memory
}

// Verify compares the leases of the group with the stream: it returns [stream.ErrRecreated]
// if one of them belongs to another stream of that name. A worker that runs finds out too,
// except by leases that are finished: nobody works on those. So call it before the worker.
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
// To wind down it stops reading, and waits until all that was read is in the sink and
// marked: that is what the next worker starts from.
//
// Each checkpoint has the identity of the stream as its state: a stream that was made again
// under the name of an old one is refused. A shard is named by Kinesis, and its name must
// stay what it is for an import or an export.
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
		// Only now: the children start at once, and the records of a key must be in the
		// sink before those that follow them there.
		if err := p.tracker.Wait(t.Context()); err != nil {
			return err
		}
		return c.finish(t, p, identity)
	case ctx.Err() != nil:
		return nil
	}
	return err
}

// finish finishes the shard. One without a record gets its first sequence number as its
// position, so that its row too says which stream it is of.
func (c *Consumer) finish(t *shardlease.Tenure, p *pipeline, identity string) error {
	first := c.Stream.First(t.Shard().Name)
	if t.Checkpoint().IsZero() && !p.marked.Load() && first != "" {
		if err := t.MarkState(first, identity); err != nil {
			return err
		}
	}
	return t.Finish(t.Context())
}

// feed reads the shard and gives the pipeline what it reads.
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
		if backlog.Begun == 0 { // else a record that hangs would be no stall
			unmarked(t, batch)
		}
		c.Lags.tell(t.Shard().Name, batch, backlog)
	}
	return nil
}

// unmarked reports a read that leaves nothing to mark. Kinesis often answers with nothing before
// it comes to the next record. If that is the one that failed in an earlier tenure, progress
// would begin the count of attempts again, and the shard would never be quarantined: until the
// reader has caught up, or a record is marked, the tenure is only alive. That is enough to be no
// stall, however long the way is.
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
