package shardlease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// In these tests the handler of docs/consumer.md reads a stream that reports at each read whether
// the reader has caught up.

// A partition is one shard of such a stream. Its positions are the numbers of its records.
type partition struct {
	records []string
	poison  time.Time     // when a record that fails is added; zero: never
	empty   time.Duration // how long after the start of a tenure its reads are empty
}

type batch struct {
	first   int // the position of the first record
	records []string
	behind  int // how many records are ahead of the reader
}

// read yields a batch a second.
func (p *partition) read(ctx context.Context, position string) iter.Seq[batch] {
	return func(yield func(batch) bool) {
		at, _ := strconv.Atoi(position)
		for begun := time.Now(); sleep(ctx, time.Second); {
			all := p.records
			if !p.poison.IsZero() && time.Now().After(p.poison) {
				all = append(slices.Clip(all), "poison", "c")
			}
			b := batch{first: at + 1, records: all[at:]}
			if time.Since(begun) < p.empty {
				b.records = nil
			}
			at += len(b.records)
			if b.behind = len(all) - at; !yield(b) {
				return
			}
		}
	}
}

var errPoison = errors.New("no order")

func (p *partition) handle(ctx context.Context, t *shardlease.Tenure) error {
	for read := range p.read(ctx, t.Checkpoint().Position) {
		for i, record := range read.records {
			if record == "poison" {
				return errPoison
			}
			if err := t.Mark(strconv.Itoa(read.first + i)); err != nil {
				return err
			}
		}
		switch {
		case len(read.records) > 0: // the marks are progress
		case read.behind == 0: // caught up: a record that failed before is not ahead
			t.Progress()
		default: // a record that failed before may be ahead
			t.Alive()
		}
	}
	return nil
}

// TestIdleShardOutlivesDeaths: the holder of an idle shard is killed six times. The shard is not
// quarantined after MaxAttempts deaths, because each tenure in between has caught up. When a
// handler called Alive instead while Attempt was above 0, the third death quarantined the shard.
func TestIdleShardOutlivesDeaths(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := newStage(t, 1)
		f := &partition{records: []string{"a", "b"}}
		config := shardlease.Config{Handoff: rebalance.Eager, StallAfter: 15 * time.Second, MaxAttempts: 3}
		for _, name := range "abcdefg" {
			s.enter(string(name), config, f.handle)
		}
		time.Sleep(30 * time.Second)
		for kill := range 6 {
			before := s.row("shard-00")
			s.actor(before.Owner.Name).die()
			s.within(ttl+beat+time.Second, fmt.Sprintf("recovery %d", kill), func() bool { return s.row("shard-00").Generation > before.Generation })
			if row := s.row("shard-00"); row.Attempts() != 1 || row.Quarantined {
				s.Fatalf("after death %d: %v, %d attempts", kill, row, row.Attempts())
			}
			time.Sleep(time.Minute)
			if row := s.row("shard-00"); row.Attempts() != 0 || row.Last.Reason != lease.ReasonExpired {
				t.Errorf("a minute after death %d: %v, %d attempts", kill, row, row.Attempts())
			}
		}
	})
}

// TestIdleShardCatchesPoison: a record that fails quarantines its shard although the first tenure had
// caught up before it, and although each later tenure first reads a minute of empty batches.
func TestIdleShardCatchesPoison(t *testing.T) {
	for _, empty := range []time.Duration{0, time.Minute} {
		subtest(t, empty.String(), func(t *testing.T) {
			s := newStage(t, 1)
			f := &partition{records: []string{"a", "b"}}
			f.poison, f.empty = time.Now().Add(2*time.Minute), empty
			s.enter("a", shardlease.Config{Handoff: rebalance.Eager, StallAfter: 15 * time.Second, MaxAttempts: 3}, f.handle)
			time.Sleep(10 * time.Minute)
			if row := s.row("shard-00"); !row.Quarantined || row.Last.Reason != lease.ReasonFailed || row.Attempts() != 3 || row.Checkpoint.Position != "2" {
				t.Errorf("%v at %s, %d attempts", row, row.Checkpoint.Position, row.Attempts())
			}
			s.end()
			for i, sp := range s.all() {
				if took := sp.to.Sub(sp.from); i > 2 || took < empty || i == 0 && took < 2*time.Minute {
					t.Errorf("tenure %d ended after %v", i, took)
				}
			}
		})
	}
}
