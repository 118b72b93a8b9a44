package shardlease

import (
	"context"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
)

// This file has the methods by which a holder checks that it still holds its shard: by a read of the row, or by the
// clock.

// Confirm asks the table whether this tenure holds the shard, with one consistent read. If Confirm returns nil, the
// tenure held the shard at a moment after the call began. So a leader that confirms before it answers was the leader at
// some moment of the request. The tenure may have lost the shard since then: Confirm is no fence for a write that
// follows.
//
// If the tenure does not hold the shard any more, Confirm returns an [*EndError], and the tenure ends; the error
// matches checkpoint.ErrStale if the read shows that the shard has changed hands. If the tenure has ended before, there
// is no read, and the error has the cause of that end. If the read fails, Confirm returns the error of the
// store, and the tenure continues. Calls that wait at the same time share reads. A call is no sign of progress.
func (t *Tenure) Confirm(ctx context.Context) error {
	t.mu.Lock()
	if t.closed != nil {
		defer t.mu.Unlock()
		return t.closed
	}
	call := t.inbox.calls.Add(1)
	w := t.wait(true, call)
	t.inbox.put(arrival{input: engine.Confirm{Tenure: t.id(), Call: call}}) // under the lock: the calls arrive in their order
	t.mu.Unlock()
	return t.result(ctx, w)
}

// confirmed answers the calls up to a number.
func (t *Tenure) confirmed(o engine.Confirmed) {
	err := o.Err
	switch {
	case o.Lost:
		end := t.end(o.Cause)
		end.Err, end.OutcomeUnknown = o.Err, o.Open
		err = end
	case err != nil:
		err = fmt.Errorf("confirm shard %q: %w", t.shard.Name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answer(true, o.Call, err)
}

// Trust returns for how long this worker or session may believe in its lease if no other heartbeat is confirmed: until
// nine tenths of the lease time have passed since it sent the last confirmed one. By then no other worker has seen its
// heartbeat stand still for long enough to evict it. A heartbeat is sent every third of the lease time, so Trust is
// between about 5.6 s and 9 s while all is well, with the default lease time. After the end of the tenure it returns 0.
//
// Compare Trust with the length of a call that must not be repeated, before the call begins. The process may still be
// paused during the call, and an operator may take the shard away at any time: only a sink that compares the generation
// refuses what comes too late.
func (t *Tenure) Trust() time.Duration {
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over || t.hard.Err() != nil {
		return 0
	}
	return t.inbox.worker.trustLeft()
}

// TrustedFor returns a copy of ctx that ends as soon as [Tenure.Trust] is not above margin, at the latest when the
// tenure is over. While heartbeats are confirmed, the trust grows again and again, and the context lasts. If it ends
// because of the margin, its cause matches context.DeadlineExceeded; the tenure continues. Call stop when the context
// is no longer needed.
func (t *Tenure) TrustedFor(ctx context.Context, margin time.Duration) (trusted context.Context, stop context.CancelFunc) {
	trusted, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	check := func() {
		switch left := t.Trust() - margin; {
		case trusted.Err() != nil:
		case t.hard.Err() != nil:
			cancel(context.Cause(t.hard))
		case left <= 0:
			cancel(fmt.Errorf("shard %q: the trust in the lease ends within %v: %w", t.shard.Name, margin, context.DeadlineExceeded))
		default:
			timer.Reset(left)
		}
	}
	timer = time.AfterFunc(time.Hour, check)
	unlink := context.AfterFunc(t.hard, check)
	context.AfterFunc(trusted, func() { timer.Stop(); unlink() })
	check()
	return trusted, func() { cancel(nil) }
}
