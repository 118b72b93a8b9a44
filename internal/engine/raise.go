package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The fences of the systems that handlers change (Config.Targets). A takeover fences the earlier owner in the table.
// A sink that compares generations learns the new one only when somebody raises its fence: the shell does so when a
// tenure begins.
//
//	start → unraised → raised
//	            |→ for a heartbeat interval: the fault begins; if raises failed, the seat names the target
//	               → for raisePatience another worker has been well, and no raise has passed here: the tenure is released,
//	                 and this worker is away
//	               → a raise passes, or no other worker is well: back
//
// The shell makes the raises, and repeats them until they pass or the tenure ends. The engine decides what a tenure that
// is not raised means for the worker: whether the next plan should give it nothing, and whether the tenure stays.
//
// An operator may wish that all fences be raised again, because a sink was restored from a backup with its earlier fences.
// In a group of workers the wish arrives with the plan, and in one of sessions with the wishes that they read.
//
//	raised → the wish is known → unraised, while the handler runs → raised: the seat says so
//
// The first watcher removes the wish when all seats say so. A tenure that begins later raises its fences at its start.
//
// A target that is down for all workers must not move shards: every move costs a generation, and helps nobody. So if
// the seat of another worker names a target, this worker raises again the fences of a shard that it holds. That changes
// nothing, and shows whether it could help. A worker whose raises fail does the same, and gives nothing up while some
// of its raises pass: then the cause is the shard, which would fail under any worker, or was a moment of the target.
//
// Called by shard.start for the kind of a start; by the spines: raised and unraised with what the shell reports, obey and
// keep in each step, says before each heartbeat; by a shard of a worker before it is claimed: from.
//
// Nothing is written here. The seat says what fails with a heartbeat, and the release is one of give.go. A crash forgets
// both: the next owner raises the fences for its own generation.
//
// Invariant: the handler of a tenure is called before the fences are raised only if the shard was taken over by an
// offer that was accepted: the former owner lives, and has consented. An owner whose own handler waits for a raise makes no
// offer (tenure.move): the owner before it has not consented, and no fence refuses its effects yet.
// Invariant: a tenure is given up because of a raise only if another worker is well, so that no worker gives up a shard
// for a target that fails for all, and only if no raise of this worker passes.
// Invariant: a tenure that is given up because of a raise is no failed attempt.
// Invariant: a seat says that a wish is obeyed only if a raise that began after the wish was known has passed for each tenure
// that it has.

// A Raise is what has to be raised for a tenure, and when.
type Raise uint8

const (
	RaiseNothing Raise = iota // there is no target
	RaiseFirst                // before the handler is called
	RaiseBeside               // while the handler runs, except targets that are raised before in any case
)

// How long raises may fail before a worker gives a tenure up: the others may need a heartbeat interval to see that and
// one to find out whether their own raises pass, this worker needs one to see their seats, and one is to spare.
func raisePatience(t *turn) time.Duration { return t.cfg.TTL + t.beat }

var errUnraised = errors.New("the fences of these shards are not raised yet: the raises have not returned, or wait for their turn")

// A raising is how far the fences of one tenure are raised.
type raising struct {
	on     bool    // not all are
	waits  bool    // the handler is not called before they are
	failed bool    // a raise has failed, or has not answered for a heartbeat interval
	stale  bool    // a target has a higher fence: no worker could raise it for this shard
	round  int32   // how often they have begun again
	step   order   // in which the raises began
	since  Instant // when that was
	out    string  // why the tenure is given up; empty: it is not
}

// raises returns how the fences of a new tenure are raised. last is how the shard has changed hands.
func raises(t *turn, last lease.Transfer) Raise {
	switch {
	case !t.cfg.Targets:
		return RaiseNothing
	case consented(last):
		return RaiseBeside
	}
	return RaiseFirst
}

