package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestPaceOfAudits: an audit of more rows than fit into a minute at 50 read units a second takes 30.
func TestPaceOfAudits(t *testing.T) {
	for rows, want := range map[int64]time.Duration{0: auditPause, 24_000: auditPause, 24_001: longAudit} {
		if got := auditRest(rows); got != want {
			t.Errorf("an audit of %d rows rests for %v, want %v", rows, got, want)
		}
		var w sweep
		turn := &turn{cfg: Config{Group: "orders"}, step: 1, now: Moment{Mono: 1}}
		w.begin(turn, lease.Plan{Finding: lease.Finding{Shards: rows}})
		w.page.answered(turn, 0, 1, nil)
		w.saw(turn, Listed{Records: make([]lease.Record, 0)})
		if next := w.over(); next.page.next != turn.now.Mono.Add(want) || next.on {
			t.Errorf("after an audit of %d rows the next one begins at %v", rows, next.page.next)
		}
	}
}

// TestReadsThatWaitAreNoFault: reads that have only waited for their turn show nothing. Otherwise each worker of a fleet
// that starts on a slow machine would list all rows, to find out whether it can read.
func TestReadsThatWaitAreNoFault(t *testing.T) {
	f, turn := noUnread(), &turn{cfg: Config{TTL: 10 * time.Second}, beat: 10 * time.Second / 3, now: Moment{Mono: 1}}
	for _, c := range []struct {
		err   error
		fails bool
	}{{&lease.QueuedError{}, false}, {errors.New("no answer"), true}, {&lease.QueuedError{}, true}, {nil, false}} {
		f.got(turn, lease.KindLease, c.err)
		if fails := f.singles[lease.KindLease] > 0; fails != c.fails {
			t.Errorf("after %v reads fail: %v", c.err, fails)
		}
	}
}
