package inspect_test

import (
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A story makes one warning begin and end.
type story struct {
	name    string
	code    inspect.Code
	level   slog.Level
	subject string
	begin   func(of *table)
	end     func(of *table)
	// after is when the warning begins, by the reader's own clock. By told times it begins a minute later,
	// unless untold: no record has a time.
	after  time.Duration
	untold bool
	also   []inspect.Code // other warnings that are no Info
}

const (
	info     = slog.LevelInfo
	warning  = slog.LevelWarn
	severe   = slog.LevelError
	claiming = 4 * 1200 * time.Microsecond // what four shards add
)

func stories() []story {
	return slices.Concat(groupStories(), planStories(), shardStories(), moveStories(), workerStories())
}

func groupStories() []story {
	return []story{
		{name: "no worker", code: inspect.CodeNoWorkers, level: severe, begin: func(of *table) { clear(of.seats) }, end: func(of *table) {
			for _, name := range []string{"a", "b"} {
				of.seat(name)
			}
			of.planned(2)
		}},
		{name: "no worker is needed", code: inspect.CodeNoWorkers, level: warning, begin: func(of *table) { clear(of.seats); clear(of.rows) },
			end: func(of *table) { of.seat("a"); of.planned(2) }},
		{name: "one worker", code: inspect.CodeAlone, level: info, begin: func(of *table) {
			of.move("shard-1", "a")
			of.move("shard-3", "a")
			delete(of.seats, "b")
		}, end: func(of *table) { of.seat("b") }},
		{name: "the other worker leaves", code: inspect.CodeAlone, level: info, begin: func(of *table) { of.seats["b"].Leaving = true },
			end: func(of *table) { of.seats["b"].Leaving = false }},
		{name: "restored", code: inspect.CodeRestored, level: severe, begin: func(of *table) { of.verify = lease.ErrWentBack },
			end: func(of *table) { of.verify = nil }},
		{name: "a row is malformed", code: inspect.CodeUnreadable, level: severe, subject: "shard-0", begin: func(of *table) { of.bad = []lease.Key{key(lease.KindLease, "shard-0")} },
			end: func(of *table) { of.bad = nil }},
		{name: "a seat is malformed", code: inspect.CodeUnreadable, level: warning, subject: "a-1", begin: func(of *table) { of.bad = []lease.Key{key(lease.KindSeat, "a-1")} },
			end: func(of *table) { of.bad = nil }},
		{name: "the wishes are malformed", code: inspect.CodeUnreadable, level: warning, subject: "!wishes", begin: func(of *table) { of.bad = []lease.Key{lease.Wishes{Group: group}.Key()} },
			end: func(of *table) { of.bad = nil }},
		{name: "not verified", code: inspect.CodeUnreadable, level: warning, begin: func(of *table) { of.verify = lease.ErrMalformed },
			end: func(of *table) { of.verify = nil }},
		{name: "a pause stands", code: inspect.CodeWish, level: info, begin: func(of *table) { of.wishes = []lease.Wish{{Kind: lease.WishPause, By: "ann"}} },
			end: func(of *table) { of.wishes = nil }},
		{name: "another lease time", code: inspect.CodeTTLDiffers, level: info, begin: func(of *table) { of.seats["b"].TTL++ },
			end: func(of *table) { of.seats["b"].TTL-- }},
	}
}

func planStories() []story {
	return []story{
		{name: "no room", code: inspect.CodeNoRoom, level: warning, begin: func(of *table) { of.plan.Unplaced, of.plan.Examples = 1, []string{"shard-0"} },
			end: func(of *table) { of.plan.Unplaced = 0 }},
		{name: "no room, and nobody has it", code: inspect.CodeNoRoom, level: severe, begin: func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a")
			of.planned(2)
			of.plan.Unplaced, of.plan.Examples = 1, []string{"shard-0"}
		}, end: func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonReleased, "a", "")
			of.planned(3)
		}},
		{name: "a plan stays open", code: inspect.CodePlanStale, level: warning, after: 30 * time.Second, begin: func(of *table) { of.planned(2); of.plan.Open = true },
			end: func(of *table) { of.plan.Open = false }},
		{name: "its planner is dead", code: inspect.CodePlanStale, level: warning, after: 10 * time.Second, begin: func(of *table) {
			of.planned(2)
			of.plan.Open, of.plan.By.Incarnation = true, "x-1"
		}, end: func(of *table) { of.planned(3) }},
		{name: "a worker lacks a shard", code: inspect.CodePlanStale, level: warning, subject: "b", after: 2*ttl + 30*time.Second, begin: func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonHandoff, "b", "")
			of.planned(2)
			of.begin(of.rows["shard-0"], lease.ReasonHandoff, "a", "")
		}, also: []inspect.Code{inspect.CodeUneven}, end: func(of *table) { of.begin(of.rows["shard-0"], lease.ReasonHandoff, "b", ""); of.planned(3) }},
		{name: "a worker has not seen the plan", code: inspect.CodePlanStale, level: warning, subject: "b", after: 2 * ttl, begin: func(of *table) {
			of.planned(2)
			of.seats["b"].Revision = 1
		}, end: func(of *table) { of.seats["b"].Revision = 2 }},
		{name: "uneven", code: inspect.CodeUneven, level: warning, after: 20 * time.Second, begin: func(of *table) {
			of.planned(2)
			of.move("shard-1", "a")
		}, end: func(of *table) { of.move("shard-1", "b") }},
	}
}

