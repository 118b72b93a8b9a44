package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Promises let package judge check everything that happens. They see every write that the table accepts, and every handler
// that starts and ends. They know what only this world knows: what streams contain, and which processes are paused.
type promises struct {
	w *world
	*judge.Judge
	seats     judge.Seats
	requests  judge.Requests
	revisions map[lease.Key]int64 // the highest of the plan and of each page of a target
	handlers  map[engine.Tenure]*handler
	consents  map[engine.Tenure]bool // the tenures whose owner before has offered the shard
	closed    map[string]int64       // for each shard the latest generation whose handler had to find the sink closed
	planted   map[lease.Key]bool     // whether a page of a target is as the adversary has written it
	moves     []string               // since calm
}

// clocks run up to 4 % too fast.
const clocks judge.Clocks = 40

func newPromises(w *world) *promises {
	return &promises{
		w: w, Judge: judge.New(checkpoint.Decimal), seats: judge.Seats{}, requests: judge.Requests{}, revisions: map[lease.Key]int64{},
		handlers: map[engine.Tenure]*handler{}, planted: map[lease.Key]bool{},
		consents: map[engine.Tenure]bool{}, closed: map[string]int64{},
	}
}

// of returns what became of a tenure.
func (p *promises) of(id engine.Tenure) judge.Generation { return p.History[judge.Tenure(id)] }

// wentBack notes that the table went back in time, to these rows.
func (p *promises) wentBack(rows []lease.Row) {
	p.Restored(rows)
	clear(p.revisions)
	clear(p.planted) // no worker has the incarnation that it had in the snapshot
}

// Accepted checks a write that the table has accepted.
func (p *promises) Accepted(by virtual.Sender, write lease.Write, r lease.Record) {
	w := p.w
	w.trace(write.Op.String(), write.Key().Name, func() string {
		if r == nil {
			return ""
		}
		return r.String()
	})
	w.mix(fold(write.ID()))
	switch write.Key().Kind {
	case lease.KindSeat:
		p.seat(write, by)
	case lease.KindLease:
		p.row(write, by, r.(lease.Row))
	default:
		p.advice(write, by)
	}
}

func fold(id lease.WriteID) (v uint64) {
	for i := range len(id) {
		v = v*31 + uint64(id[i])
	}
	return v
}

// seat checks a write of a seat.
func (p *promises) seat(write lease.Write, by virtual.Sender) {
	inc := lease.Incarnation(write.Key().Name)
	excused := write.Op == lease.OpDelete && (p.w.faults.backup.lately() || p.proven(inc))
	p.w.check(p.seats.Wrote(write, by, p.w.Now(), clocks, excused))
	if next, ok := write.Next.(lease.Seat); ok {
		p.requests.Saw(next, p.w.Now())
	}
}

// proven reports whether a connection may have proven the death of an incarnation: its process is dead or has
// taken another seat, or its address has lied since.
func (p *promises) proven(inc lease.Incarnation) bool {
	s, known := p.seats[inc]
	if !known || !p.w.watchful {
		return false
	}
	by, _ := s.By.(virtual.Sender)
	at, lied := p.w.faults.mistaken[by.Name]
	lives := func(n *node) bool { return n.Up() && n.Sender() == by && n.me == inc }
	return lied && at >= s.Began || !slices.ContainsFunc(p.w.nodes, lives)
}

// advice checks a write of the plan or of a target, and what it means for trouble.
func (p *promises) advice(write lease.Write, by virtual.Sender) {
	adversary := by == (virtual.Sender{})
	key := write.Key()
	switch {
	case key.Kind == lease.KindWishes:
		return
	case write.Next == nil:
		p.planted[key] = false
		p.advised(key) // a late twin of its creation may come
		return
	}
	var err error
	if p.revisions[key], err = judge.Revision(write, p.revisions[key]); !adversary {
		p.w.check(err)
	}
	switch next := write.Next.(type) {
	case lease.Plan:
		p.w.faults.planned(by, next.Open)
	case lease.Target:
		p.planted[key] = adversary
		p.w.faults.planned(by, true)
	}
}

// advised forgets the revision of a record that the adversary has written or deleted.
func (p *promises) advised(k lease.Key) { delete(p.revisions, k) }

// misled reports whether the adversary's targets still stand. The fleet may rest nevertheless, until a plan is made for
// another reason. That plan starts from these targets, so it may move more shards than its reason needs.
func (p *promises) misled() bool {
	return slices.Contains(slices.Collect(maps.Values(p.planted)), true)
}

