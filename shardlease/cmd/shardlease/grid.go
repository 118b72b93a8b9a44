package main

import (
	"cmp"
	"io"
	"strings"
)

// A column is the head of a column.
type column struct {
	title string
	wide  bool // only the format wide has it
	right bool // a number
	prose bool // a sentence
	whole bool // never shortened: it has what a person copies

	fleets  bool   // only fleets have it, and groups of sessions do not
	names   bool   // only groups of sessions have it
	session string // the title in a group of sessions; empty: the same

	head   string // the heading in this group; empty: the title
	hidden bool   // this group does not have the column
}

// heading returns the text above the column.
func (c column) heading() string { return cmp.Or(c.head, c.title) }

// cols returns columns from their titles: one that begins with > has numbers, one that begins with + is
// for the format wide, one that begins with ~ has sentences, one that begins with = is never shortened, and one that
// begins with ! is only for fleets, one that begins with ? only for groups of sessions.
// After a slash follows the title in a group of sessions.
func cols(titles ...string) []column {
	list := make([]column, len(titles))
	for i, title := range titles {
		name := strings.TrimLeft(title, ">+~=!?")
		marks := title[:len(title)-len(name)]
		c := column{}
		c.title, c.session, _ = strings.Cut(name, "/")
		c.fleets, c.names = strings.Contains(marks, "!"), strings.Contains(marks, "?")
		c.right, c.wide = strings.Contains(marks, ">"), strings.Contains(marks, "+")
		c.prose = strings.Contains(marks, "~")
		c.whole = strings.Contains(marks, "=")
		list[i] = c
	}
	return list
}

// A grid is a table for people.
type grid struct {
	columns []column
	rows    [][]string
	foot    []string // lines below the table
}

// How many columns a name and a sentence may take in the format table. The format wide shortens nothing.
const (
	mostColumns = 40
	mostProse   = 120
)

// add adds a row. An empty cell is shown as a dash.
func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// print prints the grid, aligned by what a terminal shows.
func (g *grid) print(out io.Writer, all bool) error {
	var shown []int
	for i, c := range g.columns {
		if (all || !c.wide) && !c.hidden {
			shown = append(shown, i)
		}
	}
	lines := make([][]string, 0, len(g.rows)+1)
	head := make([]string, len(g.columns))
	for i, c := range g.columns {
		head[i] = c.heading()
	}
	widths := make([]int, len(g.columns))
	for _, row := range append([][]string{head}, g.rows...) {
		line := make([]string, len(row))
		for _, i := range shown {
			if line[i] = clean(row[i]); line[i] == "" {
				line[i] = "-"
			}
			switch {
			case all, g.columns[i].whole:
			case g.columns[i].prose:
				line[i] = cut(line[i], mostProse)
			default:
				line[i] = cut(line[i], mostColumns)
			}
			widths[i] = max(widths[i], width(line[i]))
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	for _, line := range lines {
		if len(shown) == 0 {
			break
		}
		g.line(&b, line, shown, widths)
	}
	for _, line := range g.foot {
		b.WriteString(clean(line) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// line writes one line, without spaces at its end.
func (g *grid) line(b *strings.Builder, cells []string, shown, widths []int) {
	for n, i := range shown {
		pad := strings.Repeat(" ", widths[i]-width(cells[i]))
		switch last := n == len(shown)-1; {
		case g.columns[i].right:
			b.WriteString(pad + cells[i])
		case last:
			b.WriteString(cells[i])
		default:
			b.WriteString(cells[i] + pad)
		}
		if n < len(shown)-1 {
			b.WriteString("  ")
		}
	}
	b.WriteByte('\n')
}
