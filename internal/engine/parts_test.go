package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/layout"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestCloneKeepsItsFeed: what a clone learns of the source does not change the engine from which it was made.
func TestCloneKeepsItsFeed(t *testing.T) {
	e := New(Config{Group: "g", Name: "a", TTL: 10 * time.Second}, Moment{Mono: 1})
	e.feed.shards = []sourced{{Shard: Shard{Name: "s1"}}, {Shard: Shard{Name: "s2"}}}
	c := e.Clone()
	c.feed.bar("s1")
	if !c.feed.bars(&c.turn, "s1") {
		t.Error("the clone does not bar s1")
	}
	if e.feed.bars(&e.turn, "s1") {
		t.Error("the original bars s1")
	}
	c.feed.only(func(name string) bool { return name == "s2" })
	if e.feed.find("s1") == nil {
		t.Errorf("the original has lost s1: %+v", e.feed.shards)
	}
}

// TestWhoseFault: a shard is at fault after so many failures under two workers that are well, or
// where no other worker could try. Failures under a worker that is unwell do not count, and those
// of workers that have gone do.
func TestWhoseFault(t *testing.T) {
	const most = 3
	for _, tc := range []struct {
		name   string
		failed string // the workers under which it has failed, a letter each
		dead   string // its last owner, which has died
		well   string
		unwell string
		want   bool
	}{
		{"not often enough", "ab", "", "ab", "", false},
		{"under one worker, and there are others", "aaaaa", "", "ab", "", false},
		{"under two workers", "aab", "", "abc", "", true},
		{"under the only worker", "aaa", "", "a", "", true},
		{"under the only worker that is well", "aaa", "", "a", "x", true},
		{"under a worker that has gone, and another could try", "ccc", "", "a", "", false},
		{"under a worker that has gone, and another", "cca", "", "ab", "", true},
		{"the unwell worker's failures do not count", "xxa", "", "ab", "x", false},
		{"nor make they two of one", "aaaax", "", "ab", "x", false},
		{"enough beside them", "xaxbxa", "", "ab", "x", true},
		{"every worker is unwell", "xyxyxy", "", "", "xy", false},
		{"every worker that lives is unwell", "ccdd", "", "", "xy", false},
		{"a death is one more failure", "aa", "b", "ac", "", true},
		{"a death alone is not enough", "a", "b", "ac", "", false},
		{"deaths under one worker", "bbb", "b", "ac", "", false},
	} {
		r := fixture.Free(t)
		for _, by := range tc.failed {
			r = fixture.Next(t)(protocol.Claim(r, fixture.Worker(string(by)), fixture.Stamp()))
			r = fixture.Next(t)(protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonFailed}, fixture.Stamp()))
		}
		if tc.dead != "" {
			r = fixture.Next(t)(protocol.Claim(r, fixture.Worker(tc.dead), fixture.Stamp()))
		}
		var seats []lease.Seat
		for _, name := range tc.well + tc.unwell {
			of := fixture.Worker(string(name))
			seats = append(seats, lease.Seat{Incarnation: of.Incarnation, Name: of.Name, Beat: 1})
		}
		for i := range tc.unwell {
			seats[len(tc.well)+i].Health.Unwell = "sick"
		}
		if got := atFault(r, tc.dead != "", seats, most); got != tc.want {
			t.Errorf("%s: at fault: %v", tc.name, got)
		}
	}
}

