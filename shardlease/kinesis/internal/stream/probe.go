package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// mostSkew is how wrong the clock of a machine may be. Kinesis refuses requests from a clock that is
// wrong by five minutes.
const mostSkew = time.Minute

// A ClockError reports that the clock of this machine is wrong. Behind is how much it is behind; negative: ahead.
type ClockError struct{ Behind time.Duration }

func (e *ClockError) Error() string {
	way := "behind"
	if e.Behind < 0 {
		way = "ahead"
	}
	return fmt.Sprintf("the clock of this machine is %v %s: set it by NTP; Kinesis refuses requests from five minutes on", e.Behind.Abs().Round(time.Second), way)
}

// Probe finds out whether a worker can read the stream. It makes each request of a reader once, GetRecords and
// SubscribeToShard as dry runs, so it reads no record. The consumer is the ARN of a registered consumer, which need not
// exist; if it is empty, Probe does not try SubscribeToShard.
//
// It returns all faults that it finds, joined: ErrNoStream, ErrDeleted, a *DeniedError for each resource, a *ClockError.
func (s *Stream) Probe(ctx context.Context, consumer string) error {
	p := probe{Stream: s}
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	if !p.note(s.confirm(ctx, 0)) {
		return errors.Join(p.errs...)
	}
	p.polling(ctx)
	if consumer != "" {
		p.subscribing(ctx, consumer)
	}
	if ahead := s.described().ahead; ahead.Abs() > mostSkew {
		p.errs = append(p.errs, &ClockError{Behind: ahead})
	}
	for _, denied := range p.denied {
		p.errs = append(p.errs, denied)
	}
	return errors.Join(p.errs...)
}

// A probe collects what is wrong.
type probe struct {
	*Stream
	shard  string         // the shard that is tried
	denied []*DeniedError // one for each resource
	errs   []error
}

// note records the outcome of a request. It returns false if the other requests would fail too.
func (p *probe) note(err error) bool {
	if _, ok := errors.AsType[*types.DryRunOperationException](err); ok || err == nil {
		return true
	}
	one, ok := errors.AsType[*DeniedError](err)
	if !ok {
		p.errs = append(p.errs, err)
		return false
	}
	for _, denied := range p.denied {
		if denied.Resource == one.Resource {
			denied.Actions = append(denied.Actions, one.Actions...)
			return true
		}
	}
	p.denied = append(p.denied, one)
	return true
}

// polling tries the requests of a reader that polls. If one is refused, the next one gets a value that is not
// valid: Kinesis checks the permission first.
func (p *probe) polling(ctx context.Context) {
	input := &kinesis.ListShardsInput{MaxResults: aws.Int32(1)}
	input.StreamName, input.StreamARN = p.address()
	shards, err := p.Client.ListShards(ctx, input)
	if !p.note(p.explain(list, err)) {
		return
	}
	p.shard = "shardId-000000000000"
	if err == nil && len(shards.Shards) > 0 {
		p.shard = *shards.Shards[0].ShardId
	}
	iterator, err := p.iterator(ctx, &kinesis.GetShardIteratorInput{ShardId: &p.shard, ShardIteratorType: types.ShardIteratorTypeLatest})
	_, missing := errors.AsType[*types.ResourceNotFoundException](err) // the shard was only a guess
	if !missing && !p.note(err) {
		return
	}
	records := &kinesis.GetRecordsInput{ShardIterator: cmp.Or(iterator, aws.String("none")), DryRun: aws.Bool(true)}
	_, records.StreamARN = p.address()
	_, err = p.Client.GetRecords(ctx, records)
	if _, invalid := errors.AsType[*types.InvalidArgumentException](err); !invalid || iterator != nil {
		p.note(p.explain(get, err))
	}
}

// subscribing tries to subscribe to a shard. The resource of this permission is the registered consumer.
func (p *probe) subscribing(ctx context.Context, consumer string) {
	out, err := p.Client.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
		ConsumerARN: &consumer, ShardId: aws.String(cmp.Or(p.shard, "shardId-000000000000")), DryRun: aws.Bool(true),
		StartingPosition: &types.StartingPosition{Type: types.ShardIteratorTypeLatest},
	})
	if err == nil { // a server that knows no dry run
		err = out.GetStream().Close()
	}
	_, busy := errors.AsType[*types.ResourceInUseException](err)
	_, missing := errors.AsType[*types.ResourceNotFoundException](err)
	if busy || missing { // Kinesis checks the permission first
		return
	}
	err = p.explain(subscribe, err)
	if denied, ok := errors.AsType[*DeniedError](err); ok {
		denied.Resource = consumer[:strings.LastIndexByte(consumer, ':')] + ":*"
	}
	p.note(err)
}
