package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/judge"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Simulated leases by name: sessions contend for leases under the faults of this package. A register for each lease
// accepts or refuses the effects of the lease's holders.

// Sessions states how many sessions there are, for how many leases each has a caller, and how long the trouble
// lasts.
type Sessions struct {
	Count, Leases int
	Trouble       time.Duration
}

// A Report has the figures of a simulation of sessions.
type Report struct {
	Stats     Stats
	Hash      uint64
	Tenures   int           // tenures that began
	Lost      int           // tenures that ended before their holder had released them
	Hung      int           // holders that hung
	Failed    int           // holders that returned an error
	SetAside  int           // leases that were quarantined
	Moved     int           // tenures that ended because an operator moved the lease
	Effects   int           // accepted by the registers
	Refused   int           // refused by the registers
	Confirmed int           // answers that a holder holds its lease
	Denied    int           // answers that it does not
	Settled   time.Duration // from the end of the trouble until no caller waited
	Rest      float64       // requests of a session at rest in a third of the lease time
	Mean, Max time.Duration // how long callers waited for the lease that all sessions want
	Err       error
}

// A contest is a world of sessions that contend for leases.
type contest struct {
	*world
	Sessions
	sessions  []*session
	registers map[string]*register
	stalled   map[engine.Tenure]bool          // their holders were asked to let go because they were silent
	lost      map[engine.Tenure]time.Duration // when each generation of a lease ended
	ordered   map[judge.Tenure]bool           // the tenures that an operator has moved
	cut       map[string]time.Duration        // when the holder of a lease was last cut off for a move
	id        uint64
	hot       bool // all sessions want the same lease
	waits     []time.Duration
	report    Report
	closing   bool // no caller begins another acquisition
}

// hotLease is the lease that all sessions want at the end.
const hotLease = "hot"

// A register takes the effects under one lease.
type register struct {
	judge.Register
	active []*holder
}

// A session is a machine on which a session runs, as one process after another.
type session struct {
	*node
	c       *contest
	process virtual.Sender
	waiting map[string]wait
	beats   int // heartbeats
	wishes  int // reads of the wishes
	rolls   int // listings of the seats, of which a group makes about four a minute
	looks   int // reads of single seats
	others  int // all other requests, except checks whether the table was restored
}

// A wait is a caller that waits for a lease.
type wait struct {
	id    uint64
	since time.Duration
	delay time.Duration
	try   bool          // the caller only tries
	most  time.Duration // how long it waits then: see engine.Acquire
}

// Run simulates the sessions in chapters: trouble; calm, in which all waiting callers are served; a successor for
// every lease; rest; one lease that all sessions want; and the end.
func (s Sessions) Run(seed uint64, log func(string)) Report {
	w := newWorld(seed, log)
	w.make = virtual.NewSession
	ttl := pick(w.chance, 3*time.Second, 5*time.Second, 10*time.Second)
	w.set = settings{
		ttl: ttl, drain: 2 * ttl, handoff: rebalance.Eager, marks: pick(w.chance, 0, 1, 5), commits: pick(w.chance, 0, time.Second),
		backoff: -1, stall: 4 * ttl, attempts: 2, audit: time.Minute, poll: time.Hour, chances: chances{busy: 0.1},
	}
	w.net.slow, w.net.timeout = 5*time.Millisecond, w.between(ttl/10, ttl/2)
	c := &contest{
		world: w, Sessions: s, registers: map[string]*register{}, stalled: map[engine.Tenure]bool{}, lost: map[engine.Tenure]time.Duration{},
		ordered: map[judge.Tenure]bool{}, cut: map[string]time.Duration{},
	}
	w.table.Watcher = c
	for i := range s.Count {
		c.join(fmt.Sprintf("n%04d", i))
	}
	c.suffer()
	for _, chapter := range []func(){c.settle, c.heirs, c.rest, c.contend, c.end} {
		if w.sound() {
			chapter()
		}
	}
	result := w.result()
	c.report.Stats, c.report.Hash, c.report.Err = result.Stats, result.Hash, result.Err
	return c.report
}