// TestWhatAReasonTellsTheOwner: for each reason for which the next generation began, why the tenure ended whose owner had
// not noticed, and which write of the owner can only have been its own.
func TestWhatAReasonTellsTheOwner(t *testing.T) {
	type told struct {
		cause event.Cause
		mine  doing
	}
	fenced, released := told{event.CauseFenced, 0}, told{event.CauseFenced, givingUp}
	all := map[lease.Reason]told{
		lease.ReasonInitial: fenced, lease.ReasonExpired: fenced, lease.ReasonAdopted: fenced, lease.ReasonRemoved: fenced,
		lease.ReasonReleased: released, lease.ReasonUnlisted: released, lease.ReasonFailed: released, lease.ReasonStalled: released,
		lease.ReasonDrainTimeout: released, lease.ReasonHandoff: {event.CauseHandedOff, givingUp},
		lease.ReasonForced: {event.CauseForced, 0}, lease.ReasonFinished: {event.CauseFenced, ending},
	}
	for _, reason := range fixture.Kinds[lease.Reason](t) {
		want, known := all[reason]
		if !known {
			t.Errorf("the test does not know what the reason %q tells the owner: see overtaken and landed", reason)
			continue
		}
		row := fixture.Held(t, "a")
		mine := row.Generation
		row.Generation++
		for _, row.Last = range []lease.Transfer{
			{Reason: reason},
			{Reason: reason, Did: "reassigned"},
			{Reason: reason, Did: "quarantined"},          // by another
			{Reason: reason, Mode: rebalance.Eager},       // a seizure, or a hand-over
			{Reason: reason, Mode: rebalance.Cooperative}, // a takeover, or a hand-over
		} {
			row.Last.Generation = row.Generation
			if got := overtaken(row, mine); got != want.cause {
				t.Errorf("%v: the cause is %v, want %v", row.Last, got, want.cause)
			}
			shared := (row.Last.Mode != 0 || row.Last.Did == "quarantined") && want.mine == givingUp
			for _, what := range []doing{givingUp, ending, claiming} {
				if got := landed(row, mine, what); got != (what == want.mine && !shared) {
					t.Errorf("%v: landed is %t for the doing %v", row.Last, got, what)
				}
			}
		}
	}
}

// TestListedOwners: a worker of a large fleet that has to know of many owners lists the seats once. Like a
// read of one seat, the listing counts for rows that were read before it was sent, and for no others.
func TestListedOwners(t *testing.T) {
	turn := &turn{cfg: Config{Group: "orders"}, beat: time.Second, large: true, step: 1, now: Moment{Mono: 1}}
	seat := func(inc lease.Incarnation) lease.Seat { return lease.Seat{Incarnation: inc, Beat: 1} }
	o, asked := owners{}, []lease.Incarnation{"a", "b", "c", "d"}
	ask := func(since order, want ...ownerState) {
		t.Helper()
		for i, inc := range asked {
			if state, _ := o.owner(turn, inc, since); state != want[i] {
				t.Errorf("%s is %v, want %v", inc, state, want[i])
			}
		}
	}
	ask(1, asking, asking, asking, asking)
	if !o.keep(turn, false, 12) || len(turn.out) > 0 {
		t.Errorf("four owners of twelve workers are asked for one by one: %v", turn.out)
	}
	unreadable := []Unreadable{{Key: lease.Key{Kind: lease.KindSeat, Name: "d"}}}
	show := func(begun order, part bool) {
		turn.step, turn.now.Mono = turn.step+1, turn.now.Mono+1
		if !o.saw(turn, sighting{seats: []lease.Seat{seat("a"), {Incarnation: "c"}}, unreadable: unreadable, begun: begun}, part) {
			t.Error("the listing was wanted by nobody")
		}
	}
	show(1, true)
	ask(1, asking, asking, asking, asking)
	o.keep(turn, false, 12)
	show(1, false)
	ask(1, alive, gone, gone, alive) // an unconfirmed seat is none
	ask(2, alive, asking, asking, alive)
	if o.keep(turn, false, 12) || len(turn.out) != 2 {
		t.Errorf("two owners are not asked for one by one: %v", turn.out)
	}
}

