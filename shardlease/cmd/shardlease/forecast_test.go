package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// A group is a fleet of engines in virtual time. Only heartbeats take time: so a plan is made from the seats, targets and
// rows that are stored when it is opened.
type group struct {
	virtual.Time
	*rand.Rand
	t       *testing.T
	store   *virtual.Deletable
	table   virtual.Table
	members []*member
	shards  []engine.Shard
	steps   int

	next     []*forecast   // what the command shows at the moment at which the open revision was opened, without and with stalls
	opened   time.Duration // when the last revision was opened
	compared int           // how many plans were compared with forecasts
	stalled  int           // how many of these give shards of workers that lag to others
	story    []string
}

// A member is one worker.
type member struct {
	virtual.Worker
	g    *group
	max  int
	sick bool          // its handlers fail
	deaf time.Duration // its reads fail after that; 0: they pass
}

func newGroup(t *testing.T, seed uint64) *group {
	g := &group{Rand: rand.New(rand.NewPCG(seed, 0)), t: t, store: virtual.NewDeletable()}
	g.table = virtual.Table{Store: g.store, Watcher: g, Unreadable: map[lease.Key]bool{}}
	for i := range 1 + g.IntN(20) {
		name := fmt.Sprintf("shard-%02d", i)
		g.shards = append(g.shards, engine.Shard{Name: name})
		write := g.write(protocol.Begin("orders", name, nil, "source", g.stamp()))
		if row := write.(lease.Row); g.IntN(30) == 0 {
			g.write(protocol.Quarantine(row, protocol.Command{Seen: row.Generation, By: "ann", Note: "test"}, lease.ReasonForced, g.stamp()))
		}
	}
	for range 1 + g.IntN(6) {
		g.join()
	}
	return g
}

func (g *group) stamp() protocol.Stamp {
	return protocol.Stamp{ID: lease.WriteID(fmt.Sprint("operator-", g.Unique())), At: virtual.Epoch().Add(g.Now())}
}

// write makes a write of an operator.
func (g *group) write(w lease.Write, err error) lease.Record {
	g.t.Helper()
	var r lease.Record
	if err == nil {
		r, err = g.table.Write(virtual.Sender{}, w)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return r
}

func (g *group) join() {
	m := &member{g: g}
	m.Process = virtual.Process{Time: &g.Time, Name: fmt.Sprintf("host-%d", len(g.members))}
	m.Winds = time.Millisecond
	if g.IntN(3) == 0 {
		m.max = 1 + g.IntN(6)
	}
	m.Shell, g.members = m, append(g.members, m)
	m.Boot(0, func() virtual.Engine {
		return virtual.New(engine.Config{
			Group: "orders", Name: m.Name, TTL: 10 * time.Second, Drain: 5 * time.Second, Handoff: rebalance.Eager, MaxMoves: 100, MaxShards: m.max,
			Backoff: time.Second, MaxBackoff: time.Minute, Audit: time.Minute, Poll: 5 * time.Second,
		}, m.Moment())
	})
}

func (m *member) Moment() engine.Moment {
	m.g.steps++
	return m.MomentOf(fmt.Sprintf("%s-%d-%d", m.Name, m.g.steps, m.g.Uint32()))
}

func (m *member) Call(o engine.Output) {
	out := time.Duration(0)
	switch o.(type) {
	case engine.List, engine.Get:
		if m.deaf > 0 {
			m.Answer(m.deaf, virtual.Unanswered(o, errors.New("reads fail")))
			return
		}
	}
	if w, is := o.(engine.Send); is && w.Write.Key().Kind == lease.KindSeat {
		out = time.Millisecond
	}
	m.Deliver(out, 0, func() engine.Input { return m.g.table.Serve(m.Sender(), o) })
}
func (m *member) Poll() {
	m.Answer(0, engine.Source{Shards: m.g.shards, Complete: true, Answered: true})
}
func (m *member) Prepare(o engine.Prepare) { m.Answer(0, engine.Prepared{Shard: o.Shard.Name}) }
func (m *member) Start(_ *virtual.Handler, o engine.Start) {
	if m.sick {
		m.Later(time.Millisecond, func() { m.Return(o.Tenure, true) })
	}
}

// Accepted compares each plan with the forecast of the moment at which it was opened. A plan without inputs keeps held
// shards in place until the seats stand still: another one follows.
func (g *group) Accepted(_ virtual.Sender, w lease.Write, after lease.Record) {
	switch plan, _ := after.(lease.Plan); {
	case w.Key() != lease.Plan{Group: "orders"}.Key():
	case plan.Open:
		before, _ := w.Old.(lease.Plan)
		if before.Open != plan.Open || before.Revision != plan.Revision { // otherwise a tick
			g.next, g.opened = []*forecast{g.forecast(&before, false), g.forecast(&before, true)}, g.Now()
		}
	case g.next != nil:
		if plan.Inputs != "" {
			g.compare(plan)
		}
		g.next = nil
	}
}

// seen returns what the command reads. Before is the plan that it has, although another one is being opened.
func (g *group) seen(before *lease.Plan) *storetest.Link {
	link := storetest.NewLink(g.store)
	link.OnList(func(_ context.Context, _ lease.Query, send func() iter.Seq2[lease.Record, error]) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			for r, err := range send() {
				if _, plan := r.(lease.Plan); plan && before != nil {
					if r = *before; before.Revision == 0 {
						continue
					}
				}
				if err == nil && g.table.Unreadable[r.Key()] {
					r, err = nil, &lease.MalformedError{Key: r.Key(), WriteID: r.Written()}
				}
				if !yield(r, err) {
					return
				}
			}
		}
	})
	return link
}

