package main

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// The views of top, in the order of their keys.
const (
	shardsView = iota
	workersView
	warningsView
	eventsView
	allViews
)

// viewTitles returns the names of the views.
func (p *picture) viewTitles() [allViews]string {
	if p.snapshot != nil && p.snapshot.Sessions {
		return [...]string{"Leases", "Sessions", "Warnings", "Events"}
	}
	return [...]string{"Shards", "Workers", "Warnings", "Events"}
}

// A listing is the rows of a view. It computes only the rows that the screen shows.
type listing interface {
	columns() []column
	orders() []string // the names of the sort orders; the first is the default
	size() int
	key(i int) string    // identifies the row in the next picture
	words(i int) string  // the text in which a filter searches
	level(i int) string  // the level of the row's worst warning
	cells(i int) []piece // as many as columns
	compare(order, a, b int) int
}

// listing returns the rows of a view. It needs a snapshot.
func (p *picture) listing(view int) listing {
	switch view {
	case workersView:
		return workerListing{p}
	case warningsView:
		return warningListing{p}
	case eventsView:
		return eventListing{p}
	}
	return shardListing{p}
}

// pieces returns cells. The cell with the number tinted has a tone.
func pieces(cells []string, tinted int, t tone) []piece {
	list := make([]piece, len(cells))
	for i, text := range cells {
		list[i].text = text
	}
	list[tinted].tone = t
	return list
}

// worse compares the worst levels of the warnings about two subjects: the worse one is first.
func (l levels) worse(a, b string) int {
	rank := func(subject string) slog.Level {
		if level, warned := l[subject]; warned {
			return level
		}
		return slog.LevelDebug
	}
	return cmp.Compare(rank(b), rank(a))
}

// word returns the level of the warnings about a subject.
func (l levels) word(subject string) string {
	if level, warned := l[subject]; warned {
		return level.String()
	}
	return ""
}

// older compares two ages: the greater is first, an unknown one last.
func older(a, b inspect.Age) int {
	length := func(a inspect.Age) time.Duration {
		if !a.Known {
			return -1
		}
		return a.D
	}
	return cmp.Compare(length(b), length(a))
}

type shardListing struct{ *picture }

func (l shardListing) columns() []column { return inWords(l.snapshot, columnsOf(shardFields(false))) }
func (l shardListing) orders() []string {
	return []string{"urgency", "name", "worker", "checkpoint", "attempts"}
}
func (l shardListing) size() int          { return len(l.snapshot.Shards) }
func (l shardListing) key(i int) string   { return l.snapshot.Shards[i].Name }
func (l shardListing) level(i int) string { return l.levels.word(l.snapshot.Shards[i].Name) }

func (l shardListing) words(i int) string {
	of := &l.snapshot.Shards[i]
	return strings.Join([]string{clean(of.Name), string(of.State), clean(of.Owner.Name)}, "\n")
}

func (l shardListing) cells(i int) []piece {
	of := &l.snapshot.Shards[i]
	return pieces(cellsOf(shardFields(false), of), 1, stateTone(of.State))
}

func (l shardListing) compare(order, a, b int) int {
	x, y := &l.snapshot.Shards[a], &l.snapshot.Shards[b]
	by := 0
	switch l.orders()[order] {
	case "urgency":
		by = cmp.Or(l.levels.worse(x.Name, y.Name), cmp.Compare(urgency(x.State), urgency(y.State)))
	case "worker":
		by = strings.Compare(x.Owner.Name, y.Owner.Name)
	case "checkpoint":
		by = older(x.Checkpoint, y.Checkpoint)
	case "attempts":
		by = cmp.Compare(y.Attempts, x.Attempts)
	}
	return cmp.Or(by, strings.Compare(x.Name, y.Name))
}

// urgency returns the place of a state among the shards that have no warnings, the most urgent first.
func urgency(s inspect.State) int {
	return slices.Index([]inspect.State{
		inspect.Orphaned, inspect.Quarantined, inspect.Free, inspect.Resting, inspect.Unlisted, inspect.Moving,
		inspect.Blocked, inspect.Held, inspect.Finished, inspect.Removed,
	}, s)
}