// consented reports whether the owner before had offered the shard to this worker: it lives, its handler ends in a moment,
// and raising first would make a gap. An owner that hands a shard over by itself has ended its handler already.
func consented(last lease.Transfer) bool {
	return last.Reason == lease.ReasonHandoff && last.Mode == rebalance.Cooperative && last.By != last.From
}

// A raiser is what this worker knows of its raises.
type raiser struct {
	fault
	target  string  // the one that the seat names
	cause   error   // the error of the last raise that failed
	broken  bool    // raises fail although no tenure waits for one: of a check, or of tenures that were given up
	away    bool    // it has given up tenures, and leaves shards to others
	rests   int64   // how often, since a raise has passed
	until   Instant // until then it tries no shard
	able    Instant // since when another worker has been well, while this one has the fault; 0: none is
	next    Instant // when to look again
	passed  Instant // when all fences of a tenure were last raised, also by a check; 0: never
	failing wall    // since when raises fail, for people; 0: they do not
	beside  bool    // handlers run before their fences are raised

	wish   int64 // the number of the wish to raise all fences again that stands; 0: none does
	known  order // the step in which it became known
	obeyed int64 // the number of that wish, if no tenure waits for a raise; otherwise 0

	check Tenure  // the tenure whose fences are raised again; zero: none
	asked Instant // when that was last asked for
}

func newRaiser() raiser { return raiser{fault: fault{kind: event.Raising}} }

// obey takes the number of the wish to raise all fences again; 0: none stands.
func (f *raiser) obey(t *turn, number int64) {
	if number != f.wish {
		f.wish, f.known, f.obeyed, f.next = number, t.step, 0, t.now.Mono
	}
}

// repeat begins the raises again of each tenure whose raises began before the wish was known. One that waits for these raises
// has its turn when they have passed.
func (f *raiser) repeat(t *turn, l *shards) {
	if f.wish == 0 || f.obeyed == f.wish {
		return
	}
	f.obeyed = f.wish
	for _, s := range l.all {
		if s.t == nil || s.t.wind.over() {
			continue
		}
		of := &s.t.raise
		if !of.on && of.step < f.known {
			*of = raising{on: true, step: t.step, since: t.now.Mono, round: of.round + 1}
			t.do(RaiseAgain{Tenure: s.t.id(&s.row), Round: int(of.round)})
		}
		if of.on {
			f.obeyed = 0
		}
	}
}

// raised takes the report that the fences of a tenure are raised. s is its shard; nil: the tenure is over.
func (f *raiser) raised(t *turn, s *shard, in Raised) {
	if in.All {
		f.broken, f.away, f.rests, f.passed = false, false, 0, t.now.Mono
		if f.check == in.Tenure { // one that still fails is repeated by the shell: another check would be one more
			f.check = Tenure{}
		}
	}
	if f.next = t.now.Mono; s == nil {
		return
	}
	of := &s.t.raise
	if in.Round != int(of.round) { // the raises have begun again since
		return
	}
	if of.waits { // only now the handler can show progress
		s.t.marks.pulse = t.now.Mono
	}
	if of.on, of.waits = !in.All, false; in.All {
		of.failed, of.stale = false, false
		if !s.t.wind.draining { // if giveUp has chosen this tenure, it stays: its handler does not drain yet
			of.out = ""
		}
	}
}

// unraised takes the report that a raise fails. s is the shard of the tenure; nil: the tenure is over.
func (f *raiser) unraised(t *turn, s *shard, in Unraised) {
	if !f.on || f.failing == 0 { // another name would be another state of health
		f.target = in.Target
	}
	f.cause, f.next = fmt.Errorf("%s%s: %w", protocol.Unraised, in.Target, in.Err), t.now.Mono
	switch {
	case s == nil:
	case s.t.raise.on:
		s.t.raise.failed, s.t.raise.stale = true, errors.Is(in.Err, checkpoint.ErrStale)
	case f.check == in.Tenure:
		f.broken = true
	}
}

