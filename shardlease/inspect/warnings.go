package inspect

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
)

// A Code names a kind of warning.
type Code string

// The codes of warnings, each with its condition. T is the longest lease time of the group. Where a
// condition names a time, an observed age reaches it, or a told age exceeds it by a minute.
const (
	// CodeNoWorkers: no worker has a living seat. An error while a shard needs a worker. Also an error if all workers that
	// live are leaving, and a shard without an owner has waited as long as for unclaimed.
	CodeNoWorkers Code = "no-workers"
	// CodeRestored: the table was restored or replaced, and the workers claim nothing.
	CodeRestored Code = "restored"
	// CodeOrphaned: the owner of a shard has no seat, and no worker has claimed the shard. Info at first;
	// an error after T, and 1.2 s more for each thousand shards. Always info in a group of sessions.
	CodeOrphaned Code = "orphaned"
	// CodeUnclaimed: a shard may be claimed, a worker lives, and no worker has claimed it for longer than the
	// longest rest that applies, T, and 1.2 s for each thousand shards. Four minutes more while
	// every worker is unwell. After a failure the longest rest is that of the backoff of the workers, and
	// Options.MaxBackoff if one of them does not publish it. Or a
	// shard waits for a parent that waits for the shard.
	CodeUnclaimed Code = "unclaimed"
	// CodeNoRoom: the plan has no worker with room for some shards. An error while one of them has no owner.
	CodeNoRoom Code = "no-room"
	// CodeUnwellWorker: a worker reports that its handlers fail whatever the shard, that its reads of the table fail,
	// that it cannot raise a fence, or that its source does not answer. An error while all workers are unwell.
	CodeUnwellWorker Code = "unwell-worker"
	// CodeStuckHandoff: a move stands for longer than its terms allow: twice the drain time (at least a
	// heartbeat interval), a heartbeat interval, and 2 s. A move whose terms say "wait" is never stuck.
	// Only an Observer can tell.
	CodeStuckHandoff Code = "stuck-handoff"
	// CodeDanglingOffer: a shard has been offered for 42 s to a worker that has no seat. Only an Observer
	// can tell.
	CodeDanglingOffer Code = "dangling-offer"
	// CodeQuarantined: a shard is quarantined. An error if a worker or session has set it aside, a warning if an
	// operator has.
	CodeQuarantined Code = "quarantined"
	// CodeUnlisted: the source no longer lists a shard that is not finished, and so no worker claims it.
	CodeUnlisted Code = "unlisted"
	// CodeFailing: at least two tenures of a shard have failed since it last made progress. In a group of sessions, not
	// all of them were deaths.
	CodeFailing Code = "failing"
	// CodeNoProgress: no checkpoint of a held shard was accepted for five minutes, or since its claim that
	// long ago, and its worker names the handler as one that was not idle and is silent. An older worker names
	// no handler: then it has silent ones. Info otherwise, after Options.Quiet: the shard may just be idle. Of a
	// session: its seat shows silent holders.
	CodeNoProgress Code = "no-progress"
	// CodeSilent: a worker has stored no heartbeat for T + T/3 + 0.5 s by its own T (at least T + 2.5 s in fleets of
	// more than eight), and no other worker has evicted it. A session is reported only if it
	// still holds leases.
	CodeSilent Code = "silent"
	// CodeBouncing: a shard was handed over four times or more in the last five minutes.
	CodeBouncing Code = "bouncing"
	// CodeHangs: handlers of a worker have not returned although their tenures have ended. An error for a shard that
	// nobody holds, if such a handler keeps it from every worker.
	CodeHangs Code = "hangs"
	// CodeLeavingSlowly: a worker that shuts down holds shards, and their number has not fallen for 20 s,
	// or for as long as the terms of its moves allow. Only an Observer can tell.
	CodeLeavingSlowly Code = "leaving-slowly"
	// CodeUneven: a worker holds at least two shards more than another that could have them, and for 20 s
	// no plan was made, no worker has come and no shard has changed hands. Not while a wish stands, a
	// move is within its time, a shard rests, or all workers hold what the plan assigns to them.
	CodeUneven Code = "uneven"
	// CodeUnreadable: a record cannot be read, or the store cannot verify the table. An error for a
	// lease row, also for one that can be read and never written again, because its generation or its
	// counter is the highest number.
	CodeUnreadable Code = "unreadable"
	// CodeClockSkew: a stored time is more than a minute in the future, or the time in a heartbeat that an
	// Observer has seen arrive is more than a minute old.
	CodeClockSkew Code = "clock-skew"
	// CodeFatRow: a row has more than 4,096 bytes: each commit costs five write units or more instead of one, and
	// each read of the row two units or more. Info.
	CodeFatRow Code = "fat-row"
	// CodeTTLDiffers: the workers have different lease times. Info; a warning for a worker that has shards and has
	// missed its own heartbeat, if its shards may wait for longer than after a crash of the worker with
	// the shortest lease time.
	CodeTTLDiffers Code = "ttl-differs"
	// CodePlanStale: the plan has been open for 30 s (10 s if its planner is dead); or a living worker has not
	// seen the complete plan for 2T, or has lacked shards of it for 2T and 30 s although none of its
	// shards moves or rests; or there is no plan 2T after all workers have started. An error if a record of
	// sessions has replaced the plan that a living worker follows, or if its revision is the highest number.
	CodePlanStale Code = "plan-stale"
	// CodeAlone: only one worker lives and does not leave. Info.
	CodeAlone Code = "alone"
	// CodeWish: a wish of an operator stands. Info; a warning while a worker, or a session that holds a lease, has not raised
	// its fences again although an operator wants it.
	CodeWish Code = "wish"
)

