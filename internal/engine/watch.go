package engine

import (
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The watch holds the plan and the wishes of operators as last seen, and since when the next plan is due. From that it
// finds out when this worker is to write it.
//
//	complete → due (waits) → open (since) → complete
//	            ↑____________ abandoned _|
//	spoilt: there is no readable plan under its key. No worker plans until it can be read, or is deleted
//
// Called by the fleet: saw with the plan and the wishes that a listing of the seats contains, pace to find out when to
// list. Called by the spine: fleet.consider in each step of a worker that plans, unread before wishes are removed, stands
// after an audit. faults.keepStale calls lacks.
//
// A plan is due when its inputs differ from those of the last complete plan; when the source lists a shard that the plan
// lacks; when the reason has ended for which this worker's plan gave shards to others (withheld); and when a revision has
// been open for too long. The worker whose own seat is the change writes the plan at once; the others wait, by rank. In a
// large fleet the first watcher plans, and another one when a plan stays due.
//
// If a planner dies, nobody is appointed in its place. Each watcher measures for how long the revision has been open
// (since), or a plan has been due (waits). The delays by rank make it likely that one watcher is first, and the opening
// swap makes sure that only one is.
//
// Invariant: a plan that moves held shards waits until the seats have stood still. Free shards
// are placed at once.

const (
	openFor    = 3 * time.Second        // a revision that has been open for so long is abandoned; each time it happens in a row, twice as long
	apart      = time.Second            // between two plans, and between the ranks of planners
	firstWait  = 100 * time.Millisecond // a first plan waits so long for seats that are being confirmed
	longStill  = 2 * time.Second        // a plan waits at most so long for the seats to stand still
	mostLapses = 8                      // T << mostLapses is the longest wait for a worker that lags again and again
	staleFor   = 30 * time.Second       // a missing plan is reported after this time, or three lease times if they are longer
)

// The reasons for which a plan is missing.
var (
	errPlanUnreadable = errors.New("the plan cannot be read: no worker plans until it is repaired or deleted")
	errPlanUsurped    = errors.New("a record of sessions has replaced the plan: no worker plans until that record is deleted")
	errPlanOpen       = errors.New("the plan is open: a worker began it, and no worker completes it")
	errPlanDue        = errors.New("a plan is due, and no worker writes it")
)

// A watch is what this worker knows of the plan, and of the wishes. Every worker keeps it; only those
// that plan consider whether a plan is due.
type watch struct {
	plan     lease.Plan // as last seen; revision 0: there is none
	known    bool       // the plan was looked for
	spoilt   error      // why the plan cannot be read; nobody plans until it can be, or is deleted. nil: nothing shows that
	since    Instant    // when the plan was first seen as it is: this revision, open or complete
	at       order      // the step in which it became known as it is
	wishes   lease.Wishes
	wishedAt Instant  // when they were first seen as they are
	wished   string   // the hash of the wishes that plans take into account; empty: they were not read yet
	looks    []string // shards whose rows commands have changed, as the last wishes say
	self     bool     // this worker's own seat is a change, it has evicted another, or it has read new wishes
	orphans  bool     // a worker that was not leaving has gone since the last plan
	waits    Instant  // since when a plan is due; 0: none is
	stale    Instant  // since when no plan is complete and up to date; 0: one is
	replaced int      // so many open revisions in a row were not completed: perhaps nobody is quick enough
	strays   []string // assigned shards that an audit found without an owner, whose owner has to ask its source, or that a command has changed
	again    Instant  // not again before
	withheld withheld // what the last complete plan withheld; empty if another worker made that plan
	lapses   int      // so many plans of this worker withheld shards from workers that lagged, and none without has stood for an audit period since
	check    bool     // something has changed that may make a plan due
	next     Instant  // when to check again although nothing has
}

// A withheld is what a plan withheld from workers for reasons that only its planner knew. When such a reason ends, another
// plan is due, although the inputs are the same. Otherwise a worker would wait for its share until something else happens.
type withheld struct {
	lagging []lease.Incarnation // workers that lagged: the plan gave their free shards to others
	barred  []string            // shards that the plan could not give to the planner, whose own source lacked them
	ended   bool                // one of these workers follows the plan now, or the source lists one of these shards
}

// saw takes the plan as it was read, and reports whether it is another one. An older plan counts
// only if a consistent read shows it, which was sent in the step begun; 0: the read may lag behind. Only
// a plan of this worker, me, was made with the strays that it knows.
func (w *watch) saw(t *turn, me lease.Incarnation, plan lease.Plan, wishes lease.Wishes, begun order) (changed bool) {
	if w.older(plan) && (begun == 0 || begun < w.at) {
		return false
	}
	if plan.WriteID != w.plan.WriteID {
		w.at = t.step
	}
	changed = !w.known || plan.Revision != w.plan.Revision || plan.Open != w.plan.Open
	if changed {
		if w.since = t.now.Mono; !plan.Open {
			w.withheld = withheld{}
			w.orphans, w.replaced, w.stale = false, 0, 0
			if plan.By.Incarnation == me {
				w.strays = nil
			}
		} else if w.plan.Open {
			w.replaced = min(w.replaced+1, 5)
		}
	}
	w.heed(t, wishes)
	w.plan, w.known = plan, true
	return changed
}

// heed takes the wishes. A worker that sees new ones considers a plan due at once, in a large fleet the first watcher.
// Looks make none due.
func (w *watch) heed(t *turn, now lease.Wishes) {
	first := w.wished == "" // they were not read before, also if the plan was looked for and is unreadable
	if !first && now.WriteID == w.wishes.WriteID {
		return
	}
	wished := hashed(now)
	if !first {
		w.self = w.self || wished != w.wished
		for _, wish := range now.List {
			if wish.Kind == protocol.WishLook && !slices.Contains(w.wishes.List, wish) {
				w.looks = append(w.looks, wish.Subject)
			}
		}
	}
	w.wishes, w.wishedAt, w.wished = now, t.now.Mono, wished
}

// unread reports whether a look is too new to be removed: by an operator's slow clock it may seem to have ended at once,
// and other watchers have not read it.
func (w *watch) unread(t *turn, i int) bool {
	return w.wishes.List[i].Kind == protocol.WishLook && t.now.Mono < w.wishedAt.Add(2*t.beat)
}

// hashed returns a hash of the wishes that plans take into account.
func hashed(wishes lease.Wishes) string {
	h := fnv.New64a()
	for _, wish := range wishes.List {
		if wish.Kind != protocol.WishLook {
			_, _ = h.Write([]byte(strconv.Quote(wish.String())))
		}
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

// stray adds shards whose rows commands have changed. The next plan asks their workers to read the rows.
func (w *watch) stray(shards []string) {
	w.strays = append(slices.Clip(w.strays), shards...)
	slices.Sort(w.strays)
	w.strays = slices.Compact(w.strays)
}

// stands reports whether no plan is due, and the present one was first seen complete at that time or before.
func (w *watch) stands(revision int64, since Instant) bool {
	return !w.plan.Open && w.plan.Revision == revision && w.waits == 0 && w.since <= since
}

// settled reports whether the plan has stood for a lease time, so that an audit that begins now can show something: see stands.
func (w *watch) settled(t *turn) bool {
	return !w.plan.Open && w.waits == 0 && !t.before(w.since.Add(t.cfg.TTL))
}

// older reports whether the plan seems to come before the known one. One that somebody has written by hand may seem so: see
// saw. A missing plan is not older.
func (w *watch) older(plan lease.Plan) bool {
	old := &w.plan
	return plan.Revision != 0 && (plan.Revision < old.Revision ||
		plan.Revision == old.Revision && (plan.Tick < old.Tick || plan.Open && !old.Open))
}

// lacks returns why no plan is complete and up to date, and since when. If one is, why is nil.
func (w *watch) lacks(t *turn) (since Instant, why error) {
	switch {
	case w.spoilt != nil:
		why = w.spoilt
	case w.plan.Open:
		why = errPlanOpen
	case w.waits > 0:
		why = errPlanDue
	default:
		w.stale = 0
		return 0, nil
	}
	if w.stale == 0 {
		w.stale = t.now.Mono
	}
	return w.stale, why
}

// pace returns how soon the seats have to be listed again because a plan is being written or is
// due. The plan that places what a worker has left is there in a moment.
func (w *watch) pace(t *turn) time.Duration {
	switch {
	case w.spoilt != nil:
		return t.beat
	case w.plan.Open && t.now.Mono < w.since.Add(apart), w.waits > 0 && w.orphans && t.now.Mono < w.waits.Add(apart):
		return paceMoving
	case w.plan.Open, !w.known, w.waits > 0:
		return paceWaiting
	}
	return t.beat
}

// A considered is what a worker has found when it has considered whether to plan.
type considered struct {
	looked  bool // it has considered it in this step
	due     bool // a plan is due
	targets bool // the targets have to be listed to find what is placed
	again   bool // the targets have to be listed again, unless that is under way
	rows    bool // the rows have to be listed
}

// consider finds out whether a plan is due. It is called in every step and costs much, so it does so only when something
// has changed (watch.check) or a time has come (watch.next).
func (f *fleet) consider(t *turn, rows *facts, source *feed) (found considered) {
	w := &f.watch
	// Without the first, this worker has not listed the seats since it watches.
	if f.peers.seen == 0 || !w.check && t.before(w.next) {
		return found
	}
	// t.wake is Never meanwhile, so that it shows for which times the questions below wait. The earliest becomes w.next.
	w.check, w.next = false, Never
	wake := t.wake
	defer func() { w.next, t.wake = min(w.next, t.wake), min(wake, t.wake) }()
	t.wake = Never
	added, unknown := rows.added(source, w.plan)
	stale := rows.placed.revision != w.plan.Revision && !w.plan.Open && w.plan.Revision != 0
	heeds := !t.large || f.first()
	if heeds && !stale {
		looks := rows.heedLooks()
		if t.large { // in a small fleet each worker finds the command itself
			w.stray(looks)
		}
	}
	seats := f.seats()
	mended, look := w.mended(t, &rows.pages, seats)
	found = considered{looked: true, again: look || heeds && stale && rows.looks()}
	w.withheld.ended = w.withheld.ended || f.ends(t, source)
	more := int64(len(rows.placed.names)+len(added)) > w.plan.Shards || rows.unnamed(added, w.plan)
	found.due = f.due(t, seats, more && !stale || mended)
	// Only the source names the unplaced shards without a row: wait for its first listing.
	if found.due && w.plan.Unplaced > 0 && source.awaited(t) {
		found.due = false
	}
	found.due = found.due && (f.first() || !t.large || source.answered || source.complete > 0)
	if w.waits == 0 && w.plan.Revision != 0 { // a draft would list these itself
		found.targets, found.rows = stale && (len(added) > 0 || unknown || rows.back()), !stale && unknown
	}
	return found
}

// ends reports whether a reason of what the plan withheld has ended: a worker that lagged follows the plan now, or the source
// lists a shard that it lacked.
func (f *fleet) ends(t *turn, source *feed) bool {
	w := &f.watch
	follows := func(inc lease.Incarnation) bool {
		p := f.peers.find(inc)
		return p != nil && !p.unreadable && p.seat.Revision >= w.plan.Revision
	}
	if len(w.withheld.lagging) == 0 && w.lapses > 0 && !t.before(w.since.Add(t.cfg.Audit)) {
		w.lapses = 0
	}
	return slices.ContainsFunc(w.withheld.lagging, follows) && w.forgives(t) || slices.ContainsFunc(w.withheld.barred, source.lists)
}

// forgives reports whether another plan may be due because of a worker that has lagged: at once the first time, and later each
// time it lags again. Otherwise there would be no end of plans if a worker always lags and nobody can hold a shard of its share.
func (w *watch) forgives(t *turn) bool {
	return w.lapses < 2 || !t.before(w.since.Add(t.cfg.TTL<<min(w.lapses-1, mostLapses)))
}

// due reports whether to write a plan now. One that only moves held shards waits until the seats
// stand still. added: the source lists shards that can be placed and are not.
func (f *fleet) due(t *turn, seats []lease.Seat, added bool) bool {
	w := &f.watch
	if w.spoilt != nil {
		w.waits = 0
		return false
	}
	reason, abandoned := f.reason(t, seats, added)
	if !reason {
		w.waits, w.self, w.orphans = 0, w.self && w.plan.Open, w.orphans && w.plan.Open // an open one may lack the change
		return false
	}
	if w.waits == 0 {
		w.waits = t.now.Mono
	}
	at := max(w.again, w.waits.Add(f.delay(seats, abandoned)), w.stays(f.reserve()))
	gone := func(inc lease.Incarnation) bool { return seatOf(seats, inc) == rebalance.Nobody }
	urgent := w.plan.Revision == 0 || w.plan.Unplaced > 0 || len(f.lag.stalls) > 0 || w.orphans || added || abandoned || slices.ContainsFunc(w.plan.Watchers, gone)
	if !urgent && f.manyLate(t, len(seats)) {
		return false
	}
	if !urgent {
		at = max(at, w.still(f.peers.changed))
	}
	return !t.before(at)
}

// stays returns when the plan will have been due for d since the last revision.
func (w *watch) stays(d time.Duration) Instant { return max(w.waits, w.since).Add(d) }

// still returns from when held shards may move although seats have changed then.
func (w *watch) still(changed Instant) Instant {
	return min(changed.Add(stillFor), w.waits.Add(longStill))
}

// reason reports whether a plan is due, and whether it is because a revision was abandoned: its maker has no seat, or
// has not completed it in time. A maker that finds its own revision open has dropped its draft.
func (f *fleet) reason(t *turn, seats []lease.Seat, added bool) (due, abandoned bool) {
	w := &f.watch
	switch {
	case !slices.ContainsFunc(seats, func(s lease.Seat) bool { return !s.Leaving }): // nobody to plan for
		return false, false
	case w.plan.Revision == 0:
		return true, false
	case w.plan.Open:
		maker := w.plan.By.Incarnation
		over := maker == f.seat.me || f.peers.find(maker) == nil || !t.before(w.since.Add(openFor<<w.replaced))
		return over, over
	case added || w.withheld.ended || len(w.strays) > 0 || len(f.lag.stalls) > 0:
		return true, false
	case slices.ContainsFunc(seats, func(s lease.Seat) bool { return s.Revision > w.plan.Revision }):
		return true, false // it was written by hand, and nobody follows it
	case f.overlooked(t):
		return true, false
	}
	return !current(w.plan, seats, w.wished), false
}

// delay is how long this worker waits for other watchers to plan. Only watchers that rank before it and have a
// seat count. A worker whose own seat is the change does not wait: it knows of the change before the others.
func (f *fleet) delay(seats []lease.Seat, abandoned bool) time.Duration {
	w := &f.watch
	rank := 0
	for _, inc := range w.plan.Watchers {
		if inc == f.seat.me {
			break
		}
		if seatOf(seats, inc) != rebalance.Nobody {
			rank++
		}
	}
	switch {
	case w.plan.Revision == 0:
		return firstWait * time.Duration(1+min(seatOf(seats, f.seat.me), fewest))
	case w.self:
		return 0
	case abandoned:
		return time.Duration(rank) * paceWaiting
	}
	return time.Duration(rank+1) * apart
}

// spoilt ends the hash of a plan that a worker does not know, because the worker's target cannot be read.
const spoilt = "-spoilt"

// mark marks the hash of such a plan. The target of a dead worker (dead) does not matter.
func mark(inputs string, dead bool) string {
	if inputs == "" || dead {
		return inputs
	}
	return strings.TrimSuffix(inputs, spoilt) + spoilt
}

// mended reports whether another plan is due because all targets can be read again. If a target could not be read when the
// present plan was made, its worker does not know this plan, and perhaps not that its target was spoilt either. look: to
// find out, the targets are to be listed, once per poll.
func (w *watch) mended(t *turn, pages *pages, seats []lease.Seat) (mended, look bool) {
	if w.plan.Open || !strings.HasSuffix(w.plan.Inputs, spoilt) {
		return false, false
	}
	broken := func(inc lease.Incarnation) bool { return seatOf(seats, inc) != rebalance.Nobody }
	mended = pages.asked > w.since && !slices.ContainsFunc(pages.broken, broken)
	return mended, !mended && !t.before(max(w.since, pages.asked).Add(t.cfg.Poll))
}

// current reports whether the plan is made from these inputs. A plan that assigns nothing to workers
// that leave is made without them, so that no other is due when their seats go.
func current(plan lease.Plan, seats []lease.Seat, wished string) bool {
	made := strings.TrimSuffix(plan.Inputs, spoilt)
	if made == inputs(seats, wished, plan.Revision) {
		return true
	}
	stay := staying(seats)
	return len(stay) < len(seats) && made == inputs(stay, wished, plan.Revision)
}

// staying returns the seats of the workers that do not leave.
func staying(seats []lease.Seat) []lease.Seat {
	return slices.DeleteFunc(slices.Clone(seats), func(s lease.Seat) bool { return s.Leaving })
}

// inputs returns a hash of what the plan is made from: the confirmed seats with what they say,
// and the hash of the wishes. A worker that misses its target counts while that revision is the present one.
func inputs(seats []lease.Seat, wished string, revision int64) string {
	h, b := fnv.New64a(), make([]byte, 0, 64)
	text := func(s string) {
		b = append(append(strconv.AppendInt(b[:0], int64(len(s)), 10), ':'), s...)
		_, _ = h.Write(b)
	}
	for _, s := range seats {
		text(string(s.Incarnation))
		text(strconv.FormatBool(s.Leaving))
		text(strconv.FormatInt(s.MaxShards, 10))
		text(strconv.FormatInt(s.Freed, 10))
		text(strconv.FormatBool(s.Missing == revision && revision != 0))
		text(strconv.FormatBool(s.Health.Unwell != ""))
		text(strconv.FormatBool(s.Health.Trial))
		if s.TTL == 0 { // it cannot be read: its worker gets its share when it can
			text("unreadable")
		}
	}
	text(wished)
	return strconv.FormatUint(h.Sum64(), 16)
}
