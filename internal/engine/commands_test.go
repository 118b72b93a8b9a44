package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// commanded returns a fleet that never audits, and the shard that some worker holds.
func commanded(t *testing.T, workers, of int) (f *fleet, shard string) {
	f = newFleet(t, 24, 0, rebalance.Cooperative)
	f.config.Audit = 24 * time.Hour
	for range workers {
		f.join()
	}
	f.until(time.Minute, f.even)
	f.Run(time.Minute)
	return f, f.nodes[of].Handlers[0].Shard
}

// TestCommandsActSoon: a released shard has another tenure, the tenure of a quarantined shard ends, and
// a shard that leaves quarantine is claimed, each within a heartbeat interval plus 1.5 s, in small and
// large fleets, at any moment between two heartbeats, although nothing is committed or audited.
func TestCommandsActSoon(t *testing.T) {
	t.Parallel()
	const soon = beat + 1500*time.Millisecond
	for _, workers := range []int{3, 12} {
		moments := fixture.Size(3, 48)
		for i := range moments {
			f, shard := commanded(t, workers, (5*i)%workers)
			f.Run(time.Duration(i) * beat / time.Duration(moments))
			starts := f.starts
			f.command(shard, func(r lease.Row, c protocol.Command) (lease.Write, error) {
				return protocol.ForceRelease(r, c, f.stamp())
			})
			within := func(what string, cond func() bool) {
				if took := f.until(time.Minute, cond); took > soon {
					t.Errorf("one of %d workers, %s: %v", workers, what, took)
				}
			}
			within("released and processed again", func() bool { return f.starts == starts+1 })
			f.Run(20 * time.Second)
			f.quarantine(shard)
			within("quarantined", func() bool { return !f.processed(shard) })
			f.Run(time.Minute + time.Duration(i)*beat/7)
			f.unquarantine(shard)
			within("out of quarantine and processed", func() bool { return f.processed(shard) })
		}
	}
}

// TestCommandsOfASlowClock: all workers notice a command although its wish seems to have ended when they read it.
func TestCommandsOfASlowClock(t *testing.T) {
	t.Parallel()
	for i := range 12 {
		f, shard := commanded(t, 3, i%3)
		f.Run(time.Duration(i) * beat / 12)
		row := f.row(shard)
		f.write(protocol.Quarantine(row, seen(row), lease.ReasonForced, f.stamp()))
		f.wish(f.look(shard, -time.Hour))
		if took := f.until(time.Minute, func() bool { return !f.processed(shard) }); took > beat+1500*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}
		f.until(time.Minute, func() bool { return len(f.wishes().List) == 0 })
	}
}

// TestALookIsNoPlan: that workers look at a shard makes no plan due, and the wish is removed when it has ended.
func TestALookIsNoPlan(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{3, 12} {
		f, shard := commanded(t, workers, 0)
		revision, starts := f.plan().Revision, f.starts
		f.wish(f.look("nothing", time.Minute))
		f.Run(30 * time.Second)
		if now := f.plan().Revision; now != revision {
			t.Errorf("%d workers: a look at no shard made %d plans", workers, now-revision)
		}
		f.wish(f.look(shard, time.Minute))
		f.Run(2 * time.Minute)
		if list := f.wishes().List; len(list) > 0 || f.starts != starts {
			t.Errorf("%d workers: %d tenures began, and the wishes are %v", workers, f.starts-starts, list)
		}
		told := int64(0)
		if workers == 12 {
			told = 1 // the plan tells the worker
		}
		if now := f.plan().Revision; now != revision+told {
			t.Errorf("%d workers: a look at a shard made %d plans", workers, now-revision)
		}
	}
}

