package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/handoff"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A builder makes a snapshot from what was read.
type builder struct {
	*reading
	now     time.Time
	backoff backoff
	bySeat  map[lease.Incarnation]*lease.Seat // the confirmed seats
	spoilt  map[lease.Incarnation]bool        // the seats that cannot be read: their workers may be alive
	byName  map[string]*lease.Row
	badRow  map[string]bool
	wants   map[string]request
	targets map[string]lease.Incarnation
	causes  map[lease.Give]lease.MoveCause // by the shard, and the worker to which it moves
}

// A request is the request of one worker for one shard.
type request struct {
	lease.Want
	from *lease.Seat
}

func (r *reading) snapshot() *Snapshot {
	b := builder{reading: r, now: r.options.now(), backoff: backoffOf(r.seats, r.options.MaxBackoff)}
	s := &Snapshot{
		Group: r.group, At: b.now, RowsAt: r.rowsAt, Plan: r.plan, Wishes: r.wishes, Targets: r.targets, Unreadable: r.unreadable(),
		Restored: r.restored != "", RestoredWhy: r.restored, Unverified: r.unsure, Ends: r.ends, endsFrom: r.endsFrom, Uncounted: r.uncounted, Partial: r.partial, Cost: r.cost,
		maxBackoff: r.options.MaxBackoff, quiet: r.options.Quiet,
	}
	switch {
	case r.ofSessions():
		s.Plan, s.Sessions = nil, true
	case r.plan != nil:
		s.PlanAge = since(b.now, r.plan.At)
	}
	b.index()
	s.Shards = make([]Shard, 0, len(r.rows))
	for i := range r.rows {
		s.Shards = append(s.Shards, b.shard(&r.rows[i]))
	}
	slices.SortFunc(s.Shards, func(a, c Shard) int { return strings.Compare(a.Name, c.Name) })
	for i := range r.seats {
		s.Workers = append(s.Workers, b.worker(&r.seats[i]))
	}
	slices.SortFunc(s.Workers, func(a, c Worker) int {
		return cmp.Or(strings.Compare(a.Seat.Name, c.Seat.Name), strings.Compare(string(a.Seat.Incarnation), string(c.Seat.Incarnation)))
	})
	s.count()
	s.findWaits()
	for i := range s.Workers {
		if w := &s.Workers[i]; !w.settled(s.Plan) {
			w.Unsettled = younger(s.PlanAge, w.Seated)
		}
	}
	return s
}

// index prepares the searches by name.
func (b *builder) index() {
	b.bySeat, b.spoilt = make(map[lease.Incarnation]*lease.Seat, len(b.seats)), map[lease.Incarnation]bool{}
	b.byName, b.badRow = make(map[string]*lease.Row, len(b.rows)), map[string]bool{}
	b.wants = map[string]request{}
	for i := range b.rows {
		b.byName[b.rows[i].Shard] = &b.rows[i].Row
	}
	for i := range b.seats {
		seat := &b.seats[i]
		if seat.Confirmed() {
			b.bySeat[seat.Incarnation] = seat
		}
		for _, want := range seat.Wants {
			if row := b.byName[want.Shard]; row != nil && want.Stands(*row) && row.Owner.Incarnation != seat.Incarnation {
				b.wants[want.Shard] = request{want, seat}
			}
		}
	}
	for _, u := range b.badSeats {
		b.spoilt[lease.Incarnation(u.Key.Name)] = true
	}
	for _, u := range b.badRows {
		b.badRow[u.Key.Name] = true
	}
	b.indexTargets()
}

// indexTargets finds the worker of each shard in the targets. While a planner writes them, a shard may be
// in the old target of one worker and in the new target of another: the higher revision counts.
func (b *builder) indexTargets() {
	b.targets = make(map[string]lease.Incarnation, len(b.rows))
	newest, revision := map[lease.Incarnation]int64{}, map[string]int64{}
	b.causes = map[lease.Give]lease.MoveCause{}
	for _, page := range slices.Concat(b.reading.targets, b.moving) {
		newest[page.Incarnation] = max(newest[page.Incarnation], page.Revision)
		for _, c := range page.Causes {
			for _, shard := range c.Shards {
				b.causes[lease.Give{Shard: shard, To: page.Incarnation}] = c
			}
		}
	}
	if !b.known {
		return
	}
	for _, page := range b.reading.targets {
		if page.Revision < newest[page.Incarnation] || b.bySeat[page.Incarnation] == nil {
			continue
		}
		for _, a := range page.Hold {
			if page.Revision >= revision[a.Shard] {
				b.targets[a.Shard], revision[a.Shard] = page.Incarnation, page.Revision
			}
		}
	}
}

