package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Simulated leases by name: a hall is a group of sessions that contend for leases under the faults of this
// package. A judge checks every accepted write. A register for each lease accepts or refuses the effects of the
// lease's holders.

// A Hall states how many sessions there are, for how many leases each has a caller, and how long the trouble
// lasts.
type Hall struct {
	Sessions, Leases int
	Trouble          time.Duration
}

// A Report has the figures of a hall.
type Report struct {
	Stats     Stats
	Hash      uint64
	Tenures   int           // tenures that began
	Lost      int           // tenures that ended before their holder had released them
	Effects   int           // accepted by the registers
	Refused   int           // refused by the registers
	Settled   time.Duration // from the end of the trouble until no caller waited
	Rest      float64       // requests of a session at rest in a third of the lease time
	Mean, Max time.Duration // how long callers waited for the lease that all sessions want
	Err       error
}

// A hall is a group of sessions.
type hall struct {
	*world
	Hall
	guests    []*guest
	registers map[string]*register
	gone      map[lease.Incarnation]time.Duration // when a seat was first deleted
	forced    map[engine.Tenure]bool              // tenures that an operator has ended
	id        uint64
	hot       bool // all sessions want the same lease
	waits     []time.Duration
	report    Report
	closing   bool // no caller begins another acquisition
}

// hotLease is the lease that all sessions want at the end.
const hotLease = "hot"

// A register takes the effects under one lease. It refuses an effect with a generation below the highest one
// that it has accepted.
type register struct {
	highest int64
	by      virtual.Sender // the process whose effects of that generation the register has accepted
	active  []*holding
}

// A guest is a machine on which a session runs, as one process after another.
type guest struct {
	*node
	h       *hall
	process virtual.Sender
	waiting map[string]wait
	beats   int // heartbeats
	wishes  int // reads of the wishes
	others  int // all other requests, except checks whether the table was restored
}

// A wait is a caller that waits for a lease.
type wait struct {
	id    uint64
	since time.Duration
	delay time.Duration
}

// A holding is the holder's side of one tenure.
type holding struct {
	*virtual.Handler
	g        *guest
	by       virtual.Sender
	ended    bool // the holder has returned
	released bool
}

// Run simulates a hall in chapters: trouble; calm, in which all waiting callers are served; a successor for
// every lease; rest; one lease that all sessions want; and the end.
func (s Hall) Run(seed uint64, log func(string)) Report {
	w := newWorld(seed)
	w.log, w.make = log, virtual.NewSession
	ttl := pick(w, 3*time.Second, 5*time.Second, 10*time.Second)
	w.set = settings{
		ttl: ttl, drain: 2 * ttl, handoff: rebalance.Eager, busy: 0.1, marks: pick(w, 0, 1, 5), commits: pick(w, 0, time.Second),
		backoff: -1, audit: time.Minute, poll: time.Hour,
	}
	w.net.slow, w.net.timeout = 5*time.Millisecond, w.between(ttl/10, ttl/2)
	h := &hall{world: w, Hall: s, registers: map[string]*register{}, gone: map[lease.Incarnation]time.Duration{}, forced: map[engine.Tenure]bool{}}
	w.table.Watcher = h
	for i := range s.Sessions {
		h.join(fmt.Sprintf("n%04d", i))
	}
	h.suffer()
	for _, chapter := range []func(){h.settle, h.heirs, h.rest, h.contend, h.end} {
		if len(w.faults) == 0 {
			chapter()
		}
	}
	result := w.result()
	h.report.Stats, h.report.Hash, h.report.Err = result.Stats, result.Hash, result.Err
	return h.report
}

func (h *hall) join(name string) {
	g := &guest{node: h.addNode(name), h: h}
	g.Shell = g
	h.guests = append(h.guests, g)
	h.again(g.node, h.between(0, h.set.ttl))
}