// move hands a shard over.
func (of *table) move(shard, to string) {
	of.begin(of.rows[shard], lease.ReasonHandoff, to, "")
	of.commit(of.rows[shard])
}

// news makes the seat of a worker name a shard.
func (of *table) news(worker string, kind lease.NewsKind, shard string) {
	of.seats[worker].News = append(of.seats[worker].News, lease.News{Kind: kind, Shard: shard})
}

// silent makes a worker report one silent handler, which was not idle.
func (of *table) silent(worker, shard string) {
	of.seats[worker].Health = lease.Health{Silent: 1, SilentSince: of.now}
	of.news(worker, lease.NewsSilent, shard)
}

func shardStories() []story {
	claimed := func(of *table) { of.begin(of.rows["shard-0"], of.rows["shard-0"].Last.Reason, "b", "") }
	return []story{
		{name: "orphaned for a moment", code: inspect.CodeOrphaned, level: info, subject: "shard-0", begin: func(of *table) { of.rows["shard-0"].Owner.Incarnation = "x-1" },
			end: claimed},
		{name: "orphaned", code: inspect.CodeOrphaned, level: severe, subject: "shard-0", after: ttl + claiming, untold: true, begin: func(of *table) { of.rows["shard-0"].Owner.Incarnation = "x-1" },
			end: claimed},
		{name: "released", code: inspect.CodeUnclaimed, level: severe, subject: "shard-0", after: ttl + claiming, begin: func(of *table) { of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a") },
			end: claimed},
		{name: "an operator has released it", code: inspect.CodeUnclaimed, level: severe, subject: "shard-0", after: ttl + claiming, begin: func(of *table) { of.begin(of.rows["shard-0"], lease.ReasonForced, "", "op") },
			end: claimed},
		{name: "new", code: inspect.CodeUnclaimed, level: severe, subject: "shard-4", after: ttl + 5*1200*time.Microsecond, begin: func(of *table) { of.row("shard-4") },
			end: func(of *table) { of.begin(of.rows["shard-4"], lease.ReasonInitial, "b", "") }},
		{name: "a child whose parent finishes", code: inspect.CodeUnclaimed, level: severe, subject: "shard-4", after: ttl + 5*1200*time.Microsecond, begin: func(of *table) {
			of.row("shard-4", "shard-0")
			of.pass(time.Hour)
			of.begin(of.rows["shard-0"], lease.ReasonFinished, "", "a")
			of.rows["shard-0"].Finished = true
		}, end: func(of *table) { of.begin(of.rows["shard-4"], lease.ReasonInitial, "b", "") }},
		{name: "workers begin after an hour without any", code: inspect.CodeUnclaimed, level: severe, subject: "shard-0", after: ttl + claiming, begin: func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonReleased, "", "a")
			of.pass(time.Hour)
			of.seat("a")
			of.seat("b")
			of.planned(2)
		}, end: claimed},
		{name: "set aside by a worker", code: inspect.CodeQuarantined, level: severe, subject: "shard-0", begin: func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonFailed, "", "a")
			of.rows["shard-0"].Quarantined = true
		}, end: func(of *table) { of.rows["shard-0"].Quarantined = false }},
		{name: "set aside by an operator", code: inspect.CodeQuarantined, level: warning, subject: "shard-0", begin: func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonForced, "", "op")
			of.rows["shard-0"].Quarantined = true
		}, end: func(of *table) { of.rows["shard-0"].Quarantined = false }},
		{name: "the source lacks it", code: inspect.CodeUnlisted, level: warning, subject: "shard-0", begin: func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonUnlisted, "", "a")
		}, end: claimed},
		{name: "two failures", code: inspect.CodeFailing, level: warning, subject: "shard-0", begin: func(of *table) {
			of.failTwice(of.rows["shard-0"])
			of.begin(of.rows["shard-0"], lease.ReasonFailed, "b", "")
		}, end: func(of *table) { of.commit(of.rows["shard-0"]) }},
		{name: "a handler is silent", code: inspect.CodeNoProgress, level: warning, subject: "shard-0", after: 5 * time.Minute, begin: func(of *table) {
			of.idle = true
			of.silent("a", "shard-0")
		}, end: func(of *table) { of.commit(of.rows["shard-0"]) }},
		{name: "a handler is silent from its claim", code: inspect.CodeNoProgress, level: warning, subject: "shard-4", after: 5 * time.Minute, begin: func(of *table) {
			of.idle = true
			of.silent("b", "shard-4")
			of.begin(of.row("shard-4"), lease.ReasonInitial, "b", "")
		}, end: func(of *table) { of.commit(of.rows["shard-4"]) }},
		{name: "a handler of an older build is silent", code: inspect.CodeNoProgress, level: warning, subject: "shard-0", after: 5 * time.Minute, begin: func(of *table) {
			of.idle = true
			of.seats["a"].Health = lease.Health{Silent: 1, SilentSince: of.now}
			delete(of.rows, "shard-2")
		}, end: func(of *table) { of.commit(of.rows["shard-0"]) }},
		{name: "a handler hangs in every process", code: inspect.CodeHangs, level: severe, subject: "shard-0", begin: func(of *table) {
			of.begin(of.rows["shard-0"], lease.ReasonForced, "", "op")
			of.news("a", lease.NewsHangs, "shard-0")
			of.news("b", lease.NewsHangs, "shard-0")
		}, end: func(of *table) { of.seats["b"].News = nil }},
		{name: "idle", code: inspect.CodeNoProgress, level: info, subject: "shard-0", after: 15 * time.Minute, begin: func(of *table) { of.idle = true },
			end: func(of *table) { of.commit(of.rows["shard-0"]) }},
		{name: "a large state", code: inspect.CodeFatRow, level: info, subject: "shard-0", begin: func(of *table) { of.rows["shard-0"].Checkpoint.State = strings.Repeat("x", 4000) },
			end: func(of *table) { of.rows["shard-0"].Checkpoint.State = "" }},
	}
}

