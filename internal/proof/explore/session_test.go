package explore_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/explore"
)

// TestLeasesByName visits every state that two or three sessions can reach if they want the same lease by name. From
// each state on, all callers are served, if nothing more goes wrong and holders release the lease when others wait for it.
// Each story is explored to its end. If -explore.states is at least 100,000, as in the nightly run, up
// to 100,000 states of each story are visited with one more fault and one more mark, and for twice as long.
func TestLeasesByName(t *testing.T) {
	const deep = 100_000
	for _, s := range sessionStories() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			toTheEnd(t, s)
			if states() < deep {
				return
			}
			s.Name, s.Faults, s.Marks, s.For = s.Name+", in more trouble", s.Faults+1, s.Marks+1, 2*s.For
			visit(t, s, deep)
		})
	}
}

// These preludes lead to the states in which stories begin: nobody wants the lease; session a holds it; b waits for
// it; b and c wait for it; a and b want a lease that nobody holds.
func idle(*explore.Prelude)      {}
func held(p *explore.Prelude)    { p.Acquire(a); p.Rest(time.Second) }
func bWaits(p *explore.Prelude)  { held(p); p.Acquire(b); p.Rest(time.Second) }
func bcWait(p *explore.Prelude)  { bWaits(p); p.Acquire(c); p.Rest(time.Second) }
func bothAsk(p *explore.Prelude) { p.Acquire(a); p.Acquire(b) }

