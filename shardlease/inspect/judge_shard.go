package inspect

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// shard finds what is wrong with one shard.
func (j *judge) shard(s *Shard) {
	switch s.State {
	case Orphaned:
		j.orphaned(s)
	case Free:
		j.unclaimed(s)
	case Quarantined:
		j.quarantined(s)
	case Held, Moving:
		j.progress(s)
	}
	if s.Move != nil {
		j.move(s)
	}
	if s.Attempts >= 2 && s.State != Quarantined && s.State != Finished && s.State != Removed {
		j.warn(CodeFailing, slog.LevelWarn, s.Name, fmt.Sprintf("%d tenures of the shard have failed since it last made progress%s.", s.Attempts, lastly(s.LastFailure)),
			fmt.Sprintf("Read the handler's errors in the logs of its workers; `shardlease history %s` names them.", quoted(s.Name)))
	}
	j.bouncing(s)
	if s.Size > unitBytes {
		j.warn(CodeFatRow, slog.LevelInfo, s.Name, fmt.Sprintf("the row has %d bytes, so each commit costs %d write units.", s.Size, (s.Size+1023)/1024),
			fmt.Sprintf("Keep less in Mark.State, or store it elsewhere; `shardlease get %s -o wide` shows the size.", quoted(s.Name)))
	}
}

func lastly(t *lease.Transfer) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(", the last one under worker %q (%s)", t.From, t.Reason)
}

// claiming is how long the claims of all shards may take: a fleet claims about a thousand a second.
func (j *judge) claiming() time.Duration {
	return time.Duration(len(j.Shards)) * 1200 * time.Microsecond
}

func (j *judge) orphaned(s *Shard) {
	if len(j.claims) == 0 || j.Restored {
		return // these have warnings of their own
	}
	level := slog.LevelInfo
	do := fmt.Sprintf("Nothing is to be done: another worker claims the shard within a lease time, and `shardlease check --observe %v` reports an error if none does.",
		(j.ttl*3/2 + j.claiming()).Round(time.Second))
	if s.Since.over(j.ttl + j.claiming()) {
		level = slog.LevelError
		do = fmt.Sprintf("Look for errors about the shard in the logs of the workers, then `shardlease release %s --why \"…\"`.", quoted(s.Name))
	}
	j.warn(CodeOrphaned, level, s.Name, fmt.Sprintf("its owner %q has no seat any more, and no worker has claimed the shard%s.", s.Owner.Name, lasting(s.Since)), do)
}

func lasting(a Age) string {
	if !a.Known || a.D == 0 {
		return ""
	}
	return " for " + about(a.D)
}

// unclaimed reports a shard that no worker has claimed in time.
func (j *judge) unclaimed(s *Shard) {
	if len(j.claims) == 0 || j.Restored || j.unplaced(s) {
		return
	}
	limit, unwell := j.ttl+j.claiming()+j.rests.longest(s.Row, j.only(s.Row.Last.From)), true
	oldest := Age{}
	for _, w := range j.claims {
		unwell = unwell && w.Seat.Health.Unwell != ""
		if w.Seated.D > oldest.D {
			oldest = w.Seated
		}
	}
	if unwell {
		limit += longestIllness
	}
	text, help := "the shard is free", fmt.Sprintf("Look for errors about the shard in the logs of the workers, and at the plan with `shardlease plan`; `shardlease get %s` shows the row.", quoted(s.Name))
	if of := s.Row.Reserved; j.claimsAs(of.For) {
		limit += of.Lasts
	} else if of.For != "" {
		text = fmt.Sprintf("the shard is reserved for %v for a worker with the name %q, which is not there", of.Lasts, of.For)
		help = fmt.Sprintf("Start a worker with that name, or end the reservation: `shardlease release %s --why \"…\"`.", quoted(s.Name))
	}
	age := s.Since
	if !age.Observed && age.D > oldest.D { // no worker could claim it before
		age.D, age.Known = oldest.D, oldest.Known && age.Known
	}
	if !age.over(limit) {
		return
	}
	j.warn(CodeUnclaimed, slog.LevelError, s.Name, fmt.Sprintf("%s, and no worker has claimed it%s%s.", text, lasting(age), planned(s.Target)), help)
}

// claimsAs reports whether a living worker with that name claims shards.
func (j *judge) claimsAs(name string) bool {
	return slices.ContainsFunc(j.claims, func(w *Worker) bool { return w.Seat.Name == name })
}

// only reports whether no other worker than this one claims shards.
func (j *judge) only(name string) bool {
	return !slices.ContainsFunc(j.claims, func(w *Worker) bool { return w.Seat.Name != name })
}

// longestIllness is how long an unwell worker waits at most before it tries a shard again.
const longestIllness = 4 * time.Minute

func planned(to lease.Owner) string {
	if to.IsZero() {
		return ""
	}
	return fmt.Sprintf(", although the plan assigns it to worker %q", to.Name)
}

