package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// board is the table of who holds what, as the lease table says: a column for each
// shard, a line for each worker.
func (s *story) board(rows []lease.Row) []string {
	held := map[string]map[string]lease.Row{}
	finished := 0
	for _, row := range rows {
		if row.Finished {
			finished++
			continue
		}
		if held[row.Owner.Name] == nil {
			held[row.Owner.Name] = map[string]lease.Row{}
		}
		held[row.Owner.Name][row.Shard] = row
	}
	lines := []string{""}
	for i, m := range s.fleet.all() {
		n := len(held[m.name])
		cells := s.cells(held[m.name], hue(i))
		lines = append(lines, fmt.Sprintf("  %s  %s %s  %s", s.paint(hue(i), m.name), cells,
			plural(n, "shard"), s.paint(dim, s.condition(m))))
	}
	if n := len(held[""]); n > 0 {
		lines = append(lines, fmt.Sprintf("  nobody    %s %s", s.cells(held[""], yellow), plural(n, "shard")))
	}
	if finished > 0 {
		lines = append(lines, fmt.Sprintf("  finished: %d of %d shards", finished, len(s.fleet.shards)))
	}
	return lines
}

// cells marks the shards of one line with their numbers, where there is room for
// that. On a terminal those that have just come light up.
func (s *story) cells(held map[string]lease.Row, colour string) string {
	const roomy, fresh = 20, 700 * time.Millisecond
	var b strings.Builder
	for _, shard := range s.fleet.shards {
		row, here := held[shard]
		mark, none, gap := "■", "·", ""
		if len(s.fleet.shards) <= roomy {
			mark, none, gap = fmt.Sprintf("%02d", number(shard)), " ·", " "
		}
		switch {
		case !here:
			b.WriteString(s.screen.paint(dim, none))
		case time.Since(row.Last.At) < fresh:
			b.WriteString(s.screen.paint(reverse+";"+colour, mark))
		default:
			b.WriteString(s.screen.paint(colour, mark))
		}
		b.WriteString(gap)
	}
	return b.String()
}

// condition says how a worker is.
func (s *story) condition(m *member) string {
	state, _ := m.host.now()
	switch {
	case state == killed || state == buried:
		return "killed"
	case state == paused:
		return "paused"
	case m.hasLeft():
		return "has left"
	}
	return plural(int(m.records.Load()), "record")
}

// paint is the screen's.
func (s *story) paint(colour, text string) string { return s.screen.paint(colour, text) }

// hue is the colour of a worker.
func hue(i int) string {
	hues := [...]string{cyan, magenta, blue, green, yellow}
	return hues[i%len(hues)]
}

// plural is "1 shard", "2 shards".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// millis is a duration that is short, spell one that was measured, and whole one
// that was chosen.
func millis(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }

func spell(d time.Duration) string {
	if d < 100*time.Millisecond {
		return millis(d)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func whole(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }
