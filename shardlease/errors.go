package shardlease

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Callers branch on these with errors.Is; the typed errors beside them carry what
// was observed.
var (
	// ErrConfig: a worker cannot be made like this. Each fault is a [*ConfigError].
	ErrConfig = errors.New("invalid configuration")
	// ErrRunning: Run was called before. A worker runs once.
	ErrRunning = errors.New("this worker has been run before: a worker runs once, make another")
	// ErrNoHandler: Run was called without one.
	ErrNoHandler = errors.New("a worker needs a handler to run")
	// ErrEnded: the tenure is over. An [*EndError] says why.
	ErrEnded = errors.New("the tenure is over")
	// ErrNoShards: a source that lists nothing.
	ErrNoShards = errors.New("no shards")
)

// A ConfigError names a field and the rule it breaks.
type ConfigError struct {
	Field string // of [Config]; "store" and "source" are those of [New]
	Rule  string
	Err   error // what refused it; nil where the rule says it all
}

func (e *ConfigError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrConfig, e.Field, e.Rule) }

// Is makes errors.Is(err, ErrConfig) true.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Unwrap gives what refused the field.
func (e *ConfigError) Unwrap() error { return e.Err }

// A Cause says why a tenure ends, or is to wind down. It is an error, so that
// errors.Is(context.Cause(ctx), shardlease.HandedOff) answers the question.
type Cause uint8

// The causes. Of these only Stalled, Expired and Unreachable say that something
// was wrong with this worker.
const (
	HandedOff   Cause = iota + 1 // a planned move
	Fenced                       // another holds the shard
	Expired                      // the worker could not trust its own lease any more: it was paused
	Unreachable                  // the same, and the store did not answer in all that time
	Stalled                      // no progress in StallAfter, or no accepted commit in CommitTimeout
	Forced                       // by command of an operator or a supervisor
	Stopped                      // the worker stops
	Finished                     // the shard itself has ended
	GivenUp                      // the handler called Release, or returned
	Vanished                     // the row is gone, or the table went back in time
	Conflict                     // another incarnation under the same generation
)

// String is the cause in a word, for logs and metrics.
func (c Cause) String() string {
	word, _, _ := strings.Cut(c.Error(), ":")
	return word
}

// Error is the word and a sentence.
func (c Cause) Error() string {
	sentences := [...]string{
		HandedOff:   "handed off: another worker has the shard now, or waits for it, as planned",
		Fenced:      "fenced: another worker holds the shard",
		Expired:     "expired: this worker was silent for so long that others may have taken the shard",
		Unreachable: "unreachable: the store has not answered for nearly a lease time, so others may soon take the shard",
		Stalled:     "stalled: the handler made no progress, or the table accepted none of its commits",
		Forced:      "forced: an operator took the shard away",
		Stopped:     "stopped: this worker stops",
		Finished:    "finished: the shard has ended and is processed to its end",
		GivenUp:     "given up: the handler returned, or asked for it",
		Vanished:    "vanished: the lease row is gone, or older than it was",
		Conflict:    "conflict: the table names another owner under the same generation",
	}
	if c == 0 || int(c) >= len(sentences) {
		return fmt.Sprintf("cause %d", uint8(c))
	}
	return sentences[c]
}

// An EndError says why a tenure is over, or is to wind down. It is the cause of a
// handler's contexts, and what every call of a tenure returns after its end.
type EndError struct {
	Shard      string
	Generation int64
	Cause      Cause
	// Err is what was observed, where something was: a [*checkpoint.StaleError],
	// as a rule.
	Err error
	// OutcomeUnknown: a commit was under way, and whether it was accepted is not
	// known. It has not overwritten anything of a successor's.
	OutcomeUnknown bool
}

func (e *EndError) Error() string {
	text := fmt.Sprintf("shard %q, generation %d: %v: %v", e.Shard, e.Generation, ErrEnded, e.Cause)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.OutcomeUnknown {
		text += "; outcome of the last commit unknown"
	}
	return text
}

// Is makes errors.Is true for ErrEnded and for the cause.
func (e *EndError) Is(target error) bool { return target == ErrEnded || target == e.Cause }

// Unwrap gives what was observed.
func (e *EndError) Unwrap() error { return e.Err }

// A HookError reports that the user's code misbehaved: a hook, the source, the store or the
// handler panicked, called runtime.Goexit, or returned an answer that cannot be used.
type HookError struct {
	// Hook is the name of the field of [Config], or "handler", "source", "store.List",
	// "store.Get", "store.Write" or "store.Verify".
	Hook string
	Err  error
}

func (e *HookError) Error() string { return fmt.Sprintf("%s: %v", e.Hook, e.Err) }

// Unwrap gives the panic or the fault in the answer. It does not lead to the value that a
// store or a source panicked with: even if that value is an error, it is not their answer.
func (e *HookError) Unwrap() error { return e.Err }

// A panicError is a handler or a hook that panicked, or left its goroutine.
type panicError struct {
	value  any // nil: runtime.Goexit
	stack  []byte
	sealed bool // Unwrap does not lead to value
}

func (e *panicError) Error() string {
	if e.value == nil {
		return "left its goroutine by runtime.Goexit"
	}
	return fmt.Sprintf("panic: %v", e.value)
}

// Unwrap gives what was panicked with, if that was an error.
func (e *panicError) Unwrap() error {
	if e.sealed {
		return nil
	}
	err, _ := e.value.(error)
	return err
}

// noteOf is what of an error may be stored in the table: the type of its innermost
// cause. Its text may hold the user's data, and the table is no place for that.
func noteOf(err error) string {
	if p, ok := errors.AsType[*panicError](err); ok {
		return printable(fmt.Sprintf("panic: %T", p.value), 64)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return printable(fmt.Sprintf("%T", err), 64)
}

// printable is what of s can be stored as text, in at most limit bytes.
func printable(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
