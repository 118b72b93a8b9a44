package kinesis

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go/middleware"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/fanout"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
)

const (
	// quietAfter is after how long without an answer a shard counts as not read. Two answers of a shard that is read
	// are up to 5 s apart: an answer may have as many bytes as Kinesis allows in that time.
	quietAfter = 10 * time.Second
	// rateOver is the time over which rates are averages, and leastOver the shortest time for which one is stated.
	rateOver  = time.Minute
	leastOver = 10 * time.Second
)

// figures are the figures of all tenures of this consumer.
//
// Invariant: each count of a tenure is either in tenures or in past, so a total never falls.
type figures struct {
	mu      sync.Mutex
	tenures map[*shardFigures]struct{} // the tenures whose pipelines are open
	past    ShardStats                 // the counts of all earlier tenures
}

// shardFigures are the figures of one tenure. The counts that change with each record are atomic, and need no lock.
type shardFigures struct {
	name  string
	ctx   context.Context // of the tenure; it ends when the worker holds the shard no longer
	quiet time.Duration   // after how long without an answer the shard counts as not read
	of    *figures
	lanes []*lane

	records, bytes, reads, throttles, errors          atomic.Int64
	processed, failed, leftOut, foreign, lost, stalls atomic.Int64
	fanOut, fallbacks                                 atomic.Int64
	subscriptions                                     fanout.Counters

	mu       sync.Mutex // guards the fields below, which change with each answer
	behind   time.Duration
	answered time.Time // when the last answer came; before the first one, when the tenure began; zero: the end was read
	load     load
}

// A load is an average of the records and bytes per second, in which an older answer counts less.
type load struct {
	began, at      time.Time
	records, bytes float64
}

// add takes in an answer. Without records it moves the average to now.
func (l *load) add(now time.Time, records, bytes int64) {
	fade := math.Exp(-now.Sub(l.at).Seconds() / rateOver.Seconds())
	l.at, l.records, l.bytes = now, l.records*fade+float64(records), l.bytes*fade+float64(bytes)
}

// rates returns the averages. A load that has just begun has not seen a whole minute.
func (l load) rates(now time.Time) (records, bytes float64) {
	l.add(now, 0, 0)
	seen := max(now.Sub(l.began), leastOver).Seconds() / rateOver.Seconds()
	over := rateOver.Seconds() * (1 - math.Exp(-seen))
	return l.records / over, l.bytes / over
}

func newFigures(ctx context.Context, name string, idle time.Duration) *shardFigures {
	now := time.Now()
	return &shardFigures{name: name, ctx: ctx, quiet: max(quietAfter, 2*idle), answered: now, load: load{began: now, at: now}}
}

// begin adds the figures of a tenure.
func (f *figures) begin(s *shardFigures, lanes []*lane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tenures == nil {
		f.tenures = map[*shardFigures]struct{}{}
	}
	s.of, s.lanes = f, lanes
	f.tenures[s] = struct{}{}
}

// end adds the counts to those of the past.
func (s *shardFigures) end() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.past.add(s.counts())
	delete(s.of.tenures, s)
}

// read counts an answer of Kinesis.
func (s *shardFigures) read(batch stream.Batch) {
	var records, foreign, bytes int64
	for _, e := range batch.Entries {
		records += int64(len(e.Records))
		foreign += int64(e.Foreign)
		for _, r := range e.Records {
			bytes += int64(len(r.Data) + len(r.Key))
		}
	}
	s.reads.Add(1)
	s.records.Add(records)
	s.foreign.Add(foreign)
	s.bytes.Add(bytes)
	if batch.Lost {
		s.lost.Add(1)
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind, s.answered = batch.Behind, now
	s.load.add(now, records, bytes)
}

// readToEnd notes that the shard is closed and read to its end: it cannot be behind any more.
func (s *shardFigures) readToEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind, s.answered = 0, time.Time{}
}

