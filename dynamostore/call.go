package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// once turns off the retries of the SDK. The SDK would repeat a request with pauses of up to
// 20 seconds and would not report it. This package has to bound the time, and to know whether
// an earlier request was not answered.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

const (
	firstPause = 20 * time.Millisecond
	longest    = 250 * time.Millisecond
	lateness   = 8 // an answer that is an eighth of the timeout later than the quickest one narrows the lane
	parts      = 4 // the first attempt gets a quarter of the timeout, so that there is time for others if it is not answered
)

// call is callAs for reads, and for requests about the table as a whole.
func call[T any](ctx context.Context, s *reading, k lease.Key, request func(context.Context) (T, error)) (T, error) {
	return callAs(ctx, s, classOfRead(k), k, request)
}

// classOfRead returns the class of a read. A read of lease rows or targets waits for its turn; any
// other request does not. The counts of ends must not keep a commit waiting.
func classOfRead(k lease.Key) class {
	if k.Kind.Listed() == lease.KindSeat || k.Kind == lease.KindEnds {
		return bypass
	}
	return hands
}

// callAs makes requests until one is answered or the time is up. In the second case the error counts the requests, and
// contains the last failure that the end of the time did not cause. Unless its class bypasses the lane, the call first
// waits for its turn, as long as the context allows. Options.Timeout begins when the call is admitted.
func callAs[T any](ctx context.Context, s *reading, c class, k lease.Key, request func(context.Context) (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, ended(ctx)
	}
	if c != bypass {
		if err := s.queue(ctx, c, k); err != nil {
			return none, err
		}
		defer s.rows.leave()
	}
	timeout, attempts := s.bounds()
	end := time.Now().Add(timeout)
	pause, met := firstPause, error(nil)
	for n := 1; ; n++ {
		out, prompt, err := attempt(ctx, end, s, request)
		done, over := err == nil || final(err), ctx.Err() != nil || !time.Now().Before(end)
		if c != bypass && !over { // a call that ran out of time is no evidence about the table
			s.rows.note(done && (prompt || k.Name == "")) // a page of a listing may be long, and come later than one record
		}
		if done || n == attempts {
			return out, err
		}
		if n == 1 && s.opening {
			s.options.Logger.WarnContext(ctx, "the lease table is busy or does not answer, and Open tries again", "table", s.table, "err", err)
		}
		if met == nil || !over {
			met = err
		}
		if d, left := spread(pause), time.Until(end); !sleep(ctx, min(d, left)) || d >= left {
			return none, fmt.Errorf("attempt %d: %w", n, errors.Join(met, cmp.Or(ended(ctx), context.DeadlineExceeded)))
		}
		pause = min(2*pause, longest)
	}
}

// bounds returns how long a call may take, and how many requests it may make; 0: as many as fit. While Open tries the
// table, its context alone bounds the calls.
func (s *reading) bounds() (timeout time.Duration, attempts int) {
	if s.opening {
		return max(openFor, s.options.Timeout), 0
	}
	return s.options.Timeout, s.options.Attempts
}

// queue waits in the lane until the context's deadline; without one, for Options.Timeout.
func (s *reading) queue(ctx context.Context, c class, k lease.Key) error {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, s.options.Timeout)
		defer cancel()
		ctx = limited
	}
	return s.rows.enter(ctx, c, k)
}

// attempt makes one request, cuts it off at the limit that the tempo of the table sets or at end, and
// notes in the tempo how long the answer took. prompt is false if the answer came late. The call has no context of its
// own beside that of the attempt: each costs a timer.
func attempt[T any](ctx context.Context, end time.Time, s *reading, request func(context.Context) (T, error)) (out T, prompt bool, err error) {
	cut := time.Duration(parts)
	if s.options.Attempts > 0 {
		cut = time.Duration(min(parts, s.options.Attempts))
	}
	most, _ := s.bounds()
	limit := s.rows.tempo.limit(s.options.Timeout/cut, most)
	began, narrow := time.Now(), s.rows.narrow()
	until := began.Add(limit)
	if until.After(end) {
		until = end
	}
	limited, stop := context.WithDeadline(ctx, until)
	defer stop()
	prompt = true
	out, err = request(limited)
	switch took := min(time.Since(began), most); { // more than most: this process was paused
	case err == nil || untouched(err):
		prompt = s.rows.tempo.answered(took, narrow) <= s.options.Timeout/lateness
	case limited.Err() != nil && ctx.Err() == nil && until.Before(end):
		s.rows.tempo.unanswered(limit)
	}
	return out, prompt, err
}

// ended returns the reason why a context has ended.
func ended(ctx context.Context) error { return errors.Join(ctx.Err(), context.Cause(ctx)) }

// wait pauses for up to d, and reports whether there is time left.
func wait(ctx context.Context, d time.Duration) bool { return sleep(ctx, spread(d)) }

// spread returns a pause of up to d.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// busy reports whether an error code means that the service changed nothing and that the
// request may be repeated.
func busy(code string) bool {
	switch code {
	case "ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "RequestLimitExceeded",
		"TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException", "LimitExceededException":
		return true
	}
	return false
}

// serviceCode returns the error code and the HTTP status of the service's answer.
func serviceCode(err error) (code string, status int) {
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && response != nil {
		status = response.HTTPStatusCode()
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok && api != nil {
		code = api.ErrorCode()
	}
	return code, status
}

// final reports whether it is pointless to repeat a request: the service refused it and
// would refuse it again, or stored the write but returned a row that cannot be read. A
// server fault or no answer is not final.
func final(err error) bool {
	code, _ := serviceCode(err)
	return untouched(err) && !busy(code) || errors.Is(err, lease.ErrMalformed)
}

// untouched reports whether a failed request has certainly changed nothing, because the
// service itself refused it. The error of a proxy has no code of the service.
func untouched(err error) bool {
	code, status := serviceCode(err)
	return status >= 400 && status < 500 && code != "" && code != "UnknownError"
}
