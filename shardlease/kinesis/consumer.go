package kinesis

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Consumer processes the records of one or more streams, as a member of a fleet: see [New] and [Consumer.Run].
type Consumer struct {
	config  Config
	store   lease.Store
	streams streams
	single  *stream.Stream // of Config.Stream
	set     *stream.Set    // of Config.Streams
	all     []*stream.Stream
	fans    map[*stream.Stream]*fan
	memory  *stream.Memory
	worker  *shardlease.Worker
	figures figures
	telling <-chan struct{} // closed when Observe has returned, while no worker runs

	// leftBehind has the shards whose tenure ended by a stall while the function had not returned. The
	// channel of a shard is closed when the function returns.
	mu         sync.Mutex
	leftBehind map[string]<-chan struct{}
	remains    sync.WaitGroup
}

// New returns a consumer that reads with client and keeps its leases in store. It reports all faults of the
// configuration at once, and sends no request.
func New(client *awskinesis.Client, store lease.Store, config Config) (*Consumer, error) {
	config, err := config.withDefaults()
	if client == nil {
		err = errors.Join(err, &shardlease.ConfigError{Field: "client", Rule: "must be given: kinesis.NewFromConfig of the AWS SDK makes one"})
	}
	c := &Consumer{
		config: config, store: store, memory: &stream.Memory{PerShard: config.ShardMemory, Total: config.Memory},
		leftBehind: map[string]<-chan struct{}{},
	}
	var faulty error
	c.worker, faulty = shardlease.New(store, shardlease.SourceFunc(func(ctx context.Context) ([]shardlease.Shard, error) { return c.streams.Shards(ctx) }), config.Worker)
	if err := errors.Join(err, faulty); err != nil {
		return nil, err
	}
	return c, c.open(client)
}

// Run processes the records of the streams until ctx ends. Then it stops reading, waits up to
// shardlease.Config.Drain until the records that it has read are processed, releases its shards to other workers
// and returns nil: see shardlease.Worker.Run. It returns an error at its start if a stream cannot be read for a
// reason that will not pass by itself. A Consumer runs once.
//
// Run calls process for each record at least once, for several records at a time but never for two with the same
// key. The context of process contains the fencing token, and ends when the shard is lost: process should then
// return. A checkpoint is stored only when process has returned nil for all records before it.
func (c *Consumer) Run(ctx context.Context, process func(ctx context.Context, r Record) error) error {
	return c.run(ctx, c.Handler(process))
}

// RunBatch is [Consumer.Run] for a function that gets up to [Config.Batch] records in one call, in the order of
// their lane ([Config.Lanes]). It returns how many of them, from the first on, it has processed. If it returns an
// error, or fewer than all, RunBatch calls it again for the rest with half as many records, until one record
// fails alone. Only such a call counts as a try: [Config.Tries] and [Config.Attempts] decide what follows.
func (c *Consumer) RunBatch(ctx context.Context, process func(ctx context.Context, batch []Record) (done int, err error)) error {
	return c.run(ctx, c.BatchHandler(process))
}

func (c *Consumer) run(ctx context.Context, handler shardlease.Handler) error {
	if ready, err := c.ready(ctx); !ready {
		return err
	}
	defer c.remains.Wait() // as Worker.Run does, it returns when everything that it started has ended
	return c.worker.Run(ctx, handler)
}

// Worker returns the worker that Run and RunBatch run, for its Status, its Healthy and its Probes.
func (c *Consumer) Worker() *shardlease.Worker { return c.worker }

// WorkerConfig returns the configuration of the worker that Run makes. With Begin, Source and Handler, or
// BatchHandler, it is for a worker of your own:
//
//	err := c.Begin(ctx)
//	…
//	w, err := shardlease.New(store, c.Source(), c.WorkerConfig())
//	…
//	err = w.Run(ctx, c.Handler(process))
func (c *Consumer) WorkerConfig() shardlease.Config { return c.config.Worker }

