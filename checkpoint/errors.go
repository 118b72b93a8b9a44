package checkpoint

import (
	"errors"
	"fmt"
)

// Callers branch on these with errors.Is; the typed errors beside them carry
// what was observed.
var (
	// ErrStale: the shard has changed hands since the generation this came from.
	ErrStale = errors.New("stale generation")
	// ErrBackwards: the position lies before the one already accepted.
	ErrBackwards = errors.New("position moves backwards")
	// ErrInvalid: a value that cannot be stored, or an order that cannot read it.
	ErrInvalid = errors.New("invalid value")
)

// A StaleError refuses the write of a holder whose generation is over.
type StaleError struct {
	Shard    string
	Mine     int64  // the generation the write was made under
	Observed int64  // the generation of the row as it stands
	Owner    string // who holds it now; empty for nobody, and where a sink does not know
	// OutcomeUnknown: an attempt of this write went unanswered before the
	// shard changed hands. It may have been stored under Mine, and the
	// successor may have started from it; it is certain only that it did not
	// overwrite anything of the successor's.
	OutcomeUnknown bool
}

func (e *StaleError) Error() string {
	text := fmt.Sprintf("shard %q: %v: written under generation %d, now at %d", e.Shard, ErrStale, e.Mine, e.Observed)
	if e.Owner != "" {
		text += fmt.Sprintf(" and %q holds it", e.Owner)
	}
	if e.OutcomeUnknown {
		text += "; outcome of the write unknown"
	}
	return text
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// A BackwardsError refuses a mark that lies before the accepted one.
type BackwardsError struct{ Shard string }

func (e *BackwardsError) Error() string {
	return fmt.Sprintf("shard %q: %v: it lies before what is already marked or accepted", e.Shard, ErrBackwards)
}

// Is makes errors.Is(err, ErrBackwards) true.
func (e *BackwardsError) Is(target error) bool { return target == ErrBackwards }

// An InvalidError names the field that cannot be stored and the rule it
// breaks. It never carries the value: it may be the user's data.
type InvalidError struct {
	Field string // "position", "owner name", …
	Rule  string // what would be accepted, with the limit in figures
	Limit int64  // the limit, where the rule is one
}

// tooLong is the InvalidError for a field of got bytes where limit is allowed.
func tooLong(field string, got, limit int) *InvalidError {
	return &InvalidError{
		Field: field,
		Rule:  fmt.Sprintf("must have at most %d bytes, has %d", limit, got),
		Limit: int64(limit),
	}
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%v: %s %s", ErrInvalid, e.Field, e.Rule) }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