// suffer lets trouble go on for a while.
func (h *hall) suffer() {
	mean := 10 * h.set.ttl / time.Duration(h.Sessions) // each session suffers in ten lease times
	r := rates{lost: 0.02, replyLost: 0.02, late: 0.02, twin: 0.02, lateReply: 0.05, throttled: 0.03, readLost: 0.02}
	h.rage(trouble{mean: mean, rates: r, kinds: []Fault{
		Crash, Crash, Stop, PauseHalf, PauseEdge, PauseLong, PauseVeryLong, Suspend, WallJump, ReadsOnly, WritesOnly, BeatsOnly,
	}}, h.Trouble)
	h.After(h.Trouble/2, func() { h.world.suffer(Outage) })
	var force func()
	force = func() {
		if h.peace {
			return
		}
		h.force()
		h.After(h.between(0, 8*mean), force)
	}
	h.After(h.set.ttl, force)
	var forget func()
	forget = func() { // no request is under way for as long as this
		h.judge.promises.Forget()
		h.After(10*h.set.ttl, forget)
	}
	h.After(10*h.set.ttl, forget)
	h.run(h.Trouble)
}

// force plays an operator who releases a lease.
func (h *hall) force() {
	row := h.judge.row(h.name())
	if row.Generation == 0 || row.Owner.IsZero() || h.net.down {
		return
	}
	write, err := protocol.ForceRelease(row, protocol.Command{Seen: row.Generation, By: "supervisor", Note: "because"}, h.stamp())
	if err == nil {
		_, err = h.table.Write(virtual.Sender{}, write)
	}
	if err != nil {
		h.fault("force-release: %v", err)
	}
	h.stats.Faults[ForcedRelease]++
	h.rewish(func(list []lease.Wish) []lease.Wish { // a command removes its own that have ended, too
		look := lease.Wish{Kind: protocol.WishLook, Subject: row.Shard, By: "supervisor", Until: h.stamp().At.Add(time.Minute)}
		list = slices.DeleteFunc(list, func(old lease.Wish) bool { return old.Compare(look) == 0 || !old.Stands(h.stamp().At) })
		return append(list, look)
	})
	h.forced[engine.Tenure{Shard: row.Shard, Generation: row.Generation}] = true
}

// name draws the name of a lease. Some names are drawn often.
func (h *hall) name() string {
	if h.hot {
		return hotLease
	}
	n := max(h.Sessions*h.Leases/2, 1)
	if h.likely(0.05) {
		n = max(n/50, 1)
	}
	return "lock-" + strconv.Itoa(h.chance.IntN(n))
}

// register returns the register of a lease.
func (h *hall) register(name string) *register {
	s := h.registers[name]
	if s == nil {
		s = new(register)
		h.registers[name] = s
	}
	return s
}

// settle ends all trouble. It checks that every waiting caller gets its lease in bounded time, and that then
// all leases are released.
func (h *hall) settle() {
	h.quiet()
	h.closing = true
	h.run(h.net.timeout + time.Second) // requests that were under way arrive
	from, queue := h.Now(), map[string]int{}
	for _, g := range h.guests {
		for name := range g.waiting {
			queue[name]++
		}
	}
	longest := 1
	for _, n := range queue {
		longest = max(longest, n)
	}
	// The dead are evicted, the present holders release, and the waiting callers acquire and release, one after another.
	limit := 6*h.set.ttl + 2*h.holds() + time.Duration(longest)*(h.holds()+h.set.ttl/2)
	if !h.until(limit, func() bool {
		return h.still() && h.sum(func(g *guest) int { return len(g.waiting) + len(g.Handlers) }) == 0
	}) {
		h.fault("%d callers wait %v after all trouble has ended, %d leases are held", h.sum(func(g *guest) int { return len(g.waiting) }), limit,
			h.sum(func(g *guest) int { return len(g.Handlers) }))
	}
	h.report.Settled = h.Now() - from
	h.run(4 * h.set.ttl) // the clocks of machines that slept
	h.strict, h.calm = true, h.Now()
}

