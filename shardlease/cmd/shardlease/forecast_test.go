package main

import (
	"context"
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

	next     *forecast     // what the command shows at the moment at which the open revision was opened
	opened   time.Duration // when the last revision was opened
	compared int           // how many plans were compared with forecasts
	story    []string
}

// A member is one worker.
type member struct {
	virtual.Worker
	g    *group
	max  int
	sick bool // its handlers fail
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
			g.next, g.opened = g.forecast(&before), g.Now()
		}
	case g.next != nil:
		if plan.Inputs != "" {
			g.compare(g.next, plan)
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

// forecast returns what the command shows.
func (g *group) forecast(before *lease.Plan) *forecast {
	now := virtual.Epoch().Add(g.Now())
	s, err := inspect.Look(g.t.Context(), g.seen(before), "orders", inspect.Options{Now: func() time.Time { return now }})
	if err != nil {
		g.t.Fatal(err)
	}
	return foresee(s, now, nil, nil)
}

// compare holds the stored targets against a forecast. Those of workers whose targets cannot be read do not count: no plan
// can write them.
func (g *group) compare(f *forecast, plan lease.Plan) {
	g.t.Helper()
	g.compared++
	want, got := map[string]lease.Incarnation{}, map[string]lease.Incarnation{}
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
	if !maps.Equal(want, got) {
		g.t.Errorf("plan %d, at %v: the forecast is %v, and the targets are %v\n%s", plan.Revision, g.Now(), want, got, strings.Join(g.story, "\n"))
	}
}

// rests checks that a forecast has no moves.
func (g *group) rests(f *forecast) {
	g.t.Helper()
	g.compared++
	for i, to := range f.To {
		if f.Placed(i) && f.Seats[to].Owner() != f.from[i] {
			g.t.Errorf("at %v: nothing is due, and by the forecast %s moves from %v to %s\n%s", g.Now(), f.View.Shards[i].Name, f.from[i], f.Seats[to].Incarnation, strings.Join(g.story, "\n"))
		}
	}
}

// note adds a line to the story that a failure prints.
func (g *group) note(format string, args ...any) {
	g.story = append(g.story, fmt.Sprintf("%8v ", g.Now().Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// change lets something happen, or nothing.
func (g *group) change() {
	m := g.members[g.IntN(len(g.members))]
	switch g.IntN(11) {
	case 0, 1, 2, 3:
		g.wish()
	case 4:
		g.spoil(lease.KindSeat, func(lease.Key) bool { return m.max == 0 }) // the worker itself knows its limit
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
	case 10:
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
		w := lease.Wish{By: "ann", Subject: g.members[g.IntN(len(g.members))].Name}
		switch g.IntN(7) {
		case 0, 1:
			w.Kind = lease.WishDrain
		case 2, 3:
			w.Kind = lease.WishCordon
		case 4:
			w.Kind, w.Subject = lease.WishPause, ""
		default:
			w.Kind, w.Subject, w.To = lease.WishPin, g.shards[g.IntN(len(g.shards))].Name, w.Subject
		}
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
		last, f := g.opened, g.forecast(nil)
		g.Run(while)
		if g.opened == last {
			if len(f.Broken) == 0 && len(g.running()) > 0 { // workers notice only when they plan that a target cannot be read
				g.rests(f)
			}
			return
		}
	}
}

// TestForecastIsTheNextPlan: in random groups, with wishes, workers that come, go and fail, and records that cannot be
// read or are deleted, each plan is what the command shows at the moment at which a worker makes it. When no worker plans,
// the command shows no moves.
func TestForecastIsTheNextPlan(t *testing.T) {
	groups, compared := fixture.Size(30, 1000), 0
	for seed := range groups {
		g := newGroup(t, uint64(seed))
		g.settle()
		for range 4 {
			for range 1 + g.IntN(2) {
				g.change()
			}
			g.settle()
		}
		if compared += g.compared; t.Failed() {
			t.Fatalf("the group of seed %d", seed)
		}
	}
	if compared < 5*groups {
		t.Errorf("only %d plans of %d groups were compared", compared, groups)
	}
	t.Logf("%d comparisons", compared)
}
