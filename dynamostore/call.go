package dynamostore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// once makes one request of one call. The SDK would send again by itself, with
// up to 20 seconds between, and would not say so; here it matters how long it
// takes and whether an earlier request went unanswered.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

const (
	firstPause = 20 * time.Millisecond
	longest    = 250 * time.Millisecond
	parts      = 4 // the timeout is cut into, so that a silent request leaves time for another
)

// call makes requests until one is answered or the time is up. Calls about lease
// rows wait for their turn; calls about seats do not.
func call[T any](ctx context.Context, s *Store, kind lease.Kind, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	var none T
	if ctx.Err() != nil {
		return none, ended(ctx)
	}
	rows := kind == lease.KindLease
	if rows {
		if err := s.rows.enter(ctx); err != nil {
			return none, err
		}
		defer s.rows.leave()
	}
	pause, cut := firstPause, time.Duration(parts)
	if s.options.Attempts > 0 {
		cut = time.Duration(min(parts, s.options.Attempts))
	}
	for n := 1; ; n++ {
		attempt, stop := context.WithTimeout(ctx, s.options.Timeout/cut)
		out, err := request(attempt)
		stop()
		done := err == nil || final(err)
		if rows && ctx.Err() == nil { // a call that has no time left says nothing about the table
			s.rows.note(done)
		}
		if done || n == s.options.Attempts {
			return out, err
		}
		if !wait(ctx, pause) {
			return none, errors.Join(err, ended(ctx))
		}
		pause = min(2*pause, longest)
	}
}

// ended is why there is no time left.
func ended(ctx context.Context) error { return errors.Join(ctx.Err(), context.Cause(ctx)) }

// wait pauses for up to d, and reports whether there is time left.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// busy are the answers of a service that has done nothing and may be asked again.
func busy(code string) bool {
	switch code {
	case "ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "RequestLimitExceeded",
		"TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException", "LimitExceededException":
		return true
	}
	return false
}

// answer is the code and the status the service answered a request with.
func answer(err error) (code string, status int) {
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = response.HTTPStatusCode()
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code = api.ErrorCode()
	}
	return code, status
}

// final reports whether asking again is pointless: the service has said no, and
// would say so again; or it has done what was asked, and the row that resulted
// cannot be read. A server fault or silence is no such answer.
func final(err error) bool {
	code, _ := answer(err)
	return untouched(err) && !busy(code) || errors.Is(err, lease.ErrMalformed)
}

// untouched reports whether a request that failed has certainly changed nothing:
// the service itself said no. A proxy that gives up has no code of the service.
func untouched(err error) bool {
	code, status := answer(err)
	return status >= 400 && status < 500 && code != "" && code != "UnknownError"
}