// heirs makes the sessions acquire and release every existing lease, also the leases of dead sessions.
func (h *hall) heirs() {
	for i, r := range h.table.Records(group, lease.KindLease) {
		h.guests[i%len(h.guests)].acquire(r.Key().Name, wait{}, false)
	}
	waiting := func(g *guest) int { return len(g.waiting) }
	limit := 5 * h.set.ttl // a seat and a lock delay, each of up to a lease time
	if !h.until(limit, func() bool { return h.sum(waiting) == 0 }) {
		h.fault("%d leases were not acquired in %v in calm", h.sum(waiting), limit)
		return
	}
	h.releaseAll()
}

// releaseAll makes all holders release their leases.
func (h *hall) releaseAll() {
	for _, g := range h.guests {
		for _, t := range slices.Clone(g.Handlers) {
			t.Script.(*holding).release()
		}
	}
	h.run(2 * time.Second)
	if n := h.sum(func(g *guest) int { return len(g.Handlers) }); n > 0 {
		h.fault("%d leases are held after their release", n)
	}
}

// still reports whether every machine runs a session that has its seat.
func (h *hall) still() bool {
	return !slices.ContainsFunc(h.guests, func(g *guest) bool { return !g.Up() || g.leaver || !g.seated || g.due && !g.Up() })
}

func (h *hall) sum(of func(*guest) int) (n int) {
	for _, g := range h.guests {
		n += of(g)
	}
	return n
}

// rest checks what acquisitions cost, and what sessions cost that hold leases without marks.
func (h *hall) rest() {
	for _, g := range h.guests {
		for i := range h.Leases {
			g.acquire(fmt.Sprintf("own-%s-%d", g.Name, i), wait{}, false)
		}
		g.others = 0
	}
	h.run(2 * time.Second)
	for _, g := range h.guests {
		if held := len(g.Handlers); held < h.Leases {
			h.fault("%s holds %d of %d new leases", g.Name, held, h.Leases)
		}
		if g.others > 2*h.Leases {
			h.fault("%s made %d requests for %d new leases", g.Name, g.others, h.Leases)
		}
		g.others, g.beats, g.wishes = 0, 0, 0
	}
	const beats = 30
	h.run(beats * h.set.ttl / 3)
	most := beats*1000*1040/(875*1000) + 2 // intervals are up to an eighth shorter, and clocks 4 % too fast
	for _, g := range h.guests {
		if g.beats > most || g.wishes > most || g.others > 0 {
			h.fault("%s holds %d leases at rest with %d heartbeats, %d reads of the wishes and %d other requests in %d intervals",
				g.Name, len(g.Handlers), g.beats, g.wishes, g.others, beats)
		}
	}
	h.report.Rest = float64(h.sum(func(g *guest) int { return g.beats + g.wishes })) / float64(len(h.guests)) / beats
	h.releaseAll()
}

// contend makes up to 100 sessions wait for one lease.
func (h *hall) contend() {
	n := min(len(h.guests), 100)
	h.waits, h.hot = nil, true
	for _, g := range h.guests[:n] {
		g.want()
	}
	if !h.until(time.Duration(n)*h.set.ttl, func() bool { return len(h.waits) == n }) {
		h.fault("%d of %d sessions have held the lease that all want", len(h.waits), n)
		return
	}
	sum := time.Duration(0)
	for _, d := range h.waits {
		sum += d
	}
	h.report.Mean, h.report.Max = sum/time.Duration(n), slices.Max(h.waits)
	if h.report.Max > 5*h.report.Mean {
		h.fault("the longest of %d callers waited %v, on average they waited %v", n, h.report.Max, h.report.Mean)
	}
	h.run(2 * time.Second)
}

// end stops all sessions, and checks that they leave no seats and no lease rows without a checkpoint. It does not
// check the seats of dead sessions that held no lease: nobody evicts these.
func (h *hall) end() {
	for _, g := range h.guests {
		g.stop()
	}
	h.run(time.Millisecond)
	if !h.until(h.set.drain+h.set.ttl, func() bool { return !slices.ContainsFunc(h.guests, func(g *guest) bool { return g.Up() }) }) {
		h.fault("end: a session is still there")
	}
	for _, g := range h.guests {
		if h.judge.sits(g.me) {
			h.fault("end: the seat of %s is still there", g.Name)
		}
	}
	for _, r := range h.table.Records(group, lease.KindLease) {
		if row := r.(lease.Row); !row.Owner.IsZero() || row.Checkpoint.Position == "" && row.Checkpoint.State == "" {
			h.fault("end: this row is still there: %v", row)
		}
	}
}