// TestFewOwners: a worker that lists the seats anyway, one of a small fleet, and one that asks for a few owners
// read the seats one by one.
func TestFewOwners(t *testing.T) {
	for _, c := range []struct {
		large, watching bool
		members         int64
	}{{false, false, 4}, {true, true, 12}, {true, false, 24}} {
		turn, o := &turn{cfg: Config{Group: "orders"}, beat: time.Second, large: c.large, step: 1, now: Moment{Mono: 1}}, owners{}
		for _, inc := range []lease.Incarnation{"a", "b", "c", "d"} {
			o.owner(turn, inc, 1)
		}
		if o.keep(turn, c.watching, c.members) || len(turn.out) != 4 {
			t.Errorf("%+v: %v", c, turn.out)
		}
	}
}

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

// TestNoRequestWhileReadsFail: a worker requests no shard while reads of its row fail, and reads the row again. It does if
// a listing has shown the row since.
func TestNoRequestWhileReadsFail(t *testing.T) {
	for _, c := range []struct {
		unread, listed Instant
		requests       bool
	}{{0, 0, true}, {2, 0, false}, {2, 1, false}, {2, 3, true}} {
		s, turn := newShard("orders-0", "orders", "me"), &turn{cfg: Config{Handoff: rebalance.Eager}, step: 1, now: Moment{Mono: 4}}
		s.row.known, s.row.unread, s.row.listed = true, c.unread, c.listed
		ask := s.incoming(turn, member{room: true}, lease.Seat{})
		if reads := len(turn.out) == 1; (ask != nil) != c.requests || reads == c.requests {
			t.Errorf("reads fail since %d, listed at %d: it requests the shard: %v; outputs: %v", c.unread, c.listed, ask != nil, turn.out)
		}
	}
}

// TestListingStartsNoOldTenure: a listing shows a row that names this worker. If the listing may be older than the last time
// when the worker forgot shards, the tenure of that row may have ended. Then the listing starts no tenure, unless this worker
// has read the same row since it learned of the shard again.
func TestListingStartsNoOldTenure(t *testing.T) {
	row := fixture.Held(t, "a")
	me, name, group := row.Owner.Incarnation, row.Shard, row.Group
	later := row
	later.Generation, later.Counter, later.Owner = row.Generation+1, row.Counter+1, lease.Owner{Incarnation: "b"}
	for about, c := range map[string]struct {
		begun  order
		audit  bool
		known  bool
		read   lease.Row
		starts bool
	}{
		"later listing, unknown shard":                             {begun: 6, starts: true},
		"later listing, known shard":                               {begun: 6, known: true, starts: true},
		"earlier listing, unknown shard":                           {begun: 5},
		"earlier listing, shard known again, its row not read":     {begun: 5, known: true},
		"audit, unknown shard":                                     {begun: 6, audit: true},
		"audit, shard known again, its row not read":               {begun: 6, audit: true, known: true},
		"earlier listing, row read since: it names this worker":    {begun: 5, known: true, read: row, starts: true},
		"earlier listing, row read since: it names another worker": {begun: 5, known: true, read: later},
	} {
		turn := &turn{cfg: Config{Group: group}, beat: time.Second, step: 7, now: Moment{Mono: 1}}
		l := shards{gone: 5}
		if c.known {
			s := l.know(name, group, me)
			if c.read.Generation > 0 {
				s.saw(turn, c.read)
			}
		}
		l.saw(turn, me, Listed{Records: []lease.Record{row}}, c.begun, c.audit, func(string) bool { return true })
		s := l.find(name)
		if got := s != nil && s.row.copy.Reconcile(false, false) == protocol.StartIt; got != c.starts {
			t.Errorf("%s: the tenure starts: %t, want %t", about, got, c.starts)
		}
	}
}

