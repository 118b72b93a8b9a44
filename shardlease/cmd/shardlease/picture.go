package main

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// A picture has the results of all looks so far. A later picture never changes an earlier one.
type picture struct {
	verdict                // on the last snapshot; before the first look it has no snapshot
	events  []numbered     // the changes since the first snapshot, oldest first
	units   float64        // read units of all looks
	levels  levels         // of the warnings, by subject
	failed  error          // why the last look failed; nil: it succeeded
	since   time.Time      // when the first of the failed looks ended
	widest  map[string]int // by the title of a column: the width of its longest name, in columns of the terminal
}

// A numbered event is an occurrence with its number since the start.
type numbered struct {
	occurrence
	number int
}

// mostEvents is how many events a picture keeps at least. It drops the oldest when it has twice as many.
const mostEvents = 5_000

// Levels are the worst levels of warnings by subject, without the level info.
type levels map[string]slog.Level

// with returns the picture after one more look.
func (p picture) with(l look) picture {
	if l.err != nil {
		if p.failed == nil {
			p.since = l.at
		}
		p.failed = l.err
		return p
	}
	before := p.snapshot
	p.verdict, p.failed = verdictOn(l.snapshot), nil
	p.units += l.snapshot.Cost.ReadUnits
	p.levels = levels{}
	for _, w := range p.warnings {
		for _, subject := range append([]string{w.Subject}, w.Subjects...) {
			if _, known := p.levels[subject]; !known && w.Level > slog.LevelInfo { // they are sorted, the worst first
				p.levels[subject] = w.Level
			}
		}
	}
	p.measure()
	if before != nil {
		p.events = p.events[:len(p.events):len(p.events)]
		for _, e := range changes(before, l.snapshot) {
			p.events = append(p.events, numbered{e, p.next()})
		}
		if len(p.events) > 2*mostEvents {
			p.events = p.events[len(p.events)-mostEvents:]
		}
	}
	return p
}

// next returns the number of the next event.
func (p picture) next() int {
	if len(p.events) == 0 {
		return 1
	}
	return p.events[len(p.events)-1].number + 1
}

// measure finds the widths of the longest names, so that columns keep their places while a person scrolls.
func (p *picture) measure() {
	p.widest = map[string]int{}
	note := func(title, name string) { p.widest[title] = max(p.widest[title], width(cell(name))) }
	for i := range p.snapshot.Shards {
		of := &p.snapshot.Shards[i]
		note("SHARD", of.Name)
		note("OWNER", of.Owner.Name)
		note("TARGET", of.Target.Name)
		note("MOVE", describeMove(of.Move))
		note("WAITERS", describeWaiters(of))
	}
	for i := range p.snapshot.Workers {
		note("WORKER", p.snapshot.Workers[i].Seat.Name)
		note("WAITS", limit(int64(p.snapshot.Workers[i].Waits())))
	}
	for _, w := range p.warnings {
		note("SUBJECT", w.Subject)
	}
}

// digest returns the first warning of each code, the worst first, and how many there are of each.
func (p picture) digest() (first []inspect.Warning, count map[inspect.Code]int) {
	count = map[inspect.Code]int{}
	for _, w := range p.warnings {
		if count[w.Code]++; count[w.Code] == 1 {
			first = append(first, w)
		}
	}
	return first, count
}

// planned returns the plan in a few words.
func planned(s *inspect.Snapshot) string {
	switch {
	case s.Sessions:
		return kindLine
	case s.Plan == nil:
		return "no plan"
	case s.Plan.Open:
		return "plan " + number(s.Plan.Revision) + " open"
	}
	return "plan " + number(s.Plan.Revision) + " complete"
}

// decimal returns a number for people.
func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