func (c *contest) join(name string) {
	s := &session{node: c.addNode(name), c: c}
	s.Shell = s
	c.sessions = append(c.sessions, s)
	s.bootAfter(c.between(0, c.set.ttl))
}

// suffer lets trouble go on for a while.
func (c *contest) suffer() {
	mean := 10 * c.set.ttl / time.Duration(c.Count) // each session suffers in ten lease times
	r := rates{lost: 0.02, replyLost: 0.02, late: 0.02, twin: 0.02, lateReply: 0.05, throttled: 0.03, readLost: 0.02}
	c.faults.begin(trouble{mean: mean, rates: r, kinds: []Fault{
		Crash, Crash, Stop, PauseHalf, PauseEdge, PauseLong, PauseVeryLong, Suspend, WallJump, ReadsOnly, WritesOnly, BeatsOnly,
	}}, c.Trouble)
	c.After(c.Trouble/2, func() { c.faults.happen(Outage) })
	var force func()
	force = func() {
		if c.peace {
			return
		}
		if c.operator.release(c.promises.Row(c.name())) {
			c.stats.Faults[ForcedRelease]++
		}
		c.After(c.between(0, 8*mean), force)
	}
	c.After(c.set.ttl, force)
	var free func()
	free = func() {
		if c.strict {
			return
		}
		if !c.net.down {
			c.free()
		}
		c.After(c.set.ttl, free)
	}
	c.After(c.set.ttl, free)
	var move func()
	move = func() {
		if c.peace {
			return
		}
		c.move()
		c.After(c.between(0, 4*mean), move)
	}
	c.After(c.set.ttl, move)
	var forget func()
	forget = func() { // no request is under way for as long as this
		c.promises.Forget()
		c.After(10*c.set.ttl, forget)
	}
	c.After(10*c.set.ttl, forget)
	c.run(c.Trouble)
}

// free takes every lease out of quarantine.
func (c *contest) free() {
	for _, r := range c.table.Records(group, lease.KindLease) {
		if row := r.(lease.Row); row.Quarantined {
			c.report.SetAside++
			if row.Attempts() < c.set.attempts {
				c.blame("%v is quarantined after %d failures", row, row.Attempts())
			}
			err := c.operator.write(protocol.Unquarantine(row, protocol.Command{Seen: row.Generation, By: "operator"}, c.operator.stamp()))
			if err != nil {
				c.blame("unquarantine: %v", err)
			}
		}
	}
}

// move moves a lease from its holder to a session, which may not want it.
func (c *contest) move() {
	row := c.promises.Row(c.name())
	if row.Owner.IsZero() || c.net.down {
		return
	}
	lasts := c.between(c.set.ttl, 3*c.set.ttl).Truncate(time.Millisecond)
	w := lease.Wish{
		Kind: lease.WishMove, Subject: row.Shard, To: pick(c.chance, c.sessions...).Name, By: "operator", Until: c.operator.stamp().At.Add(lasts),
		Generation: row.Generation, Lasts: lasts,
	}
	if c.operator.wish(func(list []lease.Wish) []lease.Wish {
		return append(slices.DeleteFunc(list, func(old lease.Wish) bool { return old.Compare(w) == 0 }), w)
	}) {
		c.ordered[judge.TenureOf(row)] = true
	}
}

// name draws the name of a lease. Some names are drawn often.
func (c *contest) name() string {
	if c.hot {
		return hotLease
	}
	n := max(c.Count*c.Leases/2, 1)
	if c.likely(0.05) {
		n = max(n/50, 1)
	}
	return "lock-" + strconv.Itoa(c.IntN(n))
}

// register returns the register of a lease.
func (c *contest) register(name string) *register {
	r := c.registers[name]
	if r == nil {
		r = new(register)
		c.registers[name] = r
	}
	return r
}

