package sim

import (
	"slices"
	"time"
)

// A day of a fleet is 1,440 lease times: with a lease time of a minute it is a calendar day. The events of a
// season, and the cost of its simulation, depend on the number of lease times.
func (s *settings) day() time.Duration { return 1440 * s.ttl }

// Season simulates the long life of one fleet, which follows from its seed: 10 to 60 days of this fleet, but at
// most 90 calendar days, and no longer than most. Each spell of a season has a long time with a fault now and
// then; mostly a storm; then calm for up to two days, with the same bounds as in a round; and one change that is
// planned.
func Season(seed uint64, most time.Duration, log func(string)) Result {
	w := newWorld(seed, log)
	w.set = drawSeason(w.chance)
	w.set.enlarge(w.apart(0x1a29e))
	w.populate()
	if slices.Contains(w.set.kinds, SkewedRestore) {
		w.skew(time.Hour)
	}
	w.sweepDaily()
	length := min(w.between(10*w.set.day(), 60*w.set.day()), 90*24*time.Hour, most)
	for w.Now() < length && w.sound() {
		w.spell(length)
	}
	if w.sound() {
		life{rest{w}}.all()
	}
	r := w.result()
	r.Stats.Lease[band(w.set.ttl)] = w.Now()
	return r
}

// drawSeason draws the settings of a season. Three of four seasons have a lease time of a minute or more.
func drawSeason(c chance) settings {
	ttl := c.spread(time.Minute, 10*time.Minute)
	if c.likely(0.25) {
		ttl = c.spread(time.Second, time.Minute)
	}
	pace := min(pick(c, ttl/2, 2*ttl, 10*ttl), 10*time.Minute)
	s := settings{
		ttl: ttl, drain: ttl * time.Duration(pick(c, 1, 2)), pace: pace,
		wind: pick(c, 0, 300*time.Millisecond, ttl/5), retention: c.spread(ttl, 2880*ttl),
		nodes: 2 + c.IntN(5), streams: 1 + c.IntN(12), every: pick(c, ttl/10, ttl, 5*ttl),
		marks: pick(c, 0, 0, 1, 5), commits: pick(c, 0, min(ttl, time.Hour), -1), flush: pick(c, 0, 0.02, 0.3),
		backoff: pick(c, time.Second, ttl/4), maxBackoff: pick(c, ttl, 10*ttl), cooldown: pick(c, 0, ttl, 10*ttl),
		audit: c.spread(2*ttl, 60*ttl), poll: c.spread(ttl/2, 20*ttl), faster: 50, seasonal: true,
	}
	s.drawOptions(c, ttl+3*pace, 8)
	s.kinds = drawKinds(c)
	return s
}

// spell simulates some days of a season.
func (w *world) spell(length time.Duration) {
	day := w.set.day()
	w.peace, w.strict = false, false
	w.promises.Forget() // nothing is under way for longer than a spell
	if w.likely(0.5) {
		w.set.handoff = nil // each has its own way again
	}
	fair := w.drawTrouble(w.set.kinds)
	fair.mean = w.between(5*w.set.ttl, 100*w.set.ttl)
	fair.rates = fair.rates.times(0.02)
	w.weather(fair, min(w.between(day/4, 3*day), length-w.Now()))
	if w.likely(0.8) {
		storm := w.drawTrouble(w.set.kinds)
		w.weather(storm, min(w.between(10*w.set.ttl, 60*w.set.ttl), 2*time.Hour, max(length-w.Now(), 10*w.set.ttl)))
	}
	w.set.rest = w.between(5*w.set.ttl, 60*w.set.ttl)
	rest{w}.settle()
	if w.sound() {
		rest{w}.lasts(max(min(w.between(0, 2*day), length-w.Now()), 0))
	}
	if w.sound() {
		life{rest{w}}.chapter()
	}
}

func (w *world) weather(t trouble, d time.Duration) {
	w.faults.begin(t, w.Now()+d)
	w.run(d)
}