// row checks a write of a row.
func (p *promises) row(write lease.Write, by virtual.Sender, after lease.Row) {
	w, before := p.w, p.Row(after.Shard)
	w.stats.Writes++
	w.check(p.Judge.Accepted(write, by.Name, after))
	if after.Checkpoint.Mark != before.Checkpoint.Mark && !after.Removed && !before.Removed {
		w.stats.Commits++
		to := position(after.Checkpoint.Position)
		if h := p.handlers[engine.Tenure{Shard: after.Shard, Generation: after.Checkpoint.Generation}]; h == nil || to > h.pos {
			w.blame("loss: %d is accepted, and its handler has not come so far: %v", to, h)
		}
	}
	if after.Generation > before.Generation {
		p.consented(before, after)
		p.hands(before, after)
	}
	w.check(p.handover(judge.Accepted{Before: before, After: after, Write: write, By: by.Name}).Check())
}

// hands notes a change of hands, and checks it against what is known of the stream.
func (p *promises) hands(before, after lease.Row) {
	w, last := p.w, after.Last
	w.stats.hands(last.Reason, 1)
	if w.strict && !after.Finished && !after.Removed {
		p.moves = append(p.moves, fmt.Sprintf("%v: %s@%d held by %q, %v", w.Now(), after.Shard, after.Generation, after.Owner.Name, last))
	}
	if after.Quarantined && !before.Quarantined && after.Attempts() < w.set.attempts {
		w.blame("%v was quarantined too early", after)
	}
	s := w.streams.of(after.Shard)
	if before.Removed && !after.Removed && s.dropped {
		w.blame("replay: %v is back, and the source lists it no more", after)
	}
	if after.Finished && !before.Finished {
		s.ended = w.Now()
		if !s.closed || position(after.Checkpoint.Position) != s.total {
			w.blame("finished before its end: %v, %d records", after, s.total)
		}
	}
	// Only the first claim of a row: a child that began too early, in a table that had
	// lost its parent's row, goes on.
	if !after.Owner.IsZero() && before.Owner.IsZero() && before.Last.Reason == lease.ReasonInitial {
		if name, awaits := p.awaits(after.Parents); awaits {
			w.blame("%v was claimed before its parent %s was finished", after, name)
		}
	}
}

// handover returns what can entitle a worker to a change of hands.
func (p *promises) handover(a judge.Accepted) *judge.Handover {
	w, id, owner := p.w, engine.Tenure{Shard: a.Before.Shard, Generation: a.Before.Generation}, a.Before.Owner.Incarnation
	of := &judge.Handover{
		Accepted: a, Now: w.Now(), Clocks: clocks, Drain: w.set.drain, Seats: p.seats, Requests: p.requests,
		WentBack: w.faults.backup.lately(),
	}
	if a.After.Generation == a.Before.Generation || owner == "" {
		return of
	}
	last, next := p.seats[owner], p.seats[a.After.Owner.Incarnation]
	of.Same = last.By != nil && last.By == next.By // it knows that its own earlier incarnation is over
	of.Seated = w.sits(owner)
	if h := p.handlers[id]; h != nil && h.n.Up() {
		of.Holder = judge.Holder{
			Works: !h.returned && !h.Over && !h.finishing, Winds: h.n.well(), Since: h.softAt,
			Trusts: !h.Over && !h.returned && h.n.well() && h.n.Clock.Slept == 0 && !of.WentBack && !p.proven(owner),
		}
	}
	return of
}

// awaits returns the first of these parents for which a child has to wait. It need not wait for a parent that is
// unlisted, or that the source of a node has lacked: that node may take it as finished.
func (p *promises) awaits(parents []string) (name string, awaits bool) {
	for _, name := range parents {
		if s := p.w.streams.of(name); s != nil && s.ended == 0 && !s.lacked && !p.unlisted(s) && !p.w.faults.backup.lately() {
			return name, true
		}
	}
	return "", false
}

// unlisted reports whether nobody processes a stream because the source has dropped it.
func (p *promises) unlisted(s *stream) bool {
	return s.dropped && p.Row(s.name).Last.Reason == lease.ReasonUnlisted
}

// ready reports whether nothing that a stream has to wait for is open.
func (p *promises) ready(s *stream) bool {
	return !slices.ContainsFunc(s.parents, func(name string) bool {
		parent := p.w.streams.of(name)
		return parent.ended == 0 && !p.unlisted(parent)
	})
}

// last returns the last n changes of hands.
func (p *promises) last(n int) string { return strings.Join(p.moves[max(0, len(p.moves)-n):], "\n\t") }

