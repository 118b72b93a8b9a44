package inspect

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// shard finds what is wrong with one shard.
func (f *findings) shard(s *Shard) {
	switch s.State {
	case Orphaned:
		f.orphaned(s)
	case Free, Resting: // a shard rests for too long if the time of its failure is in the future
		f.unclaimed(s)
	case Blocked:
		f.circular(s)
	case Quarantined:
		f.quarantined(s)
	case Held, Moving:
		f.progress(s)
	}
	if s.State == Free || s.State == Resting || s.State == Orphaned {
		f.hangsEverywhere(s)
	}
	if s.Move != nil {
		f.move(s)
	}
	f.failing(s, "shard", "worker", "the handler")
	f.bouncing(s)
	if s.Size > unitBytes {
		f.warn(CodeFatRow, slog.LevelInfo, s.Name, fmt.Sprintf("the row has %d bytes, so each commit costs %d write units.", s.Size, (s.Size+1023)/1024),
			fmt.Sprintf("Keep less in Mark.State, or store it elsewhere; `shardlease get %s -o wide` shows the size.", quoted(s.Name)))
	}
}

// failing reports a shard or lease whose tenures fail. The words are for it, for those who hold it, and for what fails.
func (f *findings) failing(s *Shard, shard, worker, handler string) {
	if s.Attempts < 2 || s.State == Quarantined || s.State == Finished || s.State == Removed {
		return
	}
	last := ""
	if t := s.LastFailure; t != nil {
		last = fmt.Sprintf(", the last one under %s %q (%s)", worker, t.From, t.Reason)
	}
	f.warn(CodeFailing, slog.LevelWarn, s.Name, fmt.Sprintf("%d tenures of the %s have failed since it last made progress%s%s.", s.Attempts, shard, last, lastError(s)),
		fmt.Sprintf("Read the errors of %s in the logs of its %ss; `shardlease history %s` names them.", handler, worker, quoted(s.Name)))
}

// lastError returns the last error of a shard as a part of a sentence, without an end of its own.
func lastError(s *Shard) string {
	if text, _ := s.Row.LastError(); text != "" {
		return ": " + strings.TrimRight(text, ". ")
	}
	return ""
}

// claiming is how long the claims of all shards may take: a fleet claims about a thousand a second.
func (f *findings) claiming() time.Duration {
	return time.Duration(len(f.Shards)) * 1200 * time.Microsecond
}

func (f *findings) orphaned(s *Shard) {
	if len(f.claims) == 0 || f.Restored {
		return // these have warnings of their own
	}
	level := slog.LevelInfo
	do := fmt.Sprintf("Nothing is to be done: another worker claims the shard within a lease time, and `shardlease check --observe %v` reports an error if none does.",
		(f.ttl*3/2 + f.claiming()).Round(time.Second))
	if s.Since.over(f.ttl + f.claiming()) {
		level = slog.LevelError
		do = fmt.Sprintf("Look for errors about the shard in the logs of the workers, then `shardlease release %s --why \"…\"`.", quoted(s.Name))
	}
	f.warn(CodeOrphaned, level, s.Name, fmt.Sprintf("its owner %q has no seat any more, and no worker has claimed the shard%s.", s.Owner.Name, lasting(s.Since)), do)
}

// unlisted reports the shards that were given up because the source lacks them, with one warning: a source that is cut
// short lacks many. No bound applies: nobody processes them until a source lists them again.
func (f *findings) unlisted() {
	var s *Shard
	var names []string
	for i := range f.Shards {
		if of := &f.Shards[i]; of.State == Unlisted {
			s, names = of, append(names, of.Name)
		}
	}
	if len(names) > 1 {
		f.warn(CodeUnlisted, slog.LevelWarn, "", fmt.Sprintf("the source no longer lists %d shards, which are not finished, and no worker processes them: %s.", len(names), named(names)),
			"If the source is wrong, repair it: workers then claim the shards. If nothing is left to read in one of them, `shardlease remove SHARD --why \"…\"`.")
		f.found[len(f.found)-1].Subjects = names
	}
	if len(names) != 1 {
		return
	}
	f.warn(CodeUnlisted, slog.LevelWarn, s.Name, fmt.Sprintf("the source no longer lists the shard, which is not finished, and no worker has processed it%s.", cmp.Or(lasting(s.Since), " since")),
		fmt.Sprintf("If the source is wrong, repair it: a worker then claims the shard. If nothing is left to read, `shardlease remove %s --why \"…\"`.", quoted(s.Name)))
}

