package main

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// A frame is the lines of the screen around the rows of the list.
type frame struct {
	above []string
	body  int // how many rows the list has
	below []string
}

// View returns the screen: no more lines than the screen has, and none wider than the screen.
func (m model) View() tea.View {
	f := m.layout()
	lines := slices.Concat(f.above, m.body(f.body), f.below)
	if m.help || m.detail != nil {
		lines = m.reader()
	}
	v := tea.NewView(strings.Join(lines[:min(len(lines), max(1, m.height))], "\n"))
	v.AltScreen = true
	if m.typing && len(lines) <= m.height {
		v.Cursor = tea.NewCursor(min(m.width-1, width(m.prompt())), len(lines)-1)
	}
	return v
}

// layout returns the lines around the list, and how many rows are left for it.
func (m model) layout() frame {
	var f frame
	pane := m.pane()
	head := append(m.head(), m.trouble()...)
	tabs := append(m.tabs(), m.titles())
	digest := m.digest()
	if m.height >= tall {
		tabs = append([]string{""}, tabs...)
	}
	used := func() int { return len(head) + len(digest) + len(tabs) + len(pane) + 1 }
	for len(digest) > 0 && m.height-used() < leastRows {
		digest = digest[:len(digest)-1]
	}
	for len(pane) > 0 && m.height-used() < leastRows {
		pane = pane[:len(pane)-1]
	}
	for len(head) > 1 && m.height-used() < leastRows {
		head = head[:len(head)-1]
	}
	f.above = append(append(head, digest...), tabs...)
	f.body = max(1, m.height-used())
	f.below = append(pane, m.footer())
	return f
}

const (
	leastRows = 5  // how many rows the list has on all but the smallest screens
	tall      = 30 // from this height on, an empty line separates the head from the list
)

// line returns pieces as one line, cut at the right end of the screen.
func (m model) line(pieces ...piece) string {
	var b strings.Builder
	left := m.width
	for _, p := range pieces {
		text := cut(p.text, left)
		left -= width(text)
		b.WriteString(m.palette.paint(p.tone, text))
		if left <= 0 {
			break
		}
	}
	return b.String()
}

// flow returns pieces as at most so many lines, without breaking a piece. It leaves out the pieces that do not fit.
func (m model) flow(most int, pieces ...piece) (lines []string) {
	var line []piece
	used := 0
	for _, p := range pieces {
		if p.text == "" {
			continue
		}
		if n := width(p.text); used > 0 && used+len(gap)+n > m.width {
			if lines = append(lines, m.line(line...)); len(lines) == most {
				return lines
			}
			line, used = nil, 0
		}
		if used > 0 {
			line, used = append(line, piece{plain, gap}), used+len(gap)
		}
		line, used = append(line, p), used+width(p.text)
	}
	return append(lines, m.line(line...))
}

// footer returns the keys, or the filter while a person types it.
func (m model) footer() string {
	if m.typing {
		return m.line(piece{bold, m.prompt()})
	}
	keys := []piece{{faint, "? help"}, {faint, "q quit"}, {faint, "enter all"}, {faint, "/ filter"}, {faint, "s sort"}, {faint, "space freeze"}, {faint, "1-4 views"}}
	return m.flow(1, keys...)[0]
}

// prompt returns the filter as a person types it. Its end is always on the screen.
func (m model) prompt() string {
	text := "/" + cell(m.lists[m.view].filter)
	for width(text) > m.width-1 {
		text = text[len(upTo(text, 1)):]
	}
	return text
}

// pane returns the text of the warning at the cursor, and what to do about it.
func (m model) pane() (lines []string) {
	l := m.lists[m.view]
	if m.view != warningsView || m.empty() || l.cursor >= len(l.rows) {
		return nil
	}
	w := m.shown.warnings[l.rows[l.cursor]]
	lines = append(lines, "")
	for _, line := range wrap(w.Text, m.width, 0) {
		lines = append(lines, m.line(piece{plain, line}))
	}
	for _, line := range wrap("do: "+w.Do, m.width, 4) {
		lines = append(lines, m.line(piece{bold, line}))
	}
	return lines
}

