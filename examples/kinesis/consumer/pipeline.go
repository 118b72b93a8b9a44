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

// most is how many effects the sink is given at a time.
const most = 500

// A pipeline processes what is read of one shard during one tenure:
//
//	         ┌─ lane ─┐
//	accept ──┼─ lane ─┼── write ──▶ sink, and then the tracker
//	         └─ lane ─┘
//
// A key has one lane, and a lane is a queue: that keeps the order of a key. One goroutine
// writes: it takes whatever the lanes have finished while its last write was under way,
// so that a shard that has much to do writes in few large steps. Two at a time would not
// be faster. Each writes on condition of the same lease row, and DynamoDB refuses
// transactions that meet on a row.
//
// The tracker and the room bound what is in here.
type pipeline struct {
	process func(ctx context.Context, r stream.Record) (Effect, error)
	poison  func(ctx context.Context, f Failure) (Verdict, error)
	sink    Sink
	lags    *Lags
	log     *slog.Logger
	hold    lease.Hold
	tracker *checkpoint.Tracker
	room    *stream.Room
	marked  atomic.Bool // something was, in this tenure

	ctx     context.Context // ends with the tenure, and at the first fault
	reading context.Context // ends when nothing more is to be read
	fail    context.CancelCauseFunc
	stop    context.CancelCauseFunc

	halted  atomic.Pointer[error] // set: the tenure ends before a record that failed
	blocked map[string]bool       // keys with such a record; of the goroutine that writes

	lanes   []chan item
	out     chan item
	working sync.WaitGroup
	writing sync.WaitGroup
}

// An item is one record on its way.
type item struct {
	record stream.Record
	effect Effect
	begun  checkpoint.Record
	entry  *entry
}

// An entry needs its room until the last of its records is in the sink: they are parts of
// one answer.
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

// accept begins the records of an entry, each as soon as there is room, and hands them to
// their lanes. When reading is to stop it may stop within the entry: a position says how
// many of its records are processed.
func (p *pipeline) accept(in stream.Entry) error {
	e := &entry{room: p.room, bytes: in.Bytes}
	e.open.Store(int32(len(in.Records) + 1)) // one of them is this function
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

// work processes the records of one lane, one after the other. After a record that failed
// and was not left out it takes what follows and does nothing with it: that keeps the order
// of the key.
func (p *pipeline) work(lane <-chan item) {
	blocked := false
	for i := range lane {
		if blocked || p.ctx.Err() != nil {
			continue
		}
		var err error
		if i.effect, err = p.try(i.record); err != nil {
			i.effect, err = p.judge(i.record, err)
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

// write gives the sink what the lanes have finished.
//
// A crash after the sink has kept the effects and before the checkpoint is written leaves
// records that will be processed again, and effects that the sink will know.
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

// gather takes what is there, and waits for nothing.
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

// drain waits until everything that was accepted is in the sink, or has failed, and gives
// the reason. Nothing may be accepted any more.
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
