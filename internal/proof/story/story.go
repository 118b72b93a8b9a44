// Package story tells what shardlease does, in about twelve seconds and with nothing but memory.
// Three workers share the shards of a stream. Two more join, one in each handoff mode; one is killed;
// one is paused for longer than the lease time, in the middle of a checkpoint; one leaves.
//
// This file has the Worker, its handler, a stream, and a sink that refuses stale writes. fleet.go
// measures what happens; steps.go makes it happen, and prints it.
package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// Tell runs the story and prints it to out, until it is over or ctx ends. The mode of the moves
// between the first workers is "eager" or "cooperative". If out is a terminal, Tell keeps a table of
// the owners below the lines.
func Tell(ctx context.Context, mode string, out io.Writer) error {
	var moves rebalance.Mode
	if err := moves.UnmarshalText([]byte(mode)); err != nil {
		return fmt.Errorf("story: %w", err)
	}
	return newFleet(moves, 12, out).run(ctx, 3)
}

// consume runs one worker of the library until ctx ends. Then the worker hands over its
// shards, and consume returns.
func (w *worker) consume(ctx context.Context) error {
	member, err := shardlease.New(link{&w.fleet.store, w}, shardlease.Static(w.fleet.shards...), shardlease.Config{
		Group:   group,
		Name:    w.name,
		Handoff: w.mode,             // rebalance.Eager or rebalance.Cooperative
		Order:   checkpoint.Decimal, // positions are numbers; a position that moves back is refused
		TTL:     ttl,                // the lease time
		Drain:   ttl,                // how long a handler may take to wind down
		Commit:  checkpoint.Policy{Every: 200 * time.Millisecond},
		Observe: func(e event.Event) { w.fleet.observe(w, e) },
	})
	if err != nil {
		return err
	}
	return member.Run(ctx, w.handle)
}

// handle is the handler: the library calls it for each shard that this worker owns. It
// processes the records of the shard for as long as the worker owns it.
func (w *worker) handle(ctx context.Context, t *shardlease.Tenure) error {
	shard := t.Shard().Name
	w.fleet.measure(shard, 1) // the gaps and overlaps of the story; a program of yours leaves this out
	defer w.fleet.measure(shard, -1)

	position, _ := strconv.Atoi(t.Checkpoint().Position) // "" before the first checkpoint: 0
	for record, err := range w.fleet.stream.read(ctx, position) {
		if errors.Is(err, io.EOF) {
			return t.Finish(t.Context()) // the shard itself has ended
		}
		if err != nil {
			return err // ctx has ended: this worker should wind down, and everything processed is marked
		}
		if err := w.process(shard, record, t.Generation()); err != nil {
			return err
		}
		if err := t.Mark(strconv.Itoa(record)); err != nil {
			return err
		}
	}
	return nil
}

// process writes a record to the sink. A worker that is paused stops right before that.
func (w *worker) process(shard string, record int, generation int64) error {
	if w.state.Load() == paused {
		<-w.pause.Done() // like SIGSTOP, a pause ignores the contexts of the handler
	}
	if w.state.Load() == killed {
		return errors.New("killed")
	}
	err := w.fleet.sink.write(shard, record, generation)
	if err != nil {
		w.fleet.good("the sink refuses a record of %s: %v", w.name, err)
	}
	return err
}

const perRecord = 50 * time.Millisecond // how often a shard gets a record

// A stream has shards of numbered records, which arrive at a steady rate until it ends.
type stream struct {
	start time.Time
	last  atomic.Int64 // record of each shard; 0: the stream has not ended
}

// end ends all shards after the records that they have now.
func (s *stream) end() { s.last.Store(int64(time.Since(s.start) / perRecord)) }

// read yields the records of a shard after a position, as they arrive; io.EOF when the shard
// has ended, and the cause of the context when that ends first.
func (s *stream) read(ctx context.Context, position int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for n := position + 1; ; n++ {
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(s.start.Add(time.Duration(n) * perRecord))):
			}
			err := context.Cause(ctx)
			if last := int(s.last.Load()); err == nil && last > 0 && n > last {
				err = io.EOF
			}
			if !yield(n, err) || err != nil {
				return
			}
		}
	}
}

// A sink is where the effects of processing go. It is fenced: it remembers the highest
// generation that wrote to a shard and refuses lower ones, in one step with the write
// itself. (In SQL: UPDATE … WHERE fence <= ?.)
type sink struct {
	mu                        sync.Mutex
	fences                    map[string]int64 // by shard: the highest generation
	last                      map[string]int   // by shard: the highest record
	processed, again, refused int              // records
}

func (s *sink) write(shard string, record int, generation int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fence := s.fences[shard]; generation < fence {
		s.refused++
		return &checkpoint.StaleError{Shard: shard, Mine: generation, Observed: fence}
	}
	s.fences[shard] = generation
	if record <= s.last[shard] {
		s.again++
		return nil
	}
	s.processed++
	s.last[shard] = record
	return nil
}