// forecast returns what the command shows. With stalls, other workers get the free shards of those that do not follow the
// plan: only the worker that plans knows for how long these have not.
func (g *group) forecast(before *lease.Plan, stalls bool) *forecast {
	now := virtual.Epoch().Add(g.Now())
	s, err := inspect.Look(g.t.Context(), g.seen(before), "orders", inspect.Options{Now: func() time.Time { return now }})
	if err != nil {
		g.t.Fatal(err)
	}
	f := inputs(s, now, nil, nil)
	for _, target := range f.Targets {
		at := layout.SeatOf(f.Seats, target.Incarnation)
		if !stalls || s.Plan == nil || at == rebalance.Nobody || f.Seats[at].Leaving || f.Seats[at].Revision >= s.Plan.Revision {
			continue
		}
		for _, a := range target.Hold {
			if of := s.Shard(a.Shard); of == nil || layout.SeatOf(f.Seats, of.Owner.Incarnation) == rebalance.Nobody {
				f.Stalls = append(f.Stalls, layout.Stall{Worker: target.Incarnation, Shard: a.Shard})
			}
		}
	}
	slices.SortFunc(f.Stalls, layout.Stall.Compare)
	return f.layOut(s)
}

// compare checks that the stored targets are those of one of the forecasts.
func (g *group) compare(plan lease.Plan) {
	g.t.Helper()
	g.compared++
	var text []string
	for i, f := range g.next {
		want, got := g.targets(f)
		if maps.Equal(want, got) {
			g.stalled += i
			return
		}
		text = append(text, fmt.Sprintf("the forecast is %v, and the targets are %v", want, got))
	}
	g.t.Errorf("plan %d, at %v: %s\n%s", plan.Revision, g.Now(), strings.Join(slices.Compact(text), "\n"), strings.Join(g.story, "\n"))
}

// targets returns the workers of the shards, by a forecast and by the stored targets. Those of workers whose targets cannot
// be read do not count: no plan can write them.
func (g *group) targets(f *forecast) (want, got map[string]lease.Incarnation) {
	want, got = map[string]lease.Incarnation{}, map[string]lease.Incarnation{}
	for i, to := range f.To {
		if f.Placed(i) && !slices.Contains(f.Broken, f.Seats[to].Incarnation) {
			want[f.View.Shards[i].Name] = f.Seats[to].Incarnation
		}
	}
	newest := map[string]int64{}
	for _, r := range g.table.Records("orders", lease.KindTarget) {
		target := r.(lease.Target)
		known := layout.SeatOf(f.Seats, target.Incarnation) != rebalance.Nobody && !slices.Contains(f.Broken, target.Incarnation)
		for _, a := range target.Hold {
			if known && target.Revision > newest[a.Shard] {
				got[a.Shard], newest[a.Shard] = target.Incarnation, target.Revision
			}
		}
	}
	return want, got
}

// rests checks that a forecast has no moves, except to workers whose handlers fail: when such a worker ceases to decline a
// shard, no plan is due for that.
func (g *group) rests(f *forecast) {
	g.t.Helper()
	g.compared++
	for i, to := range f.To {
		if f.Placed(i) && to != f.assigned[i].Owner && !g.fails(f.Seats[to].Name) {
			g.t.Errorf("at %v: nothing is due, and by the forecast %v moves to %s\n%s", g.Now(), f.assigned[i], f.Seats[to].Incarnation, strings.Join(g.story, "\n"))
		}
	}
}

// fails reports whether the handlers of the worker of that name fail.
func (g *group) fails(name string) bool {
	return slices.ContainsFunc(g.members, func(m *member) bool { return m.Name == name && m.sick })
}

