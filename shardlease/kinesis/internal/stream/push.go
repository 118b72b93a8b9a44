package stream

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// restFor is for how long a shard is polled after its subscription has failed for good.
const restFor = 5 * time.Minute

// A Push gets the records of one shard by enhanced fan-out. Its methods are called by one goroutine.
type Push interface {
	// Ready reports whether the shard can be subscribed to. It is called before each request for records, so usually it
	// must answer from memory.
	Ready(ctx context.Context) bool
	// Subscribe yields the answers that Kinesis sends from a position on. It ends after an answer with End, or with an
	// error, after which the shard is polled. At most one subscription is open at a time.
	Subscribe(ctx context.Context, shard string, from types.StartingPosition) iter.Seq2[Answer, error]
	// Failed is called with the error with which Subscribe ended, unless the context has ended.
	Failed(err error)
}

// subscribed reports whether the reader has a subscription. It begins one at the reader's place if it can.
func (r *reader) subscribed(ctx context.Context) (bool, error) {
	if r.events != nil {
		return true, nil
	}
	if r.push == nil || time.Now().Before(r.rests) || !r.push.Ready(ctx) {
		return false, nil
	}
	at, err := r.place(ctx)
	if err != nil {
		return false, err
	}
	r.events, r.cancel = iter.Pull2(r.push.Subscribe(ctx, r.name, types.StartingPosition{
		Type: at.ShardIteratorType, SequenceNumber: at.StartingSequenceNumber, Timestamp: at.Timestamp,
	}))
	r.iterator = nil
	return true, nil
}

// receive waits for an event of the subscription, and then for room for it, because the size of an event is not known
// before. Meanwhile nothing else is received.
//
// Invariant: an error loses no record. After an error, a new subscription or iterator begins at the reader's place.
func (r *reader) receive(ctx context.Context) (Batch, error) {
	event, err, open := r.events()
	switch {
	case ctx.Err() != nil:
		return Batch{}, context.Cause(ctx)
	case !open || err != nil:
		r.unsubscribe()
		r.rests = time.Now().Add(restFor)
		r.log().Warn("fan-out failed: the shard is polled", "shard", r.name, "for", restFor, "err", err)
		_, r.doubt = errors.AsType[*types.ResourceNotFoundException](err)
		r.push.Failed(err)
		return r.poll(ctx)
	}
	batch, bytes, err := r.take(ctx, event)
	if err != nil {
		r.unsubscribe()
		return Batch{}, err
	}
	r.absent = time.Time{}
	if r.ended {
		r.unsubscribe()
	}
	if _, err := r.room.occupy(ctx, bytes); err != nil {
		return Batch{}, err
	}
	batch.Lost = r.lost(ctx, event.Records)
	return batch, nil
}

// unsubscribe closes the subscription, if there is one.
func (r *reader) unsubscribe() {
	if r.events != nil {
		r.cancel()
		r.events, r.cancel = nil, nil
	}
}