// circular reports a shard that waits for a parent, which waits for the shard. Every other blocked shard waits, in the
// end, for a parent that is not blocked, or that cannot be read: if no worker processes that one, it has a warning.
func (f *findings) circular(s *Shard) {
	seen, next := map[string]bool{s.Name: true}, s.Blockers
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		of := f.Shard(name)
		if of == nil || of.State != Blocked {
			return
		}
		if !seen[name] {
			seen[name] = true
			next = append(slices.Clip(next), of.Blockers...)
		}
	}
	f.warn(CodeUnclaimed, slog.LevelError, s.Name, fmt.Sprintf("the shard waits for %s, and they wait for each other.", strings.Join(s.Blockers, " ")),
		fmt.Sprintf("Repair the parents in the item of one of them (docs/table.md); `shardlease get %s` shows the parents.", quoted(s.Name)))
}

func lasting(a Age) string {
	if !a.Known || a.D == 0 {
		return ""
	}
	return " for " + about(a.D)
}

// unclaimed reports a shard that no worker has claimed in time.
func (f *findings) unclaimed(s *Shard) {
	if len(f.claims) == 0 || f.Restored || f.unplaced(s) {
		return // these have warnings of their own
	}
	limit, unwell := f.ttl+f.claiming()+f.rests.longest(s.Row, f.only(s.Row.Last.From)), true
	oldest := Age{}
	for _, w := range f.claims {
		unwell = unwell && w.Seat.Health.Unwell != ""
		if w.Seated.D > oldest.D {
			oldest = w.Seated
		}
	}
	if unwell {
		limit += longestIllness
	}
	text := "the shard is free"
	if s.State == Resting {
		text = "the shard rests for too long"
	}
	help := fmt.Sprintf("Look for errors about the shard in the logs of the workers, and at the plan with `shardlease plan`; `shardlease get %s` shows the row.", quoted(s.Name))
	if of := s.Row.Reserved; f.claimsAs(of.For) {
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
	f.warn(CodeUnclaimed, slog.LevelError, s.Name, fmt.Sprintf("%s, and no worker has claimed it%s%s.", text, lasting(age), planned(s.Target)), help)
}

// claimsAs reports whether a living worker with that name claims shards.
func (f *findings) claimsAs(name string) bool {
	return slices.ContainsFunc(f.claims, func(w *Worker) bool { return w.Seat.Name == name })
}

// only reports whether no other worker than this one claims shards.
func (f *findings) only(name string) bool {
	return !slices.ContainsFunc(f.claims, func(w *Worker) bool { return w.Seat.Name != name })
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
func (f *findings) unplaced(s *Shard) bool {
	return f.Plan != nil && !f.Plan.Open && f.Plan.Unplaced > 0 && s.Target.IsZero()
}

func (f *findings) quarantined(s *Shard) {
	text, byHand := whoSetAside(s, "shard", "worker")
	f.warn(CodeQuarantined, level(!byHand), s.Name, text+": no worker processes it."+afterError(s),
		fmt.Sprintf("Repair what made it fail, then `shardlease unquarantine %s --why \"…\"`.", quoted(s.Name)))
}

// whoSetAside says in a text who quarantined a shard or lease, and reports whether an operator did. The arguments shard and worker
// are the words for the shard or lease and for its holders. A later change of hands may leave the shard quarantined: an
// adoption, or a rewind, which also ends the count of failed attempts.
func whoSetAside(s *Shard, shard, worker string) (text string, byHand bool) {
	past := append([]lease.Transfer{s.Row.Last}, s.Row.History()...)
	at := slices.IndexFunc(past, func(t lease.Transfer) bool { return t.Reason != lease.ReasonAdopted && t.Did != "rewound" })
	if at < 0 {
		return fmt.Sprintf("the %s is set aside, and the row no longer shows by whom", shard), false
	}
	t := past[at]
	byHand = t.Reason == lease.ReasonForced
	switch {
	case t.Did == "repaired": // which leaves a quarantine, or makes one
		text = fmt.Sprintf("operator %q has repaired the row of the %s, which is set aside", t.By, shard)
	case byHand:
		text = fmt.Sprintf("operator %q has set the %s aside", t.By, shard)
	case s.Attempts > 0:
		text = fmt.Sprintf("%s %q has set the %s aside after %s", worker, t.By, shard, many(int(s.Attempts), "failed attempt"))
	default:
		text = fmt.Sprintf("%s %q has set the %s aside", worker, t.By, shard)
	}
	if t.Note != "" {
		text += fmt.Sprintf(" (%s)", t.Note)
	}
	return text, byHand
}

// afterError returns the last error of a shard as a sentence that follows another one.
func afterError(s *Shard) string {
	if text := lastError(s); text != "" {
		return " The last error was" + text + "."
	}
	return ""
}

const (
	silentAfter  = 5 * time.Minute  // a silent handler is reported after that time
	defaultQuiet = 15 * time.Minute // Options.Quiet
)

// progress reports a held shard without accepted checkpoints.
func (f *findings) progress(s *Shard) {
	over := func(limit time.Duration) bool {
		return s.Tenure.over(limit) && (!s.Checkpoint.Known || s.Checkpoint.over(limit))
	}
	age := s.Tenure
	if s.Checkpoint.Known && s.Checkpoint.D < age.D {
		age = s.Checkpoint
	}
	quiet := f.quiet
	if quiet == 0 {
		quiet = defaultQuiet
	}
	owner := f.by[s.Owner.Incarnation]
	text := fmt.Sprintf("no checkpoint was accepted for %s under worker %q", about(age.D), s.Owner.Name)
	switch {
	case owner == nil || !owner.alive(): // it has a warning of its own
	case over(silentAfter) && owner.blames(s.Name):
		f.warn(CodeNoProgress, slog.LevelWarn, s.Name, text+fmt.Sprintf(", which reports %s.", owner.silents()),
			fmt.Sprintf("Find out where the handler hangs; `shardlease release %s --why \"…\"` gives the shard another start.", quoted(s.Name)))
	case quiet > 0 && over(quiet):
		f.warn(CodeNoProgress, slog.LevelInfo, s.Name, text+"; the shard may be idle.",
			fmt.Sprintf("If the shard should have records, read the handler's logs; `shardlease get %s` shows the row.", quoted(s.Name)))
	}
}

// blames reports whether the worker says that the handler of this shard was not idle and is silent. A worker of an older
// build names no shards, and says since when the longest of them is silent: then it may be any of them.
func (w *Worker) blames(shard string) bool {
	names := w.told(lease.NewsSilent)
	if len(names) == 0 {
		return w.Seat.Health.Silent > 0 && !w.Seat.Health.SilentSince.IsZero()
	}
	return slices.Contains(names, shard)
}

// silents returns what a worker reports of a shard that it blames.
func (w *Worker) silents() string {
	if len(w.told(lease.NewsSilent)) == 0 {
		return many(int(w.Seat.Health.Silent), "silent handler")
	}
	return "that its handler was not idle and is silent"
}

func (f *findings) move(s *Shard) {
	m := s.Move
	if owner := f.by[s.Owner.Incarnation]; owner != nil && owner.Dead {
		return // its shards are claimed when it is evicted
	}
	switch {
	case m.May == 0 || m.For.Watched < m.May:
	case m.Phase == Dangling:
		f.warn(CodeDanglingOffer, slog.LevelWarn, s.Name, fmt.Sprintf("worker %q has offered the shard for %s to incarnation %q, which has no seat.", m.From.Name, about(m.For.D), m.To.Incarnation),
			fmt.Sprintf("Look at the logs of worker %q; `shardlease release %s --why \"…\"` takes the shard from it.", m.From.Name, quoted(s.Name)))
	default:
		f.warn(CodeStuckHandoff, slog.LevelWarn, s.Name, fmt.Sprintf("the move from worker %q to worker %q has been %s for %s, and should end within %s.", m.From.Name, m.To.Name, m.Phase, about(m.For.D), about(m.May)),
			fmt.Sprintf("Find out why the handler of worker %q does not return; `shardlease release %s --why \"…\"` takes the shard from it.", m.From.Name, quoted(s.Name)))
	}
}

const (
	bounces   = 4
	bounceFor = 5 * time.Minute
)

// bouncing reports a shard that moves again and again.
func (f *findings) bouncing(s *Shard) {
	from := f.At.Add(-bounceFor)
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
		f.warn(CodeBouncing, slog.LevelWarn, s.Name, fmt.Sprintf("the shard was handed over %d times in the last %s.", n, about(bounceFor)),
			fmt.Sprintf("Look for workers that restart again and again, or whose handlers fail; `shardlease pin %s WORKER --why \"…\"` or `shardlease pause --why \"…\"` keeps the shard where it is.", quoted(s.Name)))
	}
}
