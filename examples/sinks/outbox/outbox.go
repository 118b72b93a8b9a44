package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An effect is something that a target is to do.
type effect struct {
	name   string // tells the effects of a record apart, and is the same whenever the record is processed
	target string
	body   string // depends on the record alone

	// The outbox sets the others.
	shard      string
	sequence   int64  // its place among the effects of its shard: 1, 2, 3 and so on, without a hole
	id         string // fence.Token.Operation
	generation int64  // under which it was staged, for people
}

// A head is where the outbox of a shard ends. A tenure reads it once, and starts after its position: the checkpoint in the
// lease table may be older.
type head struct {
	position string // of the last record whose effects are staged
	last     int64  // the sequence of the last effect
}

// A box is what the relay needs of an outbox.
type box interface {
	// unsent returns the first effects of a shard that are not marked as sent, in their order and without a hole.
	unsent(ctx context.Context, shard string, most int) ([]effect, error)
	// sent removes effects of the relay's shard that were sent: the first of those that are there, in their order. If the
	// relay was replaced, sent removes nothing and returns a checkpoint.StaleError.
	sent(ctx context.Context, relay lease.Hold, done []effect) error
}

const (
	mostEffects = 50        // of one record: a transaction of DynamoDB has at most 100 items
	mostBytes   = 256 << 10 // in the bodies of one record: an item of DynamoDB has at most 400 KB
)

var (
	errTooLarge = errors.New("the effects of a record are too many or too large")
	errSameName = errors.New("two effects of a record have the same name")
	errMoved    = errors.New("the outbox does not end where this tenure has left it: an attempt without an answer was stored")
)

// after returns the effects of a record as they are stored after this head, and the next head.
func (at head) after(h lease.Hold, position string, effects []effect) (head, []effect, error) {
	if len(effects) > mostEffects {
		return at, nil, errTooLarge
	}
	next, staged, names, bytes := head{position, at.last}, make([]effect, 0, len(effects)), map[string]bool{}, 0
	for _, e := range effects {
		if bytes += len(e.body); bytes > mostBytes {
			return at, nil, errTooLarge
		}
		if names[e.name] {
			return at, nil, fmt.Errorf("%s: %w", e.name, errSameName)
		}
		names[e.name] = true
		next.last++
		e.shard, e.sequence, e.generation = h.Key.Name, next.last, h.Generation
		e.id = token(h).Operation(position, e.name)
		staged = append(staged, e)
	}
	return next, staged, nil
}

func token(h lease.Hold) fence.Token {
	return fence.Token{Group: h.Key.Group, Shard: h.Key.Name, Generation: h.Generation}
}
