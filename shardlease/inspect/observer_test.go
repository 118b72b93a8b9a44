package inspect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestToldAndObserved: the reader's clock is right, and those of the workers are an hour behind.
func TestToldAndObserved(t *testing.T) {
	of, o := settled(t), inspect.Observer{}
	hour := func(look func() *inspect.Snapshot) *inspect.Snapshot {
		of.now = of.now.Add(time.Hour)
		defer func() { of.now = of.now.Add(-time.Hour) }()
		s := look()
		o.See(s)
		return s
	}
	s := hour(of.look)
	if got := s.Workers[0]; got.Silent.D != time.Hour || got.Silent.Observed || got.Beating != inspect.Unknown || !got.Dead {
		t.Errorf("the first look knows told times only: %+v", got.Silent)
	}
	of.pass(time.Second)
	of.move("shard-0", "b")
	s = hour(of.look)
	if got := s.Workers[0]; got.Silent.D != 0 || !got.Silent.Observed || got.Beating != inspect.Yes || got.Dead {
		t.Errorf("its heartbeat has moved: %+v", got.Silent)
	}
	of.frozen = "b"
	of.pass(2 * time.Second)
	s = hour(of.look)
	moved, other := s.Shard("shard-0"), s.Shard("shard-1")
	if moved.Since.D != 2*time.Second || !moved.Since.Observed || moved.Checkpoint.D != 2*time.Second || moved.Tenure.D != 2*time.Second {
		t.Errorf("it was seen to move: %+v, %+v", moved.Since, moved.Checkpoint)
	}
	if other.Since.D != 2*time.Hour+3*time.Second || other.Since.Observed || other.Since.Watched != 3*time.Second {
		t.Errorf("it has not moved since the first look: %+v", other.Since)
	}
	of.pass(ttl)
	s = hour(of.look)
	if a, b := s.Workers[0], s.Workers[1]; a.Beating != inspect.Yes || b.Beating != inspect.No || b.Silent.D != ttl+2*time.Second || b.Dead {
		t.Errorf("a %s, b %s, silent for %+v", a.Beating, b.Beating, b.Silent)
	}
	of.pass(2 * time.Second)
	if s = hour(of.look); !s.Workers[1].Dead || len(warned(s, inspect.CodeSilent)) != 1 {
		t.Error("b should have been evicted")
	}
	if w := warned(s, inspect.CodeClockSkew); len(w) != 1 || w[0].Subject != "a" {
		t.Errorf("the clock of a is behind: %v", w)
	}
}

// TestMoveThatIsRequestedAgain: a successor that calls a move off and requests the shard again after a heartbeat has
// not begun another move.
func TestMoveThatIsRequestedAgain(t *testing.T) {
	of, o := settled(t), inspect.Observer{}
	see := func() *inspect.Snapshot {
		s := of.look()
		o.See(s)
		of.pass(time.Second)
		return s
	}
	see()
	for range 4 {
		of.want("b", "shard-0", "cooperative 5s")
		for range 5 {
			see()
		}
		of.seats["b"].Wants = nil
		for range 3 {
			see()
		}
	}
	of.want("b", "shard-0", "cooperative 5s")
	if s := see(); s.Shard("shard-0").Move.For.D != 32*time.Second || len(warned(s, inspect.CodeStuckHandoff)) != 1 {
		t.Errorf("%+v", s.Shard("shard-0").Move)
	}
}

// TestRestsAreNoWarning: a free shard may rest for as long as the workers' backoff allows, and its worker for as long if
// its handler gives up again and again.
func TestRestsAreNoWarning(t *testing.T) {
	for name, make := range map[string]func(of *table, row *lease.Row){
		"it failed twelve times": func(of *table, row *lease.Row) {
			of.begin(row, lease.ReasonFailed, "", "a")
			row.Failures = lease.Failures{Count: 12, Last: row.Generation - 1, Errors: 12}
			row.Checkpoint.Generation = 1
		},
		"its handler gave up again and again": func(of *table, row *lease.Row) {
			delete(of.seats, "b")
			row.Past, row.Last.Reason = "", lease.ReasonReleased
			for range 6 {
				of.begin(row, lease.ReasonReleased, "a", "")
				of.begin(row, lease.ReasonReleased, "", "a")
			}
			row.Past = row.Past[:strings.LastIndexByte(row.Past, '\n')] // the row has forgotten the first
		},
	} {
		t.Run(name, func(t *testing.T) {
			of, o := settled(t), inspect.Observer{}
			make(of, of.rows["shard-0"])
			began, warnedAt := of.now, time.Duration(0)
			for ; warnedAt == 0 && of.now.Sub(began) < time.Hour; of.pass(time.Second) {
				s := of.look()
				if o.See(s); len(warned(s, inspect.CodeUnclaimed)) > 0 {
					warnedAt = of.now.Sub(began)
				}
			}
			if least := 5*time.Minute + ttl; warnedAt < least || warnedAt > 3*least {
				t.Errorf("after %v, want %v at least", warnedAt, least)
			}
		})
	}
}

// TestUnevenIsExcused: by wishes, by moves, and by a plan that wants it so.
func TestUnevenIsExcused(t *testing.T) {
	for name, excuse := range map[string]func(of *table){
		"":      func(of *table) {},
		"pause": func(of *table) { of.wishes = []lease.Wish{{Kind: lease.WishPause, By: "op", Why: "test"}} },
		"pin": func(of *table) {
			of.wishes = []lease.Wish{{Kind: lease.WishPin, Subject: "shard-1", To: "a", By: "op"}}
		},
		"full":  func(of *table) { of.seats["b"].MaxShards = 1 },
		"plan":  func(of *table) { of.planned(3) },
		"move":  func(of *table) { of.want("b", "shard-1", "eager 20s") },
		"open":  func(of *table) { of.plan.Open = true },
		"leave": func(of *table) { of.seats["b"].Leaving = true },
	} {
		of, o := settled(t), inspect.Observer{}
		of.move("shard-1", "a")
		of.pass(time.Hour)
		excuse(of)
		o.See(of.look())
		of.pass(25 * time.Second)
		s := of.look()
		o.See(s)
		if n := len(warned(s, inspect.CodeUneven)); (n == 1) != (name == "") {
			t.Errorf("%q: %d warnings", name, n)
		}
	}
}

// TestEachRestCountsByItself: a shard fails as soon as it is claimed, again and again, and rests for minutes each time. No
// look sees it held. It does not seem to have rested since its first failure.
func TestEachRestCountsByItself(t *testing.T) {
	of, o := settled(t), inspect.Observer{}
	for n := range 40 {
		if n%4 == 0 {
			of.begin(of.rows["shard-0"], lease.ReasonFailed, "a", "")
			of.fail(of.rows["shard-0"])
			of.rows["shard-0"].Failures.Count, of.rows["shard-0"].Failures.Errors = 12, 12
		}
		of.pass(time.Minute)
		s := of.look()
		o.See(s)
		if w := warned(s, inspect.CodeUnclaimed); len(w) > 0 || s.Shard("shard-0").State != inspect.Resting {
			t.Fatalf("after %d minutes: %s, %v", n+1, s.Shard("shard-0").State, w)
		}
	}
}
