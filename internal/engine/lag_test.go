package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestWorkerThatDoesNotFollow: reads of one worker fail, all or those of one kind, while its writes pass, and another worker
// leaves or dies. Others have the shards that the plan gives to the first one within a lease time, a heartbeat and two
// seconds of the plan that gives them. It keeps what it holds, and says on its seat and by an event that it is unwell. When
// its reads pass again it gets its share.
func TestWorkerThatDoesNotFollow(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string][]lease.Kind{
		"all": {lease.KindSeat, lease.KindTarget, lease.KindLease}, "seats": {lease.KindSeat}, "targets": {lease.KindTarget}, "rows": {lease.KindLease},
	} {
		for first := range fixture.Size(2, 3) { // the first watcher, or another
			for _, dies := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/worker %d/another dies %v", name, first, dies), func(t *testing.T) {
					f := newFleet(t, 12, 3, rebalance.Eager)
					a, b := f.up()[first], f.up()[(first+1)%3]
					f.Run(f.config.Audit) // all know that the rows exist
					f.loseReads(kinds, a)
					held := slices.Clone(a.Handlers)
					f.Run(2 * beat)
					limit := leaseTime + beat + 2*time.Second
					if dies {
						limit += leaseTime
						b.Kill()
					} else {
						b.Input(engine.Stop{})
					}
					f.until(f.config.Drain+time.Second, func() bool { return !f.held() })
					if took := f.until(time.Minute, f.held); took > limit {
						t.Errorf("all shards have a worker after %v", took)
					}
					f.Run(fixture.Size(3*time.Minute, 10*time.Minute))
					for _, h := range held {
						if !a.holds(h.Shard) {
							t.Errorf("%s was taken from it", h.Shard)
						}
					}
					if !f.held() || len(a.reports(event.Unwell)) == 0 || f.seat(a).Health.Unwell == "" {
						t.Errorf("all held: %v; %v; %v", f.held(), a.reports(event.Unwell), f.seat(a).Health)
					}
					f.deaf = nil
					f.until(time.Minute, f.even)
					f.Run(20 * time.Second)
					if told := a.reports(event.Unwell); !told[len(told)-1].Over || f.seat(a).Health.Unwell != "" {
						t.Errorf("%v; %v", told, f.seat(a).Health)
					}
				})
			}
		}
	}
}

// TestReadsThatHang: no read of one worker is answered, and none fails, so it does not know that anything is wrong. Another
// one dies.
func TestReadsThatHang(t *testing.T) {
	for stuck := range 3 { // the first watcher, or another
		f := newFleet(t, 12, 3, rebalance.Eager)
		a, b := f.up()[stuck], f.up()[(stuck+1)%3]
		f.deaf = func(n *member, o engine.Output) bool { return n == a && reads(o) != 0 }
		f.Run(2 * beat)
		b.Kill()
		f.until(time.Minute, func() bool { return !f.held() })
		if took := f.until(time.Minute, f.held); took > 2*leaseTime+beat+2*time.Second {
			t.Errorf("worker %d is stuck: all are held after %v", stuck, took)
		}
	}
}

// TestLateReaderGetsItsShare: the answers to all reads of one worker are late, and another worker dies. The late worker does
// not claim what it gets of the dead worker's shards, so the third gets them. When answers are in time again, the late worker
// gets its share, although it was never unwell and nothing else happens.
func TestLateReaderGetsItsShare(t *testing.T) {
	t.Parallel()
	for late := range 3 { // the first watcher, or another
		f := newFleet(t, 12, 3, rebalance.Eager)
		f.Run(f.config.Audit)
		a, b := f.up()[late], f.up()[(late+1)%3]
		f.delay(5*beat, func(n *member, o engine.Output) bool { return n == a && reads(o) != 0 })
		f.Run(2 * beat)
		b.Kill()
		f.until(time.Minute, func() bool { return !f.held() })
		f.until(time.Minute, f.held)
		if even := f.even(); even || len(a.reports(event.Unwell)) > 0 {
			t.Errorf("worker %d is late: shards are even: %t, want false; unwell reports, want none: %v", late, even, a.reports(event.Unwell))
		}
		f.slow = nil // answers are in time again
		f.until(time.Minute, f.even)
	}
}