// counts returns the figures that only grow.
func (s *shardFigures) counts() ShardStats {
	return ShardStats{
		Records: s.records.Load(), Bytes: s.bytes.Load(), Reads: s.reads.Load(), Throttles: s.throttles.Load(), ReadErrors: s.errors.Load(),
		Processed: s.processed.Load(), Failed: s.failed.Load(), LeftOut: s.leftOut.Load(), Foreign: s.foreign.Load(), Lost: s.lost.Load(),
		Stalls: s.stalls.Load(), Fallbacks: s.fallbacks.Load(), Subscriptions: s.subscriptions.Subscriptions.Load(),
		Silent: s.subscriptions.Silent.Load(), TakeOvers: s.subscriptions.TakeOvers.Load(), Broken: s.subscriptions.Broken.Load(),
	}
}

// gauge adds the figures that may fall.
func (s *shardFigures) gauge(to *ShardStats, now time.Time) {
	to.FanOut = s.fanOut.Load()
	for _, l := range s.lanes {
		if arrived := l.arrived.Load(); arrived != 0 {
			to.Age = max(to.Age, now.Sub(time.Unix(0, arrived)))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to.Behind = s.behind
	if silent := now.Sub(s.answered); silent > s.quiet && !s.answered.IsZero() {
		to.Behind += silent
	}
	to.RecordRate, to.ByteRate = s.load.rates(now)
}

// ShardStats are the figures of one shard in its present tenure, or of all tenures of a consumer: see [Stats].
type ShardStats struct {
	// Behind is how far the last answer was from the end of the shard (MillisBehindLatest of Kinesis). After 10 s without
	// an answer, or twice Config.Idle if that is longer, the time since the last one is added.
	Behind time.Duration
	// Age is how long ago Kinesis received the oldest record that was read and is not yet processed (the iterator age
	// of Lambda). It grows while the function hangs, and is 0 when all records are processed.
	Age time.Duration
	// RecordRate and ByteRate are the records and bytes that were read per second, on average over about the last
	// minute. Once the shard is not behind, they are its load.
	RecordRate, ByteRate float64

	Records    int64 // records that were read
	Bytes      int64 // the data and keys of the records that were read
	Reads      int64 // answers of Kinesis and events of subscriptions, with records or without
	Throttles  int64 // requests that Kinesis refused because there were too many
	ReadErrors int64 // requests that failed for other reasons
	Processed  int64 // records for which the function has returned nil
	Failed     int64 // calls of the function that failed
	LeftOut    int64 // records for which Config.DeadLetter has returned nil
	Foreign    int64 // packed records that were dropped, because their keys belong to other shards: see Config.Foreign
	Lost       int64 // how often records had expired before they were read
	Stalls     int64 // tenures that ended by a stall

	FanOut        int64 // 1 if the shard is read by fan-out now, 0 if it is polled; in Stats.Total the sum
	Fallbacks     int64 // how often a shard was polled because fan-out had failed
	Subscriptions int64 // subscriptions that Kinesis accepted; each lasts up to 5 minutes
	Silent        int64 // subscriptions that were given up because nothing arrived for 35 s
	TakeOvers     int64 // subscriptions that were refused, or ended, because of another one to the same shard
	Broken        int64 // subscriptions that ended before their 5 minutes without an error
}

func (s *ShardStats) add(o ShardStats) {
	s.Records += o.Records
	s.Bytes += o.Bytes
	s.Reads += o.Reads
	s.Throttles += o.Throttles
	s.ReadErrors += o.ReadErrors
	s.Processed += o.Processed
	s.Failed += o.Failed
	s.LeftOut += o.LeftOut
	s.Foreign += o.Foreign
	s.Lost += o.Lost
	s.Stalls += o.Stalls
	s.Fallbacks += o.Fallbacks
	s.Subscriptions += o.Subscriptions
	s.Silent += o.Silent
	s.TakeOvers += o.TakeOvers
	s.Broken += o.Broken
}

// Stats are the figures of a [Consumer].
type Stats struct {
	// Shards has the shards that this consumer holds, by the names of their leases.
	Shards map[string]ShardStats
	// Total has the counts of all tenures of this consumer, which never fall. Its Behind, FanOut and rates are the sums
	// over Shards, and its Age is the largest.
	Total ShardStats
	// Behind is the largest Behind of Shards.
	Behind time.Duration
}

// Stats returns the figures of this consumer. For the figures of the group, add those of all its consumers, and take the
// maximum of Stats.Behind and of Age. A shard that no worker holds is in no figure: alert on such shards too, for example
// with shardlease check.
func (c *Consumer) Stats() Stats {
	c.figures.mu.Lock()
	defer c.figures.mu.Unlock()
	s, now := Stats{Shards: map[string]ShardStats{}, Total: c.figures.past}, time.Now()
	for of := range c.figures.tenures {
		one := of.counts()
		s.Total.add(one)
		if of.ctx.Err() != nil {
			continue // the shard has left, although a function has not returned
		}
		of.gauge(&one, now)
		s.Shards[of.name] = one
		s.Total.Behind += one.Behind
		s.Total.RecordRate += one.RecordRate
		s.Total.ByteRate += one.ByteRate
		s.Total.Age = max(s.Total.Age, one.Age)
		s.Total.FanOut += one.FanOut
		s.Behind = max(s.Behind, one.Behind)
	}
	return s
}

// Figures returns the figures as named numbers, by lease, for programs that export them without knowing this package. The
// empty lease name has the figures of Total, and "behind_max_ms" and "shards", the number of Shards.
func (s Stats) Figures() map[string]map[string]int64 {
	all := map[string]map[string]int64{"": s.Total.figures()}
	all[""]["behind_max_ms"], all[""]["shards"] = s.Behind.Milliseconds(), int64(len(s.Shards))
	for name, of := range s.Shards {
		all[name] = of.figures()
	}
	return all
}

func (s ShardStats) figures() map[string]int64 {
	return map[string]int64{
		"behind_ms": s.Behind.Milliseconds(), "age_ms": s.Age.Milliseconds(),
		"records_per_second": int64(math.Round(s.RecordRate)), "bytes_per_second": int64(math.Round(s.ByteRate)),
		"records": s.Records, "bytes": s.Bytes, "reads": s.Reads, "throttles": s.Throttles, "read_errors": s.ReadErrors,
		"processed": s.Processed, "failed": s.Failed, "left_out": s.LeftOut, "foreign": s.Foreign, "lost": s.Lost, "stalls": s.Stalls,
		"fan_out": s.FanOut, "fallbacks": s.Fallbacks, "subscriptions": s.Subscriptions, "silent": s.Silent, "take_overs": s.TakeOvers, "broken": s.Broken,
	}
}

type figuresKey struct{}

// counting returns a context for requests that are counted in s if they fail.
func counting(ctx context.Context, s *shardFigures) context.Context {
	return context.WithValue(ctx, figuresKey{}, s)
}

// counted returns a copy of a client that counts requests that fail, and finds out that a connection is lost.
func counted(client *awskinesis.Client) *awskinesis.Client {
	return awskinesis.New(client.Options(), stream.Pings, func(o *awskinesis.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("ShardleaseFigures", countRequest), middleware.After)
		})
	})
}

func countRequest(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
	out middleware.InitializeOutput, metadata middleware.Metadata, err error,
) {
	out, metadata, err = next.HandleInitialize(ctx, in)
	s, counts := ctx.Value(figuresKey{}).(*shardFigures)
	if !counts || err == nil {
		return out, metadata, err
	}
	switch _, asks := in.Parameters.(*awskinesis.DescribeStreamConsumerInput); {
	case asks: // the group need not have a registered consumer
	case stream.Throttled(err):
		s.throttles.Add(1)
	case !errors.Is(ctx.Err(), context.Canceled): // a request that was not answered in time has failed
		s.errors.Add(1)
	}
	return out, metadata, err
}
