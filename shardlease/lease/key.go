package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of what rows can hold, in bytes unless said otherwise.
const (
	MaxName    = 255  // a group, a shard, a worker's name, a task, who gave a command
	MaxID      = 64   // a write id, an incarnation
	MaxNote    = 64   // the note of a transfer; transitions shorten a longer one
	MaxParents = 8    // parents of one shard
	MaxWants   = 1000 // shards one seat asks for at a time
)

// A Kind is one of the two kinds of row.
type Kind uint8

const (
	KindLease Kind = iota + 1 // a [Row], one per shard
	KindSeat                  // a [Seat], one per running worker
)

func (k Kind) String() string {
	switch k {
	case KindLease:
		return "lease"
	case KindSeat:
		return "seat"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// A Key addresses one row. Groups do not see each other: two consumers of one
// stream are two groups.
type Key struct {
	Group string
	Kind  Kind
	Name  string // the shard, or the incarnation in the seat
}

// String quotes and shortens names that could not be stored: it is also how a
// malformed row is reported.
func (k Key) String() string {
	if k.Validate() != nil {
		return fmt.Sprintf("%v %.64q/%.64q", k.Kind, k.Group, k.Name)
	}
	return fmt.Sprintf("%v %s/%s", k.Kind, k.Group, k.Name)
}

// Validate reports a key under which nothing can be stored.
func (k Key) Validate() error {
	switch k.Kind {
	case KindLease:
		return errors.Join(validName("group", k.Group), validName("shard", k.Name))
	case KindSeat:
		return errors.Join(validName("group", k.Group), validID("incarnation", k.Name))
	}
	return invalid("kind", "must be lease or seat")
}

// A WriteID is new and random with every write, and stays with the bytes of
// that write when they are sent again. It tells a worker's own write from
// another's.
type WriteID string

// An Incarnation is one seat of one worker: random, and new with every seat
// taken. A worker that was evicted, or that stopped trusting itself, comes back
// as another incarnation and holds nothing of what the old one held.
type Incarnation string

// millis is a time as items keep it; no time is 0, and so absent.
func millis(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

func fromMillis(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

func positive(field string, n int64) error {
	if n < 1 {
		return invalid(field, "must be at least 1")
	}
	return nil
}

func validName(field, s string) error {
	if s == "" {
		return invalid(field, "must not be empty")
	}
	return validText(field, s, MaxName)
}

func validID(field, s string) error {
	if s == "" {
		return invalid(field, "must not be empty")
	}
	return validText(field, s, MaxID)
}

// plain reports whether s is nothing but printable ASCII.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// validText wants printable text: control characters have no place in an
// incident's log, and two of them separate packed records.
func validText(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return tooLong(field, len(s), limit)
	case plain(s): // every field of every write comes by here
		return nil
	case !utf8.ValidString(s):
		return invalid(field, "must be valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return invalid(field, "must not contain control characters")
	}
	return nil
}
