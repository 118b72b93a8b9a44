package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A screen prints lines with the time. On a terminal it keeps a few more lines below
// them, which it draws again and again; elsewhere it prints nothing but the lines.
type screen struct {
	live   bool // a terminal: draw
	colour bool
	start  time.Time

	mu    sync.Mutex
	out   io.Writer
	below []string // drawn below the lines, and to be drawn again after the next
	err   error    // the first one of out; nothing is printed after it
}

func newScreen(out io.Writer) *screen {
	live := isTerminal(out)
	_, plain := os.LookupEnv("NO_COLOR") // https://no-color.org
	return &screen{live: live, colour: live && !plain, start: time.Now(), out: out}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// The colours, as ANSI calls them.
const (
	bold    = "1"
	dim     = "2"
	reverse = "7"
	red     = "31"
	green   = "32"
	yellow  = "33"
	blue    = "34"
	magenta = "35"
	cyan    = "36"
)

// paint colours text, where there are colours.
func (s *screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// heading begins an act.
func (s *screen) heading(text string) {
	rule := strings.Repeat("─", max(3, 76-len([]rune(text))))
	s.print("", s.paint(bold, "── "+text+" ")+s.paint(dim, rule))
}

// say prints a line with the time.
func (s *screen) say(format string, args ...any) { s.at(time.Now(), fmt.Sprintf(format, args...)) }

// good and bad are lines that stand out.
func (s *screen) good(at time.Time, format string, args ...any) {
	s.at(at, s.paint(green, "✓ "+fmt.Sprintf(format, args...)))
}

func (s *screen) bad(format string, args ...any) {
	s.at(time.Now(), s.paint(red, "✗ "+fmt.Sprintf(format, args...)))
}

func (s *screen) at(when time.Time, line string) {
	s.print(s.paint(dim, fmt.Sprintf("%6.2fs  ", when.Sub(s.start).Seconds())) + line)
}

// print puts lines above what is drawn.
func (s *screen) print(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(lines, s.below)
}

// draw replaces what is drawn.
func (s *screen) draw(below []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(nil, below)
}

// put goes up to where the drawing begins, and prints over it. A line that is too
// long for the terminal is cut off, or the way up would be wrong.
func (s *screen) put(lines, below []string) {
	var b strings.Builder
	if len(s.below) > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", len(s.below))
	}
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	if len(below) > 0 {
		b.WriteString("\x1b[?25l\x1b[?7l" + strings.Join(below, "\n") + "\n\x1b[?7h\x1b[?25h")
	}
	s.below = below
	if s.err == nil {
		_, s.err = io.WriteString(s.out, b.String())
	}
}

// fault is what kept the screen from printing.
func (s *screen) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