// start checks the beginning of a tenure.
func (p *promises) start(h *handler, o engine.Start) {
	w, n := p.w, h.n
	for _, other := range n.running() {
		if other.s == h.s {
			w.blame("%s runs two handlers of one shard: %v and %v", n.Name, other, h)
		}
	}
	w.check(p.Start(judge.Tenure(h.Tenure), n.me, o.Checkpoint.Position))
	if !n.trusts() {
		w.blame("%v is started without trust: seated %t", h, n.seated)
	}
	if n.leaver && w.Now()-n.leaves > 0 {
		w.blame("%v is started by a worker that leaves", h)
	}
	if name, awaits := p.awaits(h.s.parents); awaits && o.Transfer.Reason == lease.ReasonInitial {
		w.blame("%v is started before its parent %s is finished", h, name)
	}
	p.handlers[h.Tenure] = h
	p.overlap(h, o.Transfer)
	p.gap(h, o.Transfer)
}

// overlap checks every other handler of the shard that still runs. A handler may run if its worker has told it to stop or
// is paused. If its worker offered the shard, it may run until the worker learns of the takeover. If its worker gave the
// shard up, it may not run.
func (p *promises) overlap(h *handler, last lease.Transfer) {
	w := p.w
	for _, o := range h.s.active {
		if o.n == h.n || o.Over || !o.n.well() {
			continue
		}
		how := p.of(o.Tenure).Ended
		switch {
		case !how.Given && how.Reason == lease.ReasonHandoff:
			o.taken = w.Now()
			if w.strict {
				p.stopsInTime(o, h)
			}
		case how.Given:
			w.blame("overlap: %v starts while %v runs, which its worker gave up: %s (%v)", h, o, how.Reason, last)
		case w.strict && how.Reason != lease.ReasonForced:
			w.blame("overlap in calm: %v starts while %v runs: %s", h, o, how.Reason)
		}
	}
}

// stopsInTime checks that a handler stops soon after another worker has taken its shard over.
func (p *promises) stopsInTime(o, by *handler) {
	w, limit := p.w, p.w.set.ttl/3+300*time.Millisecond
	w.After(limit, func() {
		if w.strict && !o.Over && !o.returned && o.n.well() {
			w.blame("overlap: %v still runs %v after it was taken over by %v", o, limit, by)
		}
	})
}

// eagerGap is the longest that a shard may go without a handler in an eager move
// between healthy workers: a fast look, and the way to the table and back twice.
const eagerGap = 600 * time.Millisecond

// gap measures how long nobody processed the shard.
func (p *promises) gap(h *handler, last lease.Transfer) {
	w, s := p.w, h.s
	if len(s.active) > 0 || s.by == nil || !w.strict || s.emptied < w.calmSince {
		return
	}
	gap := w.Now() - s.emptied
	if how := p.of(s.by.Tenure).Ended; how.Reason != lease.ReasonHandoff || how.Next != h.Tenure.Generation {
		return
	}
	w.stats.Gap = max(w.stats.Gap, gap)
	if gap > eagerGap {
		w.blame("gap: nobody worked on %s for %v before %v (%v)", s.name, gap, h, last)
	}
}

// gone notes that a handler no longer runs, because it returned or its process is dead.
func (p *promises) gone(h *handler) {
	w, s := p.w, h.s
	h.returned = true
	s.active = slices.DeleteFunc(s.active, func(o *handler) bool { return o == h })
	if len(s.active) == 0 {
		s.emptied, s.by = w.Now(), h
	}
	if !w.strict || h.taken <= w.calmSince {
		return
	}
	w.stats.Overlap = max(w.stats.Overlap, w.Now()-h.taken)
	if len(s.active) == 0 && h.n.Up() {
		w.blame("gap: %v has ended, taken over cooperatively, and nobody works on the shard", h)
	}
}

// end returns what is known of the reasons for the end of a tenure.
func (p *promises) end(h *handler, cause event.Cause, err error) judge.End {
	w, n := p.w, h.n
	lately := w.faults.backup.lately()
	return judge.End{
		Cause: cause, Err: err, Tenure: judge.Tenure(h.Tenure), Ended: p.of(h.Tenure).Ended, Soft: h.Soft,
		Returned: h.returned, Released: h.news.Release || h.temper == releasing || h.unraised, Finishing: h.finishing,
		Requested: cause == event.CauseHandedOff && p.requests.Any(judge.Tenure(h.Tenure)), Stopping: n.leaver,
		Untrusted: (cause == event.CauseExpired || cause == event.CauseUnreachable) && p.untrusted(n), Unanswered: p.unanswered(h), Stalls: n.config.StallAfter > 0,
		Unlisted: n.absent[h.Shard] >= 2, Complete: h.s.ended > 0, Removed: h.s.dropped, WentBack: lately, Calm: w.strict,
	}
}

