package explore_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/explore"
)

// TestLeasesByName goes through what two or three sessions come to that want the same lease by name. From every state
// all callers are served, if nothing more goes wrong and holders release what others wait for. These stories are
// gone through to their end, whatever states are asked for.
func TestLeasesByName(t *testing.T) {
	for _, s := range sessionStories() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r, err := explore.Explore(s, 1<<20)
			if err != nil || !r.Complete {
				t.Errorf("%+v: %v", r, err)
			}
			t.Logf("%s: %d states, depth %d", s.Name, r.States, r.Depth)
		})
	}
}

// TestLeasesByNameInMoreTrouble: the same stories with one more fault and one more mark, for twice as long. They are gone
// through as far as the states go that are asked for, if these are more than by default.
func TestLeasesByNameInMoreTrouble(t *testing.T) {
	if *states <= 3000 {
		t.Skip("run with -explore.states above 3000")
	}
	for _, s := range sessionStories() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Faults, s.Marks, s.For = s.Faults+1, s.Marks+1, 2*s.For
			r, err := explore.Explore(s, *states)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d states, depth %d, complete: %t", s.Name, r.States, r.Depth, r.Complete)
		})
	}
}

func idle(*explore.Prelude)     {}
func held(p *explore.Prelude)   { p.Acquire(a); p.Rest(time.Second) }
func waited(p *explore.Prelude) { held(p); p.Acquire(b); p.Rest(time.Second) }
func three(p *explore.Prelude)  { waited(p); p.Acquire(c); p.Rest(time.Second) }
func both(p *explore.Prelude)   { p.Acquire(a); p.Acquire(b) }

func sessionStories() []explore.Story {
	wakes := func(p *explore.Prelude) { waited(p); p.Pause(a); p.Until(b, "delete of seat") }
	dies := func(p *explore.Prelude) { waited(p); p.Die(a); p.Until(b, "delete of seat") }
	commits := func(p *explore.Prelude) { waited(p); p.Commit(a) }
	late := func(p *explore.Prelude) {
		waited(p)
		p.Commit(a)
		p.Late(a)
		p.Pause(a)
		p.Until(b, "delete of seat")
	}
	free := func(p *explore.Prelude) { p.Rest(time.Second); p.Release(a); p.Rest(time.Second); both(p) }
	tombstone := func(p *explore.Prelude) { held(p); free(p) }
	again := func(p *explore.Prelude) { held(p); p.Commit(a); free(p) }
	all := []explore.Story{
		{Name: "a holder dies", Crashes: 1, Prelude: waited, For: 12 * time.Second},
		{Name: "a dead holder is evicted, and calls fail", Faults: 2, Prelude: dies, For: 3 * time.Second},
		{Name: "a holder dies, with a lock delay", Crashes: 1, Prelude: waited, Sessions: &explore.Sessions{LockDelay: 4 * time.Second}, For: 20 * time.Second},
		{Name: "a holder is paused", Pauses: 1, Prelude: waited, For: 11 * time.Second},
		{Name: "a paused holder wakes up late", Marks: 1, Prelude: wakes, For: 3 * time.Second},
		{Name: "a commit of a paused holder is late", Prelude: late, For: 3 * time.Second},
		{Name: "both acquire", Faults: 2, Prelude: both, For: time.Second},
		{Name: "both acquire a lease with a checkpoint", Faults: 2, Prelude: again, For: time.Second},
		{Name: "both acquire a tombstone", Faults: 1, Prelude: tombstone, For: time.Second},
		{Name: "both acquire and release", Faults: 1, Prelude: both, Sessions: &explore.Sessions{Releases: 2}, For: 2 * time.Second},
		{Name: "acquisitions at any time", Prelude: idle, Sessions: &explore.Sessions{Acquires: 3, Releases: 2}, For: 2 * time.Second},
		{Name: "both try", Faults: 2, Prelude: both, Sessions: &explore.Sessions{Try: true}, For: time.Second},
		{Name: "a holder releases", Faults: 1, Prelude: waited, Sessions: &explore.Sessions{Releases: 1}, For: 2 * time.Second},
		{Name: "a holder releases, and a waiter gives up", Prelude: waited, Sessions: &explore.Sessions{Releases: 1, Forgoes: 1}, For: 4 * time.Second},
		{Name: "a holder releases, and two wait", Workers: 3, Prelude: three, Sessions: &explore.Sessions{Releases: 1}, For: 3 * time.Second},
		{Name: "a holder stops", Stops: 1, Faults: 1, Prelude: waited, For: time.Second},
		{Name: "a command during a commit", Faults: 1, Prelude: commits, Sessions: &explore.Sessions{Commands: 1}, For: time.Second},
		{Name: "a command during a release", Prelude: waited, Sessions: &explore.Sessions{Commands: 1, Releases: 1}, For: 3 * time.Second},
		{Name: "a reassignment during a commit", Faults: 1, Prelude: commits, Sessions: &explore.Sessions{Commands: 1, Reassign: "b", Lasts: time.Hour}, For: time.Second},
		{Name: "a reassignment to nobody", Marks: 1, Prelude: waited, Sessions: &explore.Sessions{Commands: 1, Reassign: "z", Lasts: 20 * time.Second}, For: 4 * time.Second},
	}
	for i := range all {
		all[i].Workers, all[i].Goal = max(all[i].Workers, 2), true
		all[i].Settled = all[i].Workers
		if all[i].Sessions == nil {
			all[i].Sessions = &explore.Sessions{}
		}
	}
	return all
}
