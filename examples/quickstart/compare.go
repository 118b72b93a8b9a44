package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A contender is a small fleet that shows what its mode costs.
type contender struct {
	fleet *fleet
	moves []move // of the newcomer's share, as the handlers measure

	mu       sync.Mutex
	began    time.Time       // when the newcomer joined
	gaps     []time.Duration // as the library tells
	overlaps []time.Duration
}

// compare: both modes side by side, the same shards, the same newcomer.
func (s *story) compare(ctx context.Context) error {
	s.screen.heading("both modes side by side")
	s.screen.say("two small fleets, each of 2 workers and %d shards; then a third worker joins each", s.options.shards)
	modes := []rebalance.Mode{rebalance.Eager, rebalance.Cooperative}
	contenders, errs := make([]*contender, len(modes)), make([]error, len(modes))
	var both sync.WaitGroup
	for i, mode := range modes {
		c := &contender{fleet: newFleet(s.store.Store, s.group+"-"+mode.String(), mode, s.options.shards, s.options.ttl())}
		c.fleet.observe = c.observe
		contenders[i] = c
		both.Go(func() {
			defer c.fleet.close()
			errs[i] = c.contend(ctx)
		})
	}
	both.Wait()
	lines := []string{
		"", "                shards      nobody processed it          two processed it",
		"  mode           moved   longest     mean  library    longest     mean  library",
	}
	for i, c := range contenders {
		if errs[i] != nil {
			return errs[i]
		}
		lines = append(lines, c.line())
	}
	s.screen.print(append(lines, "",
		"  Measured by the handlers themselves, in one process; \"library\" is the longest that the",
		"  library's own events tell. What two processed at once is fenced: the late one's is refused.")...)
	return nil
}

// contend runs the fleet until the newcomer has its share.
func (c *contender) contend(ctx context.Context) error {
	var members []*member
	join := func() error {
		m, err := c.fleet.join(ctx, fmt.Sprintf("%v-%d", c.fleet.mode, len(members)+1))
		members = append(members, m)
		return err
	}
	if err := errors.Join(join(), join()); err != nil {
		return err
	}
	if err := c.fleet.even(ctx, members...); err != nil {
		return err
	}
	c.begin()
	if err := join(); err != nil {
		return err
	}
	err := c.fleet.even(ctx, members...)
	c.moves = c.fleet.probe.since(c.began)
	return err
}

// begin forgets how the first two came to their shards.
func (c *contender) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began, c.gaps, c.overlaps = time.Now(), nil, nil
}

// observe notes what the library says of planned moves.
func (c *contender) observe(_ *member, e event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.At.Before(c.began):
	case e.Kind == event.Started && e.Reason == lease.ReasonHandoff:
		c.gaps = append(c.gaps, e.Gap)
	case e.Kind == event.Ended && e.Cause == event.CauseHandedOff:
		c.overlaps = append(c.overlaps, e.Overlap)
	}
}

// line is the result. The fleet is closed by now, and every event delivered.
func (c *contender) line() string {
	var gaps, overlaps []time.Duration
	for _, m := range c.moves {
		gaps, overlaps = append(gaps, m.gap), append(overlaps, m.overlap)
	}
	gap, meanGap := worstAndMean(gaps)
	overlap, meanOverlap := worstAndMean(overlaps)
	toldGap, _ := worstAndMean(c.gaps)
	toldOverlap, _ := worstAndMean(c.overlaps)
	return fmt.Sprintf("  %-12v  %5d  %8s %8s %8s   %8s %8s %8s", c.fleet.mode, len(c.moves),
		millis(gap), millis(meanGap), millis(toldGap), millis(overlap), millis(meanOverlap), millis(toldOverlap))
}

func worstAndMean(ds []time.Duration) (worst, mean time.Duration) {
	for _, d := range ds {
		worst, mean = max(worst, d), mean+d
	}
	return worst, mean / time.Duration(max(1, len(ds)))
}