// Codes returns all codes, in the order in which Warnings reports those of one level.
func Codes() []Code {
	return []Code{
		CodeNoWorkers, CodeRestored, CodeOrphaned, CodeUnclaimed, CodeNoRoom, CodeUnwellWorker, CodeStuckHandoff,
		CodeDanglingOffer, CodeQuarantined, CodeUnlisted, CodeFailing, CodeNoProgress, CodeSilent, CodeBouncing,
		CodeHangs, CodeLeavingSlowly, CodeUneven, CodeUnreadable, CodeClockSkew, CodeFatRow, CodeTTLDiffers, CodePlanStale, CodeAlone, CodeWish,
	}
}

// A Warning is something that an operator should know, and what to do about it.
type Warning struct {
	Code    Code
	Level   slog.Level // slog.LevelInfo, slog.LevelWarn or slog.LevelError
	Subject string     // the name of a shard or of a worker; empty: the whole group, or several
	Text    string     // one sentence
	Do      string     // what to do, in one sentence
	// Subjects are the names of all that a warning is about whose text does not name all. If there are any, Subject is empty.
	Subjects []string
}

// Warnings returns what is wrong with the group, the worst first, and then in the order of Codes and
// of subjects. A snapshot of LookAt has no warnings that need all shards. A group of sessions has only
// the warnings restored, orphaned, quarantined, failing, no-progress, silent, hangs, unreadable and clock-skew, wish
// while a raise stands, and plan-stale while workers follow a plan that is gone.
func (s *Snapshot) Warnings() []Warning {
	f := s.findings()
	f.table()
	if s.Sessions {
		f.sessions()
	} else {
		f.fleet()
	}
	rank := map[Code]int{}
	for i, code := range Codes() {
		rank[code] = i
	}
	slices.SortStableFunc(f.found, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(rank[a.Code], rank[b.Code]), strings.Compare(a.Subject, b.Subject))
	})
	return f.found
}

// fleet finds what is wrong with a group of workers.
func (f *findings) fleet() {
	f.group()
	f.steering()
	f.wishes()
	f.raises()
	for i := range f.Shards {
		f.shard(&f.Shards[i])
	}
	f.unlisted()
	for i := range f.Workers {
		f.worker(f.by[f.Workers[i].Seat.Incarnation])
	}
}

// quoted returns a subject as an argument of a command.
func quoted(name string) string {
	plain := strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@+=", r))
	}) < 0
	if plain && name != "" && name[0] != '-' {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