// TestALookIsRepeated: a look whose read is not answered, or that finds an older read under way, is
// repeated.
func TestALookIsRepeated(t *testing.T) {
	var shard string
	isRead := func(o engine.Output) (get engine.Get, is bool) {
		get, is = o.(engine.Get)
		return get, is && get.Key.Kind == lease.KindLease && get.Key.Name == shard
	}
	t.Run("fault", func(t *testing.T) {
		f, name := commanded(t, 3, 1)
		shard = name
		f.quarantine(shard)
		f.Run(2 * time.Minute)
		faults := 6
		f.deaf = func(n *member, o engine.Output) bool {
			get, is := isRead(o)
			if faults--; !is || faults < 0 {
				faults++
				return false
			}
			n.Answer(10*time.Millisecond, engine.Got{Read: get.Read, Key: get.Key, Err: errors.New("throttled")})
			return true
		}
		f.unquarantine(shard)
		f.until(6*time.Second, func() bool { return f.processed(shard) }) // later all rows are listed, to find out whether reads pass
	})
	t.Run("older read", func(t *testing.T) {
		f, name := commanded(t, 3, 1)
		shard = name
		f.slow = func(_ *member, o engine.Output) time.Duration {
			if _, is := isRead(o); is {
				return beat + time.Second
			}
			return 0
		}
		f.wish(f.look(shard, time.Minute))
		f.Run(beat + 100*time.Millisecond) // all workers read the row now
		f.quarantine(shard)
		f.until(3*beat+2*time.Second, func() bool { return !f.processed(shard) })
	})
}

// TestALookWhileAnotherPlans: the first watcher sees the command while another worker has a plan open.
func TestALookWhileAnotherPlans(t *testing.T) {
	f, _ := commanded(t, 12, 0)
	others := f.others()
	shard, by := others[0].Handlers[0].Shard, f.seat(others[1]).Owner()
	finding := f.plan().Finding
	f.write(protocol.OpenPlan(f.plan(), protocol.Opening{By: by, Planner: f.plan().Planner}, f.stamp()))
	f.quarantine(shard)
	f.Run(2 * time.Second)
	f.write(protocol.ClosePlan(f.plan(), f.plan().Revision, by.Incarnation, finding, f.stamp()))
	f.until(2*beat, func() bool { return !f.processed(shard) })
}

// TestALookOutlastsThePlanOfAnother: the first watcher has seen the command and is about to plan, when another worker
// completes a plan that does not tell the worker of the shard.
func TestALookOutlastsThePlanOfAnother(t *testing.T) {
	f, _ := commanded(t, 12, 0)
	others := f.others()
	shard, by := others[0].Handlers[0].Shard, f.seat(others[1]).Owner()
	looked, first := false, f.watchers()[0]
	f.slow = func(n *member, o engine.Output) time.Duration {
		get, is := o.(engine.Get)
		looked = looked || is && get.Key.Name == shard && n == first
		return 0
	}
	revision, finding := f.plan().Revision, f.plan().Finding
	f.quarantine(shard)
	f.until(10*time.Second, func() bool { return looked })
	f.Run(100 * time.Millisecond)
	if f.plan().Revision != revision || !f.processed(shard) {
		t.Fatal("a plan was made already")
	}
	f.write(protocol.OpenPlan(f.plan(), protocol.Opening{By: by, Planner: f.plan().Planner}, f.stamp()))
	f.write(protocol.ClosePlan(f.plan(), f.plan().Revision, by.Incarnation, finding, f.stamp()))
	f.until(2*beat+2*time.Second, func() bool { return !f.processed(shard) })
}

// TestAShardThatIsBackStaysInThePlan: the worker that had a shard before its quarantine still says that it needs no
// worker. A plan that is made before that worker has read the row does not leave it out again.
func TestAShardThatIsBackStaysInThePlan(t *testing.T) {
	t.Parallel()
	f, _ := commanded(t, 12, 0)
	shard := f.others()[0].Handlers[0].Shard
	f.quarantine(shard)
	f.Run(time.Minute)
	f.unquarantine(shard)
	f.until(10*time.Second, func() bool { return !f.plan().Open && f.plan().Shards == 24 })
	f.wish(lease.Wish{Kind: lease.WishCordon, Subject: "nobody", By: "operator"})
	for range 100 {
		if f.Run(20 * time.Millisecond); !f.plan().Open && f.plan().Shards < 24 {
			t.Fatal("a plan lacks the shard")
		}
	}
}

