package engine_test

import (
	"errors"
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

const (
	leaseTime = 10 * time.Second
	beat      = leaseTime / 3
)

var modes = []rebalance.Mode{rebalance.Eager, rebalance.Cooperative}

// TestLargeFleetChanges: a fleet of twelve, of which eight watch, is even within the bounds after each
// change, with as few moves as can be.
func TestLargeFleetChanges(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, c := range fixture.Sample(6, []struct {
			name   string
			change func(f *fleet)
			limit  time.Duration
			starts int // tenures that begin
			gap    bool
		}{
			{"joins", func(f *fleet) { f.join() }, beat + 2*time.Second, 9, mode == rebalance.Eager},
			{"stops", func(f *fleet) { f.others()[0].Input(engine.Stop{}) }, beat + 2*time.Second, 10, mode == rebalance.Eager},
			{"a watcher stops", func(f *fleet) { f.watchers()[3].Input(engine.Stop{}) }, beat + 2*time.Second, 10, mode == rebalance.Eager},
			{"the first watcher stops", func(f *fleet) { f.watchers()[0].Input(engine.Stop{}) }, beat + 2*time.Second, 10, mode == rebalance.Eager},
			{"dies", func(f *fleet) { f.others()[0].Kill() }, leaseTime + 2500*time.Millisecond, 10, true},
			{"a watcher dies", func(f *fleet) { f.watchers()[3].Kill() }, leaseTime + 2500*time.Millisecond, 10, true},
			{"the first watcher dies", func(f *fleet) { f.watchers()[0].Kill() }, leaseTime + 2500*time.Millisecond, 10, true},
			{"two die", func(f *fleet) { f.watchers()[0].Kill(); f.others()[0].Kill() }, leaseTime + 2500*time.Millisecond, 20, true},
			{"three join", func(f *fleet) { f.join(); f.join(); f.join() }, beat + 2*time.Second, 24, mode == rebalance.Eager},
		}) {
			t.Run(c.name+" "+mode.String(), func(t *testing.T) {
				f := newFleet(t, 120, 12, mode)
				f.reset()
				for _, n := range f.nodes {
					n.told = nil
				}
				c.change(f)
				took := f.until(c.limit, func() bool {
					if !c.gap && !f.held() {
						t.Fatal("a shard is not processed")
					}
					return f.even()
				})
				f.Run(10 * time.Second)
				t.Logf("after %v: %v", took, f.calls)
				for _, n := range f.up() {
					if len(n.reports(event.Requested)) > 0 && strings.Contains(c.name, "die") {
						t.Errorf("%s requests a shard of a dead worker", n.Name)
					}
				}
				if !f.even() || f.starts > c.starts {
					t.Errorf("%d tenures began, at most %d are needed; %v", f.starts, c.starts, f.counts())
				}
			})
		}
	}
}

// TestOnlyWatchersWatch: while nothing happens, a worker of a large fleet that does not watch sends
// its heartbeats and reads the plan once per heartbeat. The first watcher alone ticks, polls the
// source and audits the rows, and the watchers list the seats at the paces of their ranks.
func TestOnlyWatchersWatch(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	if named := len(f.plan().Watchers); named != 8 || len(f.watchers()) != 8 {
		t.Fatalf("the plan names %d watchers, of which %d live", named, len(f.watchers()))
	}
	f.reset()
	const minutes = 4
	f.Run(minutes * time.Minute)
	beats := int(minutes * time.Minute / (beat * 19 / 20))
	within := func(who, what string, n *member, want int) {
		t.Helper()
		if got := n.calls[what]; got < want*9/10 || got > want*11/10 {
			t.Errorf("%s: %d times %q in %d minutes, not %d", who, got, what, minutes, want)
		}
		delete(n.calls, what)
	}
	for _, n := range f.others() {
		within("not a watcher", "seat swap", n, beats)
		within("not a watcher", "page of seat", n, beats)
		if len(n.calls) > 0 || n.polls > 0 {
			t.Errorf("not a watcher: %v, and it polled %d times", n.calls, n.polls)
		}
		if s := n.Engine.Status(); !s.Planned {
			t.Errorf("a worker that does not watch is not ready: %+v", s)
		}
	}
	for i, n := range f.watchers() {
		lists := []int{minutes * 60 * 2, minutes * 60, minutes * 30, beats}[min(i, 3)]
		within("a watcher", "seat swap", n, beats)
		within("a watcher", "list seat", n, lists*20/19)
		delete(n.calls, "page of seat") // the last watchers read the plan between two listings
		if i == 0 {
			within("the first watcher", "plan swap", n, beats)
			within("the first watcher", "page of lease", n, minutes)
			n.polls -= minutes * 2
		}
		if len(n.calls) > 0 || n.polls > 1 {
			t.Errorf("watcher %d: %v, and it polled %d times", i, n.calls, n.polls)
		}
	}
}

