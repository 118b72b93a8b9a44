package main

import (
	"context"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// moveIncidents concern shards that move.
func moveIncidents() []incident {
	return []incident{{
		code: inspect.CodeStuckHandoff, level: "WARN", watch: time.Minute, within: 65 * time.Second, // neither side may write the row
		cause: func(s *scene) {
			for _, name := range []string{"a", "b", "c"} {
				s.worker(name).refuse(about("shard-0"))
			}
			s.types("pin", "shard-0", s.another("shard-0"))
		},
		mend: func(s *scene) { s.allow() },
		over: 30 * time.Second,
	}, {
		code: inspect.CodeDanglingOffer, level: "WARN", watch: 45 * time.Second, within: 70 * time.Second,
		begin: func(s *scene) { s.fleet(shardlease.Config{Handoff: rebalance.Cooperative}) },
		cause: func(s *scene) { s.dangle("shard-0", about("shard-0")) },
		mend:  func(s *scene) { s.allow() },
		over:  time.Minute,
	}, {
		code: inspect.CodeStuckHandoff, level: "WARN", watch: time.Minute, within: 65 * time.Second, // the owner may not write the row
		begin: func(s *scene) { s.fleet(shardlease.Config{Handoff: rebalance.Cooperative}) },
		cause: func(s *scene) {
			s.worker(s.snapshot().Shard("shard-0").Owner.Name).refuse(about("shard-0"))
			s.types("pin", "shard-0", s.another("shard-0"))
		},
		mend: func(s *scene) { s.types("release", "shard-0") },
		over: time.Minute,
	}, {
		code: inspect.CodeDanglingOffer, level: "WARN", watch: 45 * time.Second, within: 70 * time.Second, // the owner may not write it before it is released
		begin: func(s *scene) { s.fleet(shardlease.Config{Handoff: rebalance.Cooperative}) },
		cause: func(s *scene) { s.dangle("shard-0", s.untouched("shard-0")) },
		mend:  func(s *scene) { s.types("release", "shard-0") },
		over:  time.Minute,
	}, {
		code: inspect.CodeBouncing, level: "WARN", watch: 0, within: 3 * time.Minute,
		cause: func(s *scene) { go s.bounce("shard-0") },
		mend: func(s *scene) {
			s.heal()
			time.Sleep(time.Minute) // the program that moves the shard has ended
			s.types("pin", "shard-0", s.snapshot().Shard("shard-0").Owner.Name)
		},
		over: 6 * time.Minute,
	}, {
		code: inspect.CodeBouncing, level: "WARN", watch: 0, within: 3 * time.Minute, // the program does not end
		cause: func(s *scene) { go s.bounce("shard-0") },
		mend:  func(s *scene) { s.types("pause") },
		over:  6 * time.Minute,
	}, {
		code: inspect.CodeLeavingSlowly, level: "WARN", watch: 25 * time.Second, within: 30 * time.Second,
		begin: func(s *scene) {
			s.fleet(shardlease.Config{Drain: 5 * time.Minute, Handoff: rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}})
		},
		cause: func(s *scene) {
			s.ail(hangs, "a", "*")
			a := s.worker("a")
			a.dead = true
			a.stop()
		},
		mend: func(s *scene) { s.types("evict", "a") },
		over: time.Minute,
	}}
}

// planIncidents concern the plan.
func planIncidents() []incident {
	return []incident{{
		code: inspect.CodePlanStale, level: "WARN", watch: 25 * time.Second, within: 30 * time.Second, // a seat whose worker is stuck
		begin: func(s *scene) { s.list(3); s.join("a", "b", "c") },
		cause: func(s *scene) { s.stick("stuck") },
		mend:  func(s *scene) { s.types("evict", "stuck") },
		over:  time.Minute,
	}, {
		code: inspect.CodeUneven, level: "WARN", with: []inspect.Code{inspect.CodeStuckHandoff}, watch: time.Minute, within: 65 * time.Second, // a worker may not write rows
		begin: func(s *scene) {
			s.joinAs("a", shardlease.Config{Handoff: rebalance.Cooperative})
			s.joinAs("b", shardlease.Config{Handoff: rebalance.Cooperative})
		},
		cause: func(s *scene) {
			c := s.joinAs("c", shardlease.Config{Handoff: rebalance.Cooperative})
			c.refuse(func(w lease.Write) bool { return w.Key().Kind == lease.KindLease })
		},
		mend: func(s *scene) { s.allow() },
		over: time.Minute,
	}}
}

