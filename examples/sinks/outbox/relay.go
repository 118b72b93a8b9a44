package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
)

// A relay sends what handlers have staged. It is the handler of a group of its own, whose shards have the names of those
// whose handlers stage effects: so one relay at a time sends the effects of a shard, in their order.
type relay struct {
	box     box
	targets map[string]target
	// batch is how many effects it reads at a time. It marks them as sent in one transaction, so this is also how many are
	// sent twice at most, for each relay that dies or is replaced between a send and the mark.
	batch    int
	idle     time.Duration // how long it waits after a read that has found nothing
	patience time.Duration // how long it sends an effect again before it leaves the shard to another relay
	log      *slog.Logger
}

var (
	errRefused  = errors.New("the target refuses the effect")
	errNoAnswer = errors.New("the target does not answer")
)

// A target does what an effect says. If it never will, however often it is sent, the error matches errRefused.
type target interface {
	send(ctx context.Context, e effect) error
}

// handle sends the effects of one shard until its tenure ends.
func (r relay) handle(ctx context.Context, t *shardlease.Tenure) error {
	for ctx.Err() == nil {
		effects, err := r.box.unsent(t.Context(), t.Shard().Name, r.batch)
		if err != nil {
			return fmt.Errorf("read the outbox: %w", err)
		}
		if len(effects) == 0 {
			t.Progress() // nothing that was refused is left
			sleep(ctx, r.idle)
			continue
		}
		n, failure := r.send(ctx, t, effects)
		if n > 0 {
			// A crash before this line leaves effects that were sent and are not marked: the next relay sends them again.
			if err := r.mark(t, effects[:n]); err != nil {
				return errors.Join(failure, err)
			}
		}
		switch {
		case errors.Is(failure, errNoAnswer):
			r.log.Error("effect not sent", "shard", t.Shard().Name, "target", effects[n].target, "id", effects[n].id, "error", failure)
			t.Release(effects[n].target + " does not answer") // the row keeps this, and it is no failed attempt
			return nil
		case failure != nil:
			return failure // a failed attempt: MaxAttempts of them quarantine the shard
		}
	}
	return nil
}

// send sends effects in their order, and returns how many the targets have accepted.
func (r relay) send(ctx context.Context, t *shardlease.Tenure, effects []effect) (n int, err error) {
	for _, e := range effects {
		if ctx.Err() != nil {
			return n, nil
		}
		if err := r.deliver(ctx, t, e); err != nil {
			return n, fmt.Errorf("effect %s to %s: %w", e.id, e.target, err)
		}
		n++
	}
	return n, nil
}

// deliver sends an effect until its target answers.
func (r relay) deliver(ctx context.Context, t *shardlease.Tenure, e effect) error {
	to, known := r.targets[e.target]
	if !known {
		return errRefused
	}
	began := time.Now()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		attempt, cancel := context.WithTimeout(t.Context(), r.patience)
		err := to.send(attempt, e)
		cancel()
		switch {
		case err == nil, errors.Is(err, errRefused), ctx.Err() != nil:
			return err
		case time.Since(began)+pause > r.patience:
			return errors.Join(errNoAnswer, err)
		}
		t.Alive()
		sleep(ctx, pause)
	}
}

// mark removes effects from the outbox, and shows operators how far the relay has come. Only the outbox decides what is
// sent next: so a lease table or an outbox that was restored from a backup leaves out nothing.
func (r relay) mark(t *shardlease.Tenure, done []effect) error {
	if err := r.box.sent(t.Context(), t.Hold(), done); err != nil {
		return fmt.Errorf("mark effects as sent: %w", err)
	}
	return t.Mark(strconv.FormatInt(done[len(done)-1].sequence, 10))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
