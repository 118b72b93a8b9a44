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

// acquire returns the lease, or a *HeldError with its holder after the time to wait.
func (l *lock) acquire(ctx context.Context, session *shardlease.Session) (*shardlease.Tenure, error) {
	if l.wait == 0 {
		return l.try(ctx, session, 0)
	}
	tenure, err := l.try(ctx, session, -1)
	held, ok := errors.AsType[*shardlease.HeldError](err)
	if !ok || held.Finished {
		return tenure, err
	}
	say("%v; waiting", held)
	if l.wait < 0 {
		return session.Acquire(ctx, l.name, shardlease.AcquireOptions{})
	}
	return l.try(ctx, session, l.wait)
}

// try acquires the lease if nobody holds it, or waits as shardlease.AcquireOptions.Wait describes.
func (l *lock) try(ctx context.Context, session *shardlease.Session, wait time.Duration) (*shardlease.Tenure, error) {
	ctx, cancel := context.WithTimeout(ctx, max(wait, 2*l.config.TTL)+answers)
	defer cancel()
	return session.TryAcquire(ctx, l.name, shardlease.AcquireOptions{Wait: wait})
}
