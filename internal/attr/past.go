package attr

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The earlier transfers of a row are packed into one attribute, because every write contains them
// and only people read them. Each has one line, newest first, with fields separated by tabs: how
// many generations back it began, reason, from, by, seconds since 1970, what was done, task, and the
// note of a command, or the packed note of a planned move. Empty fields at the end are left out. Names cannot contain tabs
// and line ends.

// A Transfer is an earlier transfer of a row.
type Transfer struct {
	Back             int64 // how many generations before the transfer that follows it
	Reason, From, By string
	At               time.Time
	Did              string // what a command did
	Mode             string // the mode of a planned move
	Why              byte   // the letter of the cause of a planned move; 0: unknown
	Task             string
	Note             string
	Steered          bool // an operator has caused the planned move, as Note says
}

// MaxPastNote is how many bytes of a command's note an earlier transfer has.
const MaxPastNote = 64

// AddTransfer returns the packed transfers with one more in front. Only commands keep their notes, and moves that an
// operator has caused (Steered): longer notes of all transfers would leave room for fewer transfers.
func AddTransfer(past string, t Transfer) string {
	seconds, note := int64(0), ""
	if !t.At.IsZero() {
		seconds = t.At.UnixMilli() / 1000
	}
	if t.Did != "" || t.Steered {
		note = Shortened(t.Note, MaxPastNote)
	}
	if t.Mode != "" {
		note = PackNote(t.Why, note)
	}
	line := strings.Join([]string{
		strconv.FormatInt(t.Back, 10), t.Reason, t.From, t.By, strconv.FormatInt(seconds, 10), cmp.Or(t.Did, t.Mode), t.Task, note,
	}, "\t")
	if line = strings.TrimRight(line, "\t"); past == "" {
		return line
	}
	return line + "\n" + past
}

// PackTask returns a task as a transfer stores it: "=" stands for the task of the transfer that
// follows it, and after the last transfer for that of the row's owner. Most workers of a group have
// the same task.
func PackTask(task, next string) string {
	switch {
	case task != "" && task == next:
		return "="
	case strings.HasPrefix(task, "="):
		return "=" + task
	}
	return task
}

// UnpackTask returns the task that PackTask has packed.
func UnpackTask(packed, next string) string {
	if packed == "=" {
		return next
	}
	return strings.TrimPrefix(packed, "=")
}

// PackNote returns the note of a planned move as a transfer stores it: "=", the letter of the cause, and after a space the
// note. A note that begins with "=" has another "=" in front if the cause is unknown (0). Earlier versions of the library
// print all of it as the note.
func PackNote(why byte, note string) string {
	switch {
	case why != 0 && note != "":
		return "=" + string(rune(why)) + " " + note
	case why != 0:
		return "=" + string(rune(why))
	case strings.HasPrefix(note, "="):
		return "=" + note
	}
	return note
}

// PackedWhy is how many bytes PackNote adds to a note at most.
const PackedWhy = len("=w ")

// UnpackNote returns what PackNote has packed.
func UnpackNote(packed string) (why byte, note string) {
	rest, marked := strings.CutPrefix(packed, "=")
	switch {
	case !marked:
		return 0, packed
	case strings.HasPrefix(rest, "="):
		return 0, rest
	case len(rest) == 1 || len(rest) > PackedWhy-1 && rest[1] == ' ':
		return rest[0], rest[min(len(rest), len("w ")):]
	}
	return 0, packed
}

// Shortened returns s in at most limit bytes, cut between two characters.
func Shortened(s string, limit int) string {
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// Abridged returns s in at most limit bytes, with an ellipsis if something is left out.
func Abridged(s string, limit int) string {
	const ellipsis = "…"
	switch {
	case len(s) <= limit:
		return s
	case limit <= len(ellipsis):
		return ""
	}
	return Shortened(s, limit-len(ellipsis)) + ellipsis
}

// Remembers reports whether part is past without some of its oldest transfers, or equal to it.
func Remembers(past, part string) bool {
	rest, ok := strings.CutPrefix(past, part)
	return ok && (part == "" || rest == "" || rest[0] == '\n')
}

// ForgetTransfer returns the packed transfers without the oldest one.
func ForgetTransfer(past string) string { return past[:max(strings.LastIndexByte(past, '\n'), 0)] }