// settle ends all trouble. It checks that every waiting caller gets its lease in bounded time, and that then
// all leases are released.
func (c *contest) settle() {
	c.quiet()
	c.closing = true
	c.run(c.net.timeout + time.Second) // requests that were under way arrive
	from, queue := c.Now(), map[string]int{}
	for _, s := range c.sessions {
		for name := range s.waiting {
			queue[name]++
		}
	}
	longest := 1
	for _, n := range queue {
		longest = max(longest, n)
	}
	// The dead are evicted, the present holders release, and the waiting callers acquire and release, one after another.
	limit := 6*c.set.ttl + 2*c.holds() + time.Duration(longest)*(c.holds()+c.set.ttl/2)
	if !c.until(limit, func() bool {
		return c.still() && c.sum(func(s *session) int { return len(s.waiting) + len(s.Handlers) }) == 0
	}) {
		c.blame("%d callers wait %v after all trouble has ended, %d leases are held", c.sum(func(s *session) int { return len(s.waiting) }), limit,
			c.sum(func(s *session) int { return len(s.Handlers) }))
	}
	c.report.Settled = c.Now() - from
	c.run(4 * c.set.ttl) // the clocks of machines that slept
	c.strict, c.calmSince = true, c.Now()
}

// heirs makes the sessions acquire and release every existing lease, also the leases of dead sessions.
func (c *contest) heirs() {
	for i, r := range c.table.Records(group, lease.KindLease) {
		c.sessions[i%len(c.sessions)].acquire(r.Key().Name, wait{})
	}
	waiting := func(s *session) int { return len(s.waiting) }
	limit := 5 * c.set.ttl // a seat and a lock delay, each of up to a lease time
	if !c.until(limit, func() bool { return c.sum(waiting) == 0 }) {
		c.blame("%d leases were not acquired in %v in calm", c.sum(waiting), limit)
		return
	}
	c.releaseAll()
}

// releaseAll makes all holders release their leases.
func (c *contest) releaseAll() {
	for _, s := range c.sessions {
		for _, t := range slices.Clone(s.Handlers) {
			t.Script.(*holder).release()
		}
	}
	c.run(2 * time.Second)
	if n := c.sum(func(s *session) int { return len(s.Handlers) }); n > 0 {
		c.blame("%d leases are held after their release", n)
	}
}

// still reports whether every machine runs a session that has its seat.
func (c *contest) still() bool {
	return !slices.ContainsFunc(c.sessions, func(s *session) bool { return !s.Up() || s.leaver || !s.seated || s.due && !s.Up() })
}

func (c *contest) sum(of func(*session) int) (n int) {
	for _, s := range c.sessions {
		n += of(s)
	}
	return n
}

// rest checks what acquisitions cost, and what sessions cost that hold leases without marks.
func (c *contest) rest() {
	for _, s := range c.sessions {
		for i := range c.Leases {
			s.acquire(fmt.Sprintf("own-%s-%d", s.Name, i), wait{})
		}
		s.others = 0
	}
	c.run(2 * time.Second)
	for _, s := range c.sessions {
		if held := len(s.Handlers); held < c.Leases {
			c.blame("%s holds %d of %d new leases", s.Name, held, c.Leases)
		}
		if s.others > 2*c.Leases {
			c.blame("%s made %d requests for %d new leases", s.Name, s.others, c.Leases)
		}
		s.others, s.beats, s.wishes, s.rolls, s.looks = 0, 0, 0, 0, 0
	}
	const beats = 30
	c.run(beats * c.set.ttl / 3)
	most := beats*1000*1040/(875*1000) + 2 // intervals are up to an eighth shorter, and clocks 4 % too fast
	for _, s := range c.sessions {
		if s.looks > len(c.table.Seats(group)) { // each whose clock is wrong is looked at once
			c.blame("%s reads single seats %d times at rest", s.Name, s.looks)
		}
		if s.beats > most || s.wishes > most || s.others > 0 {
			c.blame("%s holds %d leases at rest with %d heartbeats, %d reads of the wishes and %d other requests in %d intervals",
				s.Name, len(s.Handlers), s.beats, s.wishes, s.others, beats)
		}
	}
	// The first listings of a session show a part of a large group, and so come sooner.
	if rolls, most := c.sum(func(s *session) int { return s.rolls }), int(beats*c.set.ttl/3/(10*time.Second))+2+c.Count/10; c.Count <= 24 && rolls > most {
		c.blame("%d sessions at rest list the seats %d times in %v, want at most %d", c.Count, rolls, beats*c.set.ttl/3, most)
	}
	c.report.Rest = float64(c.sum(func(s *session) int { return s.beats + s.wishes })) / float64(len(c.sessions)) / beats
	c.releaseAll()
}

