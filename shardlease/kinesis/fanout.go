package kinesis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"regexp"
	"sync"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/fanout"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Read is how a [Consumer] reads the records of a shard: see [Config.Read].
type Read int

const (
	// Auto reads by enhanced fan-out while the group has a registered consumer that is ACTIVE, and polls otherwise. It asks
	// Kinesis when the Consumer begins, and then every 5 minutes. It does not register the group.
	Auto Read = iota
	// Poll reads by requests. Kinesis allows five of them, and 2 MiB, per second and shard for all groups that poll.
	Poll
	// FanOut reads by enhanced fan-out: Kinesis pushes the records, up to 2 MiB per second and shard for this group
	// alone. Begin and Run register the group, as [Consumer.Register] does. The registered consumer costs money, for
	// each shard and hour, until [Consumer.Deregister].
	FanOut
)

func (r Read) String() string {
	switch r {
	case Auto:
		return "auto"
	case Poll:
		return "poll"
	case FanOut:
		return "fan-out"
	}
	return "unknown"
}

// A RegistrationLimitError reports that a group was not registered because the stream has as many registered consumers as it
// may have, and names them.
type RegistrationLimitError = fanout.LimitError

// A RegistrationWaitError reports that the registered consumer of a group has not become ACTIVE within 5 minutes.
type RegistrationWaitError = fanout.WaitError

// consumerName is what Kinesis accepts as the name of a registered consumer.
var consumerName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

func (c *Config) reading(f *faults) {
	switch named := consumerName.MatchString(c.Group); {
	case c.Read < Auto || c.Read > FanOut:
		f.add("Read", "must be Auto, Poll or FanOut, is %d", c.Read)
	case c.Read == FanOut && c.Group != "" && !named:
		f.add("Group", "must be a valid name of a registered consumer if Read is FanOut: 1 to 128 letters, digits, underscores, dots and hyphens")
	case !named:
		c.Read = Poll
	}
}

const (
	// askEvery is how often a process asks Kinesis for the group's registered consumer of each stream. Kinesis allows an
	// account 20 such requests per second.
	askEvery = 5 * time.Minute
	// A worker that may have lost its shard asks the lease table up to five times, with pauses that double.
	firstAsk = time.Second
	lastAsk  = 8 * time.Second
	// fresh is for how long a tenure that has begun needs no evidence that it has its shard.
	fresh = 10 * time.Second
	// askFor is how long one such question may take.
	askFor = 20 * time.Second
)

// A fan knows whether the shards of a stream can be read by fan-out.
type fan struct {
	read   Read
	from   *stream.Stream
	client *awskinesis.Client // for subscriptions alone
	group  string
	log    *slog.Logger

	mu      sync.Mutex
	asked   time.Time
	arn     string // of the registered consumer if it was ACTIVE at the time asked; otherwise empty
	failing bool   // the last request failed, which was logged
}

func newFan(c Config, from *stream.Stream) *fan {
	return &fan{
		read: c.Read, from: from, client: fanout.Client(from.Client), group: c.Group,
		log: c.Logger.With("stream", nameOf(from.Name), "group", c.Group),
	}
}

// begin finds out, before any shard is read, whether fan-out can be used. If Auto gets no answer, it polls.
func (f *fan) begin(ctx context.Context) error {
	switch f.read {
	case Auto:
		f.consumer(ctx)
	case FanOut:
		return f.register(ctx)
	}
	return nil
}

func (f *fan) register(ctx context.Context) error {
	of, err := f.from.ARN(ctx)
	if err != nil {
		return err
	}
	arn, err := fanout.Register(ctx, f.from.Client, of, f.group)
	if err == nil {
		f.know(arn)
	}
	return err
}

// consumer returns the ARN of the group's registered consumer if that is ACTIVE, or "". When it is time to ask Kinesis
// again, one caller asks; the others get the last answer.
func (f *fan) consumer(ctx context.Context) string {
	f.mu.Lock()
	due := f.read != Poll && (f.asked.IsZero() || time.Since(f.asked) >= askEvery)
	if due {
		f.asked = time.Now()
	}
	known := f.arn
	f.mu.Unlock()
	if !due {
		return known
	}
	arn, active, err := f.ask(ctx)
	switch {
	case ctx.Err() != nil: // the next caller asks
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked = time.Time{}
		return known
	case err != nil:
		f.fails(err)
		return known
	case !active:
		arn = ""
	}
	f.know(arn)
	return arn
}

func (f *fan) ask(ctx context.Context) (arn string, active bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	of, err := f.from.ARN(ctx)
	if err != nil {
		return "", false, err
	}
	return fanout.Active(ctx, f.from.Client, of, f.group)
}

// know stores the ARN of the registered consumer that is ACTIVE, and logs a change. Before that the shards are polled.
func (f *fan) know(arn string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.arn
	f.arn, f.asked, f.failing = arn, time.Now(), false
	switch {
	case was == arn:
	case arn != "":
		f.log.Info("the registered consumer is ACTIVE: shards are read by fan-out")
	default:
		f.log.Warn("there is no ACTIVE registered consumer any more: shards are polled")
	}
}

