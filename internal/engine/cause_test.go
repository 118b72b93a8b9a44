package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A mover notes for which cause each worker was asked for the terms of a move.
type mover struct {
	mode  rebalance.Mode
	asked map[rebalance.Why]int
}

func (m mover) Terms(_ string, why rebalance.Why) rebalance.Terms {
	m.asked[why]++
	return rebalance.Terms{Mode: m.mode}
}

// moves returns the planned moves that rows show, without those before from.
func moves(f *fleet, from map[string]int64) (all []lease.Transfer) {
	for _, r := range f.table.Records("g", lease.KindLease) {
		if r := r.(lease.Row); r.Generation > from[r.Shard] && r.Last.Mode != 0 {
			all = append(all, r.Last)
		}
	}
	return all
}

func generations(f *fleet) map[string]int64 {
	all := map[string]int64{}
	for _, s := range f.source.Shards {
		all[s.Name] = f.row(s.Name).Generation
	}
	return all
}

// TestEveryMoveKnowsItsCause: why a plan moves a shard is in the targets of both workers, in the transfer, in the events of both,
// and known to the strategy that chooses the terms. If an operator wants it, the transfer says who and why.
func TestEveryMoveKnowsItsCause(t *testing.T) {
	drain := lease.Wish{Kind: lease.WishDrain, Subject: "w000", By: "ann", Why: "disk is slow"}
	for name, c := range map[string]struct {
		happens func(f *fleet)
		want    rebalance.Why
		note    string
	}{
		"balance": {func(f *fleet) { f.join() }, rebalance.Balance, ""},
		"leaving": {func(f *fleet) { f.nodes[0].Input(engine.Stop{}) }, rebalance.Leaving, ""},
		"drain":   {func(f *fleet) { f.wish(drain) }, rebalance.Drained, "by ann: disk is slow"},
		"pin": {func(f *fleet) {
			f.wish(lease.Wish{Kind: lease.WishPin, Subject: f.nodes[0].Handlers[0].Shard, To: "w001", By: "bob"})
		}, rebalance.Pinned, "by bob"},
		"move": {func(f *fleet) {
			f.wish(f.operator.move(f.nodes[0].Handlers[0].Shard, "w001", time.Hour))
		}, rebalance.Ordered, "by ann: host is old"},
	} {
		for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
			t.Run(fmt.Sprintf("%s/%v", name, mode), func(t *testing.T) {
				m := mover{mode, map[rebalance.Why]int{}}
				f := newFleet(t, 12, 3, mode, func(c *engine.Config) { c.Handoff = m })
				clear(m.asked)
				before, from := generations(f), f.Now()
				c.happens(f)
				f.Run(30 * time.Second)
				moved := moves(f, before)
				at := slices.IndexFunc(moved, func(of lease.Transfer) bool { return of.Why == c.want && of.Note == c.note })
				if at < 0 || name != "pin" && name != "move" && slices.ContainsFunc(moved, func(of lease.Transfer) bool { return of.Why != c.want || of.Note != c.note }) {
					t.Errorf("the rows show %v", moved)
				}
				for _, of := range moved { // a pin and a move make others move the other way
					if of.Why != c.want && of.Why != rebalance.Balance {
						t.Errorf("a row shows %v", of)
					}
				}
				if m.asked[c.want] == 0 {
					t.Errorf("the terms of these moves were asked for: %v", m.asked)
				}
				tells(f, from, c.want, mode)
			})
		}
	}
}

// tells checks that the events of a move have its cause.
func tells(f *fleet, from time.Duration, want rebalance.Why, mode rebalance.Mode) {
	f.Helper()
	seen := map[event.Kind]bool{}
	for _, n := range f.nodes {
		for _, e := range n.told {
			switch e.Kind {
			case event.Requested, event.Draining, event.Started, event.Ended:
				seen[e.Kind] = seen[e.Kind] || e.at >= from && e.Why == want
				if e.Why == want && e.Terms.Mode != mode {
					f.Errorf("%s reports %v", n.Name, e)
				}
				if e.at >= from && e.Terms.Mode != 0 && e.Why == 0 && e.Kind != event.Draining {
					f.Errorf("%s reports a move without its cause: %v", n.Name, e)
				}
			}
		}
	}
	kinds := []event.Kind{event.Requested, event.Started, event.Ended}
	if mode == rebalance.Eager && want != rebalance.Balance { // a worker that joins requests before the owner has read the plan
		kinds = append(kinds, event.Draining)
	}
	for _, kind := range kinds {
		if !seen[kind] {
			f.Errorf("no event of the kind %v has the cause %v", kind, want)
		}
	}
}

