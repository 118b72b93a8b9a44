package inspect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// waiters returns the sessions that wait for a lease, in words.
func waiters(s *inspect.Snapshot, name string) string {
	var all []string
	for by, age := range s.Shard(name).Waiters() {
		all = append(all, fmt.Sprint(by.Name, " ", by.Task, " ", age.D))
	}
	return strings.Join(all, ", ")
}

// TestWaiters: a snapshot shows which sessions wait for a lease, the longest wait first. A session that holds the
// lease by now, or that is dead, does not wait; nor does an observer show one that it has seen die.
func TestWaiters(t *testing.T) {
	of := locks(t, 0)
	of.seat("c").Task = "run"
	ago := func(d time.Duration) time.Time { return of.now.Add(-d) }
	of.seats["a"].Waits = []lease.Wait{{Lease: "deploy", Since: ago(time.Minute)}, {Lease: "leader", Since: ago(time.Second)}}
	of.seats["b"].Waits = []lease.Wait{{Lease: "leader", Task: "run/7", Since: ago(3 * time.Minute)}, {Lease: "gone", Since: ago(time.Second)}}
	of.seats["b"].WaitsLeft = 90
	of.seats["c"].Waits = []lease.Wait{{Lease: "leader", Since: ago(time.Hour)}}
	check := func(s *inspect.Snapshot, leader string, counts ...int) {
		t.Helper()
		if got := waiters(s, "leader"); got != leader {
			t.Errorf("leader: %q, want %q", got, leader)
		}
		if got := waiters(s, "deploy"); got != "a  1m0s" && s.Shard("deploy") != nil {
			t.Errorf("deploy: %q", got)
		}
		for i, want := range counts {
			if got := s.Workers[i].Waits(); got != want {
				t.Errorf("%s waits for %d leases, want %d", s.Workers[i].Seat.Name, got, want)
			}
		}
	}
	check(of.look(), "c run 1h0m0s, b run/7 3m0s", 1, 92, 1)
	part, err := inspect.LookAt(t.Context(), of, group, "leader", inspect.Options{Now: of.clock})
	if err != nil || waiters(part, "leader") != "c run 1h0m0s, b run/7 3m0s" {
		t.Errorf("%v, %v", part, err)
	}
	of.seats["b"].At = ago(time.Hour) // as it is told
	check(of.look(), "c run 1h0m0s", 1, 0, 1)
	of.seats["b"].At = of.now

	var o inspect.Observer
	of.frozen = "c"
	for range 10 {
		of.seats["a"].Waits[0].Since, of.seats["b"].Waits[0].Since = ago(time.Minute), ago(3*time.Minute)
		s := of.look()
		o.See(s)
		if c := s.Worker("c-1"); c.Dead && c.Waits() == 0 {
			check(s, "b run/7 3m0s", 1, 92, 0)
			return
		}
		of.pass(3 * time.Second)
	}
	t.Error("the observer shows the wait of a dead session")
}
