package kinesis

import (
	"context"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
)

// The pauses between two attempts to begin.
const (
	firstBegin = time.Second
	lastBegin  = 30 * time.Second
)

// ready calls Begin until it succeeds, or fails for a reason that will not pass. It returns false if ctx ends first.
//
// Until then the worker has no seat, so no plan gives it a shard, and Worker.Ready fails. The event is that of a running
// worker whose source fails: at once, then at intervals that double up to an hour, and when the fault is over.
func (c *Consumer) ready(ctx context.Context) (bool, error) {
	begun, due := time.Now(), time.Duration(0)
	for pause := firstBegin; ; pause = min(2*pause, lastBegin) {
		err := c.Begin(ctx)
		lasted := time.Since(begun)
		switch {
		case err == nil:
			if due > 0 {
				c.tell(ctx, event.Event{Lasted: lasted, Over: true})
			}
			return true, nil
		case ctx.Err() != nil:
			return false, nil
		case final(err):
			return false, err
		}
		c.config.Logger.Error("the consumer cannot begin yet: tries again", "err", err)
		if lasted >= due {
			c.tell(ctx, event.Event{Lasted: lasted, Err: err})
			due = lasted + min(max(lasted, lastBegin), time.Hour)
		}
		if !sleep(ctx, pause) {
			return false, nil
		}
	}
}

// tell calls Observe with the fault of a source, while no worker runs. It does so on a goroutine of its own: whatever
// Observe does, the consumer begins, and Run returns when ctx ends. As long as a call has not returned, there is no other.
func (c *Consumer) tell(ctx context.Context, e event.Event) {
	if c.config.Observe == nil {
		return
	}
	if c.telling != nil {
		select {
		case <-c.telling:
		default:
			return
		}
	}
	e.Kind, e.At, e.Group, e.Worker = event.SourceFault, time.Now(), c.config.Group, c.config.Name
	told := make(chan struct{})
	c.telling = told
	go func() {
		defer close(told)
		defer func() { _ = recover() }()
		c.config.Observe(e)
	}()
	timer := time.NewTimer(stuckAfter)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
	case <-ctx.Done():
	}
}
