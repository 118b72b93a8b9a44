package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// pause: what leases are not enough for. A worker is stopped in the middle of a
// commit, replaced, and woken up. It does not know, and goes on.
func (s *story) pause(ctx context.Context) error {
	m := s.fleet.all()[2]
	s.screen.heading(m.name + " is paused, with a commit under way")
	if err := m.host.freeze(ctx); err != nil {
		return err
	}
	began, shards := time.Now(), s.holds(m)
	s.fleet.probe.vanish(m.name)
	mine := m.host.wire.Old.(lease.Row)
	s.screen.say("%s stops, like a VM that is moved, or by SIGSTOP; a commit of %s is on its way", s.who(m.name), mine.Shard)
	at, err := s.moment(ctx, s.fleet.served)
	if err != nil {
		return err
	}
	s.screen.good(at, "its %s are processed by others after %s: %s", plural(shards, "shard"), spell(at.Sub(began)), s.ranOut())
	// Long enough that every successor has written to the sink.
	if err := sleep(ctx, time.Until(began.Add(5*s.fleet.ttl/2))); err != nil {
		return err
	}
	s.screen.say("%s wakes up after %s and cannot know that; its commit arrives now", s.who(m.name), spell(time.Since(began)))
	write, err := m.host.wake(ctx)
	now := newer(err, write)
	if now == nil {
		return errors.Join(fmt.Errorf("the table has not refused a stale commit of %s", mine.Shard), err)
	}
	s.screen.bad("the table refuses the commit: it was made under generation %d of %s,", mine.Generation, mine.Shard)
	s.screen.bad("                          and %s holds that under generation %d", now.Owner.Name, now.Generation)
	if err := s.fleet.even(ctx, s.living()...); err != nil {
		return err
	}
	return s.show(ctx)
}

// refused is told what the sink has refused.
func (s *story) refused(m *member, err error) {
	fenced, ok := errors.AsType[*fencedError](err)
	if !ok {
		return
	}
	s.screen.bad("the sink refuses what %s had in its hands, record %d of %s: %s too old", m.name, fenced.record, fenced.shard,
		plural(int(fenced.seen-fenced.mine), "generation"))
}

// freeze pauses the host in the middle of a commit.
func (h *host) freeze(ctx context.Context) error {
	h.enter(pausing)
	for {
		s, changed := h.now()
		if s == paused {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// sleep waits, unless the story is over.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