// A helper is what a worker knows of others that may have its shards. A session knows none.
type helper interface {
	able(t *turn) bool // another worker is well, and so can raise its fences
	calls() bool       // another worker cannot raise a fence
}

// keep looks at the tenures whose fences are not raised, and reports whether it has given some up. others is nil in a
// session.
func (f *raiser) keep(t *turn, l *shards, others helper) (gave bool) {
	if !t.cfg.Targets || t.before(f.next) {
		return false
	}
	f.next = t.now.Mono.Add(t.beat)
	f.repeat(t, l)
	first, failed := Never, f.broken
	f.beside = false
	n := f.concerns(l.all, func(s *shard) bool {
		if s.t == nil || !s.t.raise.on {
			return false
		}
		if at := s.t.raise.since.Add(t.beat); t.now.Mono < at {
			f.next = min(f.next, at)
			return false
		}
		first, failed = min(first, s.t.raise.since), failed || s.t.raise.failed
		f.beside = f.beside || !s.t.raise.waits
		return true
	})
	switch {
	case n > 0 || f.broken:
		err := errUnraised
		if failed {
			err = f.cause
		}
		if f.failing == 0 && failed {
			f.failing = t.wall()
		}
		f.fault.raise(t, min(first, t.now.Mono), "", err)
		f.next = min(f.next, t.now.Mono.Add(t.beat/8))
	default:
		f.lower(t)
		f.away, f.able, f.until = false, 0, 0
	}
	if !failed {
		f.failing = 0
	}
	if others != nil {
		gave = f.help(t, l, others, failed)
	}
	t.at(f.next)
	return gave
}

// help decides whether others are to have the shards of this worker, and whether it has to find out if its own raises
// pass. It reports whether tenures were given up.
func (f *raiser) help(t *turn, l *shards, others helper, failed bool) (gave bool) {
	switch able := f.on && failed && others.able(t); {
	case !able:
		if f.able = 0; f.away { // nobody could help: the shards are this worker's as well as any other's
			f.away = false
			l.tendAll(t)
		}
	case f.able == 0:
		f.able = t.now.Mono
	case t.now.Mono >= max(f.able, f.passed).Add(raisePatience(t)):
		gave = f.giveUp(t, l)
	}
	if f.check != (Tenure{}) && l.present(f.check) == nil {
		f.check = Tenure{}
	}
	wanted := f.broken || f.on && failed || !f.on && others.calls()
	if !wanted || f.check != (Tenure{}) || f.asked > 0 && t.before(f.asked.Add(t.beat)) {
		return gave
	}
	for _, s := range l.all {
		if s.t != nil && !s.t.raise.on && !s.t.wind.draining && !s.t.wind.over() {
			f.check, f.asked = s.t.id(&s.row), t.now.Mono
			t.do(RaiseAgain{Tenure: f.check, Round: int(s.t.raise.round)})
			break
		}
	}
	return gave
}

// giveUp ends the tenures that have waited for raisePatience, in which no raise has passed: also those that wait for their
// turn, which would come late or never while raises hang. windDown drains them.
func (f *raiser) giveUp(t *turn, l *shards) (gave bool) {
	for _, s := range l.all {
		if s.t == nil || !s.t.raise.on || s.t.raise.out != "" || s.t.raise.stale || s.t.wind.draining ||
			t.now.Mono < s.t.raise.since.Add(t.beat+raisePatience(t)) {
			continue
		}
		gave = true
		s.t.raise.out, s.wake = protocol.Unraised+f.target, t.now.Mono
		l.due = t.now.Mono
	}
	// Without a tenure, only another trial shows that this worker can raise fences again.
	if gave || f.broken && !f.away && l.held() == 0 {
		f.leave(t)
	}
	return gave
}

// leave leaves shards to others, for a while that is longer each time.
func (f *raiser) leave(t *turn) {
	f.broken, f.away = true, true
	f.rests++
	f.until = t.now.Mono.Add(t.jitter(backoff(f.rests, min(t.cfg.TTL, longestIllness), longestIllness)))
}