// tableIncidents concern the table and its records.
func tableIncidents() []incident {
	row := lease.Key{Group: "orders", Kind: lease.KindLease, Name: "shard-0"}
	return []incident{{
		code: inspect.CodeRestored, level: "ERROR", watch: 0, within: time.Second,
		cause: func(s *scene) { s.tables.change(func() { s.tables.restored = true }) },
		mend:  func(s *scene) { s.types("table", "adopt") },
		over:  30 * time.Second,
	}, {
		code: inspect.CodeUnreadable, level: "ERROR", watch: 0, within: time.Second,
		cause: func(s *scene) { s.tables.spoil(row, true) },
		mend:  func(s *scene) { s.types("repair", "shard-0") },
		over:  time.Minute,
	}, {
		code: inspect.CodeUnreadable, level: "WARN", watch: 0, within: 5 * time.Second, // the seat of a dead worker
		cause: func(s *scene) {
			inc := s.incarnation("c")
			s.kill("c")
			s.tables.spoil(lease.Key{Group: "orders", Kind: lease.KindSeat, Name: inc}, true)
			s.names = []string{inc}
		},
		mend: func(s *scene) { s.types("evict", s.names[0]) },
		over: 40 * time.Second,
	}, {
		code: inspect.CodeUnreadable, level: "WARN", watch: 0, within: 5 * time.Second, // the wishes
		cause: func(s *scene) {
			s.types("cordon", "a")
			s.tables.spoil(lease.Wishes{Group: "orders"}.Key(), true)
		},
		mend: func(s *scene) {
			s.types("lift", "all")
			s.give("", "cordon", "b", "--why", "test", "--yes") // wishes can be made again
		},
		over: 40 * time.Second,
	}}
}

// another returns a worker that does not hold the shard.
func (s *scene) another(shard string) string {
	if s.snapshot().Shard(shard).Owner.Name == "a" {
		return "b"
	}
	return "a"
}

// dangle lets the owner offer a shard to a successor that dies. The owner may not withdraw the offer.
func (s *scene) dangle(shard string, deny func(lease.Write) bool) {
	owner, to := s.snapshot().Shard(shard).Owner.Name, s.another(shard)
	s.worker(to).refuse(about(shard))
	s.types("pin", shard, to)
	for s.snapshot().Shard(shard).Row.OfferedTo == "" {
		time.Sleep(10 * time.Millisecond)
	}
	s.worker(owner).refuse(deny)
	s.kill(to)
}

// allow ends all that keeps workers from reading and writing.
func (s *scene) allow() {
	for _, a := range s.actors {
		a.OnWrite(nil)
		a.OnList(nil)
	}
}

// bounce moves a shard from worker to worker, until the handlers are healed.
func (s *scene) bounce(shard string) {
	s.ail(silent, "nobody", "*")
	operator := shardlease.Supervisor{Store: s.tables.link("leases"), Group: "orders", By: "a program"}
	for n := 0; s.ailment("nobody", shard) == silent; n++ {
		_ = operator.Pin(s.t.Context(), shard, []string{"a", "b", "c"}[n%3], 0, "test")
		select {
		case <-s.over:
			return
		case <-time.After(25 * time.Second):
		}
	}
}

// stick adds the seat of a worker that beats and does nothing else, until the seat is evicted.
func (s *scene) stick(name string) {
	table, seat := s.tables.link("leases"), lease.Seat{Group: "orders", Incarnation: lease.Incarnation(name), Name: name, TTL: 10 * time.Second}
	seat = fixture.Must[lease.Seat](s.t, table)(protocol.Sit(seat, fixture.Stamp()))
	go func() {
		for ; ; time.Sleep(3 * time.Second) {
			select {
			case <-s.over:
				return
			default:
			}
			w, err := protocol.NextBeat(seat, lease.Says{}, fixture.Stamp())
			if err != nil {
				return
			}
			r, err := table.Write(context.Background(), w)
			if err != nil {
				return
			}
			seat = r.(lease.Seat)
		}
	}()
}
