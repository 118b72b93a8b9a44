package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Findings are the warnings of a snapshot as they are found, and what several of them need.
type findings struct {
	*Snapshot
	alive  []*Worker // the living workers
	claims []*Worker // those of them that claim shards, because they do not leave
	by     map[lease.Incarnation]*record
	rests  backoff
	ttl    time.Duration
	found  []Warning
}

// A record is a worker with what its shards show of it.
type record struct {
	*Worker
	ahead time.Duration // how far in the future the latest of its stored times is
	waits bool          // something with a time of its own keeps it from what the plan assigns to it
	may   time.Duration // how long its moves may stand
}

func (s *Snapshot) findings() *findings {
	f := &findings{Snapshot: s, alive: s.living(), ttl: s.leaseTime(), by: make(map[lease.Incarnation]*record, len(s.Workers))}
	f.claims = claimers(f.alive)
	seats := make([]lease.Seat, len(f.claims))
	for i, w := range f.claims {
		seats[i] = w.Seat
	}
	f.rests = backoffOf(seats, s.maxBackoff)
	for i := range s.Workers {
		w := &s.Workers[i]
		f.by[w.Seat.Incarnation] = &record{Worker: w, ahead: w.Seat.At.Sub(s.At)}
	}
	for i := range s.Shards {
		of := &s.Shards[i]
		waits := of.Move != nil || of.State != Held && of.State != Finished
		if r := f.by[of.Owner.Incarnation]; r != nil {
			r.ahead, r.waits = max(r.ahead, of.Row.Checkpoint.At.Sub(s.At)), r.waits || waits
			if of.Move != nil {
				r.may = max(r.may, of.Move.May)
			}
		}
		if r := f.by[of.Target.Incarnation]; r != nil {
			r.waits = r.waits || waits
		}
	}
	return f
}

// claimers returns the workers that do not leave.
func claimers(alive []*Worker) (all []*Worker) {
	for _, w := range alive {
		if !w.Leaves {
			all = append(all, w)
		}
	}
	return all
}

func (f *findings) warn(code Code, level slog.Level, subject, text, do string) {
	f.found = append(f.found, Warning{Code: code, Level: level, Subject: subject, Text: text, Do: do})
}

