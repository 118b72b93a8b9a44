package main

import (
	"strings"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// A topic is a row that a person has opened.
type topic struct {
	view int
	key  string // of the row
}

// topic returns every field of a row, as lines that fit. If the row no longer exists, the only line says so.
func (p *picture) topic(t topic, most int) (lines []string) {
	var g grid
	switch t.view {
	case shardsView:
		p.shard(&g, t.key)
	case workersView:
		p.workers(&g, func(w *inspect.Worker) bool { return string(w.Seat.Incarnation) == t.key })
	case warningsView:
		p.warning(&g, t.key)
	case eventsView:
		p.event(&g, t.key)
	}
	if len(g.foot) == 0 {
		g.foot = []string{"This row no longer exists."}
	}
	for _, line := range g.foot {
		lines = append(lines, wrap(line, most, fieldColumns+1)...)
	}
	return lines
}

// shard adds the fields of a shard that the command get shows.
func (p *picture) shard(g *grid, name string) {
	if of := p.snapshot.Shard(name); of != nil {
		g.foot = append(g.foot, detail(p.snapshot, of, warningsAbout(p.warnings, name), false).foot...)
	}
}

// workers adds the fields of some workers: the columns of the command workers, their shards and their warnings.
func (p *picture) workers(g *grid, which func(*inspect.Worker) bool) {
	columns := inWords(p.snapshot, columnsOf(workerFields()))
	for i := range p.snapshot.Workers {
		w := &p.snapshot.Workers[i]
		if !which(w) {
			continue
		}
		for n, text := range cellsOf(workerFields(), w) {
			if c := columns[n]; text != "" && text != "-" && !c.hidden {
				g.field(strings.ToLower(c.heading()), "%s", text)
			}
		}
		holds, gets := p.shardsOf(w)
		g.field("holds", "%s", enumerated(holds, wordsOf(p.snapshot).shard))
		if len(gets) > 0 {
			g.field("takes over", "%s", enumerated(gets, "shard"))
		}
		p.waitsFor(g, w)
		for _, wish := range p.snapshot.Wishes {
			if wish.Subject == w.Seat.Name || wish.To == w.Seat.Name {
				g.field("wish", "%s", wish.String())
			}
		}
		for _, warning := range warningsAbout(p.warnings, w.Seat.Name) {
			g.field("warning", "%s: %s %s", warning.Code, warning.Text, warning.Do)
		}
	}
}

// shardsOf returns the shards that a worker holds, and the shards that are in a move to it.
func (p *picture) shardsOf(w *inspect.Worker) (holds, gets []string) {
	for i := range p.snapshot.Shards {
		of := &p.snapshot.Shards[i]
		if of.Owner.Incarnation == w.Seat.Incarnation {
			holds = append(holds, of.Name)
		}
		if of.Move != nil && of.Move.To.Incarnation == w.Seat.Incarnation {
			gets = append(gets, of.Name)
		}
	}
	return holds, gets
}

// enumerated returns the number of names with their noun, and the names.
func enumerated(names []string, noun string) string {
	if len(names) == 0 {
		return "no " + noun + "s"
	}
	return counted(len(names), noun) + ": " + strings.Join(names, ", ")
}

// warning adds a warning, and the fields of its subject.
func (p *picture) warning(g *grid, key string) {
	for i, w := range p.warnings {
		if (warningListing{p}).key(i) != key {
			continue
		}
		g.field("warning", "%s %s", w.Level, w.Code)
		g.field("text", "%s", w.Text)
		g.field("do", "%s", w.Do)
		p.subject(g, w.Subject)
		return
	}
}

// event adds an event, and the present fields of its subject.
func (p *picture) event(g *grid, key string) {
	for i, e := range p.events {
		if (eventListing{p}).key(i) != key {
			continue
		}
		g.field("event", "%s", e.Kind)
		g.field("time", "%s", moment(e.At))
		g.field("text", "%s", e.Text)
		p.subject(g, e.Subject)
		return
	}
}

// subject adds the fields of the shard or the worker of that name.
func (p *picture) subject(g *grid, name string) {
	if name == "" {
		return
	}
	g.foot = append(g.foot, "")
	p.shard(g, name)
	p.workers(g, func(w *inspect.Worker) bool { return w.Seat.Name == name })
}
