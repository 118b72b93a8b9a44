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
		mend: func(s *scene) { // the release moves the shard, and the process in which the handler hangs is restarted
			owner := s.snapshot().Shard("shard-0").Owner.Name
			s.heal()
			s.types("release", "shard-0")
			s.restart(owner)
		},
		over: time.Minute,
	}, {
		code: inspect.CodeUnlisted, level: "WARN", watch: 0, within: 2 * time.Minute, // a source that is cut short
		cause: func(s *scene) { s.lists("shard-1", "shard-2", "shard-3", "shard-4", "shard-5") },
		mend:  func(s *scene) { s.list(6) },
		over:  time.Minute,
	}, {
		code: inspect.CodeUnlisted, level: "WARN", watch: 0, within: 2 * time.Minute, // the stream was replaced
		cause: func(s *scene) { s.lists("shard-1", "shard-2", "shard-3", "shard-4", "shard-5") },
		mend:  func(s *scene) { s.types("remove", "shard-0") },
		over:  20 * time.Second,
	}, {
		code: inspect.CodeHangs, level: "WARN", watch: 0, within: 40 * time.Second,
		cause: func(s *scene) { s.hang() },
		mend:  func(s *scene) { s.restart(s.names[0]) },
		over:  time.Minute,
	}, {
		code: inspect.CodeHangs, level: "ERROR", with: []inspect.Code{inspect.CodeUnclaimed}, watch: 20 * time.Second, within: 50 * time.Second, // in every process
		cause: func(s *scene) {
			for range 3 {
				s.hang()
				time.Sleep(time.Minute)
			}
		},
		mend: func(s *scene) { s.restart(s.names...) },
		over: 2 * time.Minute,
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

// hang makes the handler of shard-0 hang on its worker, and takes the shard from the worker. The scene remembers its name.
func (s *scene) hang() {
	owner := s.snapshot().Shard("shard-0").Owner.Name
	s.ail(hangs, owner, "shard-0")
	time.Sleep(2 * time.Second)
	s.types("release", "shard-0")
	s.names = append(s.names, owner)
}

// restart kills processes, and starts others in their place.
func (s *scene) restart(names ...string) {
	s.heal()
	s.kill(names...)
	s.join(names...)
}

// fleet starts the workers a, b and c.
func (s *scene) fleet(config shardlease.Config) {
	for _, name := range []string{"a", "b", "c"} {
		s.joinAs(name, config)
	}
}
