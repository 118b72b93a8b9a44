// Package journal is a sink that keeps each effect exactly once, in a DynamoDB table.
//
// Two conditions stand in each transaction, and both are needed:
//
//   - The fence: the lease row still names this hold. It keeps out a worker that was
//     paused and replaced, whatever it has computed.
//   - The mark: the key has no effect of this shard yet that is as late. It keeps out what
//     is processed again after a crash, by a worker that has every right to: its
//     checkpoint is older than its last effects.
//
// The mark moves in the transaction in which the effects are kept, so neither is there
// without the other. It is one attribute for each shard that a key was ever in: two or
// three over years of resharding. Positions of different shards are never compared.
//
// # The table
//
// The partition key of an item is "id", its sort key is "part", both texts. What belongs to
// one partition key of a stream, as one group reads it, has one id: "key/STREAM/GROUP/KEY",
// with stream and group escaped as in the path of a URL, and the key as it is. (A key that
// is no UTF-8, or longer than 1,024 bytes, has "digest/STREAM/GROUP/" and its SHA-256 in
// hexadecimal digits.) Below it are
//
//	part                      attributes
//	head                      mark/SHARD: the last record of the shard that is in here,
//	                          rank/SHARD: a greater number for a shard that came later,
//	                          pages: how many there are
//	page/SHARD/ORDER          effects: a list of binary values, in order;
//	                          or parts: how many parts its one large effect has
//	page/SHARD/ORDER/NNNN     data: a part of a large effect, binary, from 0000 on
//
// ORDER is [stream.Record.Order] of the first record of the page, so the pages of a shard
// are sorted by their parts; those of another shard come before or after them by rank. A
// part counts if its page is there and has that many.
//
// The records that failed are below "failed/STREAM/GROUP":
//
//	part                      attributes
//	SHARD/ORDER               sequence, index, key (binary): which record it is;
//	                          reason, failures: why it failed last, and how often it has;
//	                          verdict: stop (it was tried again), skip or dead-letter;
//	                          at: when; data or parts: the data of a dead letter
//	SHARD/ORDER/NNNN          data: a part of it
//
// A record that was left out moves the mark of its key as an effect does, so that it stays
// left out. Group, stream, fence and mark are those of effects.
//
// To start from this: put what you do with an effect in place of the pages, and leave the
// two conditions and the mark as they are.
package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Journal is the sink of one group that reads one stream. The exported fields are
// required. Other groups and streams may use the same table: they do not see each other.
type Journal struct {
	Client *dynamodb.Client
	Table  string
	Leases *dynamostore.Store
	Stream string
	Group  string

	stats stats
}

// ErrScope refuses effects that are not those of the journal's group and stream.
var ErrScope = errors.New("the journal needs the name of its stream, and a hold of its own group")

type stats struct{ kept, known, stale atomic.Int64 }

// Stats counts effects: those that were kept, those that were known already, and the
// writes that the fence refused.
func (j *Journal) Stats() (kept, known, stale int64) {
	return j.stats.kept.Load(), j.stats.known.Load(), j.stats.stale.Load()
}

// What one transaction may hold: a hundred items, of which the fence is one and a page has
// two, and four megabytes, of which the rest of the request gets one. An item may have 400
// KB with the names of its attributes.
const (
	mostKeys   = 49
	mostBytes  = 3 << 20
	mostInItem = 300 << 10
)

// Write keeps the effects, in as few transactions as there can be. Each of them is whole:
// when one fails, those before it are kept, and known the next time.
func (j *Journal) Write(ctx context.Context, h lease.Hold, effects []consumer.Effect) error {
	if err := j.scoped(h); err != nil {
		return err
	}
	if err := refuse(effects); err != nil {
		return j.told(err)
	}
	for effects = j.fresh(effects); len(effects) > 0; {
		pages, left := cut(effects)
		if err := j.keep(ctx, h, pages); err != nil {
			return j.told(err)
		}
		effects = left
	}
	return nil
}

// fresh leaves out effects that a write has as late or later already for their key. The
// mark of a key never goes back in a write: its pages have one condition, on their first.
func (j *Journal) fresh(effects []consumer.Effect) []consumer.Effect {
	last := map[string]string{}
	var left []consumer.Effect
	for _, e := range effects {
		if order := e.Record.Order(); order > last[e.Record.Key] {
			last[e.Record.Key], left = order, append(left, e)
		}
	}
	j.stats.known.Add(int64(len(effects) - len(left)))
	return left
}

func (j *Journal) scoped(h lease.Hold) error {
	if j.Stream == "" || j.Group == "" || h.Key.Group != j.Group {
		return j.told(ErrScope)
	}
	return nil
}

// told counts a write that the fence refused, and names the table.
func (j *Journal) told(err error) error {
	if errors.Is(err, checkpoint.ErrStale) {
		j.stats.stale.Add(1)
	}
	return fmt.Errorf("journal %s: %w", j.Table, err)
}