// Handler returns the handler with which [Consumer.Run] processes a shard: see [Consumer.WorkerConfig].
func (c *Consumer) Handler(process func(ctx context.Context, r Record) error) shardlease.Handler {
	one := func(ctx context.Context, batch []Record) (int, error) {
		if err := process(ctx, batch[0]); err != nil {
			return 0, err
		}
		return 1, nil
	}
	return func(ctx context.Context, t *shardlease.Tenure) error { return c.handle(ctx, t, work{one, 1, 0}) }
}

// BatchHandler returns the handler with which [Consumer.RunBatch] processes a shard: see [Consumer.WorkerConfig].
func (c *Consumer) BatchHandler(process func(ctx context.Context, batch []Record) (done int, err error)) shardlease.Handler {
	w := work{process, c.config.Batch, c.config.Window}
	return func(ctx context.Context, t *shardlease.Tenure) error { return c.handle(ctx, t, w) }
}

// handle processes a shard until ctx ends, and finishes it at its end.
//
// When ctx ends, handle stops reading, and waits until the records that it has read are processed and
// marked. The next worker starts after them.
//
// Each checkpoint has the identity of the stream as its state, so a stream that was created
// again under the same name is refused. The identity is not part of the shard's name, because
// imports and exports need the name that Kinesis uses.
func (c *Consumer) handle(ctx context.Context, t *shardlease.Tenure, w work) error {
	from, shard, err := c.find(t.Shard().Name)
	if err != nil { // another worker of the group may have a newer configuration, so this is no failed attempt
		return c.giveBack(ctx, t, "the worker does not read this stream", err)
	}
	if !c.awaitRemains(ctx, t.Shard().Name) {
		return c.giveBack(ctx, t, errRemains.Error(), errRemains)
	}
	if err := from.Check(ctx, t.Checkpoint().State); err != nil {
		return c.giveBack(ctx, t, unreadable, err)
	}
	identity, err := from.Identity(ctx)
	if err != nil {
		return c.giveBack(ctx, t, unreadable, err)
	}
	p := c.begin(ctx, t, w, from, shard, identity)
	err = p.feed()
	fault, stuck := p.drain()
	if stuck {
		c.leaveBehind(t.Shard().Name, p)
		<-ctx.Done() // the worker knows of the release now, so the error does not count as a failure
		return fault
	}
	p.close()
	switch {
	case fault != nil:
		return fault
	case errors.Is(err, io.EOF):
		// The children start at once when the shard is finished, so all its records must be
		// processed before: they precede those of the same keys in the children.
		if err := p.tracker.Wait(t.Context()); err != nil {
			return err
		}
		return p.finish()
	}
	return c.giveBack(ctx, t, unreadable, err)
}

// leaveBehind lets the tenure end although the function has not returned. The shard can move at once, and the
// fence refuses what the function writes. The memory of its records stays counted.
func (c *Consumer) leaveBehind(name string, p *pipeline) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leftBehind[name] = p.idle
	c.remains.Go(func() {
		<-p.idle
		p.close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.leftBehind, name)
	})
}

var errRemains = errors.New("the function of an earlier tenure has not returned")

// unreadable is the note in the row. The error may contain a position, which is the user's data.
const unreadable = "the shard cannot be read: the event and the log have the error"

// giveBack releases a shard that this worker cannot process now. That is no failed attempt, and the worker leaves the
// shard to others for a while: 1 s, and longer each time. The event (event.Ended) has the error.
//
// Invariant: only a record that fails is a failed attempt.
func (c *Consumer) giveBack(ctx context.Context, t *shardlease.Tenure, note string, why error) error {
	if ctx.Err() != nil {
		return nil
	}
	c.config.Logger.Warn("shard released: this worker cannot process it now", "shard", t.Shard().Name, "err", why)
	t.Release(note)
	<-ctx.Done() // the worker knows of the release now, so the error does not count as a failure
	return why
}