// TestNobodyReads: the reads of all workers fail for ten minutes. Every shard stays with its worker.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 12, 3, rebalance.Eager)
	f.loseReads([]lease.Kind{lease.KindSeat, lease.KindTarget, lease.KindLease}, f.up()...)
	starts := f.starts
	f.Run(10 * time.Minute)
	if f.deaf = nil; !f.even() {
		t.Errorf("%v", f.counts())
	}
	f.Run(time.Minute)
	if f.starts != starts || !f.even() {
		t.Errorf("%d tenures began; %v", f.starts-starts, f.counts())
	}
}

// TestDeafWorkersAreLeft: two of three workers cannot read rows, and the third dies, or one of the two. Nobody writes plan
// after plan. A worker that can read takes the free shards; if there is none, they wait until reads pass.
func TestDeafWorkersAreLeft(t *testing.T) {
	t.Parallel()
	for _, victim := range []int{0, 2} {
		f := newFleet(t, 12, 3, rebalance.Eager)
		f.Run(f.config.Audit)
		f.fail(10*time.Millisecond, func(n *member, o engine.Output) bool { return n != f.nodes[2] && reads(o) == lease.KindLease })
		f.Run(time.Minute)
		before := f.plan().Revision
		f.nodes[victim].Kill()
		f.until(time.Minute, func() bool { return !f.held() })
		f.Run(10 * time.Minute)
		if plans := f.plan().Revision - before; plans > 10 || victim == 0 && !f.held() {
			t.Errorf("%s dies: %d plans; held: %v", f.nodes[victim].Name, plans, f.counts())
		}
		f.deaf = nil
		f.until(time.Minute, f.even)
	}
}

// TestDeafFirstWatcher: the first watcher of a large fleet cannot read. Others list the source, plan, and mind workers that
// lag.
func TestDeafFirstWatcher(t *testing.T) {
	t.Parallel()
	for _, kinds := range fixture.Sample(2, [][]lease.Kind{{lease.KindSeat}, {lease.KindTarget}, {lease.KindLease}, {lease.KindSeat, lease.KindTarget, lease.KindLease}}) {
		f := newFleet(t, 48, 12, rebalance.Eager)
		parent, dies := f.others()[1].Handlers[0].Shard, f.others()[2]
		f.source.Shards = append(slices.Clone(f.source.Shards), engine.Shard{Name: "child", Parents: []string{parent}})
		f.Run(f.config.Audit)
		f.loseReads(kinds, f.watchers()[0])
		f.Run(time.Minute)
		limit := f.config.Poll + leaseTime + beat + 2*time.Second
		f.end(parent)
		f.until(limit, func() bool { return f.processed("child") })
		f.source.Shards = append(slices.Clone(f.source.Shards), engine.Shard{Name: "new"})
		f.until(limit, func() bool { return f.processed("new") })
		dies.Kill()
		f.source.Shards = slices.DeleteFunc(slices.Clone(f.source.Shards), func(s engine.Shard) bool { return s.Name == parent }) // it is finished
		f.until(2*leaseTime+beat+2*time.Second, f.held)
	}
}

// TestAuditsFail: the listings of all rows fail, and single reads pass. No worker needs them, so none is unwell; and when one
// dies, the others take its shards.
func TestAuditsFail(t *testing.T) {
	f := newFleet(t, 12, 3, rebalance.Eager)
	f.fail(10*time.Millisecond, func(_ *member, o engine.Output) bool {
		list, is := o.(engine.List)
		return is && list.Query.Kind == lease.KindLease
	})
	f.Run(10 * time.Minute)
	for _, n := range f.up() {
		n.never(event.Unwell)
	}
	f.nodes[1].Kill()
	f.until(time.Minute, func() bool { return !f.held() })
	f.until(leaseTime+beat+2*time.Second, f.held)
}

// TestSeatThatOnlyBeats: a seat is there whose worker follows no plan: it is of another version, or stuck. Others take its
// share within two lease times.
func TestSeatThatOnlyBeats(t *testing.T) {
	for _, dies := range []bool{false, true} {
		seatThatOnlyBeats(t, dies)
	}
}

