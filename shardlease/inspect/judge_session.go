package inspect

import (
	"fmt"
	"log/slog"
	"time"
)

// idle returns what the workers or sessions do not do as long as a restored table is not adopted.
func (j *judge) idle() string {
	if j.Sessions {
		return "the sessions acquire nothing"
	}
	return "the workers claim nothing"
}

// sessions finds what is wrong with a group of sessions. Most warnings of a fleet make no sense here: a lease
// may have no holder, a holder need not commit, and sessions may have different lease times.
func (j *judge) sessions() {
	for i := range j.Shards {
		switch of := &j.Shards[i]; of.State {
		case Orphaned:
			j.abandoned(of)
		case Quarantined:
			j.setAside(of)
		}
	}
	for i := range j.Workers {
		w := j.by[j.Workers[i].Seat.Incarnation]
		if !w.Dead {
			j.clock(w)
		} else if w.Held > 0 {
			j.warn(CodeSilent, slog.LevelWarn, w.Seat.Name, fmt.Sprintf("the session has stored no heartbeat for %s, its lease time is %v, and it holds %s.", about(w.Silent.D), w.Seat.TTL, many(w.Held, "lease")),
				fmt.Sprintf("Another session that waits for one of these leases evicts this session. If none waits and the process has ended, `shardlease evict %s --why \"…\"` frees the leases.", quoted(string(w.Seat.Incarnation))))
		}
	}
}

// abandoned reports a lease whose holder has no seat. A session acquires the lease only for a caller, so it is
// no fault if that lasts.
func (j *judge) abandoned(s *Shard) {
	text := fmt.Sprintf("its holder %q has no seat any more, and no session has acquired the lease%s.", s.Owner.Name, lasting(s.Since))
	if delay := s.Owner.LockDelay; delay > 0 {
		text = fmt.Sprintf("its holder %q has no seat any more, and no session has acquired the lease%s; its lock delay is %v.", s.Owner.Name, lasting(s.Since), delay.Round(time.Millisecond))
	}
	j.warn(CodeOrphaned, slog.LevelInfo, s.Name, text,
		fmt.Sprintf("Nothing is to be done: the next session that wants the lease acquires it; `shardlease release %s --why \"…\"` frees it without the lock delay.", quoted(s.Name)))
}

// setAside reports a quarantined lease. Only operators quarantine leases by name.
func (j *judge) setAside(s *Shard) {
	text := fmt.Sprintf("operator %q has set the lease aside", s.Row.Last.By)
	if note := s.Row.Last.Note; note != "" {
		text += fmt.Sprintf(" (%s)", note)
	}
	j.warn(CodeQuarantined, slog.LevelWarn, s.Name, text+": no session acquires it.",
		fmt.Sprintf("When it may be used again, `shardlease unquarantine %s --why \"…\"`.", quoted(s.Name)))
}