// fails logs the first of some errors in a row.
func (f *fan) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.failing {
		f.log.Warn("cannot find out whether there is a consumer registered for fan-out: shards without a subscription are polled", "err", err)
	}
	f.failing = true
}

// lose is called when a subscription has failed for good. If Kinesis no longer has the registered consumer, the next
// tenure asks for it.
func (f *fan) lose(arn string, err error) {
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); !missing {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.arn == arn {
		f.arn, f.asked = "", time.Time{}
	}
}

// A pusher subscribes to the shard of a tenure.
type pusher struct {
	*fan
	p     *pipeline
	rows  shardlease.Supervisor
	using string // the ARN of the registered consumer
}

// push returns the subscriptions of a tenure, or nil if its shard is always polled.
func (c *Consumer) push(p *pipeline) stream.Push {
	f := c.fans[p.from]
	if f.read == Poll {
		return nil
	}
	return &pusher{fan: f, p: p, rows: shardlease.Supervisor{Store: c.store, Group: c.config.Group}}
}

func (s *pusher) Ready(ctx context.Context) bool {
	s.using = s.consumer(ctx)
	return s.using != ""
}

func (s *pusher) Subscribe(ctx context.Context, shard string, from types.StartingPosition) iter.Seq2[stream.Answer, error] {
	figures := s.p.figures
	r := &fanout.Reader{Client: s.client, Consumer: s.using, Logger: s.p.config.Logger, Counters: &figures.subscriptions, Patience: s.p.config.StallAfter / 2}
	return func(yield func(stream.Answer, error) bool) {
		if s.p.now() >= int64(fresh) { // it was polled before
			if err := s.holds(ctx); err != nil {
				yield(stream.Answer{}, err)
				return
			}
		}
		figures.fanOut.Store(1)
		defer figures.fanOut.Store(0)
		for a, err := range r.Read(ctx, shard, from, s.holds) {
			if !yield(a, err) {
				return
			}
		}
	}
}

func (s *pusher) Failed(err error) {
	s.p.figures.fallbacks.Add(1)
	s.lose(s.using, err)
}

// row reads the lease row of the shard.
func (s *pusher) row(ctx context.Context) (lease.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	return s.rows.Get(ctx, s.p.tenure.Shard().Name)
}

// holds returns nil when the lease table shows that the tenure still holds its shard. If another worker holds it, holds
// waits until ctx ends. If the table does not answer, holds returns an error after two minutes at most, and the shard is
// polled, which takes nothing from a successor: a worker whose policy denies single reads keeps its shards.
//
// Invariant: a worker that was replaced, and does not know it, takes no subscription from its successor. Its own clock
// is no evidence: the process may have been paused.
func (s *pusher) holds(ctx context.Context) error {
	for pause := firstAsk; ; pause *= 2 {
		row, err := s.row(ctx)
		if err == nil && row.Generation == s.p.tenure.Generation() && !row.Owner.IsZero() {
			return nil
		}
		if err == nil {
			s.p.log.Info("the lease is lost: no further subscription", "owner", row.Owner.Name)
			<-ctx.Done() // the worker finds out too, and ends the tenure
			return context.Cause(ctx)
		}
		if pause > lastAsk {
			return fmt.Errorf("read the lease row before a subscription: %w", err)
		}
		s.p.log.Warn("cannot read the lease row before the next subscription: tries again", "err", err)
		if !sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// Register registers the group for enhanced fan-out: on each stream it creates the registered consumer with the name of the
// group, unless there is one, and waits until it is ACTIVE. Workers that run with [Auto] then read by fan-out, within 5
// minutes; with [FanOut], Begin and Run register the group by themselves. All workers may call Register at the same time. It
// returns a [*RegistrationLimitError], a [*RegistrationWaitError] or a [*DeniedError]. AWS charges for each registered consumer,
// shard and hour until [Consumer.Deregister].
func (c *Consumer) Register(ctx context.Context) error {
	return c.each(func(f *fan) error { return f.register(ctx) })
}

// Deregister deletes the group's registered consumer of each stream, and ends its cost. Running workers continue by polling.
// Workers with [FanOut] register the group again when they start, so change their configuration first.
func (c *Consumer) Deregister(ctx context.Context) error {
	return c.each(func(f *fan) error {
		of, err := f.from.ARN(ctx)
		if err != nil {
			return err
		}
		return fanout.Deregister(ctx, f.from.Client, of, f.group)
	})
}

// each calls do for each stream, one after the other: Kinesis allows five registrations per second.
func (c *Consumer) each(do func(*fan) error) error {
	var errs []error
	for _, s := range c.all {
		errs = append(errs, do(c.fans[s]))
	}
	return errors.Join(errs...)
}

// check makes dry runs of the requests of a reader.
func (f *fan) check(ctx context.Context) error {
	if f.read == Poll {
		return f.from.Probe(ctx, "")
	}
	of, err := f.from.ARN(ctx)
	if err != nil { // Probe reports it, with what else is wrong
		return f.from.Probe(ctx, "")
	}
	arn, _, err := fanout.Active(ctx, f.from.Client, of, f.group)
	if arn == "" && f.read == FanOut { // Kinesis checks the permission first, so the registered consumer need not exist
		arn = of + "/consumer/" + f.group + ":0"
	}
	return errors.Join(f.from.Probe(ctx, arn), err)
}