// TestSettledWorkerHasNoCause: when a shard has moved, the cause has done its service. A later plan that writes the target of a
// worker that holds all of it leaves the causes out, so they do not add up. A claim has no cause.
func TestSettledWorkerHasNoCause(t *testing.T) {
	f := newFleet(t, 12, 2, rebalance.Eager)
	f.wish(lease.Wish{Kind: lease.WishDrain, Subject: "w000", By: "ann"})
	f.settles("w000 drained", 0, 12)
	if of := f.target(f.nodes[1]); len(of.Causes) != 1 || len(of.Causes[0].Shards) != 6 {
		t.Fatalf("the target has the causes %+v", of.Causes)
	}
	f.lists(engine.Shard{Name: "another"})
	f.Run(time.Minute)
	if of := f.target(f.nodes[1]); len(of.Hold) != 13 || len(of.Causes) != 0 {
		t.Errorf("a later target of %d shards has the causes %+v", len(of.Hold), of.Causes)
	}
	f.release("shard-000")
	f.wish(f.look("shard-000", time.Minute))
	f.Run(30 * time.Second)
	if got := f.row("shard-000").Last; !got.Claimed() || got.Why != 0 || got.Note != "" {
		t.Errorf("the claim is %v", got)
	}
}

// TestDrainOutlastsAJoin: while a worker is drained, another joins, and the next plan sends some of the shards to that one. They
// still move because of the drain, also if the plan before has only repeated the cause.
func TestDrainOutlastsAJoin(t *testing.T) {
	t.Parallel()
	drainOutlasts(t, 60, false)
	drainOutlasts(t, 240, true)
}

// drainOutlasts drains one of two workers of so many shards. between: the plan is repeated before another worker joins.
func drainOutlasts(t *testing.T, shards int, between bool) {
	f := newFleet(t, shards, 2, rebalance.Cooperative, func(c *engine.Config) { c.MaxMoves = 1 })
	before := generations(f)
	f.wish(lease.Wish{Kind: lease.WishDrain, Subject: "w000", By: "ann", Why: "disk is slow"})
	f.until(10*time.Second, func() bool { return len(f.nodes[0].Handlers) < shards/2 })
	if revision := f.plan().Revision; between {
		f.lists(engine.Shard{Name: "another"})
		f.until(10*time.Second, func() bool { return f.plan().Revision > revision && !f.plan().Open })
	}
	f.join()
	f.until(2*time.Minute, func() bool { return len(f.nodes[0].Handlers) == 0 })
	moved := map[string]int{} // by the worker that took the shard over
	for _, r := range f.table.Records("g", lease.KindLease) {
		r := r.(lease.Row)
		for _, of := range append([]lease.Transfer{r.Last}, r.History()...) {
			if of.Generation > before[r.Shard] && of.From == "w000" && of.Mode != 0 {
				if moved[of.By]++; of.Why != rebalance.Drained || of.Note != "by ann: disk is slow" {
					t.Errorf("%s moves away as %v", r.Shard, of)
				}
			}
		}
	}
	if moved["w001"] == 0 || moved["w002"] == 0 || moved["w001"]+moved["w002"] != shards/2 {
		t.Errorf("moved away: %v; held: %v", moved, f.counts())
	}
}

// TestPendingMoveKeepsItsCause: a shard has not moved yet when another plan is made. Its cause stays.
func TestPendingMoveKeepsItsCause(t *testing.T) {
	f := newFleet(t, 12, 3, rebalance.Eager)
	f.nodes[0].Winds, f.config.Drain = 15*time.Second, time.Minute
	shard := f.nodes[0].Handlers[0].Shard
	f.wish(lease.Wish{Kind: lease.WishPin, Subject: shard, To: "w001", By: "bob"})
	f.until(10*time.Second, func() bool { return len(f.nodes[0].reports(event.Draining)) > 0 })
	before := f.plan().Revision
	f.lists(engine.Shard{Name: "another"}, engine.Shard{Name: "more"}, engine.Shard{Name: "one more"})
	f.until(10*time.Second, func() bool { return f.plan().Revision > before && !f.plan().Open })
	of := f.target(f.nodes[1])
	if f.nodes[1].holds(shard) || of.Revision <= before || of.CauseOf(shard).Why != rebalance.Pinned || of.CauseOf(shard).Note != "by bob" {
		t.Errorf("revision %d after %d: %+v", of.Revision, before, of.Causes)
	}
	f.until(time.Minute, func() bool { return f.nodes[1].holds(shard) })
	if last := f.row(shard).Last; last.Why != rebalance.Pinned || last.Note != "by bob" {
		t.Errorf("the shard moves as %v", last)
	}
}

// because writes a plan by hand that moves a shard for a cause, with or without the cause in the target of the owner.
func (a advice) because(shard string, to *member, cause rebalance.Why, owner bool) {
	a.f.Helper()
	a.revise(func(n *member, of *lease.Target) {
		of.Give, of.Causes = nil, nil
		had := len(of.Hold)
		of.Hold = slices.DeleteFunc(of.Hold, func(a lease.Assigned) bool { return a.Shard == shard })
		moved := lease.MoveCause{Why: cause, Shards: []string{shard}}
		if len(of.Hold) < had && owner {
			of.Give = []lease.Give{{Shard: shard, To: to.Engine.Status().Incarnation}}
			of.Because(moved)
		}
		if n == to {
			of.Hold = append(of.Hold, lease.Assigned{Shard: shard})
			of.Because(moved)
		}
	})
}

