package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// clean returns a text without what could change a terminal: control characters, line ends, marks that
// reverse the direction of a text or cannot be seen, and bytes that are no UTF-8 are escaped as in Go.
func clean(s string) string {
	if !strings.ContainsFunc(s, isUnsafe) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && s[i] != "\uFFFD"[0]:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case isUnsafe(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cleanLines is clean for a text that may have several lines.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// isUnsafe reports whether a character is invisible or changes what stands beside it.
func isUnsafe(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// quoted returns a name for a sentence.
func quoted(name string) string { return `"` + clean(name) + `"` }

// wide are the characters that take two columns in a terminal (Unicode's East Asian Width W and F).
// It is a function because the list is long and needed only here.
func wide(r rune) bool {
	switch {
	case r < 0x1100:
		return false
	case r <= 0x115F, r == 0x2329, r == 0x232A,
		r >= 0x231A && r <= 0x231B, r >= 0x23E9 && r <= 0x23EC, r == 0x23F0, r == 0x23F3,
		r >= 0x25FD && r <= 0x25FE, r >= 0x2614 && r <= 0x2615, r >= 0x2648 && r <= 0x2653,
		r == 0x267F, r == 0x2693, r == 0x26A1, r >= 0x26AA && r <= 0x26AB, r >= 0x26BD && r <= 0x26BE,
		r >= 0x26C4 && r <= 0x26C5, r == 0x26CE, r == 0x26D4, r == 0x26EA, r >= 0x26F2 && r <= 0x26F3,
		r == 0x26F5, r == 0x26FA, r == 0x26FD, r == 0x2705, r >= 0x270A && r <= 0x270B, r == 0x2728,
		r == 0x274C, r == 0x274E, r >= 0x2753 && r <= 0x2755, r == 0x2757, r >= 0x2795 && r <= 0x2797,
		r == 0x27B0, r == 0x27BF, r >= 0x2B1B && r <= 0x2B1C, r == 0x2B50, r == 0x2B55,
		r >= 0x2E80 && r <= 0x303E, r >= 0x3041 && r <= 0x4DBF, r >= 0x4E00 && r <= 0xA4CF,
		r >= 0xA960 && r <= 0xA97F, r >= 0xAC00 && r <= 0xD7A3, r >= 0xF900 && r <= 0xFAFF,
		r >= 0xFE10 && r <= 0xFE19, r >= 0xFE30 && r <= 0xFE6F, r >= 0xFF01 && r <= 0xFF60,
		r >= 0xFFE0 && r <= 0xFFE6, r >= 0x16FE0 && r <= 0x18CFF, r >= 0x1AFF0 && r <= 0x1B2FF,
		r == 0x1F004, r == 0x1F0CF, r == 0x1F18E, r >= 0x1F191 && r <= 0x1F19A, r >= 0x1F200 && r <= 0x1F64F,
		r >= 0x1F680 && r <= 0x1F6FC, r >= 0x1F7E0 && r <= 0x1F7F0, r >= 0x1F90C && r <= 0x1FAFF,
		r >= 0x20000 && r <= 0x3FFFD:
		return true
	}
	return false
}

// columns returns how many columns a character takes in a terminal.
func columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case wide(r):
		return 2
	}
	return 1
}

// width returns how many columns a text takes in a terminal.
func width(s string) (n int) {
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// cut shortens a text to so many columns. It counts marks without a width as well, so that a name of
// nothing but marks does not fill a cell.
func cut(s string, most int) string {
	if width(s) <= most && utf8.RuneCountInString(s) <= 2*most {
		return s
	}
	var b strings.Builder
	n, marks := 0, 0
	for _, r := range s {
		if n+columns(r) > most-1 || marks > most {
			break
		}
		if columns(r) == 0 {
			marks++
		}
		n += columns(r)
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// span returns a duration for people, with at most two units.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// old returns an age for people. One that rests on two wall clocks is marked with a tilde.
func old(a inspect.Age) string {
	switch {
	case !a.Known:
		return "-"
	case a.Observed:
		return span(a.D)
	}
	return "~" + span(a.D)
}

// moment returns a time for people.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
