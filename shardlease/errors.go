package shardlease

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/shardlease/shardlease-go/shardlease/event"
)

// Callers branch on these with errors.Is; the typed errors beside them carry what
// was observed.
var (
	// ErrConfig: a worker cannot be made like this. Each fault is a [*ConfigError].
	ErrConfig = errors.New("invalid configuration")
	// ErrRunning: Run was called before. A worker runs once.
	ErrRunning = errors.New("this worker has been run before: a worker runs once, make another")
	// ErrEnded: the tenure is over. An [*EndError] says why.
	ErrEnded = errors.New("the tenure is over")
	// ErrNoShards: a source that lists nothing.
	ErrNoShards = errors.New("no shards")
)

// A ConfigError names a field and the rule it breaks.
type ConfigError struct {
	Field string // of [Config]; "store" and "source" are arguments of [New], "handler" of [Worker.Run]
	Rule  string
	Err   error // what refused it; nil where the rule says it all
}

func (e *ConfigError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrConfig, e.Field, e.Rule) }

// Is makes errors.Is(err, ErrConfig) true.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Unwrap gives what refused the field.
func (e *ConfigError) Unwrap() error { return e.Err }

// An EndError says why a tenure is over, or is to wind down. It is the cause of a
// handler's contexts, and what every call of a tenure returns after its end.
type EndError struct {
	Shard      string
	Generation int64
	Cause      event.Cause
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