// TestLateSeatIsWatched: while a seat is late, the workers that do not watch read the plan
// often, so that they learn at once who has what the dead worker had; and one watcher evicts it.
func TestLateSeatIsWatched(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	f.others()[0].Kill()
	f.until(leaseTime, func() bool { return f.plan().Late })
	f.Run(beat)
	f.reset()
	f.Run(2 * time.Second)
	for _, n := range f.others() {
		if got := n.calls["page of seat"]; got < 6 || got > 10 {
			t.Errorf("in two seconds in which a seat is late, a worker reads the plan %d times", got)
		}
	}
	f.Run(leaseTime)
	if n := f.calls["seat delete"]; n != 1 {
		t.Errorf("the seat was evicted %d times", n)
	}
	if f.plan().Late {
		t.Error("no seat is late any more, and the plan says so")
	}
}

// TestFirstWatcherThatLives: the watcher after a first one that is late ticks, so that
// nobody takes over.
func TestFirstWatcherThatLives(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	f.watchers()[0].Kill()
	f.reset()
	second := f.watchers()[0]
	f.Run(7 * time.Second)
	if f.calls["plan swap"] != second.calls["plan swap"] || second.calls["plan swap"] == 0 {
		t.Errorf("there were %d ticks, %d of the second watcher", f.calls["plan swap"], second.calls["plan swap"])
	}
}

// TestAllWatchersDie: a worker that the plan does not name takes over: one, although all notice.
func TestAllWatchersDie(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{12, 40} {
		f := newFleet(t, 10*workers, workers, rebalance.Cooperative)
		for _, n := range f.watchers() {
			n.Kill()
		}
		f.reset()
		revision := f.plan().Revision
		f.Run(14 * time.Second)
		if f.plan().Revision != revision {
			t.Error("a plan was made before the seats had expired")
		}
		ticking := 0
		for _, n := range f.up() {
			if n.calls["list seat"]+n.calls["list seat, consistent"] > 0 {
				ticking++
			}
		}
		if ticking != 1 {
			t.Errorf("%d workers act as the first watcher", ticking)
		}
		took := 14*time.Second + f.until(13*time.Second, f.held)
		f.Run(10 * time.Second)
		t.Logf("%d workers: all held after %v: %v", workers, took, f.calls)
		if named := len(f.watchers()); named != min(8, workers-8) {
			t.Errorf("%d watchers live of those that the plan names", named)
		}
	}
}

// TestNoPlanAndNoWatchers: the plan is deleted while no watcher lives, so that a tick has nothing to swap.
// One of the others acts as the first watcher, with or without newcomers.
func TestNoPlanAndNoWatchers(t *testing.T) {
	for _, returns := range []int{0, 3} {
		f := newFleet(t, 120, 12, rebalance.Cooperative)
		for _, n := range f.watchers() {
			n.Kill()
		}
		f.hand.Delete(f.plan().Key())
		for range returns {
			f.join()
		}
		f.reset()
		f.until(27*time.Second, f.held)
		f.Run(10 * time.Second)
		if p := f.plan(); p.Open || len(f.watchers()) != min(len(f.up()), 8) || f.calls["plan create"] > 1+returns {
			t.Errorf("%d have come: the plan is %v; %d watchers live; %v", returns, p, len(f.watchers()), f.calls)
		}
	}
}

