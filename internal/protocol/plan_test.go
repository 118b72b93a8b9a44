package protocol_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func opening(name string) protocol.Opening {
	return protocol.Opening{By: owner(name), Planner: "even"}
}

// stored applies a write of a plan, a target or wishes to the record from which it was made.
func stored[R lease.Record](t *testing.T, w lease.Write, err error) R {
	t.Helper()
	must(t, err)
	after, err := w.Apply(w.Old)
	must(t, err)
	r, _ := after.(R)
	return r
}

// opened returns a group's first plan, opened by the worker of that name.
func opened(t *testing.T, name string) lease.Plan {
	t.Helper()
	w, err := protocol.OpenPlan(lease.Plan{Group: "orders"}, opening(name), stamp())
	return stored[lease.Plan](t, w, err)
}

func finding() lease.Finding {
	return lease.Finding{
		Inputs: "hash", Members: 2, Watchers: []lease.Incarnation{"b-1", "a-1"},
		Unplaced: 30, Examples: []string{"s-2", "s-1"}, Shards: 64,
	}
}

func closed(t *testing.T, p lease.Plan) lease.Plan {
	t.Helper()
	w, err := protocol.ClosePlan(p, p.Revision, p.By.Incarnation, finding(), stamp())
	return stored[lease.Plan](t, w, err)
}

// TestLifeOfAPlan: a revision is opened, ticks, is finished, and the next one follows.
func TestLifeOfAPlan(t *testing.T) {
	first := opened(t, "a")
	if !first.Open || first.By != owner("a") || first.Planner != "even" || first.Members != 0 {
		t.Errorf("opened %v", first)
	}
	w, err := protocol.TickPlan(first, true, stamp())
	ticked := stored[lease.Plan](t, w, err)
	if ticked.Tick != 1 || !ticked.Late || ticked.Revision != first.Revision || !ticked.Open {
		t.Errorf("ticked %v", ticked)
	}
	done := closed(t, ticked)
	if done.Open || done.Revision != first.Revision || done.Tick != 1 || done.Members != 2 {
		t.Errorf("closed %v", done)
	}
	if !slices.Equal(done.Watchers, []lease.Incarnation{"b-1", "a-1"}) || !slices.Equal(done.Examples, []string{"s-1", "s-2"}) {
		t.Errorf("watchers %v, in the order of the planner; examples %v, sorted", done.Watchers, done.Examples)
	}
	w, err = protocol.OpenPlan(done, opening("b"), stamp())
	second := stored[lease.Plan](t, w, err)
	if second.Revision != first.Revision+1 || !second.Open || second.By != owner("b") || !reflect.DeepEqual(second.Finding, done.Finding) {
		t.Errorf("opened %v", second)
	}
	w, err = protocol.OpenPlan(second, opening("a"), stamp()) // b has died
	if third := stored[lease.Plan](t, w, err); third.Revision != first.Revision+2 || !third.Open {
		t.Errorf("opened %v", third)
	}
}

// TestFirstRevisionIsAboveWhatSeatsKnow: a plan that begins again, after it was deleted or in a
// table that was restored, is above every revision that a worker may have seen.
func TestFirstRevisionIsAboveWhatSeatsKnow(t *testing.T) {
	s := stamp()
	seconds := s.At.Unix() - time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	clock := seconds << 22
	for name, tc := range map[string]struct {
		plan  lease.Plan
		known int64
		want  int64
	}{
		"a new group":             {lease.Plan{}, 0, clock},
		"seats know a lower one":  {lease.Plan{}, clock - 7, clock},
		"seats know the clock's":  {lease.Plan{}, clock, clock + 1},
		"seats know a higher one": {lease.Plan{}, clock + 7, clock + 8},
		"the next":                {lease.Plan{Revision: 12}, 5, 13},
		"seats know more":         {lease.Plan{Revision: 12}, 40, 41},
	} {
		p := tc.plan
		p.Group = "orders"
		if p.Revision > 0 {
			p.WriteID, p.By = "w", owner("z")
		}
		o := opening("a")
		o.Known = tc.known
		w, err := protocol.OpenPlan(p, o, s)
		if got := stored[lease.Plan](t, w, err); got.Revision != tc.want {
			t.Errorf("%s: revision %d, want %d", name, got.Revision, tc.want)
		}
	}
	o := opening("a")
	o.Known = math.MaxInt64
	if _, err := protocol.OpenPlan(lease.Plan{Group: "orders"}, o, s); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("a revision above all: %v", err)
	}
	if _, err := protocol.OpenPlan(lease.Plan{Group: "orders"}, opening("a"), protocol.Stamp{ID: "w"}); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("a clock that was never set: %v", err)
	}
}