// A page is what is to be added to one key, in order.
type page []consumer.Effect

// large reports whether an effect needs more than one item.
func large(e consumer.Effect) bool { return len(e.Value) > mostInItem }

// alone reports whether an effect has a transaction of its own.
func alone(e consumer.Effect) bool { return large(e) || leftOut(e) }

// cut takes from the front of effects what one transaction can hold, and sorts it into
// pages: a transaction can touch an item only once.
func cut(effects []consumer.Effect) (pages []page, left []consumer.Effect) {
	at, sizes, total := map[string]int{}, []int(nil), 0
	for n, e := range effects {
		size := len(e.Value) + 16 // what a list has for each
		i, there := at[e.Record.Key]
		total += size + len(e.Record.Key)
		full := total > mostBytes || there && sizes[i]+size > mostInItem || !there && len(pages) == mostKeys
		if n > 0 && (full || alone(e) || alone(effects[0])) {
			return pages, effects[n:]
		}
		if !there {
			i = len(pages)
			at[e.Record.Key], pages, sizes = i, append(pages, nil), append(sizes, 0)
		}
		pages[i], sizes[i] = append(pages[i], e), sizes[i]+size
	}
	return pages, nil
}

// keep keeps the pages of one transaction. The parts of a large effect come before: a crash
// between leaves parts without a page, which nobody reads, and the next holder writes them
// again.
func (j *Journal) keep(ctx context.Context, h lease.Hold, pages []page) error {
	if e := pages[0][0]; large(e) {
		for parts := range slices.Chunk(j.parts(e), mostBytes/mostInItem) {
			check := func(pages []page) []types.TransactWriteItem {
				return append([]types.TransactWriteItem{j.check(pages[0])}, parts...)
			}
			if pages, err := j.commit(ctx, h, pages, check); err != nil || len(pages) == 0 {
				return err
			}
		}
	}
	pages, err := j.commit(ctx, h, pages, j.items)
	for _, p := range pages {
		if !leftOut(p[0]) {
			j.stats.kept.Add(int64(len(p)))
		}
	}
	return err
}

// commit makes one transaction of the fence and the items of some pages, and again without
// what turns out to be known, until it is through. It gives the pages that went through.
// Nobody but the holder gets past the fence, so twice is the most there is to it; but a
// transaction may also meet another on a row.
//
// The items begin with one that has the condition of the first page.
func (j *Journal) commit(ctx context.Context, h lease.Hold, pages []page, items func([]page) []types.TransactWriteItem) ([]page, error) {
	const longest = time.Second
	for pause := 10 * time.Millisecond; len(pages) > 0; {
		err := j.transact(ctx, append([]types.TransactWriteItem{j.Leases.Fence(h)}, items(pages)...))
		if err == nil {
			return pages, nil
		}
		left, again := j.without(pages, err)
		if !again {
			return nil, dynamostore.Fenced(err, h)
		}
		if pages = left; len(pages) > 0 {
			if err := rest(ctx, pause); err != nil {
				return nil, err
			}
		}
		pause = min(2*pause, longest)
	}
	return nil, nil
}

// patience is how long a transaction may take, with the attempts of the SDK. Whether one
// that was given up took effect is not known, and need not be: the marks tell.
const patience = 20 * time.Second

func (j *Journal) transact(ctx context.Context, items []types.TransactWriteItem) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := j.Client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	return err
}

// without leaves out what the items have already, as the service tells it. It reports
// false when there is another reason, and no sense in another try.
func (j *Journal) without(pages []page, err error) (left []page, again bool) {
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok || len(cancelled.CancellationReasons) < 1+len(pages) {
		return nil, false
	}
	fence, reasons := cancelled.CancellationReasons[0], cancelled.CancellationReasons[1:]
	if !busy(fence) && aws.ToString(fence.Code) != "None" {
		return nil, false
	}
	again = slices.ContainsFunc(cancelled.CancellationReasons, busy)
	for i, p := range pages {
		if aws.ToString(reasons[i].Code) == "ConditionalCheckFailed" {
			mark, _ := reasons[i].Item[markOf(p[0].Record.Shard)].(*types.AttributeValueMemberS)
			if mark == nil {
				return nil, false
			}
			known := 0
			for known < len(p) && p[known].Record.Order() <= mark.Value {
				known++
			}
			j.stats.known.Add(int64(known))
			p, again = p[known:], again || known > 0
		}
		if len(p) > 0 {
			left = append(left, p)
		}
	}
	return left, again
}

// busy reports whether an item only was in use, or too much was asked of it.
func busy(reason types.CancellationReason) bool {
	switch aws.ToString(reason.Code) {
	case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		return true
	}
	return false
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