// TestLateWatcherIsNotNamed: a plan that is made while a watcher is late names another one.
func TestLateWatcherIsNotNamed(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	dead := f.watchers()[3]
	dead.Kill()
	f.until(leaseTime, func() bool { return f.plan().Late })
	revision := f.plan().Revision
	f.join()
	f.until(3*time.Second, func() bool { return f.plan().Revision > revision && !f.plan().Open })
	if slices.Contains(f.plan().Watchers, dead.Engine.Status().Incarnation) || len(f.watchers()) != 8 {
		t.Errorf("the plan names %v, of which %d live", f.plan().Watchers, len(f.watchers()))
	}
}

// TestFleetReturns: all workers die, and as many come. Some newcomers watch from the beginning, so
// the dead are evicted as soon as their lease is over.
func TestFleetReturns(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{12, fixture.Size(40, 100)} {
		f := newFleet(t, 10*workers, workers, rebalance.Cooperative)
		for _, n := range f.up() {
			n.Kill()
		}
		f.Run(20 * time.Second)
		for range workers {
			f.join()
		}
		f.reset()
		took := f.until(leaseTime+2*time.Second, f.held)
		f.Run(10 * time.Second)
		t.Logf("%d workers: all held after %v: %v", workers, took, f.calls)
		if !f.even() || f.starts != 10*workers {
			t.Errorf("%d tenures began for %d shards; even: %v", f.starts, 10*workers, f.even())
		}
		if n := f.calls["seat delete"]; n > workers*5/4 {
			t.Errorf("%d evictions of %d workers", n, workers)
		}
	}
}

// TestNewcomersWatchUntilTheTick: a newcomer of a large fleet lists the seats until it has seen a tick.
func TestNewcomersWatchUntilTheTick(t *testing.T) {
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	n := f.join()
	f.Run(20 * time.Second)
	if n.calls["list seat"] == 0 {
		t.Error("a newcomer does not watch")
	}
	f.reset()
	f.Run(20 * time.Second)
	if n.calls["list seat"] > 0 {
		t.Error("a worker that has seen a tick watches on")
	}
	for _, old := range f.up() {
		old.Kill()
	}
	f.deaf = func(_ *member, o engine.Output) bool { return sends(o, lease.KindPlan) }
	n = f.join()
	f.Run(20 * time.Second)
	if n.calls["list seat"] == 0 || n.calls["seat delete"] > 0 {
		t.Errorf("a newcomer that cannot take over lists the seats, and evicts nobody: %v", n.calls)
	}
}

// TestFleetGrowsAndShrinks: the eighth worker makes no difference, the ninth makes a fleet large; and
// when it is small again, every worker watches.
func TestFleetGrowsAndShrinks(t *testing.T) {
	f := newFleet(t, 60, 7, rebalance.Cooperative)
	for n := 8; n <= 11; n++ {
		f.join()
		f.until(beat+2*time.Second, f.even)
		f.Run(5 * time.Second)
	}
	for range 4 {
		f.up()[0].Input(engine.Stop{})
		f.until(beat+2*time.Second, f.even)
		f.Run(5 * time.Second)
	}
	f.reset()
	f.Run(time.Minute)
	for _, n := range f.up() {
		if n.calls["page of seat"] < 15 {
			t.Errorf("%d listings of the seats in a minute of a small fleet", n.calls["page of seat"])
		}
	}
}

// TestManyComeAtOnce: no plan says yet that the fleet is large. Not all workers list all seats.
func TestManyComeAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 300, 0, rebalance.Cooperative)
	for range 150 {
		f.join()
	}
	took := f.until(20*time.Second, f.even)
	t.Logf("even after %v: %v", took, f.calls)
	if n := f.calls["list seat, consistent"]; n > 10 || f.calls["list seat"] > 3*150 {
		t.Errorf("all seats were listed %d times consistently, and %d times otherwise", n, f.calls["list seat"])
	}
}