// holds returns the longest time for which a holder keeps a lease.
func (h *hall) holds() time.Duration { return 2 * h.set.ttl }

// Accepted checks a write that the table has accepted.
func (h *hall) Accepted(by virtual.Sender, w lease.Write, r lease.Record) {
	h.trace(w.Op.String(), w.Key().Name, func() string { return fmt.Sprint(r) })
	switch h.mix(fold(w.ID())); w.Key().Kind {
	case lease.KindSeat:
		h.judge.judgeSeat(w, by)
		if inc := lease.Incarnation(w.Key().Name); w.Op == lease.OpDelete && h.gone[inc] == 0 {
			h.gone[inc] = h.Now()
		}
	case lease.KindLease:
		before, after := h.judge.row(w.Key().Name), r.(lease.Row)
		h.stats.Writes++
		if fault := h.judge.promises.Accepted(w, by.Name, after); fault != nil {
			h.fault("%w", fault)
		}
		if before.Checkpoint != after.Checkpoint && !after.Removed {
			h.stats.Commits++
		}
		if after.Generation > before.Generation {
			h.stats.hands(after.Last.Reason, 1)
			h.changed(before, after)
		}
	}
}

// changed checks that a change of hands was due.
func (h *hall) changed(before, after lease.Row) {
	if before.Owner.IsZero() || after.Last.Reason != lease.ReasonExpired {
		return
	}
	inc := before.Owner.Incarnation
	gone, deleted := h.gone[inc]
	if !deleted {
		h.fault("S4: %v was recovered by %v, and its owner's seat was never deleted", before, after.Owner)
	}
	if waited := h.Now() - gone; waited < slack(before.Owner.LockDelay) {
		h.fault("lock delay: %v was recovered %v after its owner's seat was deleted", before, waited)
	}
	for _, o := range h.register(before.Shard).active {
		if o.trusts() && o.Generation == before.Generation {
			h.fault("%v was recovered by %v while its holder still trusts itself", before, after.Owner)
		}
	}
}

// trusts reports whether the holder may believe that it holds the lease: its process is not paused, and has not
// learnt that the tenure has ended. After a sleep of the machine, a process learns that only from the answer to a
// heartbeat.
func (o *holding) trusts() bool {
	return !o.ended && !o.Over && o.g.Up() && o.g.Sender() == o.by && o.g.well() && o.g.Clock.Slept == 0
}

// Stepped starts the callers of a new process, and makes a caller that was refused try again.
func (g *guest) Stepped(in engine.Input, out []engine.Output) {
	g.node.Stepped(in, out)
	if g.process != g.Sender() {
		g.process, g.waiting = g.Sender(), map[string]wait{}
		for range g.h.Leases {
			g.Later(g.w.between(0, g.w.set.ttl), g.want)
		}
	}
	for _, o := range out {
		if u, ok := o.(engine.Unavailable); ok && g.waiting[u.Name].id == u.ID {
			delete(g.waiting, u.Name)
			g.Later(g.w.between(g.w.set.ttl/4, g.w.set.ttl), g.want)
		}
	}
}

// Call counts the requests.
func (g *guest) Call(o engine.Output) {
	get, _ := o.(engine.Get)
	send, sends := o.(engine.Send)
	_, verifies := o.(engine.Verify)
	switch {
	case sends && send.Write.Key().Kind == lease.KindSeat:
		g.beats++
	case get.Key.Kind == lease.KindWishes, sends && send.Write.Key().Kind == lease.KindWishes:
		g.wishes++
	case !verifies:
		g.others++
	}
	g.node.Call(o)
}

// Poll reports a fault: a session has no source to ask.
func (g *guest) Poll() { g.w.fault("%s asks for a source", g.Name) }

