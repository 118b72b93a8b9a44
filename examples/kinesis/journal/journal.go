// Package journal is a sink that stores each effect exactly once, in a DynamoDB table.
//
// Each transaction has two conditions, and both are needed:
//
//   - The fence: the lease row still names this hold. It refuses a worker that was paused and
//     replaced.
//   - The mark: the key has no effect of this shard that is as late or later. It leaves out
//     records that the rightful owner of the shard processes again after a crash, because its
//     checkpoint is older than its last effects.
//
// One transaction stores the effects and moves the mark, so neither exists without the other.
// The mark is one attribute for each shard that a key was ever in: two or three over years of
// resharding. Positions of different shards are never compared.
//
// # The table
//
// The partition key of an item is "id", its sort key is "part"; both are strings. The items for
// one partition key of a stream, as one group reads it, have one id: "key/STREAM/GROUP/KEY",
// with stream and group escaped as in the path of a URL, and the key unchanged. (For a key that
// is no valid UTF-8, or longer than 1,024 bytes, the id is "digest/STREAM/GROUP/" and its SHA-256
// in hexadecimal digits.) These are the items of an id:
//
//	part                      attributes
//	head                      mark/SHARD: the last stored record of the shard,
//	                          rank/SHARD: a greater number for a later shard,
//	                          pages: the number of pages
//	page/SHARD/ORDER          effects: a list of binary values, in order;
//	                          or parts: the number of parts of its one large effect
//	page/SHARD/ORDER/NNNN     data: a part of a large effect, binary, from 0000 on
//
// ORDER is [stream.Record.Order] of the first record of the page, so the pages of a shard are
// sorted by their parts. Pages of different shards are sorted by rank. A part is valid if its
// page exists and has that many parts.
//
// The records that failed have the id "failed/STREAM/GROUP":
//
//	part                      attributes
//	SHARD/ORDER               sequence, index, key (binary): the record;
//	                          reason, failures: the last reason, and the number of failures;
//	                          verdict: stop (it was tried again), skip or dead-letter;
//	                          at: the time; data or parts: the data of a dead letter
//	SHARD/ORDER/NNNN          data: a part of the dead letter
//
// A record that was left out moves the mark of its key as an effect does, so it stays left out.
// Its transaction has the same fence and the same mark.
//
// To use this package as a template, replace the pages by your own effects, and keep the two
// conditions and the mark.
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

// A Journal is the sink of one group that reads one stream. The exported fields are required.
// Other groups and streams may use the same table without affecting each other.
type Journal struct {
	Client *dynamodb.Client
	Table  string
	Leases *dynamostore.Store
	Stream string
	Group  string

	stats stats
}

// ErrScope means that a Journal has no stream or group, or that a hold belongs to another group.
var ErrScope = errors.New("the journal needs the name of its stream, and a hold of its own group")

type stats struct{ kept, known, stale atomic.Int64 }

// Stats returns the number of effects that were stored, the number of effects that were left out
// because they were stored before, and the number of writes that the fence refused.
func (j *Journal) Stats() (kept, known, stale int64) {
	return j.stats.kept.Load(), j.stats.known.Load(), j.stats.stale.Load()
}

// Limits of one transaction. DynamoDB allows a hundred items, of which the fence is one and each
// page needs two; and four megabytes, of which one is left for the rest of the request. An item
// may have 400 KB, including the names of its attributes.
const (
	mostKeys   = 49
	mostBytes  = 3 << 20
	mostInItem = 300 << 10
)

// Write stores the effects in as few transactions as possible. If a transaction fails, the
// effects of the earlier ones are stored, and the next Write leaves them out.
func (j *Journal) Write(ctx context.Context, h lease.Hold, effects []consumer.Effect) error {
	if err := j.scoped(h); err != nil {
		return err
	}
	if err := refuse(effects); err != nil {
		return j.failed(err)
	}
	for effects = j.fresh(effects); len(effects) > 0; {
		pages, left := cut(effects)
		if err := j.keep(ctx, h, pages); err != nil {
			return j.failed(err)
		}
		effects = left
	}
	return nil
}

// fresh leaves out effects that are not later than an effect before them of the same key. So the
// effects of a key are in order within a write: a page checks its condition only for its first
// effect.
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
		return j.failed(ErrScope)
	}
	return nil
}

// failed adds the name of the table to an error, and counts it if the fence refused a write.
func (j *Journal) failed(err error) error {
	if errors.Is(err, checkpoint.ErrStale) {
		j.stats.stale.Add(1)
	}
	return fmt.Errorf("journal %s: %w", j.Table, err)
}

// A page contains the effects that one transaction adds to one key, in order.
type page []consumer.Effect

// large reports whether an effect needs more than one item.
func large(e consumer.Effect) bool { return len(e.Value) > mostInItem }

// alone reports whether an effect needs a transaction of its own.
func alone(e consumer.Effect) bool { return large(e) || leftOut(e) }

// cut removes from the front of effects what fits into one transaction, and groups it into one
// page per key, because a transaction can write an item only once.
func cut(effects []consumer.Effect) (pages []page, left []consumer.Effect) {
	at, sizes, total := map[string]int{}, []int(nil), 0
	for n, e := range effects {
		size := len(e.Value) + 16 // a list needs some bytes for each element
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

// keep stores the pages of one transaction. It stores the parts of a large effect before. A crash
// in between leaves parts without a page, which are never read; the next worker writes them
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

// commit makes one transaction of the fence and the items of some pages. If some effects are
// stored already, or the transaction conflicts with another one, it tries again with the
// remaining effects. It returns the pages that it has stored. Only the holder passes the fence,
// so except for conflicts two attempts are enough.
//
// The items must begin with those that have the conditions of the pages, in the same order.
func (j *Journal) commit(ctx context.Context, h lease.Hold, pages []page, items func([]page) []types.TransactWriteItem) ([]page, error) {
	const longest = time.Second
	fence, err := j.Leases.Fence(ctx, h)
	if err != nil {
		return nil, err
	}
	for pause := 10 * time.Millisecond; len(pages) > 0; {
		err := j.transact(ctx, append([]types.TransactWriteItem{fence}, items(pages)...))
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

// patience is how long a transaction may take, including the attempts of the SDK. After that its
// outcome is unknown, which does no harm: the marks show the next attempt what is stored.
const patience = 20 * time.Second

func (j *Journal) transact(ctx context.Context, items []types.TransactWriteItem) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := j.Client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	return err
}

// without leaves out the effects that are stored already, according to the marks in the error. It
// returns false if the transaction failed for another reason, and would fail again.
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

// busy reports whether a transaction was cancelled for a conflict or throttled.
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
