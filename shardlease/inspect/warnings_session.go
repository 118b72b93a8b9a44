package inspect

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// idle returns what the workers or sessions do not do as long as a restored table is not adopted.
func (f *findings) idle() string {
	if f.Sessions {
		return "the sessions acquire nothing"
	}
	return "the workers claim nothing"
}

// sessions finds what is wrong with a group of sessions. Most warnings of a fleet make no sense here: a lease
// may have no holder, a holder need not commit, and sessions may have different lease times.
func (f *findings) sessions() {
	f.usurped()
	f.raises()
	for i := range f.Shards {
		of := &f.Shards[i]
		switch of.State {
		case Orphaned:
			f.abandoned(of)
		case Quarantined:
			f.setAside(of)
		}
		if of.Row.Failed() > 0 { // deaths alone are no fault of a plain lock, whose next holder may keep it for days
			f.failing(of, "lease", "session", "the functions that work under it")
		}
	}
	for i := range f.Workers {
		w := f.by[f.Workers[i].Seat.Incarnation]
		if !w.Dead {
			f.clock(w)
			f.hanging(w)
			f.silentHolders(&w.Seat)
		} else if w.Held > 0 {
			f.warn(CodeSilent, slog.LevelWarn, w.Seat.Name, fmt.Sprintf("the session has stored no heartbeat for %s, its lease time is %v, and it holds %s.", about(w.Silent.D), w.Seat.TTL, many(w.Held, "lease")),
				fmt.Sprintf("The other sessions of the group evict this session, at the latest about a minute after its lease time. If no other session runs and the process has ended, `shardlease evict %s --why \"…\"` frees the leases.", quoted(string(w.Seat.Incarnation))))
		}
	}
}

// usurped reports that the record of sessions has replaced the plan that living workers follow: they keep their
// shards, and no worker plans.
func (f *findings) usurped() {
	at := slices.IndexFunc(f.alive, func(w *Worker) bool { return w.Seat.Revision > 0 })
	if at < 0 {
		return
	}
	seat := &f.alive[at].Seat
	f.warn(CodePlanStale, slog.LevelError, "", fmt.Sprintf("worker %q follows revision %d of a plan, and a record of sessions is in its place: no worker plans.", seat.Name, seat.Revision),
		"Stop the sessions or give them another group, and delete the item `!plan` (docs/table.md): the planner writes a new one; `shardlease plan` shows the result.")
}

// abandoned reports a lease whose holder has no seat. Nobody acquires it unless a caller wants it, so
// that is no fault however long it lasts.
func (f *findings) abandoned(s *Shard) {
	text := fmt.Sprintf("its holder %q has no seat any more, and no session has acquired the lease%s.", s.Owner.Name, lasting(s.Since))
	if delay := s.Owner.LockDelay; delay > 0 {
		text = fmt.Sprintf("its holder %q has no seat any more, and no session has acquired the lease%s; its lock delay is %v.", s.Owner.Name, lasting(s.Since), delay.Round(time.Millisecond))
	}
	f.warn(CodeOrphaned, slog.LevelInfo, s.Name, text,
		fmt.Sprintf("Nothing is to be done: the next session that wants the lease acquires it; `shardlease release %s --no-delay --why \"…\"` frees it without the lock delay.", quoted(s.Name)))
}

// silentHolders reports a session whose seat shows silent holders. The holder of a plain lock need not show progress,
// and is not among them.
func (f *findings) silentHolders(seat *lease.Seat) {
	if n := seat.Health.Silent; n > 0 {
		f.warn(CodeNoProgress, slog.LevelWarn, seat.Name, fmt.Sprintf("the session reports %s without progress.", many(int(n), "holder")),
			"Its event `silent` names their leases, and `shardlease ls` shows for how long it holds them. `shardlease release LEASE --why \"…\"` gives a lease to others.")
	}
}

// setAside reports a quarantined lease.
func (f *findings) setAside(s *Shard) {
	text, byHand := whoSetAside(s, "lease", "session")
	f.warn(CodeQuarantined, level(!byHand), s.Name, text+": no session acquires it."+afterError(s),
		fmt.Sprintf("When it may be used again, `shardlease unquarantine %s --why \"…\"`.", quoted(s.Name)))
}
