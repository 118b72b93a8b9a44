// Package fence carries fencing tokens to the sinks that compare them. The contexts of a tenure have
// its [Token], so that a call deep inside of a handler can send it on. Package fencehttp carries it
// over HTTP; [Token.Fields] and [Parse] are for any other wire. A [Guard] is the other end: it
// compares the token and applies an effect in one atomic step.
//
// A service may compare the token first, for example in a middleware, and apply the effect afterwards.
// It then refuses most stale effects, but not all: it may be paused between the two steps, while the
// successor writes. Only a comparison in the step of the effect refuses all stale effects.
package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// ErrMissing means that a context or a request has no fencing token although it needs one.
var ErrMissing = errors.New("no fencing token")

// A Token is the fencing token of one tenure: the generation of one shard.
type Token struct {
	// Group is the group of workers. Shards of two groups may have the same name, and their
	// generations are not related.
	Group      string
	Shard      string
	Generation int64
}

// String returns the token for logs.
func (t Token) String() string {
	return fmt.Sprintf("generation %d of %s/%s", t.Generation, t.Group, t.Shard)
}

func (t Token) key() lease.Key {
	return lease.Key{Group: t.Group, Kind: lease.KindLease, Name: t.Shard}
}

// Validate returns an error if no tenure can have this token: a [checkpoint.InvalidError] for each
// fault.
func (t Token) Validate() error {
	err := t.key().Validate()
	if t.Generation < 1 {
		err = errors.Join(err, &checkpoint.InvalidError{Field: "generation", Rule: "must be at least 1", Limit: 1})
	}
	return err
}

// Refused returns the error of a guard that has seen a higher generation.
func (t Token) Refused(observed int64) *checkpoint.StaleError {
	return &checkpoint.StaleError{Shard: t.Shard, Mine: t.Generation, Observed: observed}
}

type key struct{}

// NewContext returns a context that contains a token. The contexts of a tenure already contain the
// token of the tenure.
func NewContext(ctx context.Context, t Token) context.Context {
	return &withToken{ctx, t}
}

// A withToken is a context with a token. A worker makes one for each shard that it holds, and this needs two thirds of the
// memory of context.WithValue.
type withToken struct {
	context.Context
	token Token
}

func (c *withToken) Value(of any) any {
	if of == (key{}) {
		return c
	}
	return c.Context.Value(of)
}

// FromContext returns the token of a context, if it has one.
func FromContext(ctx context.Context) (Token, bool) {
	if c, ok := ctx.Value(key{}).(*withToken); ok {
		return c.token, true
	}
	return Token{}, false
}

// A Guard applies effects under tokens. E is what an effect needs to be a part of the guard's step:
// a *sql.Tx, for example.
type Guard[E any] interface {
	// Do raises the fence of the token's shard to the token's generation, and runs the effect, in
	// one atomic step: both happen, or neither. If the fence is higher already, Do returns a
	// *checkpoint.StaleError, and the effect does not happen. If the effect returns an error, Do
	// returns that error, and neither happens. Do runs the effect at most once.
	//
	// A guard keeps one fence for each group and shard, for as long as it keeps the effects: if a
	// fence is deleted, the guard accepts the next stale effect.
	Do(ctx context.Context, t Token, effect func(ctx context.Context, step E) error) error
}

// Raise returns a function that raises the fences of a guard and does nothing else, for a shardlease.Target. It is a step
// of the guard with an empty effect, and needs a context with a token, which has the group.
func Raise[E any](g Guard[E]) func(ctx context.Context, shard string, generation int64) error {
	return func(ctx context.Context, shard string, generation int64) error {
		t, ok := FromContext(ctx)
		if !ok {
			return ErrMissing
		}
		t.Shard, t.Generation = shard, generation
		return g.Do(ctx, t, func(context.Context, E) error { return nil })
	}
}

// Do applies an effect under the token of the context. Without a token it returns ErrMissing.
func Do[E any](ctx context.Context, g Guard[E], effect func(ctx context.Context, step E) error) error {
	t, ok := FromContext(ctx)
	if !ok {
		return ErrMissing
	}
	return g.Do(ctx, t, effect)
}
