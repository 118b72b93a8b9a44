package main

import (
	"log/slog"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// A tone is a meaning that a text shows by its colour or weight. The words of the text always have that meaning too.
type tone int

const (
	plain   tone = iota
	good         // nothing to do
	active       // something happens
	doubt        // a warning, or a shard without an owner
	bad          // an error
	faint        // of little interest
	bold         // a title
	current      // the row at the cursor
)

// A palette paints texts. The zero palette has no colours: it uses bold, faint and reverse.
type palette struct {
	color bool
	bare  bool // no colours, bold, faint or reverse; for tests
}

// paint returns a text in a tone. The text must be clean.
func (p palette) paint(t tone, text string) string {
	if t == plain || p.bare || text == "" {
		return text
	}
	style := lipgloss.NewStyle()
	switch t {
	case bad:
		style = style.Bold(true)
	case faint:
		style = style.Faint(true)
	case bold:
		style = style.Bold(true)
	case current:
		style = style.Reverse(true)
	}
	if !p.color {
		return style.Render(text)
	}
	switch t { // the terminal's own sixteen colours, which a person has chosen to be legible
	case good:
		style = style.Foreground(lipgloss.Green)
	case active:
		style = style.Foreground(lipgloss.Cyan)
	case doubt:
		style = style.Foreground(lipgloss.Yellow)
	case bad:
		style = style.Foreground(lipgloss.Red)
	}
	return style.Render(text)
}

// stateTone returns the tone of a shard's state.
func stateTone(s inspect.State) tone {
	switch s {
	case inspect.Held:
		return good
	case inspect.Moving:
		return active
	case inspect.Finished, inspect.Removed, inspect.Blocked:
		return faint
	case inspect.Orphaned, inspect.Quarantined, spoilt:
		return bad
	}
	return doubt // free, resting, unlisted
}

// workerTone returns the tone of a worker's state.
func workerTone(w *inspect.Worker) tone {
	switch {
	case w.Dead:
		return bad
	case w.Health != "":
		return doubt
	case w.Leaves, !w.Seat.Confirmed():
		return active
	}
	return good
}

// levelTone returns the tone of a warning.
func levelTone(l slog.Level) tone {
	switch {
	case l >= slog.LevelError:
		return bad
	case l >= slog.LevelWarn:
		return doubt
	}
	return faint
}

// A piece is a clean text in a tone.
type piece struct {
	tone tone
	text string
}

// cell returns a text as one line whose width every terminal measures alike. A name whose width is disputed,
// because terminals draw some characters together, is escaped.
func cell(s string) string {
	s = clean(s)
	n := width(s)
	if n == len(s) || n > 0 && lipgloss.Width(s) == n { // ASCII, or no dispute
		return s
	}
	return strings.Trim(strconv.QuoteToASCII(s), `"`)
}

// squeeze shortens a name to so many columns, and keeps its end: names of one stream often differ only there.
func squeeze(s string, most int) string {
	if width(s) <= most {
		return s
	}
	if most < 8 {
		return cut(s, most)
	}
	runes := []rune(s)
	from, n := len(runes), 0
	for from > 0 && n+columns(runes[from-1]) <= most/2 {
		from--
		n += columns(runes[from])
	}
	for from < len(runes) && columns(runes[from]) == 0 { // a mark without its letter
		from++
	}
	return cut(s, most-n) + string(runes[from:])
}

// pad fills a text with spaces to so many columns.
func pad(s string, to int, right bool) string {
	spaces := strings.Repeat(" ", max(0, to-width(s)))
	if right {
		return spaces + s
	}
	return s + spaces
}

// wrap breaks a text into lines of at most so many columns. All but the first are indented.
func wrap(s string, most, indent int) (lines []string) {
	most = max(most, 4)
	if indent > most/2 {
		indent = 0
	}
	line, margin := "", ""
	for word := range strings.SplitSeq(cell(s), " ") {
		switch joined := line + " " + word; {
		case line == "" && len(lines) == 0:
			line = word
		case width(joined) <= most:
			line = joined
		default:
			lines, line = append(lines, line), margin+word
		}
		for width(line) > most { // a word that is longer than a line
			head := upTo(line, most)
			lines, line = append(lines, head), strings.Repeat(" ", indent)+line[len(head):]
		}
		margin = strings.Repeat(" ", indent)
	}
	return append(lines, line)
}

// upTo returns the beginning of a text that takes at most so many columns, and at least one character.
func upTo(s string, most int) string {
	n := 0
	for i, r := range s {
		if n += columns(r); n > most && i > 0 {
			return s[:i]
		}
	}
	return s
}