// want plays a caller that wants some lease.
func (g *guest) want() {
	h := g.h
	if h.closing && !h.hot || g.leaver || g.done {
		return
	}
	name := h.name()
	if _, busy := g.waiting[name]; busy || slices.ContainsFunc(g.Handlers, func(t *virtual.Handler) bool { return t.Shard == name }) {
		g.Later(g.w.between(0, g.w.set.ttl), g.want)
		return
	}
	of := wait{}
	if h.likely(0.3) && !h.closing {
		of.delay = h.between(0, h.set.ttl)
	}
	id := g.acquire(name, of, h.likely(0.1) && !h.closing)
	if h.likely(0.1) && !h.closing {
		g.Later(h.between(0, 2*h.set.ttl), func() { g.forgo(name, id) })
	}
}

// acquire plays a caller that wants this lease.
func (g *guest) acquire(name string, of wait, try bool) uint64 {
	g.h.id++
	of.id, of.since = g.h.id, g.w.Now()
	g.waiting[name] = of
	g.Input(engine.Acquire{Name: name, ID: of.id, LockDelay: of.delay.Truncate(time.Millisecond), Try: try})
	return of.id
}

// forgo plays a caller that stops waiting.
func (g *guest) forgo(name string, id uint64) {
	if g.waiting[name].id == id {
		delete(g.waiting, name)
		g.Input(engine.Forgo{Name: name, ID: id})
		g.want()
	}
}

// Start begins a tenure: the caller makes effects for a while, and releases the lease.
func (g *guest) Start(t *virtual.Handler, o engine.Start) {
	h, name := g.h, o.Tenure.Shard
	of := &holding{Handler: t, g: g, by: g.Sender()}
	t.Script = of
	h.trace("start", g.Name, func() string { return fmt.Sprint(o.Tenure, " ", o.Transfer) })
	h.witness(of)
	s := h.register(name)
	s.active = append(slices.DeleteFunc(s.active, func(o *holding) bool { return o.ended || o.g.Sender() != o.by }), of)
	h.report.Tenures++
	caller := g.waiting[name]
	if caller.id != o.Acquire {
		of.release() // nobody waits for it any more
		return
	}
	delete(g.waiting, name)
	h.waits = append(h.waits, h.Now()-caller.since)
	if h.strict && !h.hot {
		return // the caller holds the lease until the chapter ends
	}
	keep := h.between(0, h.holds())
	if h.peace {
		keep = min(keep, 100*time.Millisecond)
	}
	of.work(h.Now() + keep)
}

// witness checks that the start of a tenure keeps the promises.
func (h *hall) witness(of *holding) {
	g, j := of.g, h.judge
	if j.started[of.Tenure] {
		h.fault("S3: %v was started before", of.Tenure)
	}
	j.started[of.Tenure] = true
	if owner := j.promises.Owner(rowKey(of.Shard), of.Generation); owner.Incarnation != g.me {
		h.fault("S3: %v is started by %s, and is %v's", of.Tenure, g.me, owner)
	}
	if !g.seated || g.Mono() >= g.trusted+engine.Instant(g.config.TTL-g.config.TTL/10) {
		h.fault("%v is started without trust: seated %t", of.Tenure, g.seated)
	}
	for _, o := range h.register(of.Shard).active {
		if o.trusts() && !h.forced[o.Tenure] && !h.forced[of.Tenure] {
			h.fault("%s starts %v while %s trusts in %v", g.Name, of.Tenure, o.g.Name, o.Tenure)
		}
	}
}

// work makes effects and marks until the given time, and then releases the lease.
func (o *holding) work(until time.Duration) {
	g, w := o.g, o.g.w
	if o.ended {
		return
	}
	o.effect()
	if o.Over {
		return
	}
	if w.Now() >= until || o.Soft {
		o.release()
		return
	}
	if w.likely(0.3) {
		o.Marks++
		in := engine.Marks{Tenure: o.Tenure, Mark: checkpoint.Mark{Position: strconv.FormatInt(int64(w.Now()), 10)}, Seq: o.Marks}
		if w.likely(0.3) {
			in.Flush = o.Marks
		}
		g.Input(in)
	}
	g.Later(w.between(0, w.set.ttl/2), func() { o.work(until) })
}