// TestACommandWhileAPlanIsOpen: in a small fleet, workers look at a shard that leaves quarantine while a plan is open
// that lacks the shard. They compare the command with that plan when it is complete.
func TestACommandWhileAPlanIsOpen(t *testing.T) {
	t.Parallel()
	for i := range fixture.Size(12, 24) {
		f, shard := commanded(t, 3, i%3)
		f.quarantine(shard)
		f.Run(time.Minute + time.Duration(i)*beat/7)
		f.delay(2500*time.Millisecond, func(_ *member, o engine.Output) bool { return sends(o, lease.KindTarget) })
		f.join()
		f.until(time.Minute, func() bool { return f.plan().Open })
		f.unquarantine(shard)
		f.slow = nil
		f.until(10*time.Second, func() bool { return !f.plan().Open })
		if took := f.until(time.Minute, func() bool { return f.processed(shard) }); took > beat+1500*time.Millisecond {
			t.Errorf("moment %d: processed %v after the plan was complete", i, took)
		}
	}
}

// TestAWorkerAsksBeforeItSaysFinished: a watcher learns by a commit that its shard was quarantined, and still knows the
// row as that when a plan gives the shard back. It reads the row before it says that the shard needs no worker. Both
// times it lists the seats only when the plan is there, and it reads the row more slowly than its target.
func TestAWorkerAsksBeforeItSaysFinished(t *testing.T) {
	t.Parallel()
	const slow = 300 * time.Millisecond
	for _, rank := range fixture.Sample(3, []int{3, 4, 5, 6, 7}) {
		f, _ := commanded(t, 12, 0)
		holder, listed := f.watchers()[rank], false
		h := holder.Handlers[0]
		f.slow = func(n *member, o engine.Output) time.Duration {
			list, is := o.(engine.List)
			listed = listed || is && n == holder && list.Query.Kind == lease.KindSeat
			if get, is := o.(engine.Get); is && get.Key.Kind == lease.KindLease {
				return slow
			}
			return 0
		}
		lists := func() {
			listed = false
			f.until(time.Minute, func() bool { return listed })
			f.Run(50 * time.Millisecond)
		}
		lists()
		f.quarantine(h.Shard)
		holder.Input(engine.Marks{Tenure: h.Tenure, Mark: checkpoint.Mark{Position: "1"}, Seq: 1, Flush: 1})
		f.Run(time.Minute)
		lists()
		f.unquarantine(h.Shard)
		if took := f.until(time.Minute, func() bool { return f.processed(h.Shard) }); took > beat+1500*time.Millisecond+2*slow {
			t.Errorf("rank %d: processed after %v", rank, took)
		}
	}
}

// TestALookAtATombstone: a shard whose row a command has made a tombstone is made again if the source
// lists it, and not otherwise.
func TestALookAtATombstone(t *testing.T) {
	for _, listed := range []bool{true, false} {
		t.Run(fmt.Sprint(listed), func(t *testing.T) {
			f, shard := commanded(t, 3, 1)
			f.quarantine(shard)
			f.Run(time.Minute)
			if !listed {
				f.source = f.without(shard)
				f.Run(2 * time.Minute)
			}
			f.command(shard, func(r lease.Row, c protocol.Command) (lease.Write, error) {
				return protocol.Remove(r, c, f.stamp())
			})
			if f.Run(10 * time.Second); f.processed(shard) != listed {
				t.Errorf("processed: %v", !listed)
			}
		})
	}
}

// TestALookAtAFinishedShard: a finished shard that was rewound is processed again at once.
func TestALookAtAFinishedShard(t *testing.T) {
	f, shard := commanded(t, 3, 1)
	f.end(shard)
	f.Run(time.Minute)
	f.command(shard, func(r lease.Row, c protocol.Command) (lease.Write, error) {
		return protocol.Rewind(r, c, checkpoint.Mark{}, f.stamp())
	})
	if took := f.until(time.Minute, func() bool { return f.processed(shard) }); took > beat+1500*time.Millisecond {
		t.Errorf("processed after %v", took)
	}
}

