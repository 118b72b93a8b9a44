package engine_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A write of a holder is refused, and no other worker can have written the row that the table has instead.

// rewrite gives the row of shard-000 another past than it had, as somebody may by hand: it was made, claimed, unless the
// owner is zero, and committed so many times. The first generation is that of the former row. The judge would object to all
// that follows, so it sees no more.
func (f *fleet) rewrite(owner lease.Owner, commits int) (row lease.Row) {
	f.Helper()
	write := func(w lease.Write, err error) {
		r, refused := f.hand.Write(f.Context(), w)
		if err := errors.Join(err, refused); err != nil {
			f.Fatal(err)
		}
		row = r.(lease.Row)
	}
	f.table.Restore(f.hand)
	f.hand.Delete(f.row("shard-000").Key())
	write(protocol.Begin("g", "shard-000", nil, "x", protocol.Stamp{ID: f.stamp().ID, At: virtual.Epoch()}))
	if !owner.IsZero() {
		write(protocol.Claim(row, owner, f.stamp()))
	}
	for range commits {
		write(protocol.Commit(row, fixture.Hold(row), mark("1"), f.stamp()))
	}
	return row
}

// held returns a fleet of one worker that has committed once, and the row of its shard.
func held(t *testing.T) (f *fleet, n *member, row lease.Row) {
	f = newFleet(t, 1, 0, rebalance.Eager)
	f.write(protocol.Begin("g", "shard-000", nil, "x", f.stamp()))
	n = f.enter("a", f.config)
	f.until(time.Second, f.held)
	n.flush(n.Handlers[0])
	f.Run(20 * time.Second)
	return f, n, f.row("shard-000")
}

// flush lets a handler mark its next position, and wait for the commit.
func (n *member) flush(h *virtual.Handler) {
	h.Marks++
	n.Step(engine.Marks{Tenure: h.Tenure, Mark: mark(strconv.FormatInt(int64(n.of.Now()), 10)), Seq: h.Marks, Flush: h.Marks})
}

// ended checks that the only tenure of a worker was refused and has ended, and returns its end.
func (n *member) ended(t *testing.T, cause event.Cause, why error) {
	t.Helper()
	refused, ends := n.reports(event.Refused), n.reports(event.Ended)
	if len(refused) != 1 || !errors.Is(refused[0].Err, why) || len(ends) != 1 || ends[0].Cause != cause || !errors.Is(ends[0].Err, why) {
		t.Errorf("refused %v, ended %v; want %v, %v", refused, ends, cause, why)
	}
	if over := slices.IndexFunc(n.sent, func(s sent) bool { o, is := s.Output.(engine.Over); return is && errors.Is(o.Err, why) }); over < 0 || len(n.Handlers) > 0 {
		t.Errorf("the handler was not told; %d run", len(n.Handlers))
	}
}

// rests checks that a worker writes nothing to rows for a lease time after since.
func (f *fleet) rests(n *member, since time.Duration) {
	f.Helper()
	f.Run(since + f.config.TTL - f.Now() - time.Millisecond)
	if all := n.writes(lease.KindLease, since+time.Millisecond); len(all) > 0 {
		f.Errorf("within a lease time it has written %v", all)
	}
}

// TestConflict: the row of a held shard names another owner under the same generation. The tenure ends, and the worker
// believes the row: after a lease time it recovers the shard if that owner has no seat, and leaves it to one that has.
func TestConflict(t *testing.T) {
	for _, counted := range []bool{true, false} { // the counter of the row has grown, or it is the same
		for _, lives := range []bool{true, false} {
			f, n, row := held(t)
			if lives {
				seat := f.write(protocol.Sit(lease.Seat{Group: "g", Incarnation: "ghost", Name: "ghost", TTL: time.Hour}, f.stamp())).(lease.Seat)
				f.write(protocol.NextBeat(seat, lease.Says{}, f.stamp()))
			}
			commits := 1
			if counted {
				commits = 2
			}
			if now := f.rewrite(lease.Owner{Incarnation: "ghost", Name: "ghost"}, commits); now.Generation != row.Generation || counted != (now.Compare(row) > 0) {
				t.Fatalf("%v in the place of %v", now, row)
			}
			since := f.Now()
			n.flush(n.Handlers[0])
			f.Run(50 * time.Millisecond)
			n.ended(t, event.CauseConflict, protocol.ErrConflict)
			f.rests(n, since)
			if lives {
				f.Run(time.Minute)
			} else {
				f.until(time.Second, func() bool { return f.processed(row.Shard) })
			}
			if now := f.row(row.Shard); lives && now.Generation != row.Generation {
				t.Errorf("counted %t: the shard of the other owner is %v", counted, now)
			} else if !lives && (now.Generation != row.Generation+1 || now.Last.Reason != lease.ReasonExpired || !f.processed(row.Shard)) {
				t.Errorf("counted %t: without an owner the row is %v", counted, now)
			}
		}
	}
}