// TestOnlyItsMakerFinishesARevision: a planner that was overtaken does not finish the revision of
// another, nor its own a second time.
func TestOnlyItsMakerFinishesARevision(t *testing.T) {
	p := opened(t, "a")
	w, err := protocol.OpenPlan(p, opening("a"), stamp())
	later := stored[lease.Plan](t, w, err)
	for name, tc := range map[string]struct {
		plan     lease.Plan
		revision int64
		by       lease.Incarnation
		want     lease.Rule
	}{
		"of another worker":   {p, p.Revision, "b-1", protocol.ErrOtherRevision},
		"an earlier revision": {later, p.Revision, "a-1", protocol.ErrOtherRevision},
		"a later revision":    {p, later.Revision, "a-1", protocol.ErrOtherRevision},
		"a second time":       {closed(t, p), p.Revision, "a-1", protocol.ErrFinishedRevision},
	} {
		_, err := protocol.ClosePlan(tc.plan, tc.revision, tc.by, finding(), stamp())
		rule, ok := errors.AsType[*lease.RuleError](err)
		if !ok || rule.Rule != tc.want || rule.Key != p.Key() {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
	if _, err := protocol.TickPlan(lease.Plan{Group: "orders"}, false, stamp()); !errors.Is(err, protocol.ErrNoPlan) {
		t.Errorf("a tick without a plan: %v", err)
	}
}

// TestPlansThatNoPlannerWrites: the check of every write refuses what no transition makes.
func TestPlansThatNoPlannerWrites(t *testing.T) {
	p := opened(t, "a")
	done := closed(t, p)
	create, _ := protocol.OpenPlan(lease.Plan{Group: "orders"}, opening("a"), stamp())
	open, _ := protocol.OpenPlan(done, opening("b"), stamp())
	finish, _ := protocol.ClosePlan(p, p.Revision, "a-1", finding(), stamp())
	tick, _ := protocol.TickPlan(done, false, stamp())
	for name, tc := range map[string]struct {
		w     lease.Write
		spoil func(p *lease.Plan)
	}{
		"created finished":            {create, func(p *lease.Plan) { p.Open = false }},
		"created with a finding":      {create, func(p *lease.Plan) { p.Members = 1 }},
		"created below the clock":     {create, func(p *lease.Plan) { p.Revision-- }},
		"created ticking":             {create, func(p *lease.Plan) { p.Tick = 1 }},
		"opened, a lower revision":    {open, func(p *lease.Plan) { p.Revision -= 2 }},
		"opened, the same revision":   {open, func(p *lease.Plan) { p.Revision-- }},
		"opened and finished":         {open, func(p *lease.Plan) { p.Open = false }},
		"opened with other findings":  {open, func(p *lease.Plan) { p.Inputs = "other" }},
		"opened with other watchers":  {open, func(p *lease.Plan) { p.Watchers = p.Watchers[:1] }},
		"opened and ticked":           {open, func(p *lease.Plan) { p.Tick++ }},
		"opened, the same id":         {open, func(p *lease.Plan) { p.WriteID = done.WriteID }},
		"finished by another":         {finish, func(p *lease.Plan) { p.By = owner("b") }},
		"finished, another planner":   {finish, func(p *lease.Plan) { p.Planner = "other" }},
		"finished and ticked":         {finish, func(p *lease.Plan) { p.Tick++ }},
		"finished, a lower revision":  {finish, func(p *lease.Plan) { p.Revision-- }},
		"neither finished nor ticked": {finish, func(p *lease.Plan) { p.Open = true }},
		"ticked twice":                {tick, func(p *lease.Plan) { p.Tick++ }},
		"ticked back":                 {tick, func(p *lease.Plan) { p.Tick -= 2 }},
		"ticked with a finding":       {tick, func(p *lease.Plan) { p.Shards++ }},
		"ticked by another":           {tick, func(p *lease.Plan) { p.By = owner("c") }},
		"ticked and opened":           {tick, func(p *lease.Plan) { p.Open = true }},
		"opened again":                {tick, func(p *lease.Plan) { p.Open, p.Tick = true, done.Tick }},
	} {
		if err := tc.w.Check(); err != nil {
			t.Fatalf("%s: the good write: %v", name, err)
		}
		next := lease.Clone(tc.w.Next).(lease.Plan)
		tc.spoil(&next)
		bad := tc.w
		bad.Next = next
		if err := bad.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, w := range []lease.Write{{Op: lease.OpDelete, Old: done}, {Op: lease.OpTransfer, Old: done, Next: tick.Next}} {
		if err := w.Check(); !errors.Is(err, lease.ErrBadWrite) {
			t.Errorf("%v of a plan: %v", w.Op, err)
		}
	}
}

func target(revision int64, shards ...string) lease.Target {
	t := lease.Target{Group: "orders", Incarnation: "b-1", Pages: 1, Revision: revision}
	for _, s := range shards {
		t.Hold = append(t.Hold, lease.Assigned{Shard: s})
	}
	return t
}

// TestTargetsAreOnlyReplacedByHigherRevisions: a planner that was overtaken stops at the first
// target of the other.
func TestTargetsAreOnlyReplacedByHigherRevisions(t *testing.T) {
	w, err := protocol.WriteTarget(lease.Target{}, target(7, "s-1"), stamp())
	if err != nil || w.Op != lease.OpCreate {
		t.Fatalf("%v, %v", w, err)
	}
	seven := stored[lease.Target](t, w, err)
	for _, revision := range []int64{6, 7} {
		if _, err := protocol.WriteTarget(seven, target(revision), stamp()); !errors.Is(err, protocol.ErrOvertaken) {
			t.Errorf("revision %d over 7: %v", revision, err)
		}
		by := target(revision)
		by.WriteID = "by hand"
		if err := (lease.Write{Op: lease.OpSwap, Old: seven, Next: by}).Check(); !errors.Is(err, lease.ErrBadWrite) {
			t.Errorf("revision %d over 7 by hand: %v", revision, err)
		}
	}
	w, err = protocol.WriteTarget(seven, target(9, "s-2"), stamp())
	nine := stored[lease.Target](t, w, err)
	if nine.Revision != 9 || nine.Hold[0].Shard != "s-2" || w.Op != lease.OpSwap {
		t.Errorf("%v became %v", seven, nine)
	}
	for revision, may := range map[int64]bool{8: false, 9: false, 10: true} {
		w, err := protocol.DropTarget(nine, revision)
		if may != (err == nil) || !may && !errors.Is(err, protocol.ErrOvertaken) || may && w.Op != lease.OpDelete {
			t.Errorf("dropped by revision %d: %v, %v", revision, w, err)
		}
	}
	another := target(10)
	another.Page, another.Pages = 1, 2
	if _, err := protocol.WriteTarget(nine, another, stamp()); err == nil {
		t.Error("one page replaces another")
	}
}

func TestWishesAreReplacedAsAWhole(t *testing.T) {
	pause := lease.Wish{Kind: lease.WishPause, By: "op", Until: time.Unix(4_000_000_000, 123456789)}
	drain := lease.Wish{Kind: lease.WishDrain, Subject: "a", By: "op"}
	w, err := protocol.SetWishes(lease.Wishes{Group: "orders"}, []lease.Wish{pause, drain}, stamp())
	first := stored[lease.Wishes](t, w, err)
	if w.Op != lease.OpCreate || first.List[0] != drain || first.List[1].Until.Nanosecond() != 123_000_000 {
		t.Errorf("%v: %v", w.Op, first)
	}
	w, err = protocol.SetWishes(first, nil, stamp())
	if none := stored[lease.Wishes](t, w, err); w.Op != lease.OpSwap || len(none.List) != 0 {
		t.Errorf("%v: %v", w.Op, none)
	}
	if _, err := protocol.SetWishes(first, []lease.Wish{pause, pause}, stamp()); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("twice the same wish: %v", err)
	}
	if err := (lease.Write{Op: lease.OpDelete, Old: first}).Check(); !errors.Is(err, lease.ErrBadWrite) {
		t.Errorf("wishes are deleted: %v", err)
	}
}

// TestDecideAdvice checks the verdict of every kind of refusal of a plan, a target or wishes.
func TestDecideAdvice(t *testing.T) {
	p := opened(t, "a")
	done := closed(t, p)
	create, _ := protocol.OpenPlan(lease.Plan{Group: "orders"}, opening("b"), stamp())
	open, _ := protocol.OpenPlan(done, opening("b"), stamp())
	mine := stored[lease.Plan](t, open, nil)
	finish, _ := protocol.ClosePlan(mine, mine.Revision, "b-1", finding(), stamp())
	finished := stored[lease.Plan](t, finish, nil)
	tick, _ := protocol.TickPlan(done, true, stamp())
	ticked := func(p lease.Plan) lease.Plan {
		w, err := protocol.TickPlan(p, false, stamp())
		return stored[lease.Plan](t, w, err)
	}
	others, _ := protocol.OpenPlan(done, opening("c"), stamp())
	theirs := stored[lease.Plan](t, others, nil)
	above, _ := protocol.OpenPlan(mine, opening("c"), stamp())
	higher := stored[lease.Plan](t, above, nil)

	sessions, _ := protocol.BeginSessions("orders", lease.Owner{Name: "b", Incarnation: "b-1"}, stamp())
	otherSessions, _ := protocol.BeginSessions("orders", lease.Owner{Name: "c", Incarnation: "c-1"}, stamp())

	old := stored[lease.Target](t, lease.Write{Op: lease.OpCreate, Next: func() lease.Target { x := target(7); x.WriteID = "w-7"; return x }()}, nil)
	write, _ := protocol.WriteTarget(old, target(9), stamp())
	fresh, _ := protocol.WriteTarget(lease.Target{}, target(9), stamp())
	drop, _ := protocol.DropTarget(old, 9)
	at := func(revision int64) lease.Target { x := target(revision); x.WriteID = "another"; return x }

	wishes := lease.Wishes{Group: "orders", WriteID: "w"}
	set, _ := protocol.SetWishes(wishes, []lease.Wish{{Kind: lease.WishPause, By: "op"}}, stamp())

	for name, tc := range map[string]struct {
		w    lease.Write
		now  lease.Record
		want protocol.Verdict
	}{
		"opened":                          {open, mine, protocol.Stored},
		"opened, ticked since":            {open, ticked(mine), protocol.Stored},
		"opened, finished since by me":    {open, finished, protocol.Overtaken},
		"ticked before it was opened":     {open, ticked(done), protocol.Again},
		"opened by another":               {open, theirs, protocol.Overtaken},
		"a higher revision":               {open, higher, protocol.Overtaken},
		"the plan is gone":                {open, nil, protocol.Gone},
		"not an answer":                   {open, wishes, protocol.Unknown},
		"created":                         {create, create.Next, protocol.Stored},
		"created, ticked since":           {create, ticked(create.Next.(lease.Plan)), protocol.Stored},
		"created by another":              {create, p, protocol.Overtaken},
		"created in a group of sessions":  {create, sessions.Next, protocol.Overtaken},
		"made one of sessions by another": {sessions, otherSessions.Next, protocol.Stored},
		"made one of sessions by me":      {sessions, sessions.Next, protocol.Stored},
		"sessions in a group of workers":  {sessions, p, protocol.Overtaken},
		"finished":                        {finish, finished, protocol.Stored},
		"finished, ticked since":          {finish, ticked(finished), protocol.Stored},
		"ticked before it was finished":   {finish, ticked(mine), protocol.Again},
		"overtaken before it is finished": {finish, higher, protocol.Overtaken},
		"gone before it is finished":      {finish, nil, protocol.Gone},
		"ticked":                          {tick, tick.Next, protocol.Stored},
		"ticked by another watcher":       {tick, ticked(done), protocol.Again},
		"opened before the tick":          {tick, mine, protocol.Overtaken},
		"written":                         {write, write.Next, protocol.Stored},
		"a lower revision":                {write, at(8), protocol.Again},
		"the target is gone":              {write, nil, protocol.Again},
		"the same revision":               {write, at(9), protocol.Overtaken},
		"a higher target":                 {write, at(10), protocol.Overtaken},
		"created over a lower revision":   {fresh, at(8), protocol.Again},
		"created over a higher revision":  {fresh, at(10), protocol.Overtaken},
		"a target that is none":           {write, wishes, protocol.Unknown},
		"dropped":                         {drop, nil, protocol.Stored},
		"written before it was dropped":   {drop, at(8), protocol.Again},
		"wishes":                          {set, set.Next, protocol.Stored},
		"wishes of another":               {set, wishes, protocol.Again},
		"wishes that are gone":            {set, nil, protocol.Again},
	} {
		if err := tc.w.Check(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := protocol.Decide("b-1", tc.w, tc.now); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if got, _ := protocol.Settle("b-1", tc.w, nil, errors.New("no answer")); got != protocol.Unknown {
			t.Errorf("%s: %v without an answer", name, got)
		}
		if got, _ := protocol.Settle("b-1", tc.w, tc.w.Next, nil); got != protocol.Stored {
			t.Errorf("%s: %v when it is stored", name, got)
		}
		if got, _ := protocol.Settle("b-1", tc.w, lease.Seat{}, nil); got != protocol.Unknown && tc.w.Next != nil {
			t.Errorf("%s: %v with a wrong answer", name, got)
		}
	}
}

// TestOvertakenPlannerIsHarmless: whatever two planners do, in any order of their writes, the
// targets end with the revision of the plan or below it, and no revision is finished by a
// planner that did not open it.
func TestOvertakenPlannerIsHarmless(t *testing.T) {
	const steps = 4 // open, write the target, finish, drop another target
	for order := range 1 << (2 * steps) {
		var done [2]int
		world := newAdvice(t)
		names := []string{"a", "b"}
		for turn := range 2 * steps {
			who := order >> turn & 1
			if done[who] < steps {
				world.step(names[who], done[who])
				done[who]++
			}
		}
		world.check(fmt.Sprintf("%0*b", 2*steps, order))
	}
}

// An advice is a table with a plan and the targets of two workers, and what two planners know.
type advice struct {
	*testing.T
	plan    lease.Plan
	targets map[lease.Incarnation]lease.Target
	mine    map[string]lease.Plan // the revision that a planner opened
	faults  []string
}

func newAdvice(t *testing.T) *advice {
	w := &advice{T: t, plan: closed(t, opened(t, "z")), targets: map[lease.Incarnation]lease.Target{}, mine: map[string]lease.Plan{}}
	for _, inc := range []lease.Incarnation{"b-1", "dead"} {
		old := target(w.plan.Revision)
		old.Incarnation, old.WriteID = inc, "old"
		w.targets[inc] = old
	}
	return w
}

func (w *advice) step(name string, step int) {
	mine, planning := w.mine[name]
	switch {
	case step == 0:
		write, err := protocol.OpenPlan(w.plan, opening(name), stamp())
		w.plan = stored[lease.Plan](w.T, write, err)
		w.mine[name] = w.plan
	case !planning:
	case step == 1:
		if write, err := protocol.WriteTarget(w.targets["b-1"], target(mine.Revision, name), stamp()); err == nil {
			w.targets["b-1"] = stored[lease.Target](w.T, write, err)
		} else if w.targets["b-1"].Revision < mine.Revision {
			w.faults = append(w.faults, "a lower target was not replaced")
		}
	case step == 2:
		if write, err := protocol.ClosePlan(w.plan, mine.Revision, mine.By.Incarnation, finding(), stamp()); err == nil {
			w.plan = stored[lease.Plan](w.T, write, err)
			if w.plan.By.Name != name {
				w.faults = append(w.faults, name+" finished the revision of "+w.plan.By.Name)
			}
		}
	default:
		if dead, there := w.targets["dead"]; there {
			if _, err := protocol.DropTarget(dead, mine.Revision); err == nil {
				delete(w.targets, "dead")
			}
		}
	}
}

func (w *advice) check(order string) {
	w.Helper()
	if got := w.targets["b-1"]; got.Revision > w.plan.Revision || got.Hold[0].Shard != w.plan.By.Name && !w.plan.Open {
		w.faults = append(w.faults, fmt.Sprintf("%v under %v", got, w.plan))
	}
	if len(w.faults) > 0 {
		w.Errorf("order %s: %s", order, strings.Join(w.faults, "; "))
	}
}