// contend makes up to 100 sessions wait for one lease.
func (c *contest) contend() {
	n := min(len(c.sessions), 100)
	c.waits, c.hot = nil, true
	for _, s := range c.sessions[:n] {
		s.want()
	}
	if !c.until(time.Duration(n)*c.set.ttl, func() bool { return len(c.waits) == n }) {
		c.blame("%d of %d sessions have held the lease that all want", len(c.waits), n)
		return
	}
	sum := time.Duration(0)
	for _, d := range c.waits {
		sum += d
	}
	c.report.Mean, c.report.Max = sum/time.Duration(n), slices.Max(c.waits)
	if c.report.Max > 5*c.report.Mean {
		c.blame("the longest of %d callers waited %v, on average they waited %v", n, c.report.Max, c.report.Mean)
	}
	c.run(2 * time.Second)
}

// end stops all sessions, and checks that they leave no seats and no lease rows without a checkpoint. It does not
// check the seats of dead sessions that held no lease: nobody evicts these.
func (c *contest) end() {
	for _, s := range c.sessions {
		s.stop()
	}
	c.run(time.Millisecond)
	if !c.until(c.set.drain+c.set.ttl, func() bool { return !slices.ContainsFunc(c.sessions, func(s *session) bool { return s.Up() }) }) {
		c.blame("end: a session is still there")
	}
	for _, s := range c.sessions {
		if c.sits(s.me) {
			c.blame("end: the seat of %s is still there", s.Name)
		}
	}
	for _, r := range c.table.Records(group, lease.KindLease) {
		if row := r.(lease.Row); !row.Owner.IsZero() || row.Checkpoint.Position == "" && row.Checkpoint.State == "" {
			c.blame("end: this row is still there: %v", row)
		}
	}
}

// holds returns the longest time for which a holder keeps a lease.
func (c *contest) holds() time.Duration { return 2 * c.set.ttl }

// Accepted checks a write that the table has accepted.
func (c *contest) Accepted(by virtual.Sender, w lease.Write, r lease.Record) {
	p := c.promises
	c.trace(w.Op.String(), w.Key().Name, func() string { return fmt.Sprint(r) })
	switch c.mix(fold(w.ID())); w.Key().Kind {
	case lease.KindSeat:
		p.seat(w, by)
	case lease.KindLease:
		before, after := p.Row(w.Key().Name), r.(lease.Row)
		c.stats.Writes++
		c.check(p.Judge.Accepted(w, by.Name, after))
		if before.Checkpoint != after.Checkpoint && !after.Removed {
			c.stats.Commits++
		}
		if after.Generation > before.Generation {
			c.stats.hands(after.Last.Reason, 1)
			c.lost[engine.Tenure{Shard: before.Shard, Generation: before.Generation}] = c.Now()
			c.check(c.moved(w, before, after))
			c.check((&judge.Handover{
				Accepted: judge.Accepted{Before: before, After: after, Write: w, By: by.Name},
				Now:      c.Now(), Clocks: clocks, Drain: c.set.drain, Seats: p.seats, Requests: p.requests, Seated: true, Holder: c.holder(before),
			}).Check())
		}
	}
}

// moved checks that a holder reserves its lease only for a move, and that the lock delay of a holder that was cut off
// passes before anybody acquires the lease.
func (c *contest) moved(w lease.Write, before, after lease.Row) error {
	delay := before.Reserved.Delay
	if cut, is := c.cut[before.Shard]; is && !after.Owner.IsZero() && c.Now()-cut < clocks.Least(delay) {
		return fmt.Errorf("S4: %v was acquired %v after its holder was cut off: %v", before, c.Now()-cut, after)
	}
	delete(c.cut, before.Shard)
	if after.Reserved.IsZero() || w.Op != lease.OpSwap {
		return nil
	}
	c.report.Moved++
	if after.Last.Reason == lease.ReasonDrainTimeout {
		c.cut[before.Shard] = c.Now()
	}
	if !c.ordered[judge.TenureOf(before)] {
		return fmt.Errorf("S4: %v was reserved, and nobody has moved it: %v", before, after)
	}
	return nil
}