// TestPlannerThatHasLostItsSeat: a worker of a large fleet that does not plan loses its seat, and the fleet
// is small when it is back. It polls the source, and finds new shards when it is the last.
func TestPlannerThatHasLostItsSeat(t *testing.T) {
	f := newFleet(t, 24, 12, rebalance.Cooperative)
	last := f.others()[0]
	killAll := func(others []*member) {
		for _, n := range others {
			if n != last {
				n.Kill()
			}
		}
	}
	f.delay(4*leaseTime, func(n *member, _ engine.Output) bool { return n == last })
	killAll(f.up()[:6])
	f.until(4*leaseTime, func() bool { p := f.plan(); return p.Members <= 8 && !p.Open })
	f.slow = nil
	f.until(6*leaseTime, f.even)
	killAll(f.up())
	f.until(4*leaseTime, f.held)
	f.lists(engine.Shard{Name: "new"})
	f.until(f.config.Poll+beat+time.Second, func() bool { return last.holds("new") })
}

// blind makes the sources of these workers fail, or not answer; it returns what makes them answer again.
func (f *fleet) blind(hangs bool, nodes ...*member) (mend func()) {
	f.polled = func(n *member) {
		switch {
		case !slices.Contains(nodes, n):
			n.Answer(10*time.Millisecond, f.source)
		case hangs:
			n.Answer(f.config.Poll+time.Second, engine.SourceSilent{Err: errors.New("no answer")})
		default:
			n.Answer(10*time.Millisecond, engine.Source{Err: errors.New("no source")})
		}
	}
	return func() {
		f.polled = nil
		for _, n := range nodes {
			if hangs {
				n.Answer(0, f.source)
			}
		}
	}
}

// TestBlindWatchers: the source of the first watcher fails, or does not answer, while its heartbeats are in
// time. Another watcher finds a new shard, also if its own source fails as well at first, or if all have
// failed. The first one is the first again when its source answers, and alone polls.
func TestBlindWatchers(t *testing.T) {
	t.Parallel()
	for _, c := range fixture.Sample(3, []struct {
		hangs bool
		blind int
		polls time.Duration // within so many times Poll a shard is found
	}{{false, 1, 2}, {true, 1, 2}, {true, 2, 4}, {false, 2, 3}, {false, 8, 1}, {true, 8, 1}}) {
		f := newFleet(t, 24, 12, rebalance.Cooperative)
		all := f.watchers()
		mend := f.blind(c.hangs, all[:c.blind]...)
		f.lists(engine.Shard{Name: "new"})
		if c.blind == len(all) { // nobody can find it
			f.Run(5 * f.config.Poll)
			mend()
		}
		took := f.until(c.polls*f.config.Poll+2*beat, func() bool { return f.processed("new") })
		t.Logf("%d of 8 sources fail, %t: after %v", c.blind, c.hangs, took)
		f.Run(2 * f.config.Poll)
		mend()
		f.Run(f.config.Poll + 2*beat)
		f.reset()
		f.Run(2 * time.Minute)
		for _, n := range f.up() {
			if polls := n.polls > 0; polls != (n == all[0]) {
				t.Errorf("%d of 8 sources have failed, %t: then %s polls: %t", c.blind, c.hangs, n.Name, polls)
			}
		}
	}
}

// TestPollsAfterADraft: while a worker still writes a plan, it ceases to be a watcher, gets an answer of its
// source, and is one of a small fleet. It polls on.
func TestPollsAfterADraft(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 24, 12, rebalance.Cooperative)
	first := f.watchers()[0]
	f.delay(10*f.config.Poll, func(n *member, o engine.Output) bool { return n == first && sends(o, lease.KindTarget) })
	f.join()
	f.until(leaseTime, func() bool { return f.plan().Open })
	f.open()
	p := f.plan()
	p.Finding.Watchers = slices.DeleteFunc(p.Finding.Watchers, func(inc lease.Incarnation) bool { return inc == first.Engine.Status().Incarnation })
	f.write(protocol.ClosePlan(p, p.Revision, p.By.Incarnation, p.Finding, f.stamp()))
	polls := first.polls
	f.until(2*f.config.Poll, func() bool { return first.polls > polls })
	f.Run(time.Second)
	for _, n := range f.up()[1:6] {
		n.Input(engine.Stop{})
	}
	f.until(leaseTime, func() bool { return f.plan().Members <= 8 })
	f.Run(beat)
	f.reset()
	if f.Run(2 * f.config.Poll); first.polls == 0 {
		t.Error("it polls no more")
	}
}