func moveStories() []story {
	return []story{
		{name: "eager", code: inspect.CodeStuckHandoff, level: warning, subject: "shard-0", after: 25 * time.Second, untold: true, begin: func(of *table) { of.want("b", "shard-0", "eager 10s") },
			end: func(of *table) { of.move("shard-0", "b") }},
		{name: "cooperative", code: inspect.CodeStuckHandoff, level: warning, subject: "shard-0", after: 15 * time.Second, untold: true, begin: func(of *table) {
			of.want("b", "shard-0", "cooperative 5s")
			of.rows["shard-0"].OfferedTo = "b-1"
		}, end: func(of *table) { of.move("shard-0", "b") }},
		{name: "the successor is gone", code: inspect.CodeDanglingOffer, level: warning, subject: "shard-0", after: 42 * time.Second, untold: true, begin: func(of *table) { of.rows["shard-0"].OfferedTo = "x-1" },
			end: func(of *table) { of.rows["shard-0"].OfferedTo = "" }},
		{name: "four moves", code: inspect.CodeBouncing, level: warning, subject: "shard-0", begin: func(of *table) {
			for _, to := range []string{"b", "a", "b", "a"} {
				of.pass(time.Minute)
				of.move("shard-0", to)
			}
		}, end: func(of *table) { of.pass(4 * time.Minute) }},
	}
}