type workerListing struct{ *picture }

func (l workerListing) columns() []column { return inWords(l.snapshot, columnsOf(workerFields())) }
func (l workerListing) orders() []string  { return []string{"urgency", "name", "held", "heartbeat"} }
func (l workerListing) size() int         { return len(l.snapshot.Workers) }
func (l workerListing) key(i int) string  { return string(l.snapshot.Workers[i].Seat.Incarnation) }

func (l workerListing) level(i int) string {
	return l.levels.word(l.snapshot.Workers[i].Seat.Name)
}

func (l workerListing) words(i int) string {
	of := &l.snapshot.Workers[i]
	return strings.Join([]string{clean(of.Seat.Name), clean(string(of.Seat.Incarnation)), clean(workerState(of))}, "\n")
}

func (l workerListing) cells(i int) []piece {
	of := &l.snapshot.Workers[i]
	state := slices.IndexFunc(l.columns(), func(c column) bool { return c.title == "STATE" })
	return pieces(cellsOf(workerFields(), of), state, workerTone(of))
}

func (l workerListing) compare(order, a, b int) int {
	x, y := &l.snapshot.Workers[a], &l.snapshot.Workers[b]
	by := 0
	switch l.orders()[order] {
	case "urgency":
		by = cmp.Or(l.levels.worse(x.Seat.Name, y.Seat.Name), cmp.Compare(workerTone(y), workerTone(x)))
	case "held":
		by = cmp.Compare(y.Held, x.Held)
	case "heartbeat":
		by = older(x.Silent, y.Silent)
	}
	return cmp.Or(by, cmp.Compare(a, b)) // the snapshot sorts workers by name
}

type warningListing struct{ *picture }

func (l warningListing) columns() []column { return columnsOf(warningFields()) }
func (l warningListing) orders() []string  { return []string{"urgency", "subject"} }
func (l warningListing) size() int         { return len(l.warnings) }
func (l warningListing) level(int) string  { return "" } // a column shows the level
func (l warningListing) key(i int) string {
	return string(l.warnings[i].Code) + " " + l.warnings[i].Subject
}
func (l warningListing) words(i int) string { return clean(l.key(i)) }

func (l warningListing) cells(i int) []piece {
	w := l.warnings[i]
	return pieces(cellsOf(warningFields(), w), 0, levelTone(w.Level))
}

func (l warningListing) compare(order, a, b int) int {
	by := 0
	if l.orders()[order] == "subject" {
		by = strings.Compare(l.warnings[a].Subject, l.warnings[b].Subject)
	}
	return cmp.Or(by, cmp.Compare(a, b)) // the warnings are sorted, the worst first
}

type eventListing struct{ *picture }

func (l eventListing) columns() []column { return columnsOf(eventFields()) }
func (l eventListing) orders() []string  { return []string{"newest"} }
func (l eventListing) size() int         { return len(l.events) }
func (l eventListing) key(i int) string  { return number(int64(l.events[i].number)) }
func (l eventListing) level(int) string  { return "" }

func (l eventListing) words(i int) string {
	return clean(l.events[i].Kind) + "\n" + clean(l.events[i].Subject)
}

func (l eventListing) cells(i int) []piece {
	e := l.events[i]
	cells := cellsOf(eventFields(), e.occurrence)
	cells[0] = e.At.UTC().Format("15:04:05Z")
	return pieces(cells, 1, eventTone(e.Kind))
}

func (l eventListing) compare(_, a, b int) int { return cmp.Compare(b, a) }

// eventTone returns the tone of a kind of event.
func eventTone(kind string) tone {
	switch inspect.ChangeKind(kind) {
	case inspect.ChangeMissing, inspect.ChangeLeft, inspect.ChangeUnwell:
		return doubt
	case inspect.ChangeUnreadable, inspect.ChangeRestored:
		return bad
	case inspect.ChangeNew, inspect.ChangeJoined, inspect.ChangeWell, inspect.ChangeReadable, inspect.ChangeAdopted:
		return good
	}
	return plain
}
