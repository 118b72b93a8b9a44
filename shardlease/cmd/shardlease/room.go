package main

import "slices"

// A room is how much space of a line a column gets in top.
type room struct {
	rank  int // columns with small ranks are shown first
	least int
	most  int // 0: the width of its longest name
}

// roomOf returns the room of a column in lines of so many columns of the terminal.
func roomOf(c column, view, total int) room {
	name := max(10, total/3)
	rooms := map[string]room{
		"SHARD": {0, name, 0}, "STATE": {1, 11, 11}, "OWNER": {2, 8, 0}, "CHECKPOINT": {3, 10, 10}, "SINCE": {4, 8, 8},
		"TARGET": {5, 8, 0}, "ATTEMPTS": {6, 8, 8}, "MOVE": {7, 20, 0}, "LAST CHANGE": {8, 12, 24}, "GENERATION": {9, 16, 16},
		"TASK": {10, 8, 20}, "BY": {11, 8, 20}, "NOTE": {12, 12, 60}, "INCARNATION": {13, 12, 26}, "SIZE": {14, 6, 6},
		"WAITERS": {5, 12, 0}, // in place of the target
	}
	switch view {
	case workersView:
		rooms = map[string]room{
			"WORKER": {0, name, 0}, "STATE": {1, 9, 60}, "HELD": {2, 5, 6}, "TARGET": {3, 6, 6}, "HEARTBEAT": {4, 9, 9},
			"BEATING": {5, 7, 7}, "TAKING": {6, 6, 6}, "GIVING": {7, 6, 6}, "REVISION": {8, 12, 16}, "SETTLED": {9, 7, 7},
			"TTL": {10, 5, 7}, "TASK": {11, 8, 20}, "BUILD": {12, 6, 20}, "INCARNATION": {13, 12, 26}, "SINCE": {14, 20, 20},
			"HANDOFF": {15, 8, 11}, "MAX SHARDS": {16, 10, 10}, "WAITS": {3, 5, 0}, // in place of the target
		}
	case warningsView:
		rooms = map[string]room{"LEVEL": {0, 5, 5}, "CODE": {1, 14, 14}, "SUBJECT": {2, 8, 0}, "TEXT": {3, 12, 500}}
	case eventsView:
		rooms = map[string]room{"TIME": {0, 9, 9}, "KIND": {1, 10, 10}, "SUBJECT": {2, 8, max(10, total/4)}, "TEXT": {3, 12, 500}}
	}
	if r, known := rooms[c.title]; known {
		return r
	}
	return room{rank: len(rooms), least: max(8, len(c.title)), most: 20} // a new column of ls or workers
}

// A slot is a column on the screen.
type slot struct {
	at    int // the column of the listing
	width int
	name  bool // its texts are names, which differ at their ends
	column
}

// slots chooses the columns that have room in lines of so many columns of the terminal, in their order. Columns whose
// texts are longer get the space that is left.
func slots(all []column, view, total int, widest map[string]int) (shown []slot) {
	order := make([]int, len(all))
	rooms, names := make([]room, len(all)), make([]bool, len(all))
	for i, c := range all {
		order[i], rooms[i] = i, roomOf(c, view, total)
		if r := &rooms[i]; r.most == 0 { // a name: no wider than the longest, and no narrower than its title
			names[i], r.most = true, min(mostColumns, max(len(c.heading()), widest[c.title]))
			r.least = min(r.least, r.most)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return rooms[a].rank - rooms[b].rank })
	left := total
	for n, i := range order {
		if all[i].hidden || names[i] && n > 0 && widest[all[i].title] == 0 {
			continue // it would be empty
		}
		need := rooms[i].least
		if n > 0 {
			need += len(gap)
		}
		if need > left {
			break
		}
		left -= need
		shown = append(shown, slot{i, rooms[i].least, names[i], all[i]})
	}
	for n := range shown {
		more := max(0, min(left, rooms[shown[n].at].most-shown[n].width))
		shown[n].width, left = shown[n].width+more, left-more
	}
	slices.SortFunc(shown, func(a, b slot) int { return a.at - b.at })
	return shown
}

// gap stands between two columns.
const gap = "  "

// fill returns the text of a cell in its slot.
func (s slot) fill(text string) string {
	if text = cell(text); text == "" {
		text = "-"
	}
	if s.name {
		text = squeeze(text, s.width)
	} else {
		text = cut(text, s.width)
	}
	return pad(text, s.width, s.right)
}