// TestTwoOldListings: a page of an audit shows the row as it was before this worker's tenure, and a listing that was sent before
// the worker forgot the shard shows that tenure, which is over. The row itself was not read since.
func TestTwoOldListings(t *testing.T) {
	row := fixture.Held(t, "a")
	me, name, group := row.Owner.Incarnation, row.Shard, row.Group
	before := row
	before.Generation, before.Counter, before.Owner = row.Generation-1, row.Counter-1, lease.Owner{Incarnation: "b"}
	turn := &turn{cfg: Config{Group: group}, beat: time.Second, step: 7, now: Moment{Mono: 1}}
	l := shards{gone: 5}
	s := l.know(name, group, me)
	s.row.unread = 1 // reads of the row fail
	exists := func(string) bool { return true }
	l.saw(turn, me, Listed{Records: []lease.Record{before}}, 1, true, exists)
	l.saw(turn, me, Listed{Records: []lease.Record{row}}, 4, false, exists)
	if s.row.known || s.row.copy.Reconcile(false, false) == protocol.StartIt {
		t.Errorf("known: %t; a tenure that is over starts again: %t", s.row.known, s.row.copy.Reconcile(false, false) == protocol.StartIt)
	}
}

// TestWithheld: a plan withholds free shards from a worker that lags, and from the planner those that its source lacks. Another
// plan is due when that worker follows the plan, or when the planner's source lists such a shard. A worker that lags again and
// again waits longer each time, until a plan that withholds nothing from anybody has stood for an audit period.
func TestWithheld(t *testing.T) {
	me, lags := lease.Seat{Incarnation: "a"}, lease.Seat{Incarnation: "b"}
	l := assignment{Layout: &layout.Layout{To: []int{1, 0, 1}}}
	l.Seats, l.Me = []lease.Seat{me, lags}, me
	l.View.Shards = []rebalance.Place{{Name: "kept from a"}, {Name: "of a"}, {Name: "of b"}}
	l.Bars = func(shard string) bool { return shard != "of b" }
	l.Stalls = []layout.Stall{{Worker: "b", Shard: "1"}, {Worker: "b", Shard: "2"}}
	of := l.withheld()
	if !slices.Equal(of.lagging, []lease.Incarnation{"b"}) || !slices.Equal(of.barred, []string{"kept from a"}) {
		t.Fatalf("withheld: %+v", of)
	}
	for about, c := range map[string]struct {
		revision         int64
		unreadable, gone bool
		source           feed
		want             bool
	}{
		"nothing has changed":        {revision: 6, source: feed{shards: []sourced{{Shard: Shard{Name: "kept from a"}, absent: 3}}}},
		"the worker follows":         {revision: 7, want: true},
		"its seat is unreadable":     {revision: 7, unreadable: true},
		"it has no seat":             {gone: true},
		"the source lists the shard": {source: feed{shards: []sourced{{Shard: Shard{Name: "kept from a"}, listed: true}}}, want: true},
		"it lists another shard":     {source: feed{shards: []sourced{{Shard: Shard{Name: "of a"}, listed: true}}}},
	} {
		f := new(fleet)
		f.watch.withheld, f.watch.plan = of, lease.Plan{Revision: 7}
		if !c.gone {
			lags.Revision = c.revision
			f.peers.all = []peer{{seat: lags, unreadable: c.unreadable}}
		}
		if got := f.ends(&turn{now: Moment{Mono: 1}}, &c.source); got != c.want {
			t.Errorf("%s: another plan is due: %t, want %t", about, got, c.want)
		}
	}
	for lapses, want := range map[int]Instant{0: 1, 1: 1, 2: 21, 3: 41, 9: 2561, 12: 2561} {
		w := watch{since: 1, lapses: lapses}
		for _, at := range []Instant{want - 1, want} {
			if got := w.forgives(&turn{cfg: Config{TTL: 10}, now: Moment{Mono: at}}); at > 0 && got != (at == want) {
				t.Errorf("after %d plans that withheld shards: another is due at %d: %t, want it at %d", lapses, at, got, want)
			}
		}
	}
	for after, want := range map[Instant]int{2: 3, 3: 0} {
		f := new(fleet)
		f.watch.since, f.watch.lapses = 1, 3
		if f.ends(&turn{cfg: Config{Audit: 2}, now: Moment{Mono: after}}, new(feed)); f.watch.lapses != want {
			t.Errorf("at %d: a plan that withholds nothing stands since 1, and %d plans count, want %d", after, f.watch.lapses, want)
		}
	}
}