func workerStories() []story {
	return []story{
		{name: "unwell", code: inspect.CodeUnwellWorker, level: warning, subject: "a", begin: func(of *table) { of.seats["a"].Health.Unwell = "handlers fail" },
			end: func(of *table) { of.seats["a"].Health.Unwell = "" }},
		{name: "no source", code: inspect.CodeUnwellWorker, level: warning, subject: "a", begin: func(of *table) { of.seats["a"].Health.NoSource = true },
			end: func(of *table) { of.seats["a"].Health.NoSource = false }},
		{name: "all unwell", code: inspect.CodeUnwellWorker, level: severe, subject: "b", begin: func(of *table) {
			of.seats["b"].Health.Unwell = "handlers fail"
			delete(of.seats, "a")
			clear(of.rows)
		}, end: func(of *table) { of.seats["b"].Health.Unwell = "" }},
		{name: "dead", code: inspect.CodeSilent, level: warning, subject: "a", after: ttl + ttl/3 + 500*time.Millisecond, begin: func(of *table) { of.frozen = "a" },
			end: func(of *table) { of.frozen = ""; of.pass(time.Second) }},
		{name: "a handler hangs", code: inspect.CodeHangs, level: warning, subject: "a", begin: func(of *table) { of.news("a", lease.NewsHangs, "shard-1") },
			end: func(of *table) { of.seats["a"].News = nil }},
		{name: "a handler does not return", code: inspect.CodeLeavingSlowly, level: warning, subject: "a", after: 20 * time.Second, untold: true, begin: func(of *table) { of.seats["a"].Leaving = true },
			end: func(of *table) { of.move("shard-0", "b") }},
		{name: "a handler has longer to return", code: inspect.CodeLeavingSlowly, level: warning, subject: "a", after: 85 * time.Second, untold: true, also: []inspect.Code{inspect.CodeStuckHandoff}, begin: func(of *table) {
			of.seats["a"].Leaving = true
			of.want("b", "shard-0", "eager 40s")
		}, end: func(of *table) { of.move("shard-0", "b") }},
		{name: "a clock is ahead", code: inspect.CodeClockSkew, level: warning, subject: "a", begin: func(of *table) { of.frozen, of.seats["a"].At = "a", of.now.Add(61*time.Second) },
			end: func(of *table) { of.frozen = ""; of.pass(time.Second) }},
	}
}

// others returns the codes of the warnings that are more than Info.
func others(s *inspect.Snapshot) (codes []inspect.Code) {
	for _, w := range s.Warnings() {
		if w.Level > info {
			codes = append(codes, w.Code)
		}
	}
	return slices.Compact(codes)
}

// suggested finds the suggestions to change something, which needs a reason.
var suggested = regexp.MustCompile("shardlease (release|evict|quarantine|unquarantine|drain|cordon|pause|pin|rewind|remove)\\b[^`]*")

// has reports whether the snapshot has the story's warning.
func (st *story) has(t *testing.T, s *inspect.Snapshot) bool {
	for _, code := range others(s) {
		if code != st.code && !slices.Contains(st.also, code) {
			t.Errorf("also %s: %v", code, warned(s, code))
		}
	}
	return slices.ContainsFunc(warned(s, st.code), func(w inspect.Warning) bool {
		if w.Text == "" || !strings.HasSuffix(w.Text, ".") || !strings.Contains(w.Do, "`shardlease ") {
			t.Errorf("%+v", w)
		}
		if strings.Contains(w.Do, "shardlease release") && w.Level == info {
			t.Errorf("%s advises a release while nothing is wrong yet: %s", w.Code, w.Do)
		}
		for _, command := range suggested.FindAllString(w.Do, -1) {
			if !strings.HasSuffix(command, ` --why "…"`) {
				t.Errorf("%s suggests %s, which demands a reason", w.Code, command)
			}
		}
		return w.Level == st.level && w.Subject == st.subject
	})
}

// TestHandlersThatRunUnraised: check names the target and the handlers that run without its raise, and advises no restart.
func TestHandlersThatRunUnraised(t *testing.T) {
	of := settled(t)
	of.seats["a"].Health.Unwell = protocol.Unraised + "orders-db" + protocol.RunsUnraised
	found := warned(of.look(), inspect.CodeUnwellWorker)
	if len(found) != 1 || found[0].Subject != "a" || !strings.Contains(found[0].Text, "fence of orders-db, and handlers run without it") ||
		!strings.Contains(found[0].Do, "Do not restart") {
		t.Errorf("%+v", found)
	}
}

// TestLastErrorIsShown: the warnings failing and quarantined have the last error, and so have the last failure of a shard and
// the change that shows it, but not the text of its row. Without one the sentences end as before.
func TestLastErrorIsShown(t *testing.T) {
	of := settled(t)
	row, before := of.rows["shard-0"], of.look()
	of.failTwice(row)
	if all := warned(of.look(), inspect.CodeFailing); len(all) != 1 || strings.Contains(all[0].Text, ": ") {
		t.Errorf("without an error: %v", all)
	}
	row.Failures.Error, row.Failures.ErrorOf = "card 4111 refused.", row.Generation-1
	s := of.look()
	if all := warned(s, inspect.CodeFailing); len(all) != 1 || !strings.HasSuffix(all[0].Text, "(failed): card 4111 refused.") {
		t.Errorf("%v", all)
	}
	if at := s.Shard("shard-0"); at.LastFailure == nil || at.LastFailure.Note != "card 4111 refused." || strings.Contains(at.Row.String(), "4111") {
		t.Errorf("the last failure is %v", at.LastFailure)
	}
	told := 0
	for _, change := range inspect.Diff(before, s) {
		if strings.Contains(change.Text, "4111") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d changes have the error: %v", told, inspect.Diff(before, s))
	}
	of.begin(row, lease.ReasonFailed, "", "a")
	row.Quarantined = true
	if all := warned(of.look(), inspect.CodeQuarantined); len(all) != 1 || !strings.HasSuffix(all[0].Text, "no worker processes it. The last error was: card 4111 refused.") {
		t.Errorf("%v", all)
	}
}