// effect sends an effect to the register. Some effects arrive late, when the lease may have changed hands.
func (o *holding) effect() {
	w := o.g.w
	d := w.between(time.Millisecond/2, 5*time.Millisecond)
	if !w.peace && w.likely(0.05) {
		d = w.between(0, 3*w.set.ttl)
	}
	w.After(d, func() { o.g.h.arrive(o) })
}

// arrive takes an effect that arrives at the register.
func (h *hall) arrive(o *holding) {
	s := h.register(o.Shard)
	switch {
	case o.Generation < s.highest:
		h.report.Refused++
		return
	case o.Generation == s.highest && s.by != o.by:
		h.fault("%v and %v both have an accepted effect under %v", s.by, o.by, o.Tenure)
	}
	s.highest, s.by = o.Generation, o.by
	h.report.Effects++
}

// release makes the holder release its lease.
func (o *holding) release() {
	o.released = true
	o.g.Later(0, func() {
		if !o.ended {
			o.g.Input(engine.Marks{Tenure: o.Tenure, Release: true})
		}
	})
}

// Drain ends the soft context: the holder returns soon, or is cut off.
func (g *guest) Drain(t *virtual.Handler, o engine.Drain) {
	if t == nil {
		return
	}
	of := t.Script.(*holding)
	if o.Cause != event.CauseGivenUp && o.Cause != event.CauseStopped || o.Cause == event.CauseGivenUp && !of.released || o.Cause == event.CauseStopped && !g.leaver {
		g.w.fault("S4: %v is told to wind down: cause %d", of.Tenure, o.Cause)
	}
	d := g.w.between(0, 50*time.Millisecond)
	if g.w.likely(0.1) && !g.w.peace {
		d = g.w.between(0, 2*g.w.set.drain)
	}
	g.Later(d, of.ret)
}

// Over ends a tenure.
func (g *guest) Over(t *virtual.Handler, o engine.Over) {
	g.w.trace("over", g.Name, func() string { return fmt.Sprint(o.Tenure, " cause ", o.Cause, " ", o.Err) })
	g.h.over(g, o)
	if t == nil {
		return // its holder has returned
	}
	of := t.Script.(*holding)
	if !of.released {
		g.h.report.Lost++
	}
	g.Later(g.w.between(0, 50*time.Millisecond), of.ret)
}

// over checks that a tenure ends for a reason. The reason has to be in the table, on the clock, or in the holder
// itself: a lost reply is no reason (S4).
func (h *hall) over(g *guest, o engine.Over) {
	now := h.judge.row(o.Tenure.Shard)
	ok := true
	switch o.Cause {
	case event.CauseExpired, event.CauseUnreachable:
		ok = g.Mono() >= g.believed+engine.Instant(g.config.TTL-g.config.TTL/10) || !h.judge.sits(g.me) || h.judge.evicted(g.me)
		ok = ok && !h.strict
	case event.CauseFenced, event.CauseForced:
		ok = now.Generation > o.Tenure.Generation
	case event.CauseGivenUp, event.CauseStopped:
	default:
		ok = false
	}
	if !ok {
		h.fault("S4: %v ends for no reason that can be seen: cause %d, %v, the row is %v", o.Tenure, o.Cause, o.Err, now)
	}
}

// ret makes the holder return.
func (o *holding) ret() {
	g := o.g
	if o.ended || !g.Handlers.Remove(o.Tenure) {
		return
	}
	o.ended = true
	if g.done {
		if len(g.Handlers) == 0 {
			g.exit()
		}
		return
	}
	g.Input(engine.Returned{Tenure: o.Tenure})
	if !g.w.strict {
		g.Later(g.w.between(0, g.w.set.ttl/2), g.want)
	}
}

// Committed does nothing: a holder does not wait for commits.
func (g *guest) Committed(*virtual.Handler, engine.Committed) {}