// TestDeadSeatsWithALongLeaseTime: two workers die that have a lease time of ten minutes. Another leaves meanwhile:
// the plan for that does not wait until the dead ones have expired.
func TestDeadSeatsWithALongLeaseTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 24, 10, rebalance.Eager)
	f.config.TTL *= 60
	x, y := f.join(), f.join()
	f.config.TTL /= 60
	f.Run(time.Minute)
	x.Kill()
	y.Kill()
	f.Run(5 * time.Minute)
	before, leaver := f.plan().Revision, f.others()[0]
	leaver.Input(engine.Stop{})
	f.until(2*beat, func() bool { return f.plan().Revision > before && !f.plan().Open })
}

// TestReportsEndWithTheWatch: a seat and a row cannot be read, and the watchers report it. Two of them
// stand still until they are evicted. The workers that watch no longer end their reports.
func TestReportsEndWithTheWatch(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 24, 12, rebalance.Eager)
	before, victim := f.watchers(), f.others()[3]
	seat, row := f.seat(victim).Key(), f.row(victim.Handlers[0].Shard).Key()
	f.table.Unreadable = map[lease.Key]bool{seat: true, row: true}
	reported := func(n *member) (names []string) {
		for _, e := range n.told {
			if names = slices.DeleteFunc(names, func(name string) bool { return name == e.Shard }); e.Kind == event.Malformed && !e.Over {
				names = append(names, e.Shard)
			}
		}
		slices.Sort(names)
		return names
	}
	all := []string{row.Name, seat.Name}
	f.until(10*time.Minute, func() bool { return slices.Equal(reported(before[0]), all) })
	for _, n := range before[:2] {
		n.Pause()
		f.Run(2 * leaseTime)
		n.Resume(nil)
		f.Run(time.Minute)
	}
	f.Run(fixture.Size(4*time.Minute, 10*time.Minute))
	if got := reported(f.watchers()[0]); !slices.Equal(got, all) {
		t.Errorf("the first watcher reports %v", got)
	}
	ceased := 0
	for _, n := range f.others() {
		if got := reported(n); len(got) > 0 {
			t.Errorf("%s watches no longer and reports %v", n.Name, got)
		}
		if slices.Contains(before, n) {
			ceased++
		}
	}
	if ceased == 0 {
		t.Error("all watch as before")
	}
}

// slowLists makes the listings of the seats by one worker take 5 s.
func (f *fleet) slowLists(of *member) {
	f.delay(5*time.Second, func(n *member, o engine.Output) bool {
		list, ok := o.(engine.List)
		return ok && n == of && list.Query.Kind == lease.KindSeat && list.Query.Limit != 1
	})
}

// TestSlowFirstWatcher: the heartbeats of the first watcher are in time, and its listings of the seats
// are late. The next watcher plans, and once: two seconds after it has seen a change.
func TestSlowFirstWatcher(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 120, 12, rebalance.Cooperative)
	f.slowLists(f.watchers()[0])
	f.Run(20 * time.Second)
	f.reset()
	f.join()
	took := f.until(beat+5*time.Second, f.even)
	f.Run(20 * time.Second)
	t.Logf("even after %v: %v", took, f.calls)
	if f.starts != 9 || f.calls["list target, consistent"] > 2 {
		t.Errorf("%d tenures began, and the targets were listed %d times", f.starts, f.calls["list target, consistent"])
	}
	f.reset()
	f.Run(time.Minute)
	if n := f.calls["list target, consistent"]; n > 0 || f.watchers()[1].polls > 0 {
		t.Errorf("after the change the targets were listed %d times, and the second watcher polled the source %d times", n, f.watchers()[1].polls)
	}
}