// awaitRemains waits up to stuckAfter until the function of an earlier tenure of the shard has returned, and reports
// whether it has. It returns false if ctx ends first.
//
// Invariant: in one process, no two tenures of a shard call the function at a time.
func (c *Consumer) awaitRemains(ctx context.Context, name string) bool {
	c.mu.Lock()
	idle := c.leftBehind[name]
	c.mu.Unlock()
	if idle == nil {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(stuckAfter)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// finish finishes the shard. If the shard had no record, finish first marks its first sequence
// number, so that its row too has the identity of the stream.
func (p *pipeline) finish() error {
	t := p.tenure
	first := p.from.First(p.shard)
	if t.Checkpoint().IsZero() && !p.marked.Load() && first != "" {
		if err := t.MarkState(first, p.identity); err != nil {
			return err
		}
	}
	return t.Finish(t.Context())
}

// feed reads the shard and passes the entries to the lanes, until the error that it returns.
func (p *pipeline) feed() error {
	defer p.life.Store(ended)
	ctx := counting(p.reading, p.figures)
	for batch, err := range p.from.Follow(ctx, p.shard, p.tenure.Checkpoint().Position, p.room, p.push) {
		if errors.Is(err, io.EOF) {
			p.figures.readToEnd()
		}
		if err != nil {
			return err
		}
		p.life.Store(p.now())
		p.figures.read(batch)
		p.warn(batch)
		for _, entry := range batch.Entries {
			if err := p.accept(entry); err != nil {
				return err
			}
		}
		if p.advances(batch) && p.tracker.Backlog().Begun == 0 { // otherwise reads would hide a function that hangs
			p.unmarked(batch)
		}
	}
	return nil
}

// warn logs, each once, that records may soon be lost, and that packed records are left out.
func (p *pipeline) warn(batch stream.Batch) {
	left := func(e stream.Entry) bool { return e.Foreign > 0 }
	if i := slices.IndexFunc(batch.Entries, left); i >= 0 && !p.foreign {
		p.foreign = true
		p.log.Warn("packed records are left out, because their keys belong to other shards: Config.Foreign keeps them, and ShardStats.Foreign counts them",
			"sequence", batch.Entries[i].Sequence, "records", batch.Entries[i].Foreign)
	}
	late := batch.Retention > 0 && batch.Behind > batch.Retention/2
	if late && !p.late {
		p.log.Error("the shard is behind by more than half of the retention of the stream: records that are not read in time are lost",
			"behind", batch.Behind, "retention", batch.Retention)
	}
	p.late = late
}

// advances reports whether an answer has records or brings the reader nearer to the end of the shard. Kinesis may send
// many empty answers before the next record, each of them nearer to the end. Others are no sign of life, so the
// worker reports the shard as silent.
func (p *pipeline) advances(batch stream.Batch) bool {
	if len(batch.Entries) == 0 && batch.Behind > 0 && batch.Behind >= p.nearest {
		return false
	}
	p.nearest = batch.Behind
	return true
}

// unmarked gives the worker a sign of life for an answer after which nothing remains to mark. Kinesis often
// returns empty answers before the next record. If that record failed in an earlier tenure, Progress would
// reset the count of attempts, and DeadLetter would never get the record. So until the reader has caught up
// or a record is marked, unmarked calls Alive, which resets no count.
func (p *pipeline) unmarked(batch stream.Batch) {
	if p.tenure.Attempt() == 0 || batch.Behind == 0 {
		p.tenure.Progress()
	} else {
		p.tenure.Alive()
	}
}

// begin starts the pipeline of a tenure.
func (c *Consumer) begin(ctx context.Context, t *shardlease.Tenure, w work, from *stream.Stream, shard, identity string) *pipeline {
	p := &pipeline{
		work: w, config: c.config, tenure: t, from: from, shard: shard, identity: identity, stream: nameOf(from.Name),
		room: c.memory.Room(), figures: newFigures(t.Context(), t.Shard().Name, c.config.Idle), nearest: math.MaxInt64,
		log: c.config.Logger.With("shard", t.Shard().Name), idle: make(chan struct{}), stuck: make(chan struct{}),
	}
	p.push = c.push(p)
	p.tracker = checkpoint.NewTracker(c.config.InFlight, func(position string) error {
		p.marked.Store(true)
		return t.MarkState(position, identity)
	})
	p.start(t.Context(), ctx)
	c.figures.begin(p.figures, p.lanes)
	return p
}