// TestALookIsHeededOnce: while the wish stands, other changes of the wishes bring no more reads.
func TestALookIsHeededOnce(t *testing.T) {
	f, shard := commanded(t, 3, 1)
	look := f.look(shard, time.Minute)
	reads := 0
	f.slow = func(_ *member, o engine.Output) time.Duration {
		if get, is := o.(engine.Get); is && get.Key.Name == shard {
			reads++
		}
		return 0
	}
	f.wish(look)
	if f.Run(10 * time.Second); reads != 3 {
		t.Errorf("three workers read the row %d times", reads)
	}
	f.wish(look, lease.Wish{Kind: lease.WishCordon, Subject: "nobody", By: "operator"})
	if f.Run(10 * time.Second); reads != 3 {
		t.Errorf("after another wish they have read it %d times", reads)
	}
}

// TestALookWhileAPlanIsWritten: in a large fleet the worker of the shard learns of the command with the
// plan after the one that is being written.
func TestALookWhileAPlanIsWritten(t *testing.T) {
	t.Parallel()
	for last := range fixture.Size(4, 12) {
		f, _ := commanded(t, 12, 0)
		shard := f.others()[last%4].Handlers[0].Shard // its worker does not watch
		f.delay(2500*time.Millisecond, func(_ *member, o engine.Output) bool { return sends(o, lease.KindTarget) })
		f.join()
		f.until(time.Minute, func() bool { return f.plan().Open })
		starts := f.row(shard).Generation
		f.quarantine(shard)
		f.until(20*time.Second, func() bool { return !f.processed(shard) })
		if f.row(shard).Generation != starts+1 {
			t.Error("the shard has moved before the command")
		}
	}
}

// TestALookAtAllShards: after a command that has changed all rows, one wish makes every shard have another tenure, although
// nothing is committed or audited: in a small fleet within a heartbeat interval plus 1.5 s, in a large one also a lease time
// later, and if the plan changes while it lists the rows. Then it lists them no more.
func TestALookAtAllShards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		workers int
		changes bool // the plan changes during the audit
		limit   time.Duration
		lists   int // how often all rows are listed
	}{{3, false, beat + 1500*time.Millisecond, 3}, {12, false, beat + leaseTime + 1500*time.Millisecond, 1}, {12, true, 2 * (beat + leaseTime + 1500*time.Millisecond), 2}} {
		f, _ := commanded(t, c.workers, 0)
		lists := 0
		f.slow = func(_ *member, o engine.Output) time.Duration {
			list, is := o.(engine.List)
			if !is || list.Query.Kind != lease.KindLease {
				return 0
			}
			if list.Query.Eventually {
				t.Error("the listing may lag behind the command")
			}
			if lists++; lists == 1 && c.changes {
				f.wish(append(f.wishes().List, lease.Wish{Kind: lease.WishCordon, Subject: "nobody", By: "operator"})...)
				return beat + 2*time.Second
			}
			return 0
		}
		f.wish(lease.Wish{Kind: lease.WishPause, By: "operator"}) // a plan follows
		f.Run(beat)
		starts := f.starts
		for i := range 24 {
			row := f.row(fmt.Sprintf("shard-%03d", i))
			f.write(protocol.Rewind(row, seen(row), checkpoint.Mark{}, f.stamp()))
		}
		f.wish(append(f.wishes().List, f.look(protocol.LookAll, time.Minute))...)
		if took := f.until(time.Minute, func() bool { return f.starts == starts+24 && f.held() }); took > c.limit {
			t.Errorf("%d workers: processed again after %v", c.workers, took)
		}
		if f.Run(2 * time.Minute); lists != c.lists || f.starts != starts+24 || len(f.wishes().List) > 2 {
			t.Errorf("%d workers: %d listings, %d tenures, %v", c.workers, lists, f.starts-starts, f.wishes().List)
		}
	}
}
