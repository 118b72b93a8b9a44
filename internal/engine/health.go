package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Whose fault a failure is, and whether this worker can work at all.
//
//	well → three failures in a row that speak against it → unwell: resting → on trial
//	  ↑__________________ a success, at any time ____________|         ↑________|
//
// A failure speaks against the worker if it is the first of its shard, or if the shard has made progress under another
// worker since it failed here. Otherwise the shard may be the cause.
//
// A heartbeat shows only that a process is alive. A worker whose handlers fail would take one shard
// after the other from well workers, and fail it. So a worker finds out by itself that it is
// unwell, and publishes that on its seat. Then the plan gives it nothing, unless no worker is well.
// After a rest it tries one shard. Rests grow, and a success ends them.
//
// No shard stays unprocessed without a reported cause: handlers that show no progress are reported,
// and so are shards for which no worker has room.
//
// Called by the spine: blame and succeeded with what handlers do, keep and silence.keep in each
// step; by a shard before it is claimed: from, tries and atFault. A session uses only atFault and silence.
//
// Nothing is written here. The verdict goes into the release of the shard (give.go, Excused), and the state of the worker
// goes with a heartbeat onto its seat, where planners read it. A crash forgets that the worker was unwell: under its next
// incarnation, three more failures have to speak against it.
//
// Invariant: a failure under a worker that is unwell, or becomes unwell by it, is not counted
// against the shard.
// Invariant: a shard is quarantined only after failures under two workers that are well, unless
// there is no other worker that is well; and never while no worker is well.

const (
	failuresInRow  = 3               // so many failures that speak against a worker make it unwell
	longestIllness = 4 * time.Minute // the longest rest: a recovery is noticed within five minutes
	allUnwellRest  = 2 * time.Minute // the same while no worker is well: nobody else can help
	silentAfter    = 5 * time.Minute // a handler without progress is reported, where StallAfter is off
)

var (
	errSilent    = errors.New("handlers neither mark nor call Progress")
	errFull      = errors.New("no worker has room for these shards")
	errUnlisted  = errors.New("the source no longer lists these shards, and they are not finished")
	errUnwell    = errors.New("three failures in a row, of different shards or of shards that progress elsewhere")
	errAllUnwell = errors.New("three failures in a row, and every worker is unwell: nothing is quarantined")
)

// A reservedError says that a shard is reserved for a name, and that the plan assigns it to no worker with that name.
type reservedError struct{ of lease.Reservation }

func (e reservedError) Error() string {
	return fmt.Sprintf("reserved for %q for %v, and the plan assigns it to no worker with that name", e.of.For, e.of.Lasts)
}

// A blame is whose fault it is that a handler has failed. It is judged once, before the shard is released, because the
// release stores whether the failure counts.
type blame uint8

const (
	noFailure blame = iota
	unjudged
	shardAtFault
	workerAtFault
)

// Health is what the handlers show of this worker. It is kept when the seat is lost: handlers do not become well by a
// new incarnation.
type health struct {
	failed  []string      // different shards that have failed since the last success, the first few
	against int64         // how many failures since then speak against the worker
	longest time.Duration // how long the longest of those tenures was
	last    Instant       // when the last of them ended
	since   Instant       // when the worker became unwell; 0: it is well
	wall    wall          // the same for people
	well    Instant       // when it last became well again; 0: it never was unwell
	rests   int64         // how many rests it had
	until   Instant       // when the present rest ends
	trial   string        // the shard that was tried last
	tried   Instant       // when
}

// A silence is what is known of the handlers that show no progress.
type silence struct {
	fault
	check Instant       // when to look for them next
	from  wall          // since when the first of them has been silent
	busy  []string      // the names of those that were not idle, as many as the seat has room for
	least time.Duration // of a session: the shortest StallAfter of its callers; 0: none is below silentAfter
}

// expect notes how long a holder may be silent, so that a silent holder is found in time.
func (f *silence) expect(stall time.Duration) {
	if stall > 0 && stall < cmp.Or(f.least, silentAfter) {
		f.least, f.check = stall, 0
	}
}

// says returns what the seat shows of the handlers without progress.
func (f *silence) says() (says lease.Health) {
	if f.on {
		if says.Silent = int64(f.count); len(f.busy) > 0 {
			says.SilentSince = f.from.time()
		}
	}
	return says
}

