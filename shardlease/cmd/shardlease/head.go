package main

import (
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// This file has the lines above the list: the group, why the table could not be read, the worst warnings, the views.

// head returns the lines about the whole group.
func (m model) head() []string {
	group := piece{bold, squeeze(cell(m.at.group), max(8, m.width/2-8))}
	table := piece{plain, "table " + squeeze(cell(m.at.table), max(8, m.width/2-8))}
	if m.empty() {
		return m.flow(2, group, table)
	}
	s := m.shown.snapshot
	status := piece{[...]tone{good, doubt, bad, bad}[m.shown.code], checkStatus(m.shown.code)}
	frozen := piece{current, ""}
	if m.frozen {
		frozen.text = "FROZEN"
	}
	lines := m.flow(2, status, group, table, frozen, m.age("", s.At), m.rowsAge(s))
	facts := []piece{{plain, counted(allRows(s), wordsOf(s).shard)}}
	for _, of := range tallies(s) {
		if of.shards > 0 {
			facts = append(facts, piece{stateTone(of.state), fmt.Sprintf("%d %s", of.shards, of.state)})
		}
	}
	facts = append(facts, piece{plain, counted(len(s.Workers), wordsOf(s).worker)}, waits(s), piece{plain, planned(s)}, m.wishes(),
		piece{faint, fmt.Sprintf("%s read units, %s in all", decimal(s.Cost.ReadUnits), decimal(m.shown.units))})
	return append(lines, m.flow(3, facts...)...)
}

// wishes returns how many wishes are in effect.
func (m model) wishes() piece {
	n := 0
	for _, w := range m.shown.snapshot.Wishes {
		if w.Stands(m.now) {
			n++
		}
	}
	switch n {
	case 0:
		return piece{}
	case 1:
		return piece{active, "1 wish"}
	}
	return piece{active, fmt.Sprintf("%d wishes", n)}
}

// age returns how old the part of the picture named by of is.
func (m model) age(of string, at time.Time) piece {
	old := max(0, m.now.Sub(at)).Truncate(time.Second)
	p := piece{plain, of + span(old) + " old"}
	if old > tooOld {
		p.tone = doubt
	}
	return p
}

// rowsAge returns how old the rows are, if the last look did not read them.
func (m model) rowsAge(s *inspect.Snapshot) piece {
	if s.At.Sub(s.RowsAt) < time.Second {
		return piece{}
	}
	return m.age("rows ", s.RowsAt)
}

// tooOld is the age from which a picture is in the tone of a warning.
const tooOld = 15 * time.Second

// trouble returns why the table could not be read.
func (m model) trouble() (lines []string) {
	if m.shown.failed == nil && m.live.failed == nil {
		return nil
	}
	of := m.live
	if of.failed == nil {
		of = m.shown
	}
	text := wrap(fmt.Sprintf("The table could not be read for %s: %v", span(m.now.Sub(of.since).Truncate(time.Second)), of.failed), m.width, 2)
	for _, line := range text[:min(len(text), 3)] {
		lines = append(lines, m.line(piece{bad, line}))
	}
	return lines
}

// digest returns the worst warnings, one of each code.
func (m model) digest() (lines []string) {
	if m.view == warningsView || m.empty() {
		return nil
	}
	first, count := m.shown.digest()
	for _, w := range first[:min(len(first), max(1, m.height/8))] {
		about := cell(w.Text)
		if w.Subject != "" {
			about = squeeze(cell(w.Subject), max(10, m.width/4)) + ": " + about
		}
		code := string(w.Code)
		if n := count[w.Code]; n > 1 {
			code = fmt.Sprintf("%s (%d)", code, n)
		}
		lines = append(lines, m.line(piece{levelTone(w.Level), pad(w.Level.String(), 5, false)}, piece{bold, " " + code + " "}, piece{plain, about}))
	}
	return lines
}

// tabs returns the names of the views, and the filter, the sort order and the cursor position of the list.
func (m model) tabs() []string {
	if m.empty() {
		return nil
	}
	var names, short []piece
	for view, title := range m.shown.viewTitles() {
		p := piece{plain, fmt.Sprintf("%d %s %d", view+1, title, m.shown.listing(view).size())}
		brief := piece{plain, fmt.Sprint(view + 1)}
		if view == m.view {
			p = piece{current, "[" + p.text + "]"}
			brief = p
		}
		names, short = append(names, p), append(short, brief)
	}
	if len(m.flow(2, names...)) > 1 {
		names = short
	}
	l := m.lists[m.view]
	if l.filter != "" {
		names = append(names, piece{active, "filter " + squeeze(quoted(l.filter), max(8, m.width/3))})
	}
	order := "by " + m.orders()[l.order]
	if l.reversed {
		order += ", reversed"
	}
	return m.flow(2, append(names, piece{plain, order}, piece{plain, m.position()})...)
}

// position returns where in the list the cursor is.
func (m model) position() string {
	l := m.lists[m.view]
	if len(l.rows) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %d", l.cursor+1, len(l.rows))
}
