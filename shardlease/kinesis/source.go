package kinesis

import (
	"context"
	"errors"
	"fmt"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The reasons for which a stream cannot be read. Compare with errors.Is.
var (
	// ErrNoStream means that there is no stream with this name in the account and the region.
	ErrNoStream = stream.ErrNoStream
	// ErrDeleted means that the stream was deleted. Records that the group has not read are lost.
	ErrDeleted = stream.ErrDeleted
	// ErrRecreated means that a stream was deleted, and another one was created under its name. The
	// checkpoints of the group belong to the old stream: use another group, or remove its leases.
	ErrRecreated = stream.ErrRecreated
)

// A Start is where a new group begins to read its streams: see [Config.Start]. The zero Start is the oldest record that is
// left; otherwise set one field.
type Start = stream.Start

// Foreign decides about records that the Kinesis Producer Library (KPL) has packed into an entry of a shard to which their
// keys do not belong. It has no effect on streams with AUTO distribution, where all records are kept.
type Foreign = stream.Foreign

// The values of [Config].Foreign.
const (
	// Drop leaves the records out: the KPL puts them again.
	Drop = stream.Drop
	// Keep keeps the records. It is for producers that do not put them again, and for a stream that was switched back
	// from AUTO distribution, until its entries of that time have expired.
	Keep = stream.Keep
)

// A StartError reports that a new group cannot begin where its [Start] says.
type StartError = stream.StartError

// A DeniedError reports which actions on a resource are denied, and has the statement that the IAM policy lacks.
type DeniedError = stream.DeniedError

// A ClockError reports that the clock of this machine is wrong by more than a minute.
type ClockError = stream.ClockError

// streams is one stream, or a set.
type streams interface {
	shardlease.Source
	Begin(ctx context.Context, store lease.Store, group string, start Start) error
}

// open makes the streams of the consumer.
func (c *Consumer) open(client *awskinesis.Client) (err error) {
	client = counted(client)
	one := func(name string) *stream.Stream {
		return &stream.Stream{
			Client: client, Name: name, Idle: c.config.Idle, Limit: min(c.config.InFlight, 10_000), Foreign: c.config.Foreign, Logger: c.config.Logger,
		}
	}
	c.fans = map[*stream.Stream]*fan{}
	for _, name := range append(c.config.Streams[:len(c.config.Streams):len(c.config.Streams)], c.config.Stream) {
		if name != "" {
			s := one(name)
			c.all, c.fans[s] = append(c.all, s), newFan(c.config, s)
		}
	}
	if c.config.Stream != "" {
		c.single = c.all[0]
		c.streams = c.single
		return nil
	}
	c.set, err = stream.NewSet(c.all...)
	c.streams = c.set
	return err
}

// find returns the stream of a lease, and the shard of the stream.
func (c *Consumer) find(name string) (*stream.Stream, string, error) {
	if c.single != nil {
		return c.single, name, nil
	}
	if s, shard, ok := c.set.Find(name); ok {
		return s, shard, nil
	}
	return nil, "", fmt.Errorf("shard %s belongs to none of Config.Streams", name)
}

// Source returns the source that lists the shards of the streams: see [Consumer.WorkerConfig].
func (c *Consumer) Source() shardlease.Source { return c.streams }

// Check finds out whether this process may read the streams. It makes dry runs, which read no record, and returns all
// faults that it finds, joined: [ErrNoStream], a [*DeniedError] for each resource, a [*ClockError]. There is no dry run of
// [Consumer.Register], and Check does not look at the lease table, as dynamostore.Open does.
func (c *Consumer) Check(ctx context.Context) error {
	return c.each(func(f *fan) error { return f.check(ctx) })
}

// Begin prepares the consumer. It fixes where a new group begins, and returns [ErrRecreated] if a lease of the group,
// finished or not, belongs to another stream of the same name. With [FanOut] it also registers the group:
// see [Consumer.Register]. Run calls Begin until it succeeds, or fails for a reason that will not pass by itself. Call it
// before you run a worker of your own.
func (c *Consumer) Begin(ctx context.Context) error {
	if err := c.streams.Begin(ctx, c.store, c.config.Group, c.config.Start); err != nil {
		return err
	}
	for record, err := range c.store.List(ctx, lease.Query{Group: c.config.Group, Kind: lease.KindLease}) {
		if _, spoilt := errors.AsType[*lease.MalformedError](err); spoilt {
			continue // it stops only its own shard
		}
		if err != nil {
			return fmt.Errorf("list the leases of group %s: %w", c.config.Group, err)
		}
		row, ok := record.(lease.Row)
		if !ok {
			continue
		}
		from, _, err := c.find(row.Shard)
		if err != nil {
			continue // the lease of a stream that the group no longer reads
		}
		if err := from.Check(ctx, row.Checkpoint.State); err != nil {
			return fmt.Errorf("shard %s: %w", row.Shard, err)
		}
	}
	return c.each(func(f *fan) error { return f.begin(ctx) })
}

// final reports whether an error will not pass by itself.
func final(err error) bool {
	_, start := errors.AsType[*StartError](err)
	_, full := errors.AsType[*RegistrationLimitError](err)
	return start || full || errors.Is(err, ErrRecreated) || errors.Is(err, ErrDeleted) || errors.Is(err, ErrNoStream) || stream.Refused(err)
}