// note adds a line to the story that a failure prints.
func (g *group) note(format string, args ...any) {
	g.story = append(g.story, fmt.Sprintf("%8v ", g.Now().Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// change lets something happen, or nothing.
func (g *group) change() {
	m := g.members[g.IntN(len(g.members))]
	switch g.IntN(13) {
	case 0, 1, 2, 3:
		g.wish()
	case 4:
		g.spoil(lease.KindSeat, func(key lease.Key) bool { // a worker knows its own limit
			return !slices.ContainsFunc(g.members, func(m *member) bool { return m.max > 0 && strings.HasPrefix(key.Name, m.Name+"-") })
		})
	case 5:
		g.spoil(lease.KindTarget, func(lease.Key) bool { return true })
	case 6, 7:
		m.sick = !m.sick
		g.note("%s is sick: %v", m.Name, m.sick)
	case 8:
		g.note("another worker joins")
		g.join()
	case 9:
		if running := g.running(); len(running) > 1 && m.Up() {
			if stop := g.IntN(2) == 0; stop {
				g.note("%s stops", m.Name)
				m.Input(engine.Stop{})
			} else {
				g.note("%s dies", m.Name)
				m.Kill()
			}
		}
	case 10, 11:
		m.deaf = max(0, []time.Duration{10 * time.Millisecond, 40 * time.Second}[g.IntN(2)]-m.deaf)
		g.note("reads of %s fail after %v", m.Name, m.deaf)
	case 12:
		key := lease.Plan{Group: "orders"}.Key()
		if targets := g.table.Records("orders", lease.KindTarget); len(targets) > 0 && g.IntN(2) == 0 {
			key = targets[g.IntN(len(targets))].Key()
		}
		g.note("%v is deleted", key)
		g.store.Delete(key)
	}
}

// running returns the workers that run and do not leave.
func (g *group) running() []*member {
	return slices.DeleteFunc(slices.Clone(g.members), func(m *member) bool { return !m.Up() || m.Engine.Done() || m.Engine.Status().Leaving })
}

// spoil makes a record of this kind unreadable, and those that are so readable again.
func (g *group) spoil(kind lease.Kind, may func(lease.Key) bool) {
	all := g.table.Records("orders", kind)
	if clear(g.table.Unreadable); len(all) == 0 || g.IntN(3) == 0 {
		g.note("all can be read")
		return
	}
	key := all[g.IntN(len(all))].Key()
	if key.Kind == kind && may(key) {
		g.table.Unreadable[key] = true
		g.note("%v cannot be read", key)
	}
}

// wish replaces the wishes of operators.
func (g *group) wish() {
	stored := g.table.Wishes("orders")
	var list []lease.Wish
	for range g.IntN(5) {
		kinds := slices.DeleteFunc(lease.WishKinds(), func(k lease.WishKind) bool { return k == lease.WishRaise }) // it moves nothing
		w, named := lease.Wish{By: "ann", Kind: kinds[g.IntN(len(kinds))]}, map[string]string{
			"worker": g.members[g.IntN(len(g.members))].Name, "shard": g.shards[g.IntN(len(g.shards))].Name,
		}
		subject, to, _ := w.Kind.Names()
		w.Subject, w.To = named[subject], named[to]
		if g.IntN(3) == 0 {
			w.Until = virtual.Epoch().Add(g.Now() + time.Duration(5+g.IntN(40))*time.Second)
		}
		if !slices.ContainsFunc(list, func(of lease.Wish) bool { return of.Compare(w) == 0 }) {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, lease.Wish.Compare)
	g.note("wishes: %v", list)
	g.write(protocol.SetWishes(stored, list, g.stamp()))
}

// settle lets time pass until no worker has planned for a while. Then the forecast has no moves.
func (g *group) settle() {
	const while = 15 * time.Second
	for range 6 {
		last, f := g.opened, g.forecast(nil, false)
		g.Run(while)
		if g.opened == last {
			// Workers notice only when they plan that a target cannot be read. A worker that does not follow the plan does not
			// hold yet what it should.
			if len(f.Broken) == 0 && len(g.running()) > 0 && !g.lags() {
				g.rests(f)
			}
			return
		}
	}
}

// lags reports whether a worker does not follow the plan.
func (g *group) lags() bool {
	plan := g.table.Plan("orders")
	return slices.ContainsFunc(g.table.Seats("orders"), func(s lease.Seat) bool { return !s.Leaving && s.Revision < plan.Revision })
}

// TestForecastIsTheNextPlan: in random groups, with wishes, workers that come, go, fail and cannot read, and records that
// cannot be read or are deleted, each plan is what the command shows at the moment at which a worker makes it. When no worker plans,
// the command shows no moves.
func TestForecastIsTheNextPlan(t *testing.T) {
	groups, compared, stalled := fixture.Size(30, 1000), 0, 0
	for seed := range groups {
		g := newGroup(t, uint64(seed))
		g.settle()
		for range 4 {
			for range 1 + g.IntN(2) {
				g.change()
			}
			g.settle()
		}
		compared, stalled = compared+g.compared, stalled+g.stalled
		if t.Failed() {
			t.Fatalf("the group of seed %d", seed)
		}
	}
	if compared < 5*groups || fixture.Long() && stalled == 0 {
		t.Errorf("only %d plans of %d groups were compared, %d for shards of workers that lag", compared, groups, stalled)
	}
	t.Logf("%d comparisons; %d plans for shards of workers that lag", compared, stalled)
}