// level returns slog.LevelError if something is severe, and otherwise slog.LevelWarn.
func level(severe bool) slog.Level {
	if severe {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// many returns a number with its noun.
func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// about returns a duration for people.
func about(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// table finds what concerns the table: whether it was restored, and what cannot be read.
func (f *findings) table() {
	if f.Restored {
		f.warn(CodeRestored, slog.LevelError, "", "the table was restored or replaced, and "+f.idle()+": "+f.RestoredWhy+".",
			"Stop the writers of the old table, then take the rows into use with `shardlease table adopt`.")
	}
	for _, u := range f.Unreadable {
		isRow := u.Key.Kind == lease.KindLease
		held := ""
		if malformed, _ := errors.AsType[*lease.MalformedError](u.Cause); malformed != nil && malformed.Owner != "" {
			held = fmt.Sprintf(". Its %s is %q", f.noun(), malformed.Owner)
		}
		f.warn(CodeUnreadable, level(isRow), u.Key.Name, fmt.Sprintf("a record of the table cannot be read: %v%s.", u.Cause, held), f.unreadableHelp(u.Key))
	}
	if f.Unverified != nil {
		f.warn(CodeUnreadable, slog.LevelWarn, "", fmt.Sprintf("the store cannot tell whether the table was restored: %v.", f.Unverified),
			"Give this reader the permissions of an observer, and try `shardlease table verify`.")
	}
	f.exhausted()
}

// group finds what concerns the fleet as a whole.
func (f *findings) group() {
	if needs := f.needing(); len(f.alive) == 0 {
		f.warn(CodeNoWorkers, level(needs > 0), "", fmt.Sprintf("no worker is alive, and %s a worker.", waiting(needs)),
			"Start workers of this group, and compare the group's name with theirs in `shardlease groups`.")
	} else if n := f.deserted(); n > 0 {
		f.warn(CodeNoWorkers, slog.LevelError, "", fmt.Sprintf("every worker is leaving, and %s a worker.", waiting(n)),
			"Start workers of this group; `shardlease workers` lists those that leave.")
	} else if len(f.claims) == 1 {
		f.warn(CodeAlone, slog.LevelInfo, "", fmt.Sprintf("worker %q is the only one: if it dies, its shards wait until another is started.", f.claims[0].Seat.Name),
			"Start a second worker; `shardlease workers` lists those that run.")
	}
	f.leaseTimes()
}

// leaseTimes reports different lease times. A crash of the worker with the longest one costs most: for that long nobody
// evicts it. If a worker has missed its own heartbeat, its shards may already wait.
func (f *findings) leaseTimes() {
	if len(f.alive) == 0 {
		return
	}
	byTTL := func(a, b *Worker) int { return cmp.Compare(a.Seat.TTL, b.Seat.TTL) }
	short, long := slices.MinFunc(f.alive, byTTL).Seat, slices.MaxFunc(f.alive, byTTL)
	if short.TTL == long.Seat.TTL {
		return
	}
	f.warn(CodeTTLDiffers, slog.LevelInfo, "", fmt.Sprintf("worker %q has a lease time of %v, and worker %q one of %v: if worker %[1]q crashes, its %[5]s may wait for up to %[6]s.",
		long.Seat.Name, long.Seat.TTL, short.Name, short.TTL, many(long.Held, "shard"), about(evicted(long.Seat.TTL, len(f.Workers)))),
		"Finish the rollout, or give all workers the same Config.TTL; `shardlease workers -o wide` shows it.")
	for _, w := range f.alive {
		left := evicted(w.Seat.TTL, len(f.Workers)) - w.Silent.D
		if w.Held > 0 && w.Silent.over(w.Seat.TTL/3+w.Seat.TTL/12) && left > evicted(short.TTL, len(f.Workers)) {
			f.warn(CodeTTLDiffers, slog.LevelWarn, w.Seat.Name, fmt.Sprintf("the worker has stored no heartbeat for %s: if it is dead, its %s wait for up to %s more, because its lease time is %v.",
				about(w.Silent.D), many(w.Held, "shard"), about(left), w.Seat.TTL),
				fmt.Sprintf("Find out whether it still runs; if not, `shardlease evict %s --why \"…\"` frees its %s at once.", quoted(string(w.Seat.Incarnation)), many(w.Held, "shard")))
		}
	}
}

// exhausted reports numbers that have reached their end, which happens only if somebody writes them by hand. There is
// no next number for another write.
func (f *findings) exhausted() {
	if p := f.Plan; p != nil && p.Revision == math.MaxInt64 {
		f.warn(CodePlanStale, slog.LevelError, "", fmt.Sprintf("no worker can make another plan: revision %d is the highest number.", p.Revision),
			"Stop the workers, delete the item `!plan` and the targets (docs/table.md), and start them again: the planner writes a new plan; `shardlease plan` shows the result.")
	}
	for i := range f.Shards {
		of, cannot := &f.Shards[i], ""
		switch {
		case of.Row.Counter == math.MaxInt64:
			cannot = "be written, so nobody can commit, claim or release it: `leaseCounter`"
		case of.Row.Generation == math.MaxInt64 && of.State != Finished:
			cannot = "change hands, so nobody can claim or release it: `generation`"
		}
		if cannot != "" {
			f.warn(CodeUnreadable, slog.LevelError, of.Name, fmt.Sprintf("the row can be read and cannot %s is the highest number.", cannot),
				fmt.Sprintf("Stop its worker and repair the item by hand (docs/table.md), above every generation that a sink has seen; `shardlease get %s` shows the row.", quoted(of.Name)))
		}
	}
}

func waiting(n int) string {
	if n == 1 {
		return "1 shard needs"
	}
	return fmt.Sprintf("%d shards need", n)
}

func (f *findings) unreadableHelp(k lease.Key) string {
	switch k.Kind {
	case lease.KindLease:
		if f.Sessions {
			return fmt.Sprintf("If no newer version has written it, `shardlease repair %s --why \"…\"` makes it readable; no session acquires the lease before.", quoted(k.Name))
		}
		return fmt.Sprintf("If no newer version has written it, `shardlease repair %s --why \"…\"` makes it readable; no worker claims the shard before.", quoted(k.Name))
	case lease.KindSeat:
		return fmt.Sprintf("If no newer version has written it, delete it with `shardlease evict %s --why \"…\"`.", quoted(k.Name))
	case lease.KindWishes:
		if f.Sessions {
			return "Commands act, but no session notices at once that its lease was released, until `shardlease lift all` deletes the record."
		}
		return "No wish has an effect until `shardlease lift all` deletes the record; then make the wishes again."
	}
	return "Compare the item with docs/table.md, and delete it if no newer version has written it: the planner writes a new one; `shardlease plan` shows the result."
}

// needing returns how many shards need a worker.
func (f *findings) needing() (n int) {
	for i := range f.Shards {
		switch f.Shards[i].State {
		case Finished, Removed, Quarantined, Unlisted:
		default:
			n++
		}
	}
	return n
}

// deserted returns how many shards have waited for too long for a worker that does not leave, while none lives.
func (f *findings) deserted() (n int) {
	for i := range f.Shards {
		of := &f.Shards[i]
		waits := of.State == Free || of.State == Resting || of.State == Orphaned
		if len(f.claims) == 0 && !f.Restored && waits && of.Since.over(f.ttl+f.claiming()+f.rests.longest(of.Row, true)) {
			n++
		}
	}
	return n
}

// steering finds what concerns the plan.
func (f *findings) steering() {
	p := f.Plan
	if f.Partial || len(f.alive) == 0 {
		return
	}
	if p == nil {
		f.unplanned()
		return
	}
	if p.Unplaced > 0 && !p.Open {
		f.warn(CodeNoRoom, level(f.unowned(p)), "", fmt.Sprintf("no worker has room for %s, such as %q.", f.roomless(p), p.Examples),
			"Start more workers or raise Config.MaxShards; `shardlease plan --add 1` shows what one more worker would hold.")
	}
	if p.Open {
		limit, of := 30*time.Second, "its planner"
		if maker := f.by[p.By.Incarnation]; maker == nil || !maker.alive() {
			limit, of = 10*time.Second, "its dead planner"
		}
		if f.PlanAge.over(limit) {
			f.warn(CodePlanStale, slog.LevelWarn, "", fmt.Sprintf("revision %d of the plan has been open for %s, and %s %q has not completed it.", p.Revision, about(f.PlanAge.D), of, p.By.Name),
				fmt.Sprintf("Look for store errors in the logs of the workers; if the planner hangs, `shardlease evict %s --why \"…\"`.", quoted(string(p.By.Incarnation))))
		}
		return
	}
	f.uneven()
}

// wishes warns of each wish of an operator that stands. If a forgotten wish keeps shards where they are, no other
// warning shows why. Wishes of a newer version have no effect on the workers of this one, and no command lifts them.
func (f *findings) wishes() {
	for _, w := range f.Wishes {
		_, to, known := w.Kind.Names()
		if !known || w.Kind == lease.WishRaise || !w.Stands(f.At) {
			continue
		}
		lift := "lift " + string(w.Kind)
		if w.Subject != "" {
			lift += " " + quoted(w.Subject)
		}
		named := w.Subject
		if to != "" {
			named = w.To
		}
		absent := ""
		if named != "" && !slices.ContainsFunc(f.alive, func(of *Worker) bool { return of.Seat.Name == named }) {
			absent = fmt.Sprintf(", and has no effect now because no worker %q lives", named)
		}
		f.warn(CodeWish, slog.LevelInfo, w.Subject, fmt.Sprintf("an operator's wish stands%s: %s.", absent, w),
			fmt.Sprintf("If nobody needs it any more, `shardlease %s` ends it.", lift))
	}
}

// raises reports how far a wish is carried out that all fences be raised again. A session that holds no lease does not
// read the wishes.
func (f *findings) raises() {
	at := slices.IndexFunc(f.Wishes, func(w lease.Wish) bool { return w.Kind == lease.WishRaise && w.Stands(f.At) })
	if at < 0 {
		return
	}
	w, not, all := f.Wishes[at], []string(nil), 0
	for _, of := range f.alive {
		if f.Sessions && of.Held == 0 {
			continue
		}
		if all++; of.Seat.Raised != w.Number {
			not = append(not, of.Seat.Name)
		}
	}
	const lift = "`shardlease lift raise` ends the wish"
	if len(not) > 0 {
		f.warn(CodeWish, slog.LevelWarn, "", fmt.Sprintf("an operator's wish stands: %s: %d of %s have not raised their fences again, such as %q.", w, len(not), many(all, f.noun()), not[:min(3, len(not))]),
			"Wait for two heartbeats; `shardlease workers` shows whose fences cannot be raised, and an earlier version never raises them again. "+lift+".")
		return
	}
	text, do := "all fences are raised again", "A worker removes the wish in a moment; "+lift+", too."
	if f.Sessions {
		do = "Nobody else removes it: " + lift + "."
	}
	f.warn(CodeWish, slog.LevelInfo, "", fmt.Sprintf("an operator's wish stands: %s: %s.", w, text), do)
}

// roomless returns for how many shards no worker has room. Nothing has checked the number in the plan, which somebody
// may have written by hand. If it is too high, only the examples count, which at least are names.
func (f *findings) roomless(p *lease.Plan) string {
	if p.Unplaced > max(p.Shards, int64(len(f.Shards)+len(p.Examples))) {
		return fmt.Sprintf("%s (the plan says %d, and knows %d)", many(len(p.Examples), "shard"), p.Unplaced, p.Shards)
	}
	return many(int(p.Unplaced), "shard")
}

// unowned reports whether a shard for which no worker has room may have no owner. A shard that was never
// placed has no row.
func (f *findings) unowned(p *lease.Plan) bool {
	return f.Count(Free)+f.Count(Orphaned)+f.Count(Resting) > 0 || slices.ContainsFunc(p.Examples, func(name string) bool {
		of := f.Shard(name)
		return of == nil || of.Owner.IsZero()
	})
}

// unplanned reports a fleet that has no plan although it has run for a while.
func (f *findings) unplanned() {
	for _, w := range f.alive {
		if !w.Seated.over(2 * w.Seat.TTL) {
			return
		}
	}
	if len(f.Unreadable) == 0 {
		f.warn(CodePlanStale, slog.LevelWarn, "", "the workers run, and the group has no plan.",
			"Look for store errors and for the source's errors in the logs of the workers; `shardlease workers` lists them.")
	}
}

// settle is how long a fleet may take to follow a plan.
const settle = 20 * time.Second

// uneven reports workers that hold at least two shards more or less than others, unless the plan wants
// it so.
func (f *findings) uneven() {
	if !f.PlanAge.over(settle) || f.stirs() || f.Restored {
		return
	}
	var least, most *Worker
	planned := true
	for _, w := range f.alive {
		if w.Leaves || w.Seat.Health.Unwell != "" {
			continue
		}
		planned = planned && w.Held == w.Target
		full := w.Seat.MaxShards > 0 && int64(w.Held) >= w.Seat.MaxShards
		if !full && (least == nil || w.Held < least.Held) {
			least = w
		}
		if most == nil || w.Held > most.Held {
			most = w
		}
	}
	if planned || least == nil || most.Held-least.Held < 2 {
		return
	}
	f.warn(CodeUneven, slog.LevelWarn, "", fmt.Sprintf("worker %q holds %s and worker %q holds %s, %s after the plan.", most.Seat.Name, many(most.Held, "shard"), least.Seat.Name, many(least.Held, "shard"), about(f.PlanAge.D)),
		fmt.Sprintf("See what worker %q reports, and with `shardlease plan` whether a new plan would be another one.", least.Seat.Name))
}

// stirs reports whether shards are where they are only for now: because of a wish, a move, a failure, a worker
// that has just come, or a shard that has just changed hands.
func (f *findings) stirs() bool {
	for _, wish := range f.Wishes {
		if wish.Stands(f.At) {
			return true
		}
	}
	for _, w := range f.claims {
		if !w.Seated.over(settle) {
			return true
		}
	}
	for i := range f.Shards {
		of := &f.Shards[i]
		within := of.Move != nil && (of.Move.May == 0 || of.Move.For.Watched < of.Move.May)
		if within || of.State == Resting || !of.Tenure.over(settle) {
			return true
		}
	}
	return false
}
