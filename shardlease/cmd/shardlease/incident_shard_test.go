package main

import (
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// shardIncidents concern single shards, which no worker holds or whose handler is wrong.
func shardIncidents() []incident {
	attempts := func(s *scene) { s.fleet(shardlease.Config{MaxAttempts: 3}) }
	return []incident{{
		code: inspect.CodeOrphaned, level: "ERROR", with: []inspect.Code{inspect.CodeNoRoom}, watch: 15 * time.Second, within: time.Minute,
		begin: func(s *scene) { s.fleet(shardlease.Config{MaxShards: 2}) },
		cause: func(s *scene) { s.kill("c") },
		mend:  func(s *scene) { s.join("d") },
		over:  30 * time.Second,
	}, {
		code: inspect.CodeOrphaned, level: "ERROR", watch: 20 * time.Second, within: time.Minute, // nobody may write the row before it is released
		cause: func(s *scene) {
			owner := s.snapshot().Shard("shard-0").Owner.Name
			for _, a := range s.actors {
				a.refuse(s.untouched("shard-0"))
			}
			s.kill(owner)
		},
		mend: func(s *scene) { s.types("release", "shard-0") },
		over: 45 * time.Second,
	}, {
		code: inspect.CodeNoRoom, level: "ERROR", watch: 0, within: 40 * time.Second, // a source that lists more shards
		begin: func(s *scene) { s.fleet(shardlease.Config{MaxShards: 2}) },
		cause: func(s *scene) { s.list(8) },
		mend:  func(s *scene) { s.join("d") },
		over:  30 * time.Second,
	}, {
		code: inspect.CodeUnclaimed, level: "ERROR", watch: 20 * time.Second, within: 40 * time.Second,
		cause: func(s *scene) { // its worker may not write the row
			s.types("pin", "shard-0", "a")
			time.Sleep(time.Minute)
			s.worker("a").refuse(about("shard-0"))
			s.types("release", "shard-0")
		},
		mend: func(s *scene) { s.types("pin", "shard-0", "b") },
		over: 30 * time.Second,
	}, {
		code: inspect.CodeUnclaimed, level: "ERROR", watch: 20 * time.Second, within: 40 * time.Second, // reserved for a worker that does not run
		cause: func(s *scene) {
			s.types("reassign", "shard-0", "--to", "d", "--absent", "--for", "1h")
			s.types("lift", "pin", "shard-0")
		},
		mend: func(s *scene) { s.types("release", "shard-0") },
		over: 30 * time.Second,
	}, {
		code: inspect.CodeQuarantined, level: "ERROR", watch: 0, within: time.Minute,
		begin: attempts,
		cause: func(s *scene) { s.ail(fails, "*", "shard-0") },
		mend:  func(s *scene) { s.heal(); s.types("unquarantine", "shard-0") },
		over:  20 * time.Second,
	}, {
		code: inspect.CodeQuarantined, level: "WARN", watch: 0, within: time.Second, // by an operator
		cause: func(s *scene) { s.types("quarantine", "shard-0") },
		mend:  func(s *scene) { s.types("unquarantine", "shard-0") },
		over:  20 * time.Second,
	}, {
		code: inspect.CodeFailing, level: "WARN", watch: 0, within: 10 * time.Second,
		cause: func(s *scene) { s.ail(fails, "*", "shard-0") },
		mend:  func(s *scene) { s.heal() },
		over:  6 * time.Minute,
	}, {
		code: inspect.CodeFailing, level: "WARN", watch: 0, within: 10 * time.Minute, // skip the rest
		cause: func(s *scene) { s.ail(fails, "*", "shard-0") },
		mend: func(s *scene) {
			s.heal()
			s.types("quarantine", "shard-0")
			s.types("unquarantine", "shard-0")
		},
		over: 20 * time.Second,
	}, {
		code: inspect.CodeNoProgress, level: "WARN", watch: 12 * time.Second, within: 6*time.Minute + 30*time.Second,
		cause: func(s *scene) { s.ail(hangs, "*", "shard-0") },
		mend:  func(s *scene) { s.heal(); s.types("release", "shard-0") },
		over:  time.Minute,
	}, {
		code: inspect.CodeNoProgress, level: "INFO", watch: 12 * time.Second, within: 16*time.Minute + 30*time.Second,
		cause: func(s *scene) { s.ail(alive, "*", "shard-0") },
		mend:  func(s *scene) { s.heal() },
		over:  20 * time.Second,
	}, {
		code: inspect.CodeFatRow, level: "INFO", watch: 0, within: 10 * time.Second,
		cause: func(s *scene) { s.ail(fat, "*", "shard-0") },
		mend:  func(s *scene) { s.heal() },
		over:  20 * time.Second,
	}}
}

// fleet starts the workers a, b and c.
func (s *scene) fleet(config shardlease.Config) {
	for _, name := range []string{"a", "b", "c"} {
		s.joinAs(name, config)
	}
}