// from returns from when this worker may claim a shard; 0: now. A worker that is away tries one shard after each rest, if
// it has none by which it could find out whether its raises pass.
func (f *raiser) from(t *turn, l *shards) Instant {
	switch {
	case !f.away:
		return 0
	case l.held() > 0 || slices.ContainsFunc(l.all, func(s *shard) bool { return s.doing == claiming }):
		return t.now.Mono.Add(t.beat)
	case t.now.Mono < f.until:
		return f.until
	}
	return 0
}

// declines reports whether this worker leaves all shards that it does not hold to others at present.
func (f *raiser) declines(t *turn) bool { return f.away && t.now.Mono < f.until }

// saysRaised returns the number of the wish to raise all fences again that this worker has obeyed.
func (f *raiser) saysRaised(t *turn) int64 {
	if !t.cfg.Targets { // there is nothing to raise
		return f.wish
	}
	return f.obeyed
}

// says adds to what the seat says of the health of this worker, unless it is unwell for another reason.
func (f *raiser) says(t *turn, says *lease.Health) {
	if !f.on || f.failing == 0 || says.Unwell != "" {
		return
	}
	says.Unwell, says.UnwellSince, says.Trial = protocol.Unraised+f.target, f.failing.time(), f.away && !f.declines(t)
	if f.beside {
		says.Unwell += protocol.RunsUnraised
	}
}

// overlooked reports whether a worker of an earlier version has written the plan, and has left since: such a plan does not
// name the wish that stands to raise all fences again. While the worker stays, it would overlook the wish in the next plan
// too.
func (f *fleet) overlooked(t *turn) bool {
	maker := f.watch.plan.By.Incarnation
	return maker != f.seat.me && f.peers.find(maker) == nil && slices.ContainsFunc(f.watch.wishes.List, func(w lease.Wish) bool {
		return w.Kind == lease.WishRaise && w.Number != f.watch.plan.Raise && w.Stands(t.now.Wall)
	})
}

// allRaised reports whether w is a wish to raise all fences again, and all workers say that they have obeyed it. A worker that
// takes a seat afterwards raises what it claims.
func (f *fleet) allRaised(w lease.Wish) bool {
	return w.Kind == lease.WishRaise && w.Number > 0 && f.watch.plan.Raise == w.Number && f.peers.seen > 0 &&
		!slices.ContainsFunc(f.seats(), func(s lease.Seat) bool { return s.Raised != w.Number })
}

// able reports whether another worker is well. A worker that does not list the seats reads those of all watchers until one is
// well, and then only that one.
func (f *fleet) able(t *turn) bool {
	if f.watching() {
		return slices.ContainsFunc(f.seats(), func(s lease.Seat) bool { return s.Incarnation != f.seat.me && fit(s) })
	}
	watchers := f.watch.plan.Watchers
	well := func(inc lease.Incarnation) bool { // as last read, also while it is read again
		of := f.owners.find(inc)
		return of != nil && of.state == alive && fit(of.seat)
	}
	if i := slices.IndexFunc(watchers, well); i >= 0 { // while this one stays well, its seat is enough
		f.owners.look(t, watchers[i], t.beat)
		return true
	}
	for _, inc := range watchers {
		f.owners.look(t, inc, t.beat)
	}
	return false
}

// calls reports whether another worker cannot raise a fence, as far as this one lists the seats.
func (f *fleet) calls() bool {
	return f.watching() && slices.ContainsFunc(f.peers.all, func(p peer) bool {
		return !p.unreadable && protocol.CannotRaise(p.seat.Health)
	})
}

// unraised counts the tenures whose fences are not raised.
func (l *shards) unraised() (n int) {
	for _, s := range l.all {
		if s.t != nil && s.t.raise.on {
			n++
		}
	}
	return n
}