func seatThatOnlyBeats(t *testing.T, dies bool) {
	f := newFleet(t, 12, 2, rebalance.Eager)
	f.Run(time.Minute)
	ghost := lease.Seat{Group: "g", Incarnation: "ghost", Name: "ghost", TTL: 24 * time.Hour}
	f.write(protocol.Sit(ghost, f.stamp()))
	r, _ := f.store.Get(t.Context(), ghost.Key())
	ghost = r.(lease.Seat)
	f.write(protocol.NextBeat(ghost, lease.Says{}, f.stamp()))
	f.Run(time.Minute)
	if dies {
		f.nodes[0].Kill()
	} else {
		f.nodes[0].Input(engine.Stop{})
	}
	f.until(time.Minute, func() bool { return !f.held() })
	f.until(4*f.config.TTL, func() bool { return len(f.nodes[1].Handlers) == 12 })
	f.join()
	f.until(4*f.config.TTL, func() bool { return len(f.nodes[1].Handlers)+len(f.nodes[2].Handlers) == 12 })
}

// TestOldBuildBesideNew: some workers are of an older build. Their seats say which revision they have seen, and not which they
// follow, or say nothing about plans. When a worker joins, leaves or dies, all shards have a worker soon, and only one worker's
// share changes hands; there is not plan after plan. The shares are even, unless others cannot tell from a seat that its worker
// takes what it gets.
func TestOldBuildBesideNew(t *testing.T) {
	t.Parallel()
	builds := map[string]func(n *member) func(*lease.Seat){
		"seen": func(n *member) func(*lease.Seat) {
			return func(s *lease.Seat) { s.Revision = max(s.Revision, n.Engine.Status().Revision) }
		},
		"nothing": func(*member) func(*lease.Seat) { return func(s *lease.Seat) { s.Revision, s.Settled = 0, false } },
	}
	for build, alter := range builds {
		for _, workers := range fixture.Sample(1, []int{12, 4}) {
			for _, old := range fixture.Size([]int{1}, []int{0, 1}) { // every other one is old: also the first watcher, or the second
				t.Run(fmt.Sprintf("%s/%d workers, from %d on", build, workers, old), func(t *testing.T) {
					f := newFleet(t, 48, 0, rebalance.Eager)
					enter := func() {
						if n := f.join(); len(f.nodes)%2 == old {
							n.alter = alter(n)
						}
					}
					for range workers {
						enter()
					}
					shared := f.even
					if build == "nothing" {
						shared = f.held
					}
					f.until(time.Minute, shared)
					f.Run(f.config.Audit)
					for what, happens := range []func(){
						enter,
						func() { f.up()[old].Kill() },
						func() { f.up()[1-old].Input(engine.Stop{}) },
						func() {},
					} {
						before, kept := f.plan().Revision, f.tenures()
						happens()
						f.until(2*leaseTime+f.config.Drain, shared)
						f.Run(fixture.Size(2*time.Minute, 10*time.Minute))
						now := f.tenures()
						over := slices.DeleteFunc(kept, func(id engine.Tenure) bool { return slices.Contains(now, id) })
						if share := []int{48/(workers+1) + 1, 48/(workers+1) + 1, 48/workers + 1, 0}[what]; len(over) > share || !shared() {
							t.Errorf("event %d: %d tenures are over; %v", what, len(over), f.counts())
						}
						if plans := f.plan().Revision - before; plans > 4 {
							t.Errorf("event %d: %d plans", what, plans)
						}
					}
				})
			}
		}
	}
}

// tenures returns the tenures that run.
func (f *fleet) tenures() (all []engine.Tenure) {
	for _, n := range f.up() {
		for _, h := range n.Handlers {
			all = append(all, h.Tenure)
		}
	}
	return all
}

// TestSlowReaderKeepsItsShards: a worker that reads its target only after two heartbeats has it to itself.
func TestSlowReaderKeepsItsShards(t *testing.T) {
	for i := range 3 { // the slow worker writes the plan itself, or another does
		f := newFleet(t, 12, 3, rebalance.Eager)
		a, b := f.up()[i], f.up()[(i+1)%3]
		f.slow = func(n *member, o engine.Output) time.Duration {
			if get, ok := o.(engine.Get); ok && n == a && get.Key.Kind == lease.KindTarget {
				return beat + beat/2
			}
			return 0
		}
		before := f.plan().Revision
		b.Kill()
		f.Run(time.Minute)
		if now := f.plan().Revision; now != before+1 || !f.even() {
			t.Errorf("%d plans; %v", now-before, f.counts())
		}
	}
}

