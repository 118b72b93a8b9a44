//go:build darwin || linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
)

// answers is how long the store may take to answer.
const answers = 30 * time.Second

var errWaited = errors.New("the time to wait is over")

// acquire returns the lease, or a *HeldError with its holder after the time to wait.
func (l *lock) acquire(ctx context.Context, session *shardlease.Session) (*shardlease.Tenure, error) {
	tenure, err := l.try(ctx, session)
	held, ok := errors.AsType[*shardlease.HeldError](err)
	if !ok || held.Finished || l.wait == 0 {
		return tenure, err
	}
	say("%v; waiting", held)
	return l.await(ctx, session)
}

// try acquires the lease if nobody holds it.
func (l *lock) try(ctx context.Context, session *shardlease.Session) (*shardlease.Tenure, error) {
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	return session.TryAcquire(ctx, l.name, shardlease.AcquireOptions{})
}

// await waits for the lease. Only a session that waits notices that the holder is dead.
func (l *lock) await(ctx context.Context, session *shardlease.Session) (*shardlease.Tenure, error) {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if l.wait > 0 {
		waiting, cancel = context.WithTimeoutCause(ctx, l.wait, errWaited)
	}
	defer cancel()
	tenure, err := session.Acquire(waiting, l.name, shardlease.AcquireOptions{})
	if errors.Is(err, errWaited) {
		return l.try(ctx, session) // for the name of the present holder
	}
	return tenure, err
}
