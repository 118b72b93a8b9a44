package main

import (
	"slices"
	"strings"
)

// A list selects the rows of a view that are on the screen. Its methods return the changed list.
type list struct {
	filter   string
	order    int // which of the view's sort orders
	reversed bool

	rows   []int  // the rows of the listing that the filter finds, in order
	cursor int    // the place in rows
	first  int    // the first place on the screen
	key    string // identifies the row at the cursor
}

// arrange finds and sorts the rows of a listing. The cursor follows its row to the row's new place. A cursor at the top
// stays at the top, where the person sees the worst rows.
func (l list) arrange(of listing) list {
	l.rows = nil
	filter := strings.ToLower(l.filter)
	for i := range of.size() {
		if filter == "" || strings.Contains(strings.ToLower(of.words(i)), filter) {
			l.rows = append(l.rows, i)
		}
	}
	slices.SortStableFunc(l.rows, func(a, b int) int {
		if l.reversed {
			a, b = b, a
		}
		return of.compare(l.order, a, b)
	})
	if l.cursor > 0 {
		if at := slices.IndexFunc(l.rows, func(i int) bool { return of.key(i) == l.key }); at >= 0 {
			l.cursor = at
		}
	}
	return l.moveTo(l.cursor, of)
}

// moveTo moves the cursor to a place, or to the nearest one that exists.
func (l list) moveTo(place int, of listing) list {
	l.cursor, l.key = max(0, min(place, len(l.rows)-1)), ""
	if len(l.rows) > 0 {
		l.key = of.key(l.rows[l.cursor])
	}
	return l
}

// scroll chooses the first row on a screen with height rows, so that the cursor is on the screen.
func (l list) scroll(height int) list {
	l.first = max(0, min(l.first, l.cursor, len(l.rows)-height))
	l.first = max(l.first, l.cursor-height+1)
	return l
}

// visible returns the rows that are on the screen.
func (l list) visible(height int) []int {
	return l.rows[min(l.first, len(l.rows)):min(l.first+max(0, height), len(l.rows))]
}