func (h *health) unwell() bool { return h.since != 0 }

// failing reports whether the handler has failed, and nothing was concluded from it yet. A stall
// that the store has caused does not count.
func (of *tenure) failing(t *turn) bool {
	w := &of.wind
	if w.cause == event.CauseStalled && (w.returned || w.cut) && w.blame == noFailure && !of.commitsLate(t) {
		w.blame = unjudged
	}
	return w.blame == unjudged
}

// blame decides whose fault it is that a handler has failed. It reports whether a rest begins.
//
// The first failures in a row are blamed on their shards, because nothing shows yet that the worker is the cause. The
// failure that makes the worker unwell is blamed on the worker, and so are all failures after it. In a group of few shards
// the same shard comes back to a sick worker again and again. Then each failure speaks against the worker, if the row
// shows progress of the shard since the failure before.
func (h *health) blame(t *turn, of *tenure, r *row) (rests bool) {
	w := &of.wind
	h.last, h.longest = t.now.Mono, max(h.longest, t.now.Mono.Sub(of.began))
	at := r.copy.Row()
	first, elsewhere := !slices.Contains(h.failed, r.name), at.Failures.Count > 0 && at.Attempts() == 0
	if first || elsewhere {
		h.against++
	}
	if first && len(h.failed) < failuresInRow {
		h.failed = append(slices.Clip(h.failed), r.name)
	}
	if h.against < failuresInRow {
		w.blame = shardAtFault
		return false
	}
	w.blame = workerAtFault
	if rests = !h.unwell(); rests {
		if t.now.Mono > h.well.Add(longestIllness) {
			h.rests = 0
		}
		h.since, h.wall = t.now.Mono, t.wall()
	}
	// The worker becomes unwell, or the shard on trial has failed. Each rest is longer than the one before.
	if rests = rests || r.name == h.trial; rests {
		h.rests++
		h.tried, h.until = 0, t.now.Mono.Add(t.jitter(backoff(h.rests, min(t.cfg.TTL, longestIllness), longestIllness)))
	}
	return rests
}

// succeeded notes that a checkpoint was accepted, or Progress was called. One success of any shard makes the worker
// well: it can work.
func (h *health) succeeded(t *turn) {
	if h.unwell() {
		h.well = t.now.Mono
	}
	h.failed, h.against, h.longest, h.last, h.since = nil, 0, 0, 0, 0
}

// resting reports whether this worker is unwell, and tries no shard at present.
func (h *health) resting(t *turn) bool { return h.unwell() && t.now.Mono < h.until }

// says is what the seat says of this worker's health.
func (h *health) says(t *turn, silent *silence) lease.Health {
	says := silent.says()
	if h.unwell() {
		says.Unwell, says.UnwellSince, says.Trial = errUnwell.Error(), h.wall.time(), !h.resting(t)
	}
	return says
}

// time returns the time for people.
func (w wall) time() time.Time { return time.Unix(0, int64(w)) }

// ails reports whether a planner has to know how one state of health differs from the other.
func ails(a, b lease.Health) bool { return a.Unwell != b.Unwell || a.Trial != b.Trial }

// lasts reports whether a tenure that began then shows that the worker is well again although its
// handler has reported nothing: it has lasted for twice as long as any that failed.
func (h *health) lasts(t *turn, began Instant) bool {
	at := max(began, h.last).Add(max(t.cfg.TTL, 2*h.longest))
	return !t.before(at)
}

// from returns from when an unwell worker may claim the shard; 0: now. busy: the shard on trial still
// is. After a rest, the names after that of the last trial come first: otherwise it would be the
// same shard each time.
func (h *health) from(t *turn, name string, busy bool) Instant {
	switch after := h.until.Add(t.beat / 4); {
	case t.now.Mono < h.until:
		return h.until
	case busy && h.trial == name:
		return 0
	case busy:
		return t.now.Mono.Add(t.beat)
	case name <= h.trial && t.now.Mono < after:
		return after
	}
	return 0
}

// tries reports whether a shard is on trial. s is the shard of the last trial, or nil if that is no
// longer known.
func (h *health) tries(t *turn, s *shard) bool {
	return s != nil && (s.t != nil || s.ask != nil || s.doing == claiming) || h.trial != "" && t.now.Mono < h.tried.Add(t.beat)
}

