package engine

import (
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The sweep: an audit of all rows, which finds what somebody has changed by hand, and commands whose wish was lost. It
// holds when the next audit is due, and in a large fleet the rows that the present audit has read so far.
//
//	waits for Config.Audit → small: a listing of the rows is wanted → waits
//	                       → large: page by page, with a rest after each → waits
//
// Called by the spine of a worker that audits (fleet.audits): keep in each step, saw with each page, over after the last
// one. facts.strays finds out what the rows show.
//
// After a command that has changed many rows (protocol.LookAll) an audit is due at once, in a large fleet as soon as the plan
// has stood for a lease time, and its pages do not lag behind. If the plan changes meanwhile, so that the audit shows nothing
// (watch.stands), another one follows.
//
// Nothing is written here.
//
// Invariant: no plan is made from the rows of a sweep: its pages were read at different times, and may lag behind.

// The audit of a large fleet reads auditPage rows with one request, and then rests for auditPause. Rows have
// at most about a kilobyte, so these are at most 50 read units a second. An audit of more than wholeMinute rows
// would take longer than the default of AuditEvery at that pace. It need not hurry: it rests longer, and reads
// 20 units a second. Shorter pages would cost more, because each bucket is asked for its share of a page, and
// often for more.
const (
	auditPage   = 2000
	auditPause  = 5 * time.Second
	longAudit   = 12 * time.Second
	wholeMinute = 12 * auditPage
)

// auditRest returns how long an audit of so many rows rests after a page.
func auditRest(rows int64) time.Duration {
	if rows > wholeMinute {
		return longAudit
	}
	return auditPause
}

// A sweep is an audit of a large fleet.
//
//	off → begin: a page is due → listed → rests → the next page is due → … → a page is not full: off
//
// The pages were read at different times, and may lag behind, so no plan is made from them. They show rows that somebody
// has changed by hand, and the next plan asks the workers of these shards to read them.
type sweep struct {
	on       bool
	since    Instant
	begun    order         // the step in which it began: no page was sent before
	revision int64         // of the plan that was known then
	rest     time.Duration // after each page
	page     read
	after    string  // the name of the last row so far
	found    Listed  // all rows so far
	next     Instant // when the next audit is due; Never: this worker has not begun to audit
	look     bool    // a command has changed many rows: an audit is due now
	looking  bool    // this audit is for such a command
}

// keep makes a listing of the rows wanted when an audit is due. In a large fleet it lists them itself. The time until the
// next audit begins when the worker begins to audit, and in a small fleet again with any listing of the rows.
func (w *sweep) keep(t *turn, of *watch, rows *read) {
	if t.large && w.on { // the next audit begins when this one has ended
		w.list(t)
		return
	}
	due := t.now.Mono >= w.next || w.look && (!t.large || of.settled(t))
	if due || w.next == Never || !t.large && rows.wanted {
		w.next = t.now.Mono.Add(t.jitter(t.cfg.Audit))
	}
	t.at(w.next)
	if !t.large {
		rows.wanted, w.look = rows.wanted || due, w.look && !due
	} else if due {
		w.begin(t, of.plan)
	}
}

// begin starts an audit under the plan. Its first page is due after the rest of the audit before.
func (w *sweep) begin(t *turn, plan lease.Plan) {
	w.on, w.since, w.begun, w.revision, w.rest = true, t.now.Mono, t.step, plan.Revision, auditRest(plan.Shards)
	w.look, w.looking = false, w.look
	w.list(t)
}

// list lists the next page when it is due.
func (w *sweep) list(t *turn) {
	if w.page.wake(t, 0); w.page.due(t) {
		w.page.send(t, lease.Query{Kind: lease.KindLease, Eventually: !w.looking, After: w.after, Limit: auditPage})
	}
}

// saw takes a page, and reports whether it was the last one: it is not full.
func (w *sweep) saw(t *turn, in Listed) bool {
	w.page.wanted, w.page.next = false, t.now.Mono.Add(w.rest)
	w.found.Records, w.found.Unreadable = append(w.found.Records, in.Records...), append(w.found.Unreadable, in.Unreadable...)
	for _, r := range in.Records {
		w.after = max(w.after, r.Key().Name)
	}
	for _, u := range in.Unreadable {
		w.after = max(w.after, u.Key.Name)
	}
	return len(in.Records)+len(in.Unreadable) < auditPage
}

// over returns the sweep of a worker that does not audit at present. The next one begins after the rest.
func (w *sweep) over() sweep {
	next := sweep{page: w.page.again(), next: w.next, look: w.look}
	next.page.next = w.page.next
	return next
}
