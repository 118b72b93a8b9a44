package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of what a row can hold, in bytes unless the comment counts something else.
const (
	MaxName    = 255  // the name of a group, a shard, a worker or an operator; a task
	MaxID      = 64   // a write id or an incarnation
	MaxNote    = 256  // the note of a transfer; the transitions shorten a longer one
	MaxParents = 8    // how many parents one shard may have
	MaxWants   = 1000 // how many shards one seat may request at a time
)

// A Kind is one of the kinds of record.
type Kind uint8

const (
	KindLease   Kind = iota + 1 // the kind of a [Row]; there is one for each shard
	KindSeat                    // the kind of a [Seat]; there is one for each running worker
	KindTarget                  // the kind of a [Target]; there are pages for each running worker
	KindPlan                    // the kind of a [Plan]; there is at most one in a group
	KindWishes                  // the kind of [Wishes]; there is at most one record in a group
	KindEnds                    // the kind of [Ends]; there is at most one for each hour
	KindJournal                 // the kind of an [Act]; there is one for each act of an operator
)

func (k Kind) String() string {
	switch k {
	case KindLease:
		return "lease"
	case KindSeat:
		return "seat"
	case KindTarget:
		return "target"
	case KindPlan:
		return "plan"
	case KindWishes:
		return "wishes"
	case KindEnds:
		return "ends"
	case KindJournal:
		return "journal"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Listed returns the kind of the listing that contains records of kind k: the plan and the wishes
// of a group are stored beside the seats and listed before them, so that one query reads all.
// Other records are listed by their own kind.
func (k Kind) Listed() Kind {
	if k == KindPlan || k == KindWishes {
		return KindSeat
	}
	return k
}

// reserved returns the kind of the record that has a reserved name, or 0 if the name is of a newer
// version.
func reserved(name string) Kind {
	switch name {
	case planName:
		return KindPlan
	case wishesName:
		return KindWishes
	}
	return 0
}

// A Key is the address of one row. Groups do not see each other: two consumers of one
// stream use two groups.
type Key struct {
	Group string
	Kind  Kind
	// Name is the shard of a lease row, the incarnation of a seat, or the incarnation and the page
	// of a target, or the hour of ends, or the time and the write id of an act. A plan and wishes have reserved names; their methods
	// Key know them.
	Name string
}

// String describes the key. It quotes and shortens names that could not be stored, because
// malformed rows are reported with it.
func (k Key) String() string {
	if k.Validate() != nil {
		return fmt.Sprintf("%v %.64q/%.64q", k.Kind, k.Group, k.Name)
	}
	return fmt.Sprintf("%v %s/%s", k.Kind, k.Group, k.Name)
}

// Validate reports why no row can be stored under the key.
func (k Key) Validate() error {
	switch k.Kind {
	case KindLease:
		return errors.Join(validName("group", k.Group), validName("shard", k.Name))
	case KindSeat:
		return errors.Join(validName("group", k.Group), validIncarnation(Incarnation(k.Name)))
	case KindTarget:
		inc, _, ok := cutPage(k.Name)
		if !ok {
			return invalid("target", "must be an incarnation and a page")
		}
		return errors.Join(validName("group", k.Group), validIncarnation(inc))
	case KindPlan, KindWishes:
		if reserved(k.Name) != k.Kind {
			return invalid("name", "must be the reserved name of its kind")
		}
		return validName("group", k.Group)
	case KindEnds:
		if _, ok := hourOf(k.Name); !ok {
			return invalid("hour", "must be a whole hour of UTC, such as 2026-11-28T17")
		}
		return validName("group", k.Group)
	case KindJournal:
		return errors.Join(validName("group", k.Group), validName("name", k.Name))
	}
	return invalid("kind", "must be a known one")
}

// A WriteID is the random id of one write. Every write has a new one, and keeps it when the
// same bytes are sent again. A worker recognizes its own writes by it.
type WriteID string

// An Incarnation is the random id of one seat of one worker. Every new seat has a new one. A
// worker that was evicted, or that stopped trusting itself, returns as another incarnation
// and holds nothing of what the old one held.
//
// The first byte of an incarnation is above that of the reserved names, an exclamation mark, so
// seats are listed after the records with reserved names.
type Incarnation string

// millis returns a time as items store it. The zero time is 0, and so not stored.
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

func validIncarnation(inc Incarnation) error {
	s := string(inc)
	if s != "" && s[0] <= '!' {
		return invalid("incarnation", "must not begin with a space or an exclamation mark")
	}
	return validID("incarnation", s)
}

// plain reports whether s contains only printable ASCII characters.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// validText reports a text that is too long or contains control characters. Control
// characters would garble logs, and two of them separate packed records.
func validText(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return tooLong(field, len(s), limit)
	case plain(s): // the fast path: every field of every write is checked here
		return nil
	case !utf8.ValidString(s):
		return invalid(field, "must be valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return invalid(field, "must not contain control characters")
	}
	return nil
}