// loseReads lets reads of these kinds fail.
func (f *fleet) loseReads(kinds []lease.Kind, nodes ...*member) {
	f.fail(10*time.Millisecond, func(n *member, o engine.Output) bool {
		return slices.Contains(nodes, n) && slices.Contains(kinds, reads(o))
	})
}

// reads returns the kind of records that a call reads; 0: it is no read.
func reads(o engine.Output) lease.Kind {
	switch o := o.(type) {
	case engine.List:
		return o.Query.Kind
	case engine.Get:
		return o.Key.Kind
	}
	return 0
}

// TestSingleReadsAreDenied: no single record can be read, or none of a kind, by one worker or by all, and listings pass. A
// worker dies, and a shard ends whose child waits: what the reads would show is listed instead. A large fleet lists all rows
// only once per audit. A page of an audit does not show what these reads would, however often there is one.
func TestSingleReadsAreDenied(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string][]lease.Kind{
		"all": {lease.KindSeat, lease.KindTarget, lease.KindLease}, "seats": {lease.KindSeat}, "targets": {lease.KindTarget}, "rows": {lease.KindLease},
		"rows and audits": {lease.KindLease},
	} {
		for workers, ones := range map[int][]bool{3: {false, true}, 12: fixture.Sample(1, []bool{false, true})} {
			for _, one := range ones {
				t.Run(fmt.Sprintf("%s/%d workers/one of them %v", name, workers, one), func(t *testing.T) {
					t.Parallel()
					f := newFleet(t, 4*workers, 0, rebalance.Eager)
					if strings.Contains(name, "audits") {
						f.config.Audit = beat
					}
					for range workers {
						f.join()
					}
					f.until(30*time.Second, f.even)
					f.Run(20 * time.Second)
					up := f.up()
					f.lists(engine.Shard{Name: "child", Parents: []string{up[0].Handlers[0].Shard}})
					f.Run(time.Minute)
					f.fail(10*time.Millisecond, func(n *member, o engine.Output) bool {
						get, is := o.(engine.Get)
						return is && slices.Contains(kinds, get.Key.Kind) && (!one || n == up[0])
					})
					limit := leaseTime + beat + 2*time.Second
					if workers > 8 && kinds[len(kinds)-1] == lease.KindLease {
						limit += f.config.Audit
					}
					f.end(up[0].Handlers[0].Shard)
					f.until(limit, func() bool { return f.processed("child") })
					f.source = f.without(f.finished()...)
					up[workers-1].Kill()
					f.until(limit+leaseTime, f.held)
					f.source.Shards = append(slices.Clone(f.source.Shards), engine.Shard{Name: "new"})
					f.until(f.config.Poll+limit, f.held)
				})
			}
		}
	}
}

// finished returns the shards that are.
func (f *fleet) finished() (names []string) {
	for _, s := range f.source.Shards {
		if f.row(s.Name).Finished {
			names = append(names, s.Name)
		}
	}
	return names
}

// TestListingsOfTargetsAreDenied: the first watcher of a large fleet cannot list the targets, and can read its own. Others
// plan in its place.
func TestListingsOfTargetsAreDenied(t *testing.T) {
	f := newFleet(t, 48, 12, rebalance.Eager)
	first := f.watchers()[0]
	f.fail(10*time.Millisecond, func(n *member, o engine.Output) bool { return n == first && lists(o, lease.KindTarget) })
	f.lists(engine.Shard{Name: "new"})
	f.until(2*f.config.Poll+2*leaseTime, func() bool { return f.processed("new") })
	f.lists(engine.Shard{Name: "newer"})
	f.until(f.config.Poll+2*leaseTime, func() bool { return f.processed("newer") })
}

// TestHandOverToADeafWorker: a worker requests shards, and when their owners have handed them over it cannot read. It finds
// out by a write that is refused, within a lease time. Nobody may take a shard from it by force.
func TestHandOverToADeafWorker(t *testing.T) {
	t.Parallel()
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		f := newFleet(t, 12, 3, rebalance.Eager)
		f.config.Handoff = rebalance.Terms{Mode: mode, AfterDrain: rebalance.Wait}
		var deaf *member
		f.fail(10*time.Millisecond, func(n *member, o engine.Output) bool { return n == deaf && reads(o) != 0 })
		n := f.join()
		f.until(30*time.Second, func() bool { return len(f.seat(n).Wants) > 0 })
		deaf = n
		f.Run(100 * time.Millisecond)
		f.until(leaseTime+beat, f.held)
		f.Run(2*leaseTime + beat)
		if len(n.Handlers) == 0 || !f.held() {
			t.Errorf("%v: %v", mode, f.counts())
		}
		f.Run(20 * time.Minute)
		if f.deaf = nil; !f.held() {
			t.Errorf("%v: %v", mode, f.counts())
		}
		f.until(2*time.Minute, f.even)
	}
}