// TestAuthorOfAQuarantine: the warning names the operator or the failure that quarantined the shard, also after an operator has
// adopted or rewound the row.
func TestAuthorOfAQuarantine(t *testing.T) {
	command := func(of *table, reason lease.Reason, did, by, why string) {
		row := of.rows["shard-0"]
		of.begin(row, reason, "", by)
		row.Last.Did, row.Last.Note = did, why
	}
	for name, tc := range map[string]struct {
		make func(of *table)
		want string
	}{
		"an operator": {func(of *table) {
			command(of, lease.ReasonForced, "quarantined", "ann", "poison")
		}, `operator "ann" has set the shard aside (poison): `},
		"an operator, and the row was adopted": {func(of *table) {
			command(of, lease.ReasonForced, "quarantined", "ann", "poison")
			command(of, lease.ReasonAdopted, "adopted", "bob", "")
		}, `operator "ann" has set the shard aside (poison): `},
		"a worker, and the row was adopted twice": {func(of *table) {
			of.failTwice(of.rows["shard-0"])
			command(of, lease.ReasonFailed, "quarantined", "a", "")
			command(of, lease.ReasonAdopted, "adopted", "bob", "")
			command(of, lease.ReasonAdopted, "adopted", "bob", "")
		}, `worker "a" has set the shard aside after 2 failed attempts: `},
		"a worker, and the row was rewound": {func(of *table) {
			command(of, lease.ReasonFailed, "quarantined", "a", "")
			command(of, lease.ReasonForced, "rewound", "bob", "again")
		}, `worker "a" has set the shard aside: `},
		"an operator has repaired the row": {func(of *table) {
			command(of, lease.ReasonForced, "repaired", "bob", "half a row")
		}, `operator "bob" has repaired the row of the shard, which is set aside (half a row): `},
		"nobody knows": {func(of *table) {
			command(of, lease.ReasonAdopted, "adopted", "bob", "")
			of.rows["shard-0"].Past = ""
		}, `the shard is set aside, and the row no longer shows by whom: `},
	} {
		t.Run(name, func(t *testing.T) {
			of := settled(t)
			tc.make(of)
			of.rows["shard-0"].Quarantined = true
			if all := warned(of.look(), inspect.CodeQuarantined); len(all) != 1 || !strings.HasPrefix(all[0].Text, tc.want) {
				t.Errorf("%v, want %q", all, tc.want)
			}
		})
	}
}