// holder returns what is known of the owner of a row.
func (c *contest) holder(of lease.Row) (h judge.Holder) {
	h.Trusts = slices.ContainsFunc(c.register(of.Shard).active, func(o *holder) bool { return o.trusts() && o.Generation == of.Generation })
	return h
}

// Stepped starts the callers of a new process, and makes a caller that was refused try again.
func (s *session) Stepped(in engine.Input, out []engine.Output) {
	s.node.Stepped(in, out)
	if s.process != s.Sender() {
		s.process, s.waiting = s.Sender(), map[string]wait{}
		for range s.c.Leases {
			s.Later(s.w.between(0, s.w.set.ttl), s.want)
		}
	}
	for _, o := range out {
		if u, ok := o.(engine.Unavailable); ok && !u.Waits && s.waiting[u.Name].id == u.ID {
			delete(s.waiting, u.Name)
			s.Later(s.w.between(s.w.set.ttl/4, s.w.set.ttl), s.want)
		}
	}
}

// Call counts the requests.
func (s *session) Call(o engine.Output) {
	get, _ := o.(engine.Get)
	send, sends := o.(engine.Send)
	list, lists := o.(engine.List)
	_, verifies := o.(engine.Verify)
	switch {
	case sends && send.Write.Key().Kind == lease.KindSeat && send.Write.Op == lease.OpDelete: // an eviction
	case sends && send.Write.Key().Kind == lease.KindSeat:
		s.beats++
	case get.Key.Kind == lease.KindSeat:
		s.looks++
	case get.Key.Kind == lease.KindWishes, sends && send.Write.Key().Kind == lease.KindWishes:
		s.wishes++
	case lists && list.Query.Eventually:
		s.rolls++
	case !verifies:
		s.others++
	}
	s.node.Call(o)
}

// Poll reports a fault: a session has no source to ask.
func (s *session) Poll() { s.w.blame("%s asks for a source", s.Name) }

// want plays a caller that wants some lease.
func (s *session) want() {
	c := s.c
	if c.closing && !c.hot || s.leaver || s.done {
		return
	}
	name := c.name()
	if _, busy := s.waiting[name]; busy || slices.ContainsFunc(s.Handlers, func(t *virtual.Handler) bool { return t.Shard == name }) {
		s.Later(s.w.between(0, s.w.set.ttl), s.want)
		return
	}
	of := wait{}
	if c.likely(0.3) && !c.closing {
		of.delay = c.between(0, c.set.ttl)
	}
	if c.likely(0.1) && !c.closing {
		of.try, of.most = true, pick(c.chance, 0, 0, -1, c.between(0, 3*c.set.ttl))
	}
	id := s.acquire(name, of)
	if c.likely(0.1) && !c.closing {
		s.Later(c.between(0, 2*c.set.ttl), func() { s.forgo(name, id) })
	}
}

// acquire plays a caller that wants this lease.
func (s *session) acquire(name string, of wait) uint64 {
	s.c.id++
	of.id, of.since = s.c.id, s.w.Now()
	s.waiting[name] = of
	in := engine.Acquire{Name: name, ID: of.id, LockDelay: of.delay.Truncate(time.Millisecond), Try: of.try, Wait: of.most}
	if !s.c.closing {
		in.StallAfter, in.MaxAttempts = s.c.set.stall, s.c.set.attempts
	}
	s.Input(in)
	return of.id
}

// forgo plays a caller that stops waiting.
func (s *session) forgo(name string, id uint64) {
	if s.waiting[name].id == id {
		delete(s.waiting, name)
		s.Input(engine.Forgo{Name: name, ID: id})
		s.want()
	}
}