// TestLateAnswersAreNoFault: a check of the table, and a read of a target, fail long after others have passed in their
// place. Nobody waits for them, so the worker is well.
func TestLateAnswersAreNoFault(t *testing.T) {
	f := newFleet(t, 12, 3, rebalance.Eager)
	n := f.nodes[0]
	n.Step(engine.Verified{Read: 1, Err: context.DeadlineExceeded})
	n.Step(engine.Got{Read: 1, Key: lease.Target{Group: "g", Incarnation: n.Engine.Status().Incarnation}.Key(), Err: context.DeadlineExceeded})
	f.Run(2 * leaseTime)
	n.never(event.Unwell)
}

// TestUnverifiedWorkerIsUnwell: the table of a worker that joins is not confirmed, so it may claim nothing. Others take what
// is free.
func TestUnverifiedWorkerIsUnwell(t *testing.T) {
	for _, workers := range []int{3, 12} {
		f := newFleet(t, 4*workers, workers, rebalance.Eager)
		before := f.up()
		f.fail(10*time.Millisecond, func(n *member, o engine.Output) bool {
			_, is := o.(engine.Verify)
			return is && !slices.Contains(before, n)
		})
		n := f.join()
		f.Run(2 * beat) // the plan gives it shards that it may not request
		before[1].Kill()
		f.until(time.Minute, func() bool { return !f.held() })
		f.until(2*leaseTime+beat+2*time.Second, f.held)
		if len(n.reports(event.Unwell)) == 0 || n.Engine.Status().Unread == nil {
			t.Errorf("it reports %v", n.told)
		}
		f.deaf = nil
		f.until(time.Minute, f.even)
	}
}

// TestNewcomerWithoutSingleReads: no row can be read by itself by a worker that joins, and listings show it the rows. It
// gets its share, and no shard has no worker for longer than a moment.
func TestNewcomerWithoutSingleReads(t *testing.T) {
	t.Parallel()
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		for _, workers := range []int{3, 12} {
			f := newFleet(t, 4*workers, workers, mode)
			f.config.Handoff = mode
			n := f.join()
			f.fail(10*time.Millisecond, func(of *member, o engine.Output) bool { return of == n && gets(o, lease.KindLease) })
			idle, worst := time.Duration(0), time.Duration(0) // idle: since when a shard has no worker; 0: each has one
			took := f.until(time.Minute, func() bool {
				if idle > 0 {
					worst = max(worst, f.Now()-idle)
				}
				if f.held() {
					idle = 0
				} else if idle == 0 {
					idle = f.Now()
				}
				return f.even()
			})
			t.Logf("%v, %d workers: even after %v, at most %v idle", mode, workers, took, worst)
			if worst > time.Second {
				t.Errorf("%v, %d workers: a shard has no worker for %v", mode, workers, worst)
			}
		}
	}
}

// TestSlowReaderAndUnreadableRow: the reads of a worker are always slow, so it lags behind each plan. Nobody can read the row of
// a shard that has no owner, so nobody can hold that shard. Plans become rare: the worker is not passed over and given its share
// again without end.
func TestSlowReaderAndUnreadableRow(t *testing.T) {
	t.Parallel()
	for which := range 4 {
		f := newFleet(t, 12, 3, rebalance.Eager)
		f.Run(f.config.Audit)
		slow, dies := f.up()[0], f.up()[1]
		f.delay(4*beat, func(n *member, o engine.Output) bool { return n == slow && reads(o) != 0 })
		f.Run(2 * beat)
		f.unreadable(lease.Key{Group: "g", Kind: lease.KindLease, Name: dies.Handlers[which].Shard})
		dies.Kill()
		f.Run(20 * time.Minute)
		before := f.plan().Revision
		if f.Run(20 * time.Minute); f.plan().Revision > before+4 {
			t.Errorf("shard %d: %d plans in the last twenty minutes", which, f.plan().Revision-before)
		}
	}
}
