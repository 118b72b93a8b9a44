package sim

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// TestSessions: sessions that die, are paused and lose replies keep S1 to S4 and the mutual exclusion of
// accepted effects. When the trouble is over, every caller gets its lease, and sessions at rest send only
// heartbeats and reads of the wishes, and list the seats now and then.
func TestSessions(t *testing.T) {
	contest := Sessions{Count: cmp.Or(given.sessions, 40), Leases: given.leases, Trouble: given.trouble(short)}
	if given.moment() {
		contest.Count, contest.Trouble = cmp.Or(given.sessions, 20), 2*time.Minute
	}
	moves := 0
	for seed := given.from; seed < given.from+uint64(cmp.Or(given.rounds, fixture.Size(1, 3))); seed++ {
		began := time.Now()
		r := contest.Run(seed, nil)
		t.Logf("seed %d: %v simulated in %v; %d tenures, %d of them lost, %d moved, %d hung, %d failed; %d leases quarantined; %d effects accepted, %d refused; %d times confirmed, %d denied; settled in %v; %.2f requests per session and interval at rest; waits of %v on average, %v at most\n%v",
			seed, r.Stats.Time, time.Since(began), r.Tenures, r.Lost, r.Moved, r.Hung, r.Failed, r.SetAside, r.Effects, r.Refused, r.Confirmed, r.Denied, r.Settled, r.Rest, r.Mean, r.Max, r.Stats)
		if r.Err != nil {
			t.Fatalf("%.3000v", r.Err)
		}
		if r.Confirmed == 0 {
			t.Errorf("no holder was told that it holds its lease")
		}
		moves += r.Moved
	}
	if moves == 0 && !given.moment() {
		t.Error("no lease was moved")
	}
}

// TestSessionsFollowFromTheirSeed: the same seed makes the same trace.
func TestSessionsFollowFromTheirSeed(t *testing.T) {
	contest := Sessions{Count: 5, Leases: 3, Trouble: 30 * time.Second}
	a, b := contest.Run(given.from, nil), contest.Run(given.from, func(string) {})
	if a.Hash != b.Hash || fmt.Sprint(a.Stats) != fmt.Sprint(b.Stats) {
		t.Errorf("seed %d: hash %x without a log, %x with one", given.from, a.Hash, b.Hash)
	}
}
