package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// The errors that callers compare with errors.Is. The methods of the typed errors below accept a
// nil pointer, as those of package checkpoint do.
var (
	// ErrRefused: the condition of a write did not hold, and the write stored nothing.
	ErrRefused = errors.New("refused")
	// ErrNotFound: no row has this key.
	ErrNotFound = errors.New("no such row")
	// ErrMalformed: a stored row cannot be read.
	ErrMalformed = errors.New("malformed row")
	// ErrQueued: a call ended while it waited in the store behind other calls, because it had
	// too little time left. It has sent nothing.
	ErrQueued = errors.New("not sent: too little time was left after waiting for other calls")
	// ErrBadWrite: no store may send this write; see [Write.Check].
	ErrBadWrite = errors.New("a write that no transition makes")
)

// A Rule is the reason why a row does not allow a transition. Rules are compared with
// errors.Is. Only the rules that callers branch on are exported; the others follow from the
// row itself.
type Rule string

func (r Rule) Error() string { return string(r) }

const (
	// ErrOutdated: the command was given for an earlier generation. Read the row again, and
	// decide again.
	ErrOutdated Rule = "the row has changed hands since it was seen"
	// ErrHeld: a worker holds the shard. Quarantine the shard before you remove it.
	ErrHeld Rule = "a worker holds the shard"
	// ErrWentBack: the table was restored or replaced. Nothing may be claimed before the rows
	// are adopted.
	ErrWentBack Rule = "the table went back in time"
	// ErrSessions: a wish for the plan was made in a group of sessions, which has no plan. Nothing was
	// written.
	ErrSessions Rule = "the group is one of sessions, which have no plan"
)

// A RuleError reports a transition that a row does not allow, or a wish that a group does not allow, and
// the rule that forbids it.
type RuleError struct {
	// Transition is the verb for the transition, such as "claim" or "rewind". For a worker's write
	// that was answered, it is the name of the operation, such as "swap".
	Transition string
	Key        Key
	Rule       Rule
}

func (e *RuleError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%s %v: %v", e.Transition, e.Key, e.Rule)
}

// Unwrap returns the rule.
func (e *RuleError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Rule
}

// A RefusedError is the store's answer to a write whose condition did not hold.
type RefusedError struct {
	Op  Op
	Key Key
	// Now is the row as it was when the store refused the write, or nil if there was none. The
	// writer decides from it what to do.
	Now Record
	// Retried: the store sent the same bytes more than once by itself, and an earlier attempt
	// was not answered. That attempt may have been stored and overwritten since. A store that
	// repeats writes has to set it.
	Retried bool
}

func (e *RefusedError) Error() string {
	if e == nil {
		return "<nil>"
	}
	what := fmt.Sprintf("%v of %v", e.Op, e.Key)
	if e.Key.Kind == KindSeat && e.Op == OpSwap {
		what = fmt.Sprintf("heartbeat of %v", e.Key)
	}
	if e.Now == nil {
		return fmt.Sprintf("%s %v: no such row", what, ErrRefused)
	}
	return fmt.Sprintf("%s %v: the row is now %v", what, ErrRefused, e.Now)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return e != nil && target == ErrRefused }

// A QueuedError reports that a call waited in the store behind other calls until it had too
// little time left. The call has sent nothing, so no outcome is unknown. A worker repeats the
// call, and reports a fault only if no other call about a row is answered either.
type QueuedError struct {
	Waited time.Duration
	Cause  error // why the context ended; nil if the store gave up earlier
}

func (e *QueuedError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%v (%v)", ErrQueued, e.Waited.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrQueued) true.
func (e *QueuedError) Is(target error) bool { return e != nil && target == ErrQueued }

// Unwrap returns the cause.
func (e *QueuedError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Cause
}

// A MalformedError reports a stored row that cannot be read. A listing yields it in place of the
// row and continues.
type MalformedError struct {
	Key     Key
	WriteID WriteID // of the write that made the row what it is; empty if that cannot be read either
	Cause   error   // usually an InvalidError that names the attribute
	Owner   string  // of a lease row: the name of its owner; empty if nobody holds it or the name cannot be read
}

func (e *MalformedError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%v %v: %v", ErrMalformed, e.Key, e.Cause)
}

// Is makes errors.Is(err, ErrMalformed) true.
func (e *MalformedError) Is(target error) bool { return e != nil && target == ErrMalformed }

// Unwrap returns the cause.
func (e *MalformedError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Cause
}

func invalid(field, rule string) error {
	return &checkpoint.InvalidError{Field: field, Rule: rule}
}

// tooMany returns the error for a list with got elements that may have at most limit.
func tooMany(field string, got, limit int) error {
	return &checkpoint.InvalidError{Field: field, Rule: fmt.Sprintf("must be at most %d, are %d", limit, got), Limit: int64(limit)}
}

// tooLong returns the error for a field that has got bytes and may have at most limit.
func tooLong(field string, got, limit int) error {
	return &checkpoint.InvalidError{Field: field, Rule: fmt.Sprintf("must have at most %d bytes, has %d", limit, got), Limit: int64(limit)}
}