// unplaced reports whether a complete plan may have no worker for the shard: that has a warning of its
// own.
func (j *judge) unplaced(s *Shard) bool {
	return j.Plan != nil && !j.Plan.Open && j.Plan.Unplaced > 0 && s.Target.IsZero()
}

func (j *judge) quarantined(s *Shard) {
	last := s.Row.Last
	byHand := last.Reason == lease.ReasonForced
	text := fmt.Sprintf("worker %q has set the shard aside after %s", last.By, many(int(s.Attempts), "failed attempt"))
	if byHand {
		text = fmt.Sprintf("operator %q has set the shard aside", last.By)
	}
	if last.Note != "" {
		text += fmt.Sprintf(" (%s)", last.Note)
	}
	j.warn(CodeQuarantined, level(!byHand), s.Name, text+": no worker processes it.",
		fmt.Sprintf("Repair what made it fail, then `shardlease unquarantine %s --why \"…\"`.", quoted(s.Name)))
}

const (
	silentAfter  = 5 * time.Minute  // a silent handler is reported after that time
	defaultQuiet = 15 * time.Minute // Options.Quiet
)

// progress reports a held shard without accepted checkpoints.
func (j *judge) progress(s *Shard) {
	over := func(limit time.Duration) bool {
		return s.Tenure.over(limit) && (!s.Checkpoint.Known || s.Checkpoint.over(limit))
	}
	age := s.Tenure
	if s.Checkpoint.Known && s.Checkpoint.D < age.D {
		age = s.Checkpoint
	}
	quiet := j.quiet
	if quiet == 0 {
		quiet = defaultQuiet
	}
	owner := j.by[s.Owner.Incarnation]
	text := fmt.Sprintf("no checkpoint was accepted for %s under worker %q", about(age.D), s.Owner.Name)
	switch {
	case owner == nil || !owner.alive(): // it has a warning of its own
	case owner.Seat.Health.Silent > 0 && over(silentAfter):
		j.warn(CodeNoProgress, slog.LevelWarn, s.Name, text+fmt.Sprintf(", which reports %s.", many(int(owner.Seat.Health.Silent), "silent handler")),
			fmt.Sprintf("Find out where the handler hangs; `shardlease release %s --why \"…\"` gives the shard another start.", quoted(s.Name)))
	case quiet > 0 && over(quiet):
		j.warn(CodeNoProgress, slog.LevelInfo, s.Name, text+"; the shard may be idle.",
			fmt.Sprintf("If the shard should have records, read the handler's logs; `shardlease get %s` shows the row.", quoted(s.Name)))
	}
}

func (j *judge) move(s *Shard) {
	m := s.Move
	if owner := j.by[s.Owner.Incarnation]; owner != nil && owner.Dead {
		return // its shards are claimed when it is evicted
	}
	switch {
	case m.May == 0 || m.For.Watched < m.May:
	case m.Phase == Dangling:
		j.warn(CodeDanglingOffer, slog.LevelWarn, s.Name, fmt.Sprintf("worker %q has offered the shard for %s to incarnation %q, which has no seat.", m.From.Name, about(m.For.D), m.To.Incarnation),
			fmt.Sprintf("Look at the logs of worker %q; `shardlease release %s --why \"…\"` takes the shard from it.", m.From.Name, quoted(s.Name)))
	default:
		j.warn(CodeStuckHandoff, slog.LevelWarn, s.Name, fmt.Sprintf("the move from worker %q to worker %q has been %s for %s, and should end within %s.", m.From.Name, m.To.Name, m.Phase, about(m.For.D), about(m.May)),
			fmt.Sprintf("Find out why the handler of worker %q does not return; `shardlease release %s --why \"…\"` takes the shard from it.", m.From.Name, quoted(s.Name)))
	}
}

const (
	bounces   = 4
	bounceFor = 5 * time.Minute
)

// bouncing reports a shard that moves again and again.
func (j *judge) bouncing(s *Shard) {
	from := j.At.Add(-bounceFor)
	if s.State != Held && s.State != Moving || s.Row.Last.At.Before(from) {
		return
	}
	n := 0
	for _, t := range append([]lease.Transfer{s.Row.Last}, s.Row.History()...) {
		if protocol.EndingOf(t.Reason) == protocol.Moved && t.From != "" && !t.At.Before(from) {
			n++
		}
	}
	if n >= bounces {
		j.warn(CodeBouncing, slog.LevelWarn, s.Name, fmt.Sprintf("the shard was handed over %d times in the last %s.", n, about(bounceFor)),
			fmt.Sprintf("Look for workers that restart again and again, or whose handlers fail; `shardlease pin %s WORKER --why \"…\"` or `shardlease pause --why \"…\"` keeps the shard where it is.", quoted(s.Name)))
	}
}
