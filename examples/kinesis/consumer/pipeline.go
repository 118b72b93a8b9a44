package consumer

import (
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// most is the maximum number of effects in one write to the sink.
const most = 500

// A pipeline processes the records of one shard during one tenure:
//
//	         ┌─ lane ─┐
//	accept ──┼─ lane ─┼── write ──▶ sink, and then the tracker
//	         └─ lane ─┘
//
// Each key has one lane, and a lane is a queue, which keeps the records of a key in order. One
// goroutine writes. Each of its writes contains the effects that the lanes have finished during
// the write before, so a busy shard makes few large writes. Two concurrent writes would not be
// faster: both have a condition on the same lease row, and DynamoDB refuses transactions that
// conflict.
//
// The tracker and the room bound how much is in the pipeline.
type pipeline struct {
	process func(ctx context.Context, r stream.Record) (Effect, error)
	poison  func(ctx context.Context, f Failure) (Verdict, error)
	sink    Sink
	lags    *Lags
	log     *slog.Logger
	hold    lease.Hold
	tracker *checkpoint.Tracker
	room    *stream.Room
	marked  atomic.Bool // a record was marked in this tenure

	ctx     context.Context // ends with the tenure, and at the first fault
	reading context.Context // ends when the reader must stop
	fail    context.CancelCauseFunc
	stop    context.CancelCauseFunc

	halted  atomic.Pointer[error] // set: the tenure ends before a record that failed
	blocked map[string]bool       // keys with such a record; used by the goroutine that writes

	lanes   []chan item
	out     chan item
	working sync.WaitGroup
	writing sync.WaitGroup
}

// An item is one record in the pipeline.
type item struct {
	record stream.Record
	effect Effect
	begun  checkpoint.Record
	entry  *entry
}

// An entry occupies its room until the last of its records is in the sink, because the records
// share the memory of one answer.
type entry struct {
	open  atomic.Int32
	room  *stream.Room
	bytes int64
}

func (e *entry) done() {
	if e.open.Add(-1) == 0 {
		e.room.Give(e.bytes)
	}
}

func (p *pipeline) begin(ctx, reading context.Context) {
	p.ctx, p.fail = context.WithCancelCause(ctx)
	p.reading, p.stop = context.WithCancelCause(reading)
	context.AfterFunc(p.ctx, func() { p.stop(context.Cause(p.ctx)) })
	for i := range p.lanes {
		p.lanes[i] = make(chan item, 16)
		p.working.Go(func() { p.work(p.lanes[i]) })
	}
	p.writing.Go(p.write)
}

// accept begins the records of an entry, each as soon as there is room, and passes them to
// their lanes. It may stop within the entry when the reader must stop, because a position
// contains how many records of its entry are processed.
func (p *pipeline) accept(in stream.Entry) error {
	e := &entry{room: p.room, bytes: in.Bytes}
	e.open.Store(int32(len(in.Records) + 1)) // one more for this function
	defer e.done()
	if len(in.Records) == 0 {
		begun, err := p.tracker.Begin(p.reading, in.Sequence)
		begun.Done()
		return err
	}
	for i, record := range in.Records {
		begun, err := p.tracker.Begin(p.reading, in.Position(i))
		if err != nil {
			return err
		}
		select {
		case p.lanes[p.lane(record.Key)] <- item{record: record, begun: begun, entry: e}:
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		}
	}
	return nil
}

func (p *pipeline) lane(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return h.Sum32() % uint32(len(p.lanes))
}

// work processes the records of one lane, one after the other. After a record that failed and
// was not left out, it discards the records that follow, which keeps the order of each key.
func (p *pipeline) work(lane <-chan item) {
	blocked := false
	for i := range lane {
		if blocked || p.ctx.Err() != nil {
			continue
		}
		var err error
		if i.effect, err = p.try(i.record); err != nil {
			i.effect, err = p.poisoned(i.record, err)
		}
		if err != nil {
			blocked = true
			p.halt(err)
			continue
		}
		select {
		case p.out <- i:
		case <-p.ctx.Done():
		}
	}
}

// write writes the effects that the lanes have finished to the sink.
//
// After a crash between the write to the sink and the commit of the checkpoint, the next worker
// processes the records again, and the sink leaves their effects out.
func (p *pipeline) write() {
	for first := range p.out {
		items := p.gather(first)
		if p.ctx.Err() != nil {
			continue
		}
		if err := p.keep(items); err != nil {
			p.fail(err)
		}
	}
}

// gather returns the finished items, up to most of them, without waiting for more.
func (p *pipeline) gather(first item) []item {
	items := []item{first}
	for len(items) < most {
		select {
		case i, open := <-p.out:
			if !open {
				return items
			}
			items = append(items, i)
		default:
			return items
		}
	}
	return items
}

// drain waits until all accepted records are in the sink or have failed, and returns why the
// pipeline failed. accept must not be called afterwards.
func (p *pipeline) drain() error {
	for _, lane := range p.lanes {
		close(lane)
	}
	p.working.Wait()
	close(p.out)
	p.writing.Wait()
	var err error
	if p.ctx.Err() != nil {
		err = context.Cause(p.ctx)
	} else if halted := p.halted.Load(); halted != nil {
		err = *halted
	}
	p.fail(nil)
	p.stop(nil)
	return err
}