// keep looks for tenures that show that this worker is well again. Until then it raises the fault that the worker is
// unwell. It reports whether that fault is over now. helpless: no other worker is well.
func (h *health) keep(t *turn, all []*shard, f *fault, helpless func() bool) (over bool) {
	if h.unwell() && slices.ContainsFunc(all, func(s *shard) bool {
		return s.t != nil && !s.t.raise.waits && !s.t.wind.draining && !s.t.wind.over() && h.lasts(t, s.t.began)
	}) {
		h.succeeded(t)
	}
	if !h.unwell() {
		over = f.on
		f.lower(t)
		return over
	}
	if h.resting(t) {
		t.at(h.until)
	}
	err := errUnwell
	if helpless() {
		err, h.until = errAllUnwell, min(h.until, t.now.Mono.Add(allUnwellRest))
	}
	// That every worker is unwell is another fault, and shortens the rest: no other worker can help.
	f.on = f.on && f.err == err // another error is told at once
	f.shards, f.count = h.failed, len(h.failed)
	f.raise(t, h.since, "", err)
	return false
}

// silentBytes is how many bytes the names of silent handlers on a seat have at most; there are at most faultNames of them.
const silentBytes = 128

// name adds the name of a silent handler that was not idle, if the seat has room for it.
func (f *silence) name(name string) {
	size := len(name)
	for _, other := range f.busy {
		size += len(other)
	}
	if len(f.busy) < faultNames && size <= silentBytes {
		f.busy = append(slices.Clip(f.busy), name)
	}
}

// keep reports handlers that show no progress. It looks at the tenures when one may have
// become silent, and once a heartbeat while one is.
func (f *silence) keep(t *turn, all []*shard) {
	if t.now.Mono >= f.check {
		first, ripe := t.now.Mono, Never
		f.check = t.now.Mono.Add(cmp.Or(f.least, t.cfg.StallAfter, silentAfter))
		f.busy = nil
		n := f.concerns(all, func(s *shard) bool {
			if s.t == nil || !s.t.marks.expected || s.t.wind.over() || s.t.raise.waits || s.t.marks.flush > s.t.marks.accepted {
				return false // or it waits for this worker
			}
			at := s.t.marks.pulse.Add(cmp.Or(s.t.limits.stall, silentAfter))
			if t.now.Mono < at {
				f.check = min(f.check, at)
				return false
			}
			if s.t.marks.busy {
				f.name(s.name)
			}
			first, ripe = min(first, s.t.marks.pulse), min(ripe, at.Add(t.beat/16))
			return true
		})
		switch {
		case n == 0:
			f.lower(t)
		case !f.on && t.now.Mono < ripe: // those that began together are one report
			f.check = min(f.check, ripe)
		default:
			f.from, f.check = t.wall()-wall(t.now.Mono-first), min(f.check, t.now.Mono.Add(t.beat))
			f.raise(t, first, "", errSilent)
		}
	}
	t.at(f.check)
}

// fit reports whether a worker may be given shards. Cordons and drains are wishes, and are not on the seat.
func fit(s lease.Seat) bool { return s.Confirmed() && !s.Leaving && s.Health.Unwell == "" }

// atFault reports whether the failures of a shard are its own: there were enough of them, and they
// were under two workers that are well, or every worker that is well has failed it. died: its owner has
// died, which is one more failure.
func atFault(at lease.Row, died bool, seats []lease.Seat, most int64) bool {
	attempts, workers, well, untried := min(at.Attempts(), 1<<62), at.FailedWorkers(), 0, 0
	if died {
		if attempts++; at.FailedUnder(at.Owner.Name) == 0 {
			workers++
		}
	}
	var unwell []string
	for _, s := range seats {
		n := at.FailedUnder(s.Name)
		switch {
		case fit(s):
			if well++; n == 0 {
				untried++
			}
		case s.Health.Unwell != "" && n > 0 && !slices.Contains(unwell, s.Name):
			unwell = append(unwell, s.Name)
			attempts, workers = attempts-n, workers-1
		}
	}
	return attempts >= most && well > 0 && (workers >= 2 || untried == 0)
}
