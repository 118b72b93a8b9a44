package local

import (
	"context"
	"time"
)

// Stalls calls report after each tick, with how late this process was scheduled, until the context ends. Virtual machines
// are stopped now and then, and then no deadline can be met.
func Stalls(ctx context.Context, tick time.Duration, report func(late time.Duration)) {
	for last := time.Now(); ctx.Err() == nil; {
		select {
		case <-time.After(tick):
		case <-ctx.Done(): // the process may have stood still until now
		}
		now := time.Now()
		report(now.Sub(last) - tick)
		last = now
	}
}