// untrusted reports whether a worker could not trust in its seat when it made its last step, because of its clock or of
// the table.
func (p *promises) untrusted(n *node) bool {
	return n.Mono() >= n.believed.Add(n.config.TTL-n.config.TTL/10) || !p.w.sits(n.me) || p.seats[n.me].Gone || p.w.faults.backup.lately()
}

// unanswered reports whether, for CommitTimeout, the table has accepted no marks of a handler or
// answered no write of a row by its worker.
func (p *promises) unanswered(h *handler) bool {
	return p.w.Now()-min(max(h.began, h.accepted), h.n.heard) >= clocks.Least(h.n.config.CommitTimeout)
}

// doubt checks a write of a worker whose wall clock shows that its trust has ended, because the machine slept. Until a
// heartbeat is confirmed, such a worker makes no new write of its rows. It may repeat a write that it sent before.
func (p *promises) doubt(n *node, write lease.Write) {
	w, key := p.w, write.Key()
	if key.Kind != lease.KindLease {
		return
	}
	again := n.sending[key.Name] == write.ID()
	n.sending[key.Name] = write.ID()
	trust := n.config.TTL - n.config.TTL/10
	if silent := w.Now() + n.Clock.Wall - n.wallTrue; !again && n.seated && silent >= trust {
		w.blame("%s sends %v in doubt: %v since its last beat, by the wall clock", n.Name, write, silent)
	}
}

// committed checks that marks that are reported to a handler as accepted were stored.
func (p *promises) committed(h *handler, o engine.Committed) {
	w := p.w
	h.accepted = w.Now()
	switch {
	case int(o.Seq) > len(h.marks):
		w.blame("%v: %d marks are accepted of %d", h, o.Seq, len(h.marks))
	case o.Err != nil:
		if !w.faults.backup.lately() {
			w.blame("%v: its marks are refused for good: %v", h, o.Err)
		}
	case o.Seq > 0:
		w.check(p.Committed(judge.Tenure(h.Tenure), text(h.marks[o.Seq-1]), checkpoint.Decimal))
	}
}

// done checks that a worker that has left holds nothing and has no seat.
func (p *promises) done(n *node) {
	w := p.w
	if !n.leaver {
		w.blame("%s is done and was not told to stop", n.Name)
	}
	if !w.strict {
		return
	}
	if took, limit := w.Now()-n.leaves, w.set.drain+w.set.ttl; took > limit {
		w.blame("%s took %v to stop", n.Name, took)
	}
	if w.sits(n.me) {
		w.blame("%s is done, and its seat is there", n.Name)
	}
	for _, s := range w.streams.all {
		if row := p.Row(s.name); row.Owner.Incarnation == n.me {
			w.blame("%s is done, and holds %v", n.Name, row)
		}
	}
}

// effect processes the records up to to. It reports whether the sink accepted the effect: an effect that it refuses must
// not be marked.
//
// Invariant: each record that an accepted checkpoint covers was processed; and in a fenced sink the effects are in the order
// of generations, without a gap between them.
func (p *promises) effect(h *handler, to int64) bool {
	w, s, from := p.w, h.s, h.pos+1
	w.stats.Records += to - h.pos
	w.stats.Again += max(0, min(to, s.processed)-h.pos)
	if from > s.processed+1 {
		w.blame("loss: %v starts with record %d, and nobody has processed what follows %d", h, from, s.processed)
	}
	s.processed = max(s.processed, to)
	if row := p.Row(s.name); row.Generation == h.Tenure.Generation && row.Generation < s.sink.Generation && !w.faults.backup.lately() {
		w.blame("S3: the sink has seen generation %d, and the table is at %v", s.sink.Generation, row)
	}
	accepted, err := s.sink.Effect(judge.Tenure(h.Tenure), h)
	w.check(err)
	if !accepted {
		w.stats.Refused++
		return false
	}
	if at := p.closed[s.name]; h.Generation < at {
		w.blame("zombie: the sink accepts an effect of %v, and the handler of generation %d was called before", h, at)
	}
	if from > s.accepted+1 {
		w.blame("loss: %v, the first the sink accepts is %d after %d", h, from, s.accepted)
	}
	s.accepted = to
	return true
}