func (b *builder) shard(of *sized) Shard {
	row := &of.Row
	s := Shard{
		Name: row.Shard, Row: *row, Owner: row.Owner, Attempts: row.Attempts(), LastFailure: lastFailure(*row),
		Tenure: since(b.now, row.Last.At), Size: of.size,
	}
	if row.Checkpoint.Generation > 0 {
		s.Checkpoint = since(b.now, row.Checkpoint.At)
	}
	if seat := b.bySeat[b.targets[row.Shard]]; seat != nil {
		s.Target = seat.Owner()
	}
	s.Since = s.Tenure
	switch {
	case row.Removed:
		s.State = Removed
	case row.Finished:
		s.State = Finished
	case row.Quarantined:
		s.State = Quarantined
	case row.Owner.IsZero():
		b.idle(&s)
	default:
		b.held(&s)
	}
	return s
}

// idle tells why no worker holds a shard.
func (b *builder) idle(s *Shard) {
	row := &s.Row
	if row.Last.Reason == lease.ReasonUnlisted {
		s.State = Unlisted
		return
	}
	if !begun(*row) {
		if s.Blockers = b.blockers(row.Parents); len(s.Blockers) > 0 {
			s.State = Blocked
			return
		}
		s.Since = b.unblocked(row)
	}
	s.State = Free
	if rest := b.backoff.usual(*row); rest > 0 && s.Since.Known {
		if s.Since.D < rest {
			s.State = Resting
		} else {
			s.Since.D -= rest
		}
	}
}

// blockers returns the parents that are not finished. A parent without a row is not among them: it was
// removed, or never existed.
func (b *builder) blockers(parents []string) (all []string) {
	for _, name := range parents {
		row := b.byName[name]
		over := row == nil || row.Finished || row.Removed || row.Owner.IsZero() && !row.Quarantined && row.Last.Reason == lease.ReasonUnlisted
		if !over || b.badRow[name] {
			all = append(all, name)
		}
	}
	return all
}

// unblocked returns since when a shard that never began may be claimed: since it was created, or since
// its last parent finished. If a parent has no row any more, that is unknown.
func (b *builder) unblocked(row *lease.Row) Age {
	at := row.Last.At
	for _, name := range row.Parents {
		parent := b.byName[name]
		if parent == nil {
			return Age{}
		}
		if parent.Last.At.After(at) {
			at = parent.Last.At
		}
	}
	return since(b.now, at)
}

// held finds the move of a shard that has an owner.
func (b *builder) held(s *Shard) {
	row := &s.Row
	owner := b.bySeat[row.Owner.Incarnation]
	if owner == nil && !b.spoilt[row.Owner.Incarnation] {
		s.State, s.Since = Orphaned, Age{} // nobody stores when the seat was deleted
		return
	}
	s.State = Held
	want, wanted := b.wants[row.Shard]
	switch {
	case row.OfferedTo != "":
		s.Move = b.offered(row, want, wanted)
	case wanted:
		s.Move = &Move{To: want.from.Owner(), Phase: Requested}
	default:
		return
	}
	s.State, s.Since, s.Move.From = Moving, Age{}, row.Owner
	cause := b.causes[lease.Give{Shard: row.Shard, To: s.Move.To.Incarnation}]
	s.Move.Why, s.Move.Note = cause.Why, cause.Note
	if wanted && want.from.Incarnation == s.Move.To.Incarnation {
		s.Move.Mode, s.Move.May = want.Terms.Mode, may(want, owner)
	}
}

// offered returns the move of a shard that its owner offers.
func (b *builder) offered(row *lease.Row, want request, wanted bool) *Move {
	to := row.OfferedTo
	switch seat := b.bySeat[to]; {
	case seat != nil:
		return &Move{To: seat.Owner(), Phase: Offered, May: offerMay}
	case wanted && want.from.Incarnation == to:
		return &Move{To: want.from.Owner(), Phase: Offered, May: offerMay}
	case b.spoilt[to]:
		return &Move{To: lease.Owner{Incarnation: to}, Phase: Offered, May: offerMay}
	}
	return &Move{To: lease.Owner{Incarnation: to}, Phase: Dangling, May: offerMay}
}

