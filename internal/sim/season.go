package sim

import (
	"math"
	"slices"
	"time"
)

// A day is 1,440 lease times: with a lease time of a minute it is one. What happens
// in a season, and what it costs to simulate, is counted in lease times.
func (s *settings) day() time.Duration { return 1440 * s.ttl }

// Season simulates the long life of one fleet, which follows from its seed: 10 to 60
// days, at most 90 by the calendar, or less. Each spell of it is fair weather with a
// fault now and then; most often a storm; then calm, which is held against the same
// bounds as in a round, for up to two days; and something that is planned.
func Season(seed uint64, most time.Duration, log func(string)) Result {
	w := newWorld(seed)
	w.log = log
	w.set = w.drawSeason()
	w.enlarge()
	w.populate()
	if slices.Contains(w.set.kinds, SkewedRestore) {
		w.skew(time.Hour)
	}
	w.sweepDaily()
	length := min(w.between(10*w.set.day(), 60*w.set.day()), 90*24*time.Hour, most)
	for w.Now() < length && len(w.faults) == 0 {
		w.spell(length)
	}
	if len(w.faults) == 0 {
		w.calmLife()
	}
	r := w.result()
	r.Stats.Lease[band(w.set.ttl)] = w.Now()
	return r
}

// drawSeason is what a season is like: three of four have a lease time of a minute or
// more.
func (w *world) drawSeason() settings {
	ttl := w.spread(time.Minute, 10*time.Minute)
	if w.likely(0.25) {
		ttl = w.spread(time.Second, time.Minute)
	}
	pace := min(pick(w, ttl/2, 2*ttl, 10*ttl), 10*time.Minute)
	s := settings{
		ttl: ttl, drain: ttl * time.Duration(pick(w, 1, 2)), pace: pace,
		wind: pick(w, 0, 300*time.Millisecond, ttl/5), retention: w.spread(ttl, 2880*ttl),
		nodes: 2 + w.chance.IntN(5), streams: 1 + w.chance.IntN(12), every: pick(w, ttl/10, ttl, 5*ttl),
		marks: pick(w, 0, 0, 1, 5), commits: pick(w, 0, min(ttl, time.Hour), -1), flush: pick(w, 0, 0.02, 0.3),
		backoff: pick(w, time.Second, ttl/4), maxBackoff: pick(w, ttl, 10*ttl), cooldown: pick(w, 0, ttl, 10*ttl),
		audit: w.spread(2*ttl, 60*ttl), poll: w.spread(ttl/2, 20*ttl), faster: 50, seasonal: true,
	}
	if w.likely(0.2) {
		s.stall = ttl + 3*pace
	}
	if w.likely(0.2) {
		s.attempts = 3
	}
	if w.likely(0.5) {
		s.prepare = w.between(100*time.Millisecond, 2*time.Second)
	}
	if w.likely(0.2) {
		s.limit = 1 + w.chance.IntN(8)
	}
	s.kinds = w.drawKinds()
	return s
}

// spread draws a duration whose logarithm is even: short ones are as likely as long ones.
func (w *world) spread(from, to time.Duration) time.Duration {
	d := float64(from) * math.Pow(float64(to)/float64(from), w.chance.Float64())
	return time.Duration(d).Round(time.Millisecond)
}

// spell is some days of a season.
func (w *world) spell(length time.Duration) {
	day := w.set.day()
	w.peace, w.strict = false, false
	w.judge.promises.Forget() // nothing is under way for longer than a spell
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
	w.settle()
	if len(w.faults) == 0 {
		w.restFor(max(min(w.between(0, 2*day), length-w.Now()), 0))
	}
	if len(w.faults) == 0 {
		w.plannedChapter()
	}
}

func (w *world) weather(t trouble, d time.Duration) {
	w.rage(t, w.Now()+d)
	w.run(d)
}

// plannedChapter is something that happens in calm, and keeps two to six workers.
func (w *world) plannedChapter() {
	chapters := []func(){w.deploy, w.growOrShrink}
	switch n := len(w.live()); {
	case n <= 2:
		chapters = append(chapters, w.join)
	case n >= 6:
		chapters = append(chapters, w.leave, w.die)
	default:
		chapters = append(chapters, w.join, w.leave, w.die)
	}
	pick(w, chapters...)()
}

// deploy replaces every worker, one after another, by one that moves shards in another
// way; each time the fleet comes to rest.
func (w *world) deploy() {
	w.set.handoff = w.strategy()
	w.stats.Faults[Deploy]++
	for _, n := range w.live() {
		n.stop()
		w.run(time.Millisecond)
		if !w.until(w.set.drain+w.set.ttl, func() bool { return !n.Up() }) {
			w.restless("deploy: %s is still there", n.Name)
			return
		}
		n.boot(w.config())
		if !w.bounded(w.slowly(), "deploy") {
			return
		}
	}
	w.restFor(w.set.rest)
}

// growOrShrink is resharding while all is well.
func (w *world) growOrShrink() {
	f := pick(w, Split, Merge)
	if !w.reshard(f) {
		return
	}
	w.stats.Faults[f]++
	// The source is asked, what has ended is read to its end, and one worker after
	// another hears of it.
	if w.until(3*w.set.poll+2*w.set.audit+w.set.backoff+w.slowly(), w.atRest) {
		w.restFor(w.set.rest)
		return
	}
	w.restless("%v: not at rest", f)
}

// rolling is a deploy in any weather.
func (w *world) rolling() bool {
	w.set.handoff = w.strategy()
	for i, n := range w.nodes {
		w.After(time.Duration(i)*2*w.set.ttl, func() {
			if !w.peace {
				w.replace(Stop, n)
			}
		})
	}
	return true
}

// rebirth lists a name again that was removed long ago, for a shard that has nothing to
// do with the former. One that still is somebody's parent is not.
func (w *world) rebirth() bool {
	parent := map[string]bool{}
	for _, s := range w.streams {
		for _, name := range s.parents {
			parent[name] = parent[name] || !s.dropped
		}
	}
	for _, s := range w.streams {
		if row := w.judge.row(s.name); s.dropped && row.Removed && !parent[s.name] && len(s.active) == 0 && !w.crowded() {
			*s = stream{name: s.name, born: w.Now(), every: s.every, sink: sink{generation: s.sink.generation}}
			return true
		}
	}
	return false
}