func sessionStories() []explore.Story {
	wakesLate := func(p *explore.Prelude) { bWaits(p); p.Pause(a); p.Until(b, "delete of seat") }
	aDies := func(p *explore.Prelude) { bWaits(p); p.Die(a); p.Until(b, "delete of seat") }
	aCommits := func(p *explore.Prelude) { bWaits(p); p.Commit(a) }
	lateCommit := func(p *explore.Prelude) {
		bWaits(p)
		p.Commit(a)
		p.Late(a)
		p.Pause(a)
		p.Until(b, "delete of seat")
	}
	lastCommit := func(p *explore.Prelude) {
		p.Acquire(b)
		p.Rest(time.Second)
		p.Fail(b)
		p.Rest(time.Second)
		bWaits(p)
		p.Commit(a)
		p.Late(a)
		p.Die(a)
		p.Until(b, "delete of seat")
	}
	askAgain := func(p *explore.Prelude) { p.Rest(time.Second); p.Release(a); p.Rest(time.Second); bothAsk(p) }
	askForTombstone := func(p *explore.Prelude) { held(p); askAgain(p) }
	askForCheckpoint := func(p *explore.Prelude) { held(p); p.Commit(a); askAgain(p) }
	bTries := func(p *explore.Prelude) { p.Rest(11 * time.Second); p.Acquire(b) }
	aDiedLongAgo := func(p *explore.Prelude) { held(p); p.Die(a); bTries(p) }
	aIsPaused := func(p *explore.Prelude) { held(p); p.Pause(a); bTries(p) }
	move := func(to string, lasts, delay time.Duration) *explore.Sessions {
		return &explore.Sessions{Commands: 1, Move: to, Lasts: lasts, LockDelay: delay}
	}
	all := []explore.Story{
		{Name: "a holder dies", Crashes: 1, Prelude: bWaits, For: 12 * time.Second},
		{Name: "a dead holder is evicted, and calls fail", Faults: 2, Prelude: aDies, For: 3 * time.Second},
		{Name: "a holder dies, with a lock delay", Crashes: 1, Prelude: bWaits, Sessions: &explore.Sessions{LockDelay: 4 * time.Second}, For: 20 * time.Second},
		{Name: "a holder is paused", Pauses: 1, Prelude: bWaits, For: 11 * time.Second},
		{Name: "a paused holder wakes up late", Marks: 1, Prelude: wakesLate, For: 3 * time.Second},
		{Name: "a commit of a paused holder is late", Prelude: lateCommit, For: 3 * time.Second},
		{Name: "both acquire", Faults: 2, Prelude: bothAsk, For: time.Second},
		{Name: "both acquire a lease with a checkpoint", Faults: 2, Prelude: askForCheckpoint, For: time.Second},
		{Name: "both acquire a tombstone", Faults: 1, Prelude: askForTombstone, For: time.Second},
		{Name: "both acquire and release", Faults: 1, Prelude: bothAsk, Sessions: &explore.Sessions{Releases: 2}, For: 2 * time.Second},
		{Name: "acquisitions at any time", Prelude: idle, Sessions: &explore.Sessions{Acquires: 3, Releases: 2}, For: 2 * time.Second},
		{Name: "both try", Faults: 2, Prelude: bothAsk, Sessions: &explore.Sessions{Try: true}, For: time.Second},
		{Name: "a caller that only tries finds a dead holder", Faults: 1, Prelude: aDiedLongAgo, Sessions: &explore.Sessions{Try: true, Forgoes: 1, LockDelay: 2 * time.Second}, For: 14 * time.Second},
		{Name: "a caller that only tries finds a paused holder", Prelude: aIsPaused, Sessions: &explore.Sessions{Try: true}, For: 12 * time.Second},
		{Name: "a holder releases", Faults: 1, Prelude: bWaits, Sessions: &explore.Sessions{Releases: 1}, For: 2 * time.Second},
		{Name: "a holder releases, and a waiter gives up", Prelude: bWaits, Sessions: &explore.Sessions{Releases: 1, Forgoes: 1}, For: 4 * time.Second},
		{Name: "a holder releases, and two wait", Workers: 3, Prelude: bcWait, Sessions: &explore.Sessions{Releases: 1}, For: 3 * time.Second},
		{Name: "a holder stops", Stops: 1, Faults: 1, Prelude: bWaits, For: time.Second},
		{Name: "a command during a commit", Faults: 1, Prelude: aCommits, Sessions: &explore.Sessions{Commands: 1}, For: time.Second},
		{Name: "a command during a release", Prelude: bWaits, Sessions: &explore.Sessions{Commands: 1, Releases: 1}, For: 3 * time.Second},
		{Name: "a command, with a lock delay", Faults: 1, Prelude: bWaits, Sessions: &explore.Sessions{Commands: 1, LockDelay: 2 * time.Second}, For: 6 * time.Second},
		{Name: "a reassignment, with a lock delay", Prelude: bWaits, Sessions: &explore.Sessions{Commands: 1, Reassign: "b", Lasts: time.Second, LockDelay: 2 * time.Second}, For: 6 * time.Second},
		{Name: "a reassignment during a commit", Faults: 1, Prelude: aCommits, Sessions: &explore.Sessions{Commands: 1, Reassign: "b", Lasts: time.Hour}, For: time.Second},
		{Name: "a move", Workers: 3, Prelude: bcWait, Sessions: move("b", time.Hour, 0), For: 6 * time.Second},
		{Name: "a move during a commit", Faults: 1, Prelude: aCommits, Sessions: move("b", time.Hour, 0), For: 5 * time.Second},
		{Name: "a move, with a lock delay", Prelude: bWaits, Sessions: move("b", time.Hour, 2*time.Second), For: 14 * time.Second},
		{Name: "a move of a lease that changes hands", Crashes: 1, Prelude: bWaits, Sessions: &explore.Sessions{Commands: 1, Releases: 2, Move: "b", Lasts: time.Hour}, For: 6 * time.Second},
		{Name: "a move to nobody", Marks: 1, Prelude: bWaits, Sessions: move("z", 20*time.Second, 0), For: 6 * time.Second},
		{Name: "a reassignment to nobody", Marks: 1, Prelude: bWaits, Sessions: &explore.Sessions{Commands: 1, Reassign: "z", Lasts: 20 * time.Second}, For: 4 * time.Second},
	}
	stalls := func(of explore.Sessions) *explore.Sessions { of.StallAfter = 4 * time.Second; return &of }
	all = append(all,
		explore.Story{Name: "a holder stalls", Faults: 1, Prelude: bWaits, Sessions: stalls(explore.Sessions{}), For: 10 * time.Second},
		explore.Story{Name: "a holder stalls, with a lock delay", Prelude: bWaits, Sessions: stalls(explore.Sessions{LockDelay: 4 * time.Second}), For: 14 * time.Second},
		explore.Story{Name: "a holder stalls, and its session stops", Stops: 1, Prelude: bWaits, Sessions: stalls(explore.Sessions{LockDelay: 2 * time.Second}), For: 14 * time.Second},
		explore.Story{Name: "a holder stalls, and its session dies", Crashes: 1, Prelude: bWaits, Sessions: stalls(explore.Sessions{LockDelay: 2 * time.Second}), For: 14 * time.Second},
		explore.Story{Name: "a holder stalls too often", Prelude: bWaits, Sessions: stalls(explore.Sessions{MaxAttempts: 2, Acquires: 1}), For: 12 * time.Second},
		explore.Story{Name: "holders fail", Fails: 3, Faults: 1, Prelude: bothAsk, Sessions: &explore.Sessions{MaxAttempts: 2, Acquires: 3}, For: 3 * time.Second},
		explore.Story{Name: "a holder fails, and its session asks again", Fails: 1, Faults: 1, Prelude: bWaits, Sessions: &explore.Sessions{Acquires: 1}, For: 6 * time.Second},
		explore.Story{Name: "a holder fails, and its session tries again", Fails: 1, Faults: 1, Prelude: held, Sessions: &explore.Sessions{Acquires: 1, Try: true}, For: 6 * time.Second},
		explore.Story{Name: "a holder fails, and the next one dies", Fails: 1, Crashes: 1, Prelude: bWaits, Sessions: &explore.Sessions{MaxAttempts: 2, Acquires: 1}, For: 14 * time.Second},
		explore.Story{Name: "a holder fails, and the last commit of the next one is late", Prelude: lastCommit, Sessions: &explore.Sessions{MaxAttempts: 2}, For: 4 * time.Second},
		explore.Story{Name: "holders fail, and callers try", Fails: 3, Prelude: bothAsk, Sessions: &explore.Sessions{MaxAttempts: 2, Acquires: 3, Try: true}, For: 3 * time.Second},
	)
	for i := range all {
		all[i].Workers, all[i].Goal = max(all[i].Workers, 2), true
		all[i].Settled = all[i].Workers
		if all[i].Sessions == nil {
			all[i].Sessions = &explore.Sessions{}
		}
	}
	return all
}
