package attr

import (
	"strconv"
	"strings"
	"time"
)

// The earlier transfers of a row are packed into one attribute, because every write contains them
// and only people read them. Each has one line, newest first, with fields separated by tabs: how
// many generations back it began, reason, from, by, and seconds since 1970. Names cannot contain
// tabs and line ends.

// AddTransfer returns the packed transfers with one more in front. It began
// back generations before the transfer that follows it.
func AddTransfer(past string, back int64, reason, from, by string, at time.Time) string {
	seconds := int64(0)
	if !at.IsZero() {
		seconds = at.UnixMilli() / 1000
	}
	line := strings.Join([]string{strconv.FormatInt(back, 10), reason, from, by, strconv.FormatInt(seconds, 10)}, "\t")
	if past == "" {
		return line
	}
	return line + "\n" + past
}

// Remembers reports whether part is past without some of its oldest transfers, or equal to it.
func Remembers(past, part string) bool {
	rest, ok := strings.CutPrefix(past, part)
	return ok && (part == "" || rest == "" || rest[0] == '\n')
}

// ForgetTransfer returns the packed transfers without the oldest one.
func ForgetTransfer(past string) string { return past[:max(strings.LastIndexByte(past, '\n'), 0)] }