// TestSilentNeighbours: of the shards that a worker holds, only the one whose handler the worker names is blamed. Its
// neighbour may be idle, and so may all shards if the worker names none. A worker that holds other shards is not asked.
func TestSilentNeighbours(t *testing.T) {
	for name, tc := range map[string]struct {
		make func(of *table)
		want string
	}{
		"one is named":         {func(of *table) { of.silent("a", "shard-2") }, "shard-2"},
		"all may be idle":      {func(of *table) { of.seats["a"].Health.Silent = 2 }, ""},
		"an older build":       {func(of *table) { of.seats["a"].Health = lease.Health{Silent: 1, SilentSince: of.now} }, "shard-0 shard-2"},
		"another one is named": {func(of *table) { of.silent("b", "shard-0") }, ""},
	} {
		of := settled(t)
		of.idle = true
		tc.make(of)
		of.pass(7 * time.Minute)
		var got []string
		for _, w := range warned(of.look(), inspect.CodeNoProgress) {
			if w.Level == warning {
				got = append(got, w.Subject)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestHangsNameEveryProcess: the warning of a worker names the first ten shards. A shard has one of its own only while nobody
// holds it, and while no worker is left that could claim it.
func TestHangsNameEveryProcess(t *testing.T) {
	of := settled(t)
	for i := range 12 {
		of.news("a", lease.NewsHangs, fmt.Sprintf("shard-%02d", i))
	}
	of.news("a", lease.NewsHangs, "shard-1")
	of.news("b", lease.NewsHangs, "shard-1")
	all := warned(of.look(), inspect.CodeHangs)
	if len(all) != 2 || !strings.Contains(all[0].Text, "13 tenures of the worker") || !strings.Contains(all[0].Text, "shard-09 and 3 more.") || all[1].Subject != "b" {
		t.Errorf("%v", all)
	}
	of.begin(of.rows["shard-1"], lease.ReasonForced, "", "op")
	if all := warned(of.look(), inspect.CodeHangs); len(all) != 3 || all[0].Subject != "shard-1" || !strings.Contains(all[0].Text, "(a, b)") {
		t.Errorf("%v", all)
	}
	of.seats["b"].Leaving = true
	of.seat("c")
	if all := warned(of.look(), inspect.CodeHangs); len(all) != 2 {
		t.Errorf("another worker may claim it: %v", all)
	}
}

// TestWarningsByOwnClock: each warning begins when its documented time has passed on the reader's own clock, not
// before, and ends with its cause. The test looks every 250 ms (in a sample, every second).
func TestWarningsByOwnClock(t *testing.T) {
	step := fixture.Size(time.Second, 250*time.Millisecond)
	for _, st := range stories() {
		t.Run(string(st.code)+"/"+st.name, func(t *testing.T) {
			of, o := settled(t), inspect.Observer{}
			look := func() bool {
				s := of.look()
				o.See(s)
				return st.has(t, s)
			}
			if look() {
				t.Fatal("before it begins")
			}
			of.pass(step)
			st.begin(of)
			waited := time.Duration(0)
			for ; !look(); waited += step {
				if of.pass(step); waited > st.after+time.Minute {
					t.Fatalf("not after %v", waited)
				}
			}
			if waited < st.after || waited > st.after+2*step {
				t.Errorf("after %v, want %v", waited, st.after)
			}
			of.pass(step)
			if st.end(of); look() {
				t.Error("it does not end")
			}
		})
	}
}

// TestWarningsByToldTimes: a single look warns a minute later, because the clocks may differ, or never.
func TestWarningsByToldTimes(t *testing.T) {
	for _, st := range stories() {
		t.Run(string(st.code)+"/"+st.name, func(t *testing.T) {
			of := settled(t)
			st.begin(of)
			st.also = append(st.also, inspect.CodePlanStale, inspect.CodeUneven) // their told times pass too
			after := st.after
			if after > 0 {
				after += time.Minute
				of.pass(after - time.Millisecond)
				if st.has(t, of.look()) {
					t.Error("too early")
				}
				of.pass(time.Millisecond)
			}
			if got := st.has(t, of.look()); got == st.untold {
				t.Errorf("%v after %v", got, after)
			}
			if st.end(of); st.has(t, of.look()) {
				t.Error("it does not end")
			}
		})
	}
}

// TestWishes: each wish that stands has a warning, which names the worker that the wish is for if no such worker lives.
// A wish that has ended has none, and so has one of a kind that only a newer version knows.
func TestWishes(t *testing.T) {
	of := settled(t)
	of.wishes = []lease.Wish{
		{Kind: lease.WishCordon, Subject: "a", By: "ann"},
		{Kind: lease.WishDrain, Subject: "b", By: "ann", Until: of.clock().Add(-time.Second)},
		{Kind: "telepathy", Subject: "a", By: "ann"},
		{Kind: lease.WishPin, Subject: "shard-0", To: "z", By: "ann", Until: of.clock().Add(time.Hour)},
	}
	var got []string
	for _, w := range warned(of.look(), inspect.CodeWish) {
		got = append(got, fmt.Sprint(w.Subject, " ", strings.Contains(w.Text, `no worker "z" lives`), " ", w.Do))
	}
	want := []string{
		"a false If nobody needs it any more, `shardlease lift cordon a` ends it.",
		"shard-0 true If nobody needs it any more, `shardlease lift pin shard-0` ends it.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEveryWishHasAWarning: a wish of each kind has a warning, which names the command that ends it, and the wish for a
// worker is a field of that worker.
func TestEveryWishHasAWarning(t *testing.T) {
	for _, kind := range lease.WishKinds() {
		of := settled(t)
		subject, to, _ := kind.Names()
		names := map[string]string{"worker": "a", "shard": "shard-0"}
		of.wishes = []lease.Wish{{Kind: kind, Subject: names[subject], To: names[to], By: "ann"}}
		s := of.look()
		command := strings.TrimSpace("shardlease lift " + string(kind) + " " + names[subject])
		if got := warned(s, inspect.CodeWish); len(got) != 1 || !strings.Contains(got[0].Do, "`"+command+"`") {
			t.Errorf("%s: the warnings are %v", kind, got)
		}
		for _, w := range s.Workers {
			if w.Seat.Name == "a" && (w.Wish == kind) != (subject == "worker") {
				t.Errorf("%s: the wish of the worker is %q", kind, w.Wish)
			}
		}
	}
}

// TestFencesToBeRaisedAgain: check names the workers that have not raised their fences again, and then those sessions that
// hold a lease.
func TestFencesToBeRaisedAgain(t *testing.T) {
	wish := []lease.Wish{{Kind: lease.WishRaise, By: "ann", Number: 7}}
	of := settled(t)
	of.wishes = wish
	of.seats["a"].Raised, of.seats["b"].Raised = 7, 6
	if got := warned(of.look(), inspect.CodeWish); len(got) != 1 || got[0].Level != warning || !strings.Contains(got[0].Text, `1 of 2 workers have not raised their fences again, such as ["b"]`) {
		t.Errorf("%v", got)
	}
	of.seats["b"].Raised = 7
	if got := warned(of.look(), inspect.CodeWish); len(got) != 1 || got[0].Level != info {
		t.Errorf("all have: %v", got)
	}
	of = locks(t, 0)
	of.wishes = wish
	of.seats["a"].Raised = 7
	delete(of.rows, "deploy")
	if got := warned(of.look(), inspect.CodeWish); len(got) != 1 || got[0].Level != info || !strings.Contains(got[0].Do, "`shardlease lift raise`") {
		t.Errorf("the session that holds a lease has: %v", got)
	}
	of.seats["a"].Raised = 0
	if got := warned(of.look(), inspect.CodeWish); len(got) != 1 || got[0].Level != warning || !strings.Contains(got[0].Text, `1 of 1 session`) {
		t.Errorf("a session has not: %v", got)
	}
}

// TestStoriesHaveAllCodes: no warning is without a test, and none without a code of its own. Codes has all of them:
// Warnings sorts by it.
func TestStoriesHaveAllCodes(t *testing.T) {
	told := map[inspect.Code]bool{}
	for _, st := range stories() {
		told[st.code] = true
	}
	seen := map[inspect.Code]bool{}
	for _, code := range inspect.Codes() {
		if seen[code] {
			t.Errorf("Codes has %s twice", code)
		}
		seen[code] = true
	}
	all := fixture.Kinds[inspect.Code](t)
	for _, code := range all {
		if !told[code] || !seen[code] {
			t.Errorf("%s: it has a story: %t; it is in Codes: %t", code, told[code], seen[code])
		}
	}
	if len(seen) != len(all) || len(told) != len(all) {
		t.Errorf("%d constants, %d in Codes, %d with a story", len(all), len(seen), len(told))
	}
}

// TestStatesHasAllStates: commands offer the states of States, and no other.
func TestStatesHasAllStates(t *testing.T) {
	all, states := fixture.Kinds[inspect.State](t), slices.Sorted(slices.Values(inspect.States()))
	if slices.Sort(all); !slices.Equal(all, states) {
		t.Errorf("States has %v, and the constants are %v", states, all)
	}
}

// TestCostOfALongLeaseTime: a worker has a lease time of a day, and its shards would wait as long after a crash. The warning
// says so while the worker lives. When the worker has missed its own heartbeat, it names the rest of the time and the
// command, unless the rest is no longer than after any crash, or the worker has no shards.
func TestCostOfALongLeaseTime(t *testing.T) {
	for name, tc := range map[string]struct {
		ttl, silent time.Duration
		free        bool
		text, do    []string // of the warning at each level
	}{
		"it lives":           {24 * time.Hour, 7 * time.Hour, false, []string{`if worker "b" crashes, its 2 shards may wait for up to 32h`}, []string{"workers -o wide"}},
		"it missed its beat": {24 * time.Hour, 11 * time.Hour, false, []string{"its 2 shards wait for up to 21h0m1s more", `worker "b" crashes`}, []string{"shardlease evict b-1", "Config.TTL"}},
		"it holds nothing":   {24 * time.Hour, 11 * time.Hour, true, []string{"its 0 shards"}, []string{"Config.TTL"}},
		"it is nearly over":  {2 * time.Minute, 155 * time.Second, false, []string{`worker "b" crashes`}, []string{"Config.TTL"}},
		"the same time":      {ttl, ttl / 2, false, nil, nil},
	} {
		of := settled(t)
		of.seats["b"].TTL = tc.ttl
		if tc.free {
			of.begin(of.rows["shard-1"], lease.ReasonHandoff, "a", "")
			of.begin(of.rows["shard-3"], lease.ReasonHandoff, "a", "")
		}
		of.frozen = "b"
		of.pass(tc.silent)
		all := warned(of.look(), inspect.CodeTTLDiffers)
		if len(all) != len(tc.text) {
			t.Errorf("%s: %v", name, all)
			continue
		}
		for i, w := range all {
			level := info
			if len(all) == 2 && i == 0 {
				level = warning
			}
			if w.Level != level || !strings.Contains(w.Text, tc.text[i]) || !strings.Contains(w.Do, tc.do[i]) {
				t.Errorf("%s: %v", name, w)
			}
		}
	}
}

// TestNumbersAtTheirEnd: somebody has written the highest number by hand. No worker can make another plan, or commit, claim
// or release the shard. A finished shard needs no new generation.
func TestNumbersAtTheirEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		code inspect.Code // empty: no warning
		text string
		make func(of *table)
	}{
		"the revision":          {inspect.CodePlanStale, "no worker can make another plan", func(of *table) { of.planned(math.MaxInt64) }},
		"the revision before":   {"", "", func(of *table) { of.planned(math.MaxInt64 - 1) }},
		"the counter":           {inspect.CodeUnreadable, "`leaseCounter` is the highest", func(of *table) { of.rows["shard-0"].Counter = math.MaxInt64 }},
		"the generation":        {inspect.CodeUnreadable, "`generation` is the highest", func(of *table) { of.rows["shard-0"].Generation = math.MaxInt64 }},
		"the generation before": {"", "", func(of *table) { of.rows["shard-0"].Generation = math.MaxInt64 - 1 }},
		"the generation of a finished one": {"", "", func(of *table) {
			r := of.rows["shard-0"]
			r.Generation, r.Finished, r.Owner = math.MaxInt64, true, lease.Owner{}
		}},
	} {
		of := settled(t)
		tc.make(of)
		var all []inspect.Warning
		for _, w := range of.look().Warnings() {
			if w.Level == severe {
				all = append(all, w)
			}
		}
		if tc.code == "" && len(all) > 0 || tc.code != "" && (len(all) != 1 || all[0].Code != tc.code || !strings.Contains(all[0].Text, tc.text)) {
			t.Errorf("%s: %v", name, all)
		}
	}
	for unplaced, want := range map[int64]string{1: "room for 1 shard, such", 4: "room for 4 shards, such", math.MaxInt64: "room for 1 shard (the plan says 9223372036854775807, and knows 4)"} {
		of := settled(t)
		of.plan.Unplaced, of.plan.Shards, of.plan.Examples = unplaced, 4, []string{"shard-0"}
		if all := warned(of.look(), inspect.CodeNoRoom); len(all) != 1 || !strings.Contains(all[0].Text, want) {
			t.Errorf("%d shards without room: %v", unplaced, all)
		}
	}
}

// TestUnlistedShardsInOneWarning: a source that is cut short makes one warning, with the number of shards and ten names. It is
// about each of the shards.
func TestUnlistedShardsInOneWarning(t *testing.T) {
	of := settled(t)
	var names []string
	for i := range 12 {
		name := fmt.Sprintf("gone-%02d", i)
		names = append(names, name)
		of.begin(of.row(name), lease.ReasonUnlisted, "", "a")
	}
	all := warned(of.look(), inspect.CodeUnlisted)
	if len(all) != 1 {
		t.Fatal(all)
	}
	w := all[0]
	if !strings.Contains(w.Text, "no longer lists 12 shards") || !strings.Contains(w.Text, ": gone-00, gone-01") || !strings.Contains(w.Text, "gone-09 and 2 more.") ||
		w.Subject != "" || !slices.Equal(w.Subjects, names) || w.Level != warning || !strings.Contains(w.Do, "shardlease remove SHARD") {
		t.Errorf("%+v", w)
	}
}

// TestUnreadableRowNamesItsOwner: the warning of a row that cannot be read names the owner, if its name can be read.
func TestUnreadableRowNamesItsOwner(t *testing.T) {
	for _, owner := range []string{"host-1", ""} {
		of := settled(t)
		of.bad, of.owner = []lease.Key{key(lease.KindLease, "shard-0")}, owner
		all := warned(of.look(), inspect.CodeUnreadable)
		if len(all) != 1 || strings.Contains(all[0].Text, `Its worker is "host-1".`) != (owner != "") {
			t.Errorf("%q: %v", owner, all)
		}
	}
}