// TestRowIsGone: somebody has deleted the row of a held shard. The tenure ends at the next commit, and for a lease time
// nothing is made. The row that is made then has a generation above the last one.
func TestRowIsGone(t *testing.T) {
	f, n, row := held(t)
	f.table.Restore(f.hand) // the judge would miss the checkpoint in the row that is made
	f.hand.Delete(row.Key())
	since := f.Now()
	n.flush(n.Handlers[0])
	f.Run(50 * time.Millisecond)
	n.ended(t, event.CauseVanished, protocol.ErrGone)
	f.rests(n, since)
	f.until(time.Second, func() bool { return f.processed(row.Shard) })
	if now := f.row(row.Shard); now.Generation <= row.Generation {
		t.Errorf("generation %d after %d", now.Generation, row.Generation)
	}
}

// TestRowIsGoneWhenItIsGivenUp: the row of a shard is gone when its handler gives it up without a new mark. Nothing is
// lost, so nothing is reported as refused.
func TestRowIsGoneWhenItIsGivenUp(t *testing.T) {
	f, n, row := held(t)
	f.hand.Delete(row.Key())
	n.Step(engine.Marks{Tenure: n.Handlers[0].Tenure, Release: true})
	f.Run(time.Second)
	if refused, ends := n.reports(event.Refused), n.reports(event.Ended); len(refused) > 0 || len(ends) != 1 || ends[0].Cause != event.CauseGivenUp {
		t.Errorf("refused %v, ended %v", refused, ends)
	}
}

// TestRowWentBack: somebody has put an earlier row in the place of that of a held shard. The tenure ends, the worker
// reports that the table went back, and what it knows of the row stays: it never begins a generation again that it has
// had. It goes on when an operator has raised the generation.
func TestRowWentBack(t *testing.T) {
	for _, name := range []string{"before the claim", "before the commit"} {
		t.Run(name, func(t *testing.T) {
			f, n, row := held(t)
			owner := row.Owner
			if name == "before the claim" {
				owner = lease.Owner{}
			}
			f.rewrite(owner, 0)
			since := f.Now()
			n.flush(n.Handlers[0])
			f.Run(50 * time.Millisecond)
			n.ended(t, event.CauseVanished, lease.ErrWentBack)
			if told := n.reports(event.Restored); len(told) == 0 || told[0].Over {
				t.Errorf("restored: %v", told)
			}
			f.rests(n, since)
			f.Run(5 * time.Minute)
			for _, s := range n.writes(lease.KindLease, since+time.Millisecond) {
				if next := s.Output.(engine.Send).Write.Next.(lease.Row); next.Generation <= row.Generation {
					t.Errorf("generation %d begins again: %v", next.Generation, s.Output)
				}
			}
			f.command(row.Shard, func(r lease.Row, c protocol.Command) (lease.Write, error) {
				return protocol.Adopt(r, "operator", f.stamp())
			})
			f.until(30*time.Second, func() bool { return f.processed(row.Shard) })
			if now := f.row(row.Shard); now.Generation <= row.Generation {
				t.Errorf("generation %d after %d", now.Generation, row.Generation)
			}
		})
	}
}

// TestLeaverOfARowThatWentBack: the row of a shard went back, and its worker or session shuts down. The release of the row
// is refused. It is not written again and again until the worker gives up its seat.
func TestLeaverOfARowThatWentBack(t *testing.T) {
	leave := func(t *testing.T, f *fleet, n *member) {
		row := f.row("shard-000")
		f.rewrite(row.Owner, 0)
		n.Step(engine.Stop{})
		f.Run(50 * time.Millisecond)
		if told := n.reports(event.Restored); len(told) == 0 {
			t.Error("not told")
		}
		since := f.Now()
		f.Run(time.Minute)
		if all := n.writes(lease.KindLease, since); len(all) > 2 {
			t.Errorf("%d writes of the row: %v", len(all), all[:3])
		}
		if !n.Engine.Done() {
			t.Error("it has not left")
		}
	}
	t.Run("worker", func(t *testing.T) {
		f, n, _ := held(t)
		leave(t, f, n)
	})
	t.Run("session", func(t *testing.T) {
		c := newContest(t, 1)
		s := c.join("a")
		c.Run(time.Second)
		s.acquire("shard-000")
		c.until(time.Second, func() bool { return s.holds("shard-000") })
		s.Input(engine.Marks{Tenure: s.held["shard-000"].Tenure, Mark: mark("1"), Seq: 1, Flush: 1})
		c.Run(time.Second)
		leave(t, c.fleet, s.member)
	})
}
