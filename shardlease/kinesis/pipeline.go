package kinesis

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
)

// A work is the user's function, and how many records it gets.
type work struct {
	process func(ctx context.Context, batch []Record) (done int, err error)
	most    int           // how many records a batch has at most
	window  time.Duration // how long a batch waits to become full
}

// A pipeline processes the records of one shard during one tenure:
//
//	         ┌─ lane ─┐
//	accept ──┼─ lane ─┼──▶ tracker, which marks the records that are processed without a gap
//	         └─ lane ─┘
//
// Each key has one lane, and a lane is a queue, which keeps the records of a key in order. Records
// without a key have no order, so they go to the lanes in turn.
//
// The tracker and the room bound how much is in the pipeline.
//
// A record that fails for good halts the pipeline: the lanes finish the records before it, and
// process none behind it. So at the end of the tenure the checkpoint is right before the record, which is
// the first of the next tenure. There it is processed alone: if it fails again, records behind it would be
// processed again in each tenure.
type pipeline struct {
	work
	config   Config
	tenure   *shardlease.Tenure
	from     *stream.Stream
	stream   string // its name
	shard    string // its id
	identity string
	log      *slog.Logger
	tracker  *checkpoint.Tracker
	room     *stream.Room
	figures  *shardFigures
	push     stream.Push // nil: the shard is polled
	marked   atomic.Bool // a record was marked in this tenure

	ctx     context.Context // ends with the tenure, and at the first fault
	reading context.Context // ends when the reader must stop
	fail    context.CancelCauseFunc
	stop    context.CancelCauseFunc

	late    bool          // a warning was logged
	foreign bool          // that packed records are left out was logged
	nearest time.Duration // how far behind the reader was when it last got nearer to the end of the shard

	next  uint64 // the number of the next record; the first record of the tenure has the number 0
	turn  uint64 // the next lane for a record without a key
	began time.Time
	life  atomic.Int64  // when a read was answered or a call ended, by p.now; ended: the reader has stopped
	stuck chan struct{} // closed if a call has stalled and ignores its context

	halting sync.Mutex
	halted  atomic.Uint64 // the number of the first record that failed for good
	fault   error         // why it failed

	lanes   []*lane
	working atomic.Int32   // how many lanes have not ended
	idle    chan struct{}  // closed when all lanes have ended
	started sync.WaitGroup // the goroutines of the pipeline
}

// An item is one record in the pipeline.
type item struct {
	record Record
	number uint64
	alone  bool // nothing is processed beside it
	begun  checkpoint.Record
	entry  *entry
}

// An entry occupies its room until the last of its records is processed, because the records
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

// ended is the life of a reader that has stopped.
const ended = math.MaxInt64

func (p *pipeline) now() int64 { return int64(time.Since(p.began)) }

func (p *pipeline) start(ctx, reading context.Context) {
	p.ctx, p.fail = context.WithCancelCause(ctx)
	p.reading, p.stop = context.WithCancelCause(reading)
	context.AfterFunc(p.ctx, func() { p.stop(context.Cause(p.ctx)) })
	p.began = time.Now()
	p.halted.Store(math.MaxUint64)
	p.lanes = make([]*lane, p.config.Lanes)
	p.working.Store(int32(len(p.lanes)))
	for i := range p.lanes {
		l := &lane{p: p, in: make(chan item, 16), size: p.most}
		l.ctx = context.WithValue(p.ctx, laneKey{}, l)
		p.lanes[i] = l
		p.started.Go(l.work)
	}
	if p.config.StallAfter > 0 {
		p.started.Go(p.watch)
	}
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
	for i, r := range in.Records {
		begun, err := p.tracker.Begin(p.reading, in.Position(i))
		if err != nil {
			return err
		}
		next := item{record: p.public(r), number: p.next, begun: begun, entry: e}
		next.alone = next.number == 0 && p.tenure.Attempt() > 0 // it may be the one that failed
		p.next++
		if err := p.pass(p.lane(r), next); err != nil {
			return err
		}
		if next.alone {
			if err := p.tracker.Wait(p.reading); err != nil {
				return err
			}
		}
	}
	return nil
}

// pass waits until a lane has room for an item. Usually there is room, and then a select with one channel is cheaper.
func (p *pipeline) pass(to *lane, next item) error {
	select {
	case to.in <- next:
		return nil
	default:
	}
	select {
	case to.in <- next:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func (p *pipeline) public(r stream.Record) Record {
	return Record{
		Stream: p.stream, Shard: p.shard, Sequence: r.Sequence, Index: r.Index,
		Key: r.Key, Keyless: r.Keyless, Data: r.Data, Arrived: r.Arrived,
	}
}

func (p *pipeline) lane(r stream.Record) *lane {
	if r.Keyless {
		p.turn++
		return p.lanes[p.turn%uint64(len(p.lanes))]
	}
	h := uint32(2166136261) // FNV-1a, without the allocations of hash/fnv
	for i := range len(r.Key) {
		h = (h ^ uint32(r.Key[i])) * 16777619
	}
	return p.lanes[h%uint32(len(p.lanes))]
}

// halt ends the tenure before a record that failed. It stops the reader; the records before
// it are still processed. If several records fail, the first of them counts.
func (p *pipeline) halt(number uint64, err error) {
	p.halting.Lock()
	defer p.halting.Unlock()
	if number < p.halted.Load() {
		p.halted.Store(number)
		p.fault = err
	}
	p.stop(err)
}

// drain waits until all accepted records are processed or have failed, and returns why the pipeline failed. If stuck is
// true, a function that has stalled has not returned, and the caller must wait for p.idle before it calls close. accept must
// not be called after drain.
func (p *pipeline) drain() (fault error, stuck bool) {
	for _, l := range p.lanes {
		close(l.in)
	}
	select {
	case <-p.idle:
	case <-p.stuck:
		stuck = true
	}
	p.halting.Lock()
	defer p.halting.Unlock()
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx), stuck
	}
	return p.fault, stuck
}

// close ends the goroutines of the pipeline and frees its memory. All lanes must have ended.
func (p *pipeline) close() {
	p.fail(nil)
	p.stop(nil)
	p.started.Wait()
	p.room.Close()
	p.figures.end()
}
