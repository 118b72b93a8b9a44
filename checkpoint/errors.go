package checkpoint

import (
	"errors"
	"fmt"
)

// The errors that callers compare with errors.Is. The typed errors below contain what was observed.
// Their methods accept a nil pointer, which code may return as an error by mistake: a worker that
// gets it must not panic.
var (
	// ErrStale: the shard has changed hands since the generation of the write.
	ErrStale = errors.New("stale generation")
	// ErrBackwards: the position is before the one that was already marked or accepted.
	ErrBackwards = errors.New("position moves backwards")
	// ErrInvalid: a value cannot be stored, or its order cannot read it.
	ErrInvalid = errors.New("invalid value")
)

// A StaleError is the refusal of a write whose generation is over.
type StaleError struct {
	Shard    string
	Mine     int64  // the generation of the write
	Observed int64  // the present generation of the row
	Owner    string // the name of the present owner; empty for nobody, and where a sink does not know it
	// OutcomeUnknown means that an earlier attempt of this write was not answered before the
	// shard changed hands. The write may have been stored under Mine, and the successor may have
	// started from it. It has certainly not overwritten anything that the successor stored.
	OutcomeUnknown bool
}

func (e *StaleError) Error() string {
	if e == nil {
		return "<nil>"
	}
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
func (e *StaleError) Is(target error) bool { return e != nil && target == ErrStale }

// A BackwardsError is the refusal of a mark that is before the previous mark or checkpoint.
type BackwardsError struct{ Shard string }

func (e *BackwardsError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("shard %q: %v: it is before the one already marked or accepted", e.Shard, ErrBackwards)
}

// Is makes errors.Is(err, ErrBackwards) true.
func (e *BackwardsError) Is(target error) bool { return e != nil && target == ErrBackwards }

// An InvalidError is a value that cannot be stored. It names the field and the rule, and never
// contains the value, which may be the user's data.
type InvalidError struct {
	Field string // the name of the field, such as "position" or "owner name"
	Rule  string // what would be accepted, with the limit in figures
	Limit int64  // the limit, if the rule is one
}

// tooLong returns the error for a field that has got bytes and may have at most limit.
func tooLong(field string, got, limit int) *InvalidError {
	return &InvalidError{
		Field: field,
		Rule:  fmt.Sprintf("must have at most %d bytes, has %d", limit, got),
		Limit: int64(limit),
	}
}

func (e *InvalidError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%v: %s %s", ErrInvalid, e.Field, e.Rule)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return e != nil && target == ErrInvalid }
