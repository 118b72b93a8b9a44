package main

import (
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// A model is the whole state of top: the results of the looks, and the choices of the person.
type model struct {
	at            place
	palette       palette
	width, height int
	now           time.Time

	live, shown picture // the newest picture, and the picture on the screen; they differ only while the screen is frozen
	frozen      bool

	view   int
	lists  [allViews]list
	typing bool // the keys go to the filter
	help   bool
	detail *topic // the row that the screen shows in place of the list; nil: it shows the list
	from   int    // the first line of the help or of the detail on the screen
}

func newModel(at place, colors palette, now time.Time) model {
	return model{at: at, palette: colors, now: now, width: 80, height: 24}
}

// A binding is a key and what it does.
type binding struct{ key, does string }

// bindings returns the keys, as the help shows them.
func bindings() []binding {
	return []binding{
		{"1 2 3 4", "show the shards, the workers, the warnings, the events; tab shows the next of them"},
		{"up down", "move the cursor, also k and j; pgup and pgdown move it by a screen, home and end to the ends"},
		{"enter", "show all of the row at the cursor; esc goes back"},
		{"/", "type a filter: a part of a name, a worker, a state or a code; enter keeps it, esc removes it"},
		{"s", "change the sort order; r reverses it"},
		{"space", "freeze the screen, to read or to copy; space again shows the present. Looking goes on meanwhile"},
		{"?", "show this help"},
		{"q", "quit, also ctrl+c"},
	}
}

// Init starts nothing: top sends all messages.
func (m model) Init() tea.Cmd { return nil }

// Update returns the model after a message. Invariant: the cursor of the list is on the screen.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case clock:
		m.now = time.Time(msg)
	case look:
		m.now, m.live = msg.at, m.live.with(msg)
		if !m.frozen {
			m = m.present()
		}
	case tea.KeyPressMsg:
		m, cmd = m.press(msg)
	case tea.PasteMsg:
		if m.typing {
			m = m.filter(m.lists[m.view].filter + clean(msg.Content))
		}
	}
	m.lists[m.view] = m.lists[m.view].scroll(m.layout().body)
	return m, cmd
}

// present shows the newest picture.
func (m model) present() model {
	m.shown, m.frozen = m.live, false
	for view := range m.lists {
		m = m.arrange(view)
	}
	return m
}

// arrange finds and sorts the rows of a view.
func (m model) arrange(view int) model {
	if m.shown.snapshot != nil {
		m.lists[view] = m.lists[view].arrange(m.shown.listing(view))
	}
	return m
}

// press returns the model after a key.
func (m model) press(k tea.KeyPressMsg) (model, tea.Cmd) {
	switch name := k.String(); {
	case name == "ctrl+c":
		return m, tea.Quit
	case m.typing:
		return m.typed(k), nil
	case name == "q":
		return m, tea.Quit
	case m.help || m.detail != nil:
		return m.reading(name), nil
	default:
		return m.choosing(name), nil
	}
}

// typed returns the model after a key that belongs to the filter.
func (m model) typed(k tea.KeyPressMsg) model {
	text := m.lists[m.view].filter
	switch k.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing = false
		return m.filter("")
	case "backspace":
		_, last := utf8.DecodeLastRuneInString(text)
		return m.filter(text[:len(text)-last])
	case "ctrl+u":
		return m.filter("")
	default:
		return m.filter(text + clean(k.Text))
	}
	return m
}

// filter shows the rows that have a text.
func (m model) filter(text string) model {
	m.lists[m.view].filter = text
	return m.arrange(m.view)
}

// reading returns the model after a key while the screen shows the help or one row.
func (m model) reading(name string) model {
	page := max(1, m.height-2)
	switch name {
	case "esc", "enter", "?", "backspace", "left":
		if m.help {
			m.help = false
		} else {
			m.detail = nil
		}
		m.from = 0
		return m
	case "up", "k":
		m.from--
	case "down", "j":
		m.from++
	case "pgup":
		m.from -= page
	case "pgdown", "space":
		m.from += page
	case "home", "g":
		m.from = 0
	case "end", "G":
		m.from = len(m.text())
	}
	m.from = max(0, min(m.from, len(m.text())-page))
	return m
}

// choosing returns the model after a key while the screen shows a list.
func (m model) choosing(name string) model {
	l := &m.lists[m.view]
	page := max(1, m.layout().body)
	switch name {
	case "1", "2", "3", "4":
		m.view = int(name[0] - '1')
	case "tab", "right":
		m.view = (m.view + 1) % allViews
	case "shift+tab", "left":
		m.view = (m.view + allViews - 1) % allViews
	case "up", "k":
		return m.move(l.cursor - 1)
	case "down", "j":
		return m.move(l.cursor + 1)
	case "pgup", "ctrl+b":
		return m.move(l.cursor - page)
	case "pgdown", "ctrl+f":
		return m.move(l.cursor + page)
	case "home", "g":
		return m.move(0)
	case "end", "G":
		return m.move(len(l.rows) - 1)
	case "esc":
		return m.filter("")
	case "/":
		m.typing = true
	case "?":
		m.help, m.from = true, 0
	default:
		return m.changing(name)
	}
	return m
}

// changing returns the model after a key that changes what the list shows.
func (m model) changing(name string) model {
	l := &m.lists[m.view]
	switch name {
	case "s":
		l.order = (l.order + 1) % len(m.orders())
		l.reversed = false
		return m.arrange(m.view)
	case "r":
		l.reversed = !l.reversed
		return m.arrange(m.view)
	case "enter":
		if len(l.rows) > 0 {
			m.detail, m.from = &topic{m.view, l.key}, 0
		}
	case "space", "p":
		if m.frozen {
			return m.present()
		}
		m.frozen = true
	}
	return m
}

// orders returns the sort orders of the view.
func (m model) orders() []string { return m.shown.listing(m.view).orders() }

// move moves the cursor to a place in the list.
func (m model) move(to int) model {
	if m.shown.snapshot != nil {
		m.lists[m.view] = m.lists[m.view].moveTo(to, m.shown.listing(m.view))
	}
	return m
}

// empty reports whether no look has succeeded yet.
func (m model) empty() bool { return m.shown.snapshot == nil }
