package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// finish: the stream ends, and everything is counted.
func (s *story) finish(ctx context.Context) error {
	s.screen.heading("the stream ends")
	s.fleet.stream.close()
	at, err := s.moment(ctx, s.finished)
	if err != nil {
		return err
	}
	s.screen.good(at, "all %s are processed to their end, and will never be claimed again", plural(len(s.fleet.shards), "shard"))
	// Once the fleet is closed every event is delivered.
	return errors.Join(s.show(ctx), s.close())
}

// finished waits until the table says that every shard is.
func (s *story) finished(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errTooLong)
	defer cancel()
	for {
		rows, err := s.fleet.rows(ctx)
		if err != nil {
			return err
		}
		open := len(s.fleet.shards)
		for _, row := range rows {
			if row.Finished {
				open--
			}
		}
		if open == 0 {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// sum says what became of everything.
func (s *story) sum() error {
	last := s.fleet.stream.last
	c := s.fleet.sink.count(s.fleet.shards, last)
	accepted, refused := 0, 0
	for _, m := range s.fleet.all() {
		a, r := m.host.checkpoints()
		accepted, refused = accepted+a, refused+r
	}
	s.screen.heading("what happened")
	if s.options.store == "dynamodb" {
		s.screen.print(fmt.Sprintf("  The table %q stays; what this run left in it is the group %q.", s.options.name, s.group))
	}
	s.screen.print(
		"  transfers: "+s.reasons(),
		fmt.Sprintf("  refused checkpoints: %s; accepted: %d", s.paint(red, fmt.Sprint(refused)), accepted),
		fmt.Sprintf("  refused by the sink: %s", s.paint(red, plural(c.refused, "write"))),
		fmt.Sprintf("  records processed: %d of %d; %d of them once more, because after a crash or in an", c.processed, last*len(s.fleet.shards), c.again),
		"                     overlap the successor begins at the last accepted checkpoint",
		"  "+s.paint(bold, fmt.Sprintf("records lost: %d", c.lost)),
	)
	if c.lost > 0 {
		return fmt.Errorf("%d records were lost", c.lost)
	}
	return s.screen.fault()
}

// reasons counts the transfers.
func (s *story) reasons() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	sum := 0
	for _, r := range []lease.Reason{
		lease.ReasonInitial, lease.ReasonHandoff, lease.ReasonDrainTimeout, lease.ReasonExpired, lease.ReasonReleased, lease.ReasonStalled,
		lease.ReasonFailed, lease.ReasonForced, lease.ReasonAdopted, lease.ReasonFinished,
	} {
		if n := s.transfers[r]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", r, n))
			sum += n
		}
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(parts, ", "))
}