const (
	moveMargin = 2 * time.Second // for the reads and writes of both sides
	// offerMay is how long an offer may stand whose terms are not known. An owner withdraws an offer after
	// twice the drain time, which is 20 s by default.
	offerMay = 40*time.Second + moveMargin
)

// may returns how long a requested move may stand; 0: any time. After that the successor has seized the shard or
// called the move off.
func may(want request, owner *lease.Seat) time.Duration {
	if _, limited := handoff.Limit(want.Terms); !limited && want.Terms.Mode != rebalance.Cooperative {
		return 0
	}
	beat := want.from.TTL / 3
	if owner != nil {
		beat = max(beat, owner.TTL/3)
	}
	return handoff.Patience(want.Terms, beat) + moveMargin
}

// worker returns what a seat shows.
func (b *builder) worker(seat *lease.Seat) Worker {
	w := Worker{
		Seat: *seat, Seated: b.seated(seat), Silent: since(b.now, seat.At), Leaves: seat.Leaving, Health: health(seat.Health),
		Beating: Unknown, Target: -1,
	}
	for _, wish := range b.wishes {
		of, _, _ := wish.Kind.Names()
		if of == "worker" && wish.Subject == seat.Name && wish.Stands(b.now) && slices.Index(lease.WishKinds(), wish.Kind) > slices.Index(lease.WishKinds(), w.Wish) {
			w.Wish = wish.Kind
		}
	}
	w.Hangs = w.told(lease.NewsHangs)
	w.setDead(len(b.seats))
	if b.known && slices.ContainsFunc(b.reading.targets, func(page lease.Target) bool { return page.Incarnation == seat.Incarnation }) {
		w.Target = 0
	}
	return w
}

// seated returns for how long a worker has had its seat at least. A worker that does not publish when it started
// is as old as a plan that names it.
func (b *builder) seated(seat *lease.Seat) Age {
	age := since(b.now, seat.Since)
	if p := b.plan; p != nil && !p.Sessions && (p.By.Incarnation == seat.Incarnation || slices.Contains(p.Watchers, seat.Incarnation)) {
		if planned := since(b.now, p.At); planned.D >= age.D {
			age = planned
		}
	}
	return age
}

// settled reports whether the worker has seen the complete plan and holds what it assigns.
func (w *Worker) settled(plan *lease.Plan) bool {
	return plan == nil || plan.Open || w.Leaves || w.Seat.Revision >= plan.Revision && w.Lacking == 0
}

// evicted returns after how long without a heartbeat other workers have evicted a worker. They see the
// heartbeat up to T/3 late; in a fleet of more than eight workers the watchers take turns.
func evicted(ttl time.Duration, workers int) time.Duration {
	late := ttl/3 + 500*time.Millisecond
	if workers > 8 {
		late = max(late, 2500*time.Millisecond)
	}
	return ttl + late
}

// setDead notes whether the worker is dead: whether another worker should have evicted it.
func (w *Worker) setDead(workers int) { w.Dead = w.Silent.over(evicted(w.Seat.TTL, workers)) }

func health(h lease.Health) string {
	switch {
	case h.Unwell != "":
		return h.Unwell
	case h.NoSource:
		return "its source does not answer"
	case h.Silent == 1:
		return "1 handler shows no progress"
	case h.Silent > 1:
		return fmt.Sprintf("%d handlers show no progress", h.Silent)
	}
	return ""
}

// count counts the shards and moves of each worker.
func (s *Snapshot) count() {
	by := make(map[lease.Incarnation]*Worker, len(s.Workers))
	for i := range s.Workers {
		by[s.Workers[i].Seat.Incarnation] = &s.Workers[i]
	}
	for i := range s.Shards {
		of := &s.Shards[i]
		if w := by[of.Owner.Incarnation]; w != nil {
			w.Held++
			if of.Move != nil {
				w.Giving++
			}
		}
		if w := by[of.Target.Incarnation]; w != nil {
			w.Target = max(w.Target, 0) + 1
			if of.Owner != of.Target && slices.Contains([]State{Held, Moving, Free, Resting, Orphaned}, of.State) {
				w.Lacking++
			}
		}
		if of.Move != nil {
			if w := by[of.Move.To.Incarnation]; w != nil {
				w.Taking++
			}
		}
	}
}