// TestNextPlanForgetsWhatWasWithheld: what a plan withheld counts until the next plan is complete: that plan was made without
// these reasons.
func TestNextPlanForgetsWhatWasWithheld(t *testing.T) {
	w, turn := watch{withheld: withheld{ended: true}}, &turn{now: Moment{Mono: 1}}
	w.known, w.plan.Revision = true, 7
	for _, c := range []struct {
		plan lease.Plan
		want bool
	}{{lease.Plan{Revision: 7}, true}, {lease.Plan{Revision: 8, Open: true}, true}, {lease.Plan{Revision: 8}, false}} {
		if w.saw(turn, "a", c.plan, lease.Wishes{}, 1); w.withheld.ended != c.want {
			t.Errorf("after %v: withheld: %+v, want it kept: %t", c.plan, w.withheld, c.want)
		}
	}
}

// TestFaultOfReadsEnds: single reads of targets or of seats have failed, and nothing else makes such a read. During the fault
// the worker reads its own target or seat once per heartbeat interval, and the fault ends when such a read passes.
func TestFaultOfReadsEnds(t *testing.T) {
	for _, kind := range []lease.Kind{lease.KindTarget, lease.KindSeat} {
		turn := &turn{cfg: Config{Group: "orders", TTL: 3 * time.Second}, beat: time.Second, large: true, step: 1, now: Moment{Mono: 1}}
		u, rows := noUnread(), new(read)
		pass := func(d time.Duration) (probes int) {
			turn.step, turn.now.Mono, turn.out = turn.step+1, turn.now.Mono.Add(d), nil
			u.keep(turn, "a", rows)
			for _, out := range turn.out {
				if get, ok := out.(Get); ok && get.Key.Kind == kind {
					probes++
				}
			}
			return probes
		}
		u.got(turn, kind, errUnread)
		if n := pass(2 * time.Second); n > 0 || u.on {
			t.Errorf("%v: before the fault: %d probes, fault: %t", kind, n, u.on)
		}
		pass(time.Second) // the fault begins
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {time.Second / 2, 0}, {time.Second / 2, 1}} {
			if n := pass(c.after); n != c.want || !u.on {
				t.Errorf("%v: %d probes after %v, want %d; fault: %t", kind, n, c.after, c.want, u.on)
			}
		}
		u.got(turn, kind, nil)
		if n := pass(time.Second); n > 0 || u.on {
			t.Errorf("%v: after the fault: %d probes, fault: %t", kind, n, u.on)
		}
	}
}

// TestOldOwnerGetsNoMoreThanItsLimit: a planner may wrongly believe that workers hold shards that the plan lacks. No worker gets
// such shards above its limit.
func TestOldOwnerGetsNoMoreThanItsLimit(t *testing.T) {
	me := lease.Seat{Incarnation: "a", MaxShards: 2}
	l := assignment{Layout: new(layout.Layout)}
	l.Seats, l.Me = []lease.Seat{{Incarnation: "a"}, {Incarnation: "b", MaxShards: 1}, {Incarnation: "c"}}, me
	found := func(shard string, owner int, rank int64) layout.Found {
		return layout.Found{Assigned: lease.Assigned{Shard: shard}, Owner: owner, Rank: rank}
	}
	var got []int
	for _, e := range l.Confine([]layout.Found{
		found("1", 0, layout.Unplaced), found("2", 0, layout.Unplaced), found("3", 0, 7),
		found("4", 1, layout.Unplaced), found("5", 1, 7), found("6", 1, 7), found("7", 2, layout.Unplaced), found("8", rebalance.Nobody, layout.Unplaced),
	}) {
		got = append(got, e.Owner)
	}
	if want := []int{0, rebalance.Nobody, 0, rebalance.Nobody, 1, 1, 2, rebalance.Nobody}; !slices.Equal(got, want) {
		t.Errorf("the owners are %v, want %v", got, want)
	}
}

