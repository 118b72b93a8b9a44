package inspect_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// locks returns a group of sessions: a and b hold a lease each and have never committed, and b has been
// gone for so long. Their lease times differ.
func locks(t testing.TB, gone time.Duration) *table {
	of := newTable(t)
	of.idle = true
	of.seat("a")
	of.seat("b").TTL = 2 * ttl
	of.plan = &lease.Plan{Group: group, WriteID: "w", Revision: 1, By: of.seats["a"].Owner(), At: of.now, Sessions: true}
	of.begin(of.row("leader"), lease.ReasonInitial, "a", "")
	of.begin(of.row("deploy"), lease.ReasonInitial, "b", "")
	of.begin(of.row("cron"), lease.ReasonReleased, "", "a")
	of.pass(time.Hour)
	of.frozen = "b"
	of.pass(gone)
	return of
}

// TestGroupOfSessions: a snapshot shows that the group is one of sessions. Such a group has no plan and no
// targets. A healthy one has no warnings: free leases, idle holders, a single session and no session at all are
// no faults.
func TestGroupOfSessions(t *testing.T) {
	of := locks(t, 0)
	s := of.look()
	if !s.Sessions || s.Plan != nil || s.PlanAge.Known || of.lists[lease.KindTarget] != 0 {
		t.Errorf("sessions %t, plan %v, %d listings of targets", s.Sessions, s.Plan, of.lists[lease.KindTarget])
	}
	part, err := inspect.LookAt(t.Context(), of, group, "leader", inspect.Options{Now: of.clock})
	if err != nil || !part.Sessions || part.Shard("leader").State != inspect.Held {
		t.Errorf("%+v, %v", part, err)
	}
	// Three holders of a lease have died, and a session leaves.
	of.rows["leader"].Failures = lease.Failures{Count: 3, Last: of.rows["leader"].Generation - 1}
	of.seats["a"].Leaving = true
	for _, without := range []string{"", "b", "a"} {
		delete(of.seats, without)
		if without != "" { // it has released its lease
			delete(of.rows, map[string]string{"a": "leader", "b": "deploy"}[without])
		}
		if w := of.look().Warnings(); len(w) > 0 {
			t.Errorf("without %q: %v", without, w)
		}
	}
	of = settled(t)
	if of.look().Sessions {
		t.Error("a group of workers is shown as one of sessions")
	}
}