// TestUnreadableSeatOfAnOwner: a worker that does not watch lists the seats once, because of a failed
// shard. Then a plan names it as a watcher. The seat of an owner that it cannot read counts as alive
// from the first moment on, before it has listed the seats as a watcher.
func TestUnreadableSeatOfAnOwner(t *testing.T) {
	f := newFleet(t, 120, 0, rebalance.Eager)
	f.config.MaxMoves, f.config.MaxAttempts = 0, 1 // nobody requests anything, and each death may be a failure
	for range 12 {
		f.join()
	}
	f.until(30*time.Second, f.even)
	f.Run(20 * time.Second)
	of, owner, other := f.others()[0], f.others()[1], f.others()[2]
	held, orphan := owner.Handlers[0].Shard, other.Handlers[0].Shard
	f.table.Unreadable = map[lease.Key]bool{{Group: "g", Kind: lease.KindSeat, Name: string(owner.Engine.Status().Incarnation)}: true}
	f.release(orphan)
	f.write(protocol.Claim(f.row(orphan), lease.Owner{Name: "ghost", Incarnation: "ghost"}, f.stamp()))
	f.assign(map[string]*member{held: of, orphan: of}, false)
	f.reset()
	f.until(2*beat, func() bool { return of.holds(orphan) })
	if of.calls["list seat, consistent"] == 0 {
		t.Fatalf("it has not listed the seats: %v", of.calls)
	}
	f.deaf = func(n *member, o engine.Output) bool {
		list, is := o.(engine.List)
		return is && n == of && list.Query.Kind == lease.KindSeat && list.Query.Limit == 0
	}
	revision := f.open()
	for _, n := range f.up() {
		next := f.target(n)
		next.Revision = revision
		f.put(next)
	}
	p := f.plan()
	p.Watchers = append([]lease.Incarnation{of.Engine.Status().Incarnation}, p.Watchers[1:]...)
	f.write(protocol.ClosePlan(p, p.Revision, p.By.Incarnation, p.Finding, f.stamp()))
	f.reset()
	f.until(2*beat, func() bool { return of.calls["list seat"]+of.calls["list seat, consistent"] > 0 })
	f.Run(beat)
	if of.holds(held) || !owner.holds(held) {
		t.Errorf("%s has taken the shard of an owner whose seat it cannot read", of.Name)
	}
}

// TestNewWatcherIsNotTheFirst: a watcher dies, and the next plan names another worker. It has not listed the
// seats yet, and does not take the watchers before it for dead: it neither ticks nor polls the source.
func TestNewWatcherIsNotTheFirst(t *testing.T) {
	f := newFleet(t, 24, 12, rebalance.Cooperative)
	others := f.others()
	f.watchers()[4].Kill()
	f.reset()
	f.until(3*leaseTime, func() bool { return !f.plan().Open && f.plan().Members == 11 })
	f.Run(leaseTime)
	for _, n := range others {
		if f.plan().Open || n.calls["plan swap"] > 0 || n.polls > 0 {
			t.Errorf("%s, a watcher: %t, wrote the plan %d times and polled %d times", n.Name, slices.Contains(f.watchers(), n), n.calls["plan swap"], n.polls)
		}
	}
}

// TestTheDeadAreNotAsked: most watchers of a large fleet read the plan that follows a death before they list the seats
// again. They do not request the shards of the dead workers, which nobody would serve, whenever the workers die.
func TestTheDeadAreNotAsked(t *testing.T) {
	t.Parallel()
	moments := fixture.Size(5, 20)
	for i := range moments {
		f := newFleet(t, 64, 16, rebalance.Eager)
		f.Run(beat * time.Duration(i) / time.Duration(moments))
		dead := []string{f.nodes[0].Name, f.nodes[9].Name}
		before := map[*member]int{}
		for _, n := range f.nodes {
			before[n] = len(n.told)
		}
		f.nodes[0].Kill()
		f.nodes[9].Kill()
		f.until(leaseTime+beat+2500*time.Millisecond, f.held)
		for _, n := range f.up() {
			for _, e := range n.told[before[n]:] {
				if e.Kind == event.Requested && slices.Contains(dead, e.Peer) {
					t.Errorf("moment %d: %s requests a shard of a dead worker: %v", i, n.Name, e)
				}
			}
		}
	}
}
