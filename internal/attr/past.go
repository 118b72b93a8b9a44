package attr

import (
	"strconv"
	"strings"
	"time"
)

// The earlier transfers of a row are kept packed, newest first: a line each, of how
// many generations back, reason, from, by, and seconds since 1970, with tabs
// between. Names hold no control characters. They are packed because every write
// carries them along and only people read them.

// AddTransfer puts a transfer in front of the packed ones. It began back
// generations before the one that follows it.
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

// Remembers reports whether part is past without some of its oldest transfers.
func Remembers(past, part string) bool {
	rest, ok := strings.CutPrefix(past, part)
	return ok && (part == "" || rest == "" || rest[0] == '\n')
}

// ForgetTransfer drops the oldest transfer.
func ForgetTransfer(past string) string { return past[:max(strings.LastIndexByte(past, '\n'), 0)] }