// TestWarningsOfSessions: a group of sessions has each of these warnings, and no other.
func TestWarningsOfSessions(t *testing.T) {
	for _, c := range []struct {
		name    string
		gone    time.Duration
		make    func(of *table)
		want    string // level, code and subject
		text    string
		command string
	}{
		{"a dead session holds a lease", 5 * time.Minute, func(of *table) {}, "WARN silent b",
			"no heartbeat for 5m0s, its lease time is 18s, and it holds 1 lease.", "shardlease evict b-1"},
		{"a dead session holds nothing", 5 * time.Minute, func(of *table) { delete(of.rows, "deploy") }, "", "", ""},
		{"the holder has no seat", 0, func(of *table) { delete(of.seats, "b") }, "INFO orphaned deploy", "its holder \"b\" has no seat any more", "shardlease release deploy"},
		{"and had a lock delay", 0, func(of *table) { delete(of.seats, "b"); of.rows["deploy"].Owner.LockDelay = time.Minute }, "INFO orphaned deploy",
			"its lock delay is 1m0s.", "shardlease release deploy"},
		{"a lease is quarantined", 0, func(of *table) {
			of.begin(of.rows["deploy"], lease.ReasonForced, "", "ann")
			of.rows["deploy"].Quarantined = true
		}, "WARN quarantined deploy", "operator \"ann\" has set the lease aside: no session acquires it.", "shardlease unquarantine deploy"},
		{"by a session", 0, func(of *table) {
			of.begin(of.rows["deploy"], lease.ReasonFailed, "", "a")
			of.rows["deploy"].Quarantined, of.rows["deploy"].Failures = true, lease.Failures{Count: 3, Last: 1}
		}, "ERROR quarantined deploy", "session \"a\" has set the lease aside after 3 failed attempts: no session acquires it.", "shardlease unquarantine deploy"},
		{"a lease has failed", 0, func(of *table) {
			of.rows["deploy"].Failures = lease.Failures{Count: 2, Last: of.rows["deploy"].Generation, Errors: 1}
		}, "WARN failing deploy", "2 tenures of the lease have failed since it last made progress", "shardlease history deploy"},
		{"a holder is silent", 0, func(of *table) { of.seats["b"].Health.Silent = 1 }, "WARN no-progress b", "the session reports 1 holder without progress.", "shardlease ls"},
		{"a row cannot be read", 0, func(of *table) { of.bad = []lease.Key{key(lease.KindLease, "deploy")} }, "ERROR unreadable deploy", "cannot be read", "no session acquires the lease before"},
		{"a seat cannot be read", 0, func(of *table) { of.bad = []lease.Key{key(lease.KindSeat, "b-1")} }, "WARN unreadable b-1", "cannot be read", "shardlease evict b-1"},
		{"the wishes cannot be read", 0, func(of *table) { of.bad = []lease.Key{lease.Wishes{Group: group}.Key()} }, "WARN unreadable !wishes", "cannot be read",
			"no session notices at once that its lease was released, until `shardlease lift all`"},
		{"the table was restored", 0, func(of *table) { of.verify = lease.ErrWentBack }, "ERROR restored ", "the sessions acquire nothing", "shardlease table adopt"},
		{"a clock is wrong", 0, func(of *table) { of.seats["a"].At = of.now.Add(time.Hour) }, "WARN clock-skew a", "in the future", "shardlease workers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := locks(t, c.gone)
			c.make(of)
			var found []string
			for _, w := range of.look().Warnings() {
				found = append(found, w.Level.String()+" "+string(w.Code)+" "+w.Subject)
				if !strings.Contains(w.Text, c.text) || !strings.Contains(w.Do, c.command) {
					t.Errorf("%s %s", w.Text, w.Do)
				}
				if all := w.Text + w.Do; strings.Contains(all, "worker ") || strings.Contains(all, "shard ") {
					t.Errorf("in a group of sessions: %s", all)
				}
			}
			if got := strings.Join(found, ", "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestDeathOfASessionIsObserved: an observer measures by its own clock for how long a dead session has held
// leases, and how long a lease has had a holder without a seat.
func TestDeathOfASessionIsObserved(t *testing.T) {
	of, o := locks(t, 0), inspect.Observer{}
	of.frozen = "b"
	var s *inspect.Snapshot
	for range 20 {
		of.pass(3 * time.Second)
		s = of.look()
		o.See(s)
	}
	if w := warned(s, inspect.CodeSilent); len(w) != 1 || !strings.Contains(w[0].Text, "no heartbeat for 1m0s") {
		t.Errorf("%v", w)
	}
	delete(of.seats, "b")
	for range 5 {
		s = of.look()
		o.See(s)
		of.pass(3 * time.Second)
	}
	if w := warned(s, inspect.CodeOrphaned); len(w) != 1 || !strings.Contains(w[0].Text, "no session has acquired the lease for 12s") {
		t.Errorf("%v", w)
	}
}

// TestDiffOfSessions: the changes of a group of sessions are told in the words for sessions.
func TestDiffOfSessions(t *testing.T) {
	of := locks(t, 0)
	before := of.look()
	of.seat("c")
	of.seats["a"].Leaving = true
	var texts []string
	for _, c := range inspect.Diff(before, of.look()) {
		texts = append(texts, c.Text)
	}
	if slices.Sort(texts); !slices.Equal(texts, []string{"the session has taken seat c-1", "the session shuts down"}) {
		t.Errorf("%q", texts)
	}
}

// TestSessionsInPlaceOfAPlan: if a record of sessions has replaced the plan that a worker follows, no worker plans. A
// seat of a worker that is dead, or that has never followed a plan, is no sign of that.
func TestSessionsInPlaceOfAPlan(t *testing.T) {
	of := settled(t)
	of.plan, of.seats["a"].Revision, of.seats["b"].Revision = locks(t, 0).plan, 0, 0
	if w := of.look().Warnings(); len(w) > 0 {
		t.Errorf("no seat knows a plan: %v", w)
	}
	of.seats["b"].Revision = 7
	if w := warned(of.look(), inspect.CodePlanStale); len(w) != 1 || !strings.Contains(w[0].Text, "worker \"b\"") {
		t.Errorf("a worker knows the plan: %v", w)
	}
	of.frozen = "b"
	of.pass(time.Hour)
	if w := warned(of.look(), inspect.CodePlanStale); len(w) > 0 {
		t.Errorf("and is dead: %v", w)
	}
}