// TestBound: of the shards that its target assigns to a worker, those beyond its limit are declined. A shard that it holds or
// claims counts, also if the target lacks it, unless another worker is to get it. Here a is held, b held and given away,
// c held without being assigned, and d is being claimed.
func TestBound(t *testing.T) {
	for about, c := range map[string]struct {
		most   int
		excess string
	}{
		"no limit":          {0, ""},
		"room for all":      {5, ""},
		"room for one more": {4, "f"},
		"full":              {3, "ef"},
		"over the limit":    {2, "ef"},
	} {
		l, turn := shards{due: Never}, &turn{now: Moment{Mono: 9}}
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			s := newShard(name, "orders", "me")
			s.wake, s.aim.mine, s.aim.given = Never, name != "b" && name != "c", name == "b"
			if name < "d" {
				s.t = new(tenure)
			}
			if name == "d" {
				s.doing = claiming
			}
			l.all = append(l.all, s)
		}
		for range 2 { // again, when nothing has changed
			l.bound(turn, c.most)
		}
		var excess, woken string
		for _, s := range l.all {
			if s.aim.excess {
				excess += s.name
			}
			if s.wake == 9 {
				woken += s.name
			}
		}
		if excess != c.excess || woken != excess || l.crowded != (excess != "") || (l.due == 9) != (woken != "") {
			t.Errorf("%s: it declines %q, tends %q at %d; crowded: %t", about, excess, woken, l.due, l.crowded)
		}
		if l.bound(turn, 0); l.crowded || slices.ContainsFunc(l.all, func(s *shard) bool { return s.aim.excess }) {
			t.Errorf("%s: it is crowded without a limit", about)
		}
	}
}

// TestUnnamed: another plan is due when a row can be placed that the plan lacks, although as many shards have no worker as it
// says: a parent is back, and so a child cannot be placed any more. Rows count that were read under this plan, and names that the
// plan would have named.
func TestUnnamed(t *testing.T) {
	for about, c := range map[string]struct {
		of       fact
		under    int64
		unplaced int64
		examples []string
		want     bool
	}{
		"the plan names another shard":         {fact{name: "b"}, 7, 1, []string{"c"}, true},
		"the plan names it":                    {fact{name: "b"}, 7, 1, []string{"b"}, false},
		"the rows are older":                   {fact{name: "b"}, 6, 1, []string{"c"}, false},
		"the rows are older, and it was read":  {fact{name: "b", looked: true}, 6, 1, []string{"c"}, true},
		"it is a child that nobody has held":   {fact{name: "b", parents: []string{"p"}}, 7, 1, []string{"c"}, false},
		"it was given up as unlisted":          {fact{name: "b", left: true}, 7, 1, []string{"c"}, false},
		"it has a tombstone":                   {fact{name: "b", gone: 3}, 7, 1, []string{"c"}, false},
		"it has no row":                        {fact{name: "x"}, 7, 1, []string{"c"}, false},
		"the plan would have named it first":   {fact{name: "b"}, 7, 3, []string{"a", "c"}, true},
		"the plan may count it without a name": {fact{name: "b"}, 7, 3, []string{"Y", "a"}, false},
		"the plan names nobody":                {fact{name: "b"}, 7, 0, nil, false},
	} {
		f := facts{under: c.under, all: []fact{c.of}}
		plan := lease.Plan{Revision: 7, Finding: lease.Finding{Unplaced: c.unplaced, Examples: c.examples}}
		if got := f.unnamed([]lease.Assigned{{Shard: "b"}}, plan); got != c.want {
			t.Errorf("%s: another plan is due: %t, want %t", about, got, c.want)
		}
	}
}