// text returns the whole help or detail, one line for each line of the screen.
func (m model) text() (lines []string) {
	if !m.help {
		return m.shown.topic(*m.detail, m.width)
	}
	for _, b := range bindings() {
		lines = append(lines, wrap(fmt.Sprintf("%-*s %s", fieldColumns, b.key, b.does), m.width, fieldColumns+1)...)
	}
	legend := "An age with ~ is told by the clock of another machine. E and W before a row: a warning of the level error or warn is about it. " +
		"States: " + stateNames() + "."
	return append(append(lines, ""), wrap(legend, m.width, 0)...)
}

// reader returns the screen with the help or the detail.
func (m model) reader() []string {
	all := m.text()
	title := "Keys of shardlease top"
	if !m.help {
		title = strings.TrimSuffix(m.shown.viewTitles()[m.detail.view], "s") + " " + cell(m.detail.key)
	}
	if m.frozen {
		title = "FROZEN  " + title
	}
	page := max(1, m.height-2)
	from := max(0, min(m.from, len(all)-page))
	lines := []string{m.line(piece{current, pad(squeeze(title, m.width), m.width, false)})}
	for _, line := range all[from:min(len(all), from+page)] {
		lines = append(lines, m.line(piece{plain, line}))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	where := fmt.Sprintf("lines %d-%d of %d", from+1, min(len(all), from+page), len(all))
	return append(lines, m.flow(1, piece{faint, "esc back"}, piece{faint, "q quit"}, piece{faint, where})[0])
}

// titles returns the titles of the columns.
func (m model) titles() string {
	if m.empty() {
		return ""
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", len(noMarks)))
	for n, s := range m.slots() {
		if n > 0 {
			b.WriteString(gap)
		}
		b.WriteString(s.fill(s.heading()))
	}
	return m.line(piece{bold, b.String()})
}

// noMarks stands before a row that is not at the cursor and has no warning.
const noMarks = "   "

func (m model) slots() []slot {
	return slots(m.shown.listing(m.view).columns(), m.view, m.width-len(noMarks), m.shown.widest)
}

// body returns the rows of the list that are on the screen. It computes no other rows.
func (m model) body(height int) (lines []string) {
	if m.empty() || len(m.lists[m.view].rows) == 0 {
		for _, line := range wrap(m.nothing(), m.width, 0) {
			lines = append(lines, m.line(piece{plain, line}))
		}
	} else {
		of, l, shown := m.shown.listing(m.view), m.lists[m.view], m.slots()
		for n, row := range l.visible(height) {
			lines = append(lines, m.row(of, row, l.first+n == l.cursor, shown))
		}
	}
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines[:max(0, height)]
}

// row returns one row. The marks before it are a > at the cursor, and the first letter of the level of its warning.
func (m model) row(of listing, i int, chosen bool, shown []slot) string {
	mark, level := " ", pad(upTo(of.level(i), 1), 1, false)
	if chosen {
		mark = ">"
	}
	line := []piece{{plain, mark}, {levelWordTone(level), level}, {plain, " "}}
	cells := of.cells(i)
	for n, s := range shown {
		if n > 0 {
			line = append(line, piece{plain, gap})
		}
		line = append(line, piece{cells[s.at].tone, s.fill(cells[s.at].text)})
	}
	if !chosen {
		return m.line(line...)
	}
	var whole strings.Builder
	for _, p := range line {
		whole.WriteString(p.text)
	}
	return m.line(piece{current, pad(whole.String(), m.width, false)})
}

func levelWordTone(letter string) tone {
	if letter == "E" {
		return bad
	}
	return doubt
}

// nothing returns why the list has no rows.
func (m model) nothing() string {
	switch {
	case m.empty() && m.shown.failed != nil:
		return "Nothing has been read yet. It is tried again every two seconds."
	case m.empty():
		return "Reading the table…"
	case m.lists[m.view].filter != "":
		return "No row has " + quoted(m.lists[m.view].filter) + "."
	}
	switch m.view {
	case warningsView:
		return "There are no warnings."
	case eventsView:
		return "Nothing has changed since the start."
	case workersView:
		return "The group has no " + wordsOf(m.shown.snapshot).worker + "s. 'shardlease groups' lists the groups of the table."
	}
	return "The group has no " + wordsOf(m.shown.snapshot).shard + "s. 'shardlease groups' lists the groups of the table."
}