// TestOwnerRemembersTheCause: before the successor requests the shard, another plan writes the target of the owner, which names
// the move no more. The owner hands the shard over for the cause that it has read.
func TestOwnerRemembersTheCause(t *testing.T) {
	f := newFleet(t, 12, 3, rebalance.Eager)
	owner, to := f.nodes[0], f.nodes[1]
	shard := owner.Handlers[0].Shard
	f.fail(50*time.Millisecond, func(n *member, o engine.Output) bool { // it does not read its target
		return n == to && (gets(o, lease.KindTarget) || lists(o, lease.KindTarget))
	})
	f.because(shard, to, rebalance.Ordered, true)
	f.until(2*beat, func() bool { return f.seat(owner).Revision == f.plan().Revision })
	f.revise(func(n *member, of *lease.Target) {
		if n == owner {
			of.Give, of.Causes = nil, nil
		}
	})
	f.until(2*beat, func() bool { return f.seat(owner).Revision == f.plan().Revision })
	f.deaf = nil
	f.until(20*time.Second, func() bool { return to.holds(shard) })
	if last := f.row(shard).Last; last.From != owner.Name || last.Why != rebalance.Ordered {
		t.Errorf("the shard moves as %v", last)
	}
}

// TestLeavingWithoutAPlan: a worker shuts down, and the plan still says that its shard moves for another reason. The move is
// for the shutdown, and its terms are chosen for that, because the worker waits only for a while.
func TestLeavingWithoutAPlan(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		m := mover{mode, map[rebalance.Why]int{}}
		f := newFleet(t, 12, 3, mode, func(c *engine.Config) { c.Handoff = m })
		owner, to := f.nodes[0], f.nodes[1]
		shard := owner.Handlers[0].Shard
		clear(m.asked)
		f.deaf = func(n *member, o engine.Output) bool { // nobody plans without the owner
			send, is := o.(engine.Send)
			return is && send.Write.Key().Kind == lease.KindPlan
		}
		owner.Input(engine.Stop{})
		f.until(beat, func() bool { return f.seat(owner).Leaving })
		f.because(shard, to, rebalance.Balance, true)
		f.until(20*time.Second, func() bool { return to.holds(shard) })
		if last := f.row(shard).Last; last.From != owner.Name || last.Why != rebalance.Leaving || m.asked[rebalance.Leaving] == 0 {
			t.Errorf("the shard moves as %v; asked for %v", last, m.asked)
		}
	}
}

// TestSeizureKnowsItsCause: the owner does not wind down in time, and the successor seizes the shard.
func TestSeizureKnowsItsCause(t *testing.T) {
	f := newFleet(t, 12, 3, rebalance.Eager)
	owner, to := f.nodes[0], f.nodes[1]
	shard := owner.Handlers[0].Shard
	f.deaf = func(n *member, o engine.Output) bool { return n == owner && sends(o, lease.KindLease) } // it cannot hand over
	f.because(shard, to, rebalance.Drained, true)
	f.until(2*time.Minute, func() bool { return to.holds(shard) })
	if last := f.row(shard).Last; last.Reason != lease.ReasonDrainTimeout || last.By != to.Name || last.Why != rebalance.Drained {
		t.Errorf("the shard is taken as %v", last)
	}
}

// TestCauseIsOfOneMove: a shard has moved to a worker for a cause, and later somebody else holds it, although the plan has not
// changed. When the worker requests it again, that is not for the cause of the first move.
func TestCauseIsOfOneMove(t *testing.T) {
	f := newFleet(t, 12, 3, rebalance.Eager)
	owner, to := f.nodes[0], f.nodes[1]
	shard := owner.Handlers[0].Shard
	f.because(shard, to, rebalance.Drained, true)
	f.until(20*time.Second, func() bool { return to.holds(shard) })
	if last := f.row(shard).Last; last.Why != rebalance.Drained {
		t.Errorf("the shard moves as %v", last)
	}
	row := f.row(shard)
	f.write(protocol.ForceRelease(row, seen(row), f.stamp()))
	f.write(protocol.Claim(f.row(shard), f.seat(owner).Owner(), f.stamp()))
	f.wish(f.look(shard, time.Minute))
	f.until(30*time.Second, func() bool { return owner.holds(shard) && !to.holds(shard) })
	f.until(30*time.Second, func() bool { return to.holds(shard) })
	if last := f.row(shard).Last; last.From != owner.Name || last.Mode == 0 || last.Why != 0 {
		t.Errorf("the shard moves back as %v", last)
	}
}
