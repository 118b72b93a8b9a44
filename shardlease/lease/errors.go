package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// What callers branch on with errors.Is.
var (
	// ErrRefused: the condition of a write did not hold; nothing was written.
	ErrRefused = errors.New("refused")
	// ErrNotFound: no row has this key.
	ErrNotFound = errors.New("no such row")
	// ErrMalformed: a stored row that cannot be read.
	ErrMalformed = errors.New("malformed row")
	// ErrQueued: a call ended while it waited for its turn in the store, because too little
	// of its time was left. It has sent nothing.
	ErrQueued = errors.New("not sent: its time ended while it waited for its turn")
	// ErrBadWrite: a write that no store may send; see [Write.Check].
	ErrBadWrite = errors.New("a write that no transition makes")
)

// A Rule is the reason why a row does not allow what was asked of it. Rules are
// compared with errors.Is. There are more than the three named here; the others
// follow from the row itself.
type Rule string

func (r Rule) Error() string { return string(r) }

const (
	// ErrOutdated: the command was given for an earlier generation. Read the row again, and
	// decide again.
	ErrOutdated Rule = "the row has changed hands since it was seen"
	// ErrHeld: a worker holds the shard. Quarantine it before you rewind or remove it.
	ErrHeld Rule = "held"
	// ErrWentBack: the table was restored or replaced. Nothing may be claimed before the rows
	// are adopted.
	ErrWentBack Rule = "the table went back in time"
)

// A RuleError says which rule did not allow a transition, and of which row.
type RuleError struct {
	Transition string // "claim", "rewind", …; of a write that was answered, its operation
	Key        Key
	Rule       Rule
}

func (e *RuleError) Error() string { return fmt.Sprintf("%s of %v: %v", e.Transition, e.Key, e.Rule) }

// Unwrap gives the rule.
func (e *RuleError) Unwrap() error { return e.Rule }

// A RefusedError answers a write whose condition did not hold.
type RefusedError struct {
	Op  Op
	Key Key
	// Now is the row as it stood when the write was refused; nil when there
	// was none. It tells the writer what to do.
	Now Record
	// Retried: the store sent the same bytes more than once by itself, and an
	// earlier sending went unanswered: it may have been stored and overtaken
	// since. A store that sends again has to say so.
	Retried bool
}

func (e *RefusedError) Error() string {
	if e.Now == nil {
		return fmt.Sprintf("%v of %v %v: no such row", e.Op, e.Key, ErrRefused)
	}
	return fmt.Sprintf("%v of %v %v: the row stands at %v", e.Op, e.Key, ErrRefused, e.Now)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// A QueuedError ends a call that waited in the store, behind other calls, until it had too
// little time left. The call has sent nothing, so no outcome is unknown. A worker repeats
// the call, and reports a fault only if no other call about a row is answered either.
type QueuedError struct {
	Waited time.Duration
	Cause  error // why the context ended; nil if the store gave up earlier
}

func (e *QueuedError) Error() string {
	return fmt.Sprintf("%v (%v)", ErrQueued, e.Waited.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrQueued) true.
func (e *QueuedError) Is(target error) bool { return target == ErrQueued }

// Unwrap gives the cause.
func (e *QueuedError) Unwrap() error { return e.Cause }

// A MalformedError stands in a listing for a row that cannot be read. The rows
// after it follow.
type MalformedError struct {
	Key   Key
	Cause error // an InvalidError that names the attribute, as a rule
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("%v %v: %v", ErrMalformed, e.Key, e.Cause)
}

// Is makes errors.Is(err, ErrMalformed) true.
func (e *MalformedError) Is(target error) bool { return target == ErrMalformed }

// Unwrap gives the cause.
func (e *MalformedError) Unwrap() error { return e.Cause }

func invalid(field, rule string) error {
	return &checkpoint.InvalidError{Field: field, Rule: rule}
}

// tooLong is the error for a field of got bytes where limit is allowed.
func tooLong(field string, got, limit int) error {
	return &checkpoint.InvalidError{Field: field, Rule: fmt.Sprintf("must have at most %d bytes, has %d", limit, got), Limit: int64(limit)}
}
