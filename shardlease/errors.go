package shardlease

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Sentinel errors, for errors.Is. The typed errors that match them contain what was
// observed. Their methods accept a nil pointer, as those of package checkpoint do.
var (
	// ErrConfig means that the configuration or an argument is not valid. Each fault is a
	// [*ConfigError].
	ErrConfig = errors.New("invalid configuration")
	// ErrRunning means that Run was called before. A worker or a session runs once.
	ErrRunning = errors.New("Run was called before: a worker or a session runs only once")
	// ErrSessionOver means that the session has ended, or that the context of its Run has ended.
	ErrSessionOver = errors.New("the session is over")
	// ErrHolding means that the session already holds the lease, under a tenure that is not released, or that
	// a function of [Session.Do] still runs for it.
	ErrHolding = errors.New("this session holds the lease already")
	// ErrWaiting means that another call of the same session already waits for the lease.
	ErrWaiting = errors.New("this session waits for the lease already")
	// ErrEnded means that the tenure is over. An [*EndError] contains the cause. The cause of the
	// soft context matches ErrEnded too, although the tenure may last a little longer.
	ErrEnded = errors.New("the tenure is over")
	// ErrNoShards means that the source lists no shards, and [Config.EmptySource] is not set.
	ErrNoShards = errors.New("no shards are listed")
)

// A ConfigError contains a field and the rule that its value breaks.
type ConfigError struct {
	// Field is the name of a field of [Config], [SessionConfig] or [AcquireOptions], or of an argument:
	// "store" or "source" of [New] and [NewSession], "ctx" or "handler" of Run, "ctx" or "name" of
	// [Session.Acquire], and "f" of [Session.Do].
	Field string
	Rule  string
	Err   error // the error of the check that refused the value; nil if Rule is complete
}

func (e *ConfigError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%v: %s: %s", ErrConfig, e.Field, e.Rule)
}

// Is makes errors.Is(err, ErrConfig) true.
func (e *ConfigError) Is(target error) bool { return e != nil && target == ErrConfig }

// Unwrap returns the error of the check that refused the value.
func (e *ConfigError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// An EndError contains the reason why a tenure is over or should wind down. It is the cause
// of the handler's contexts, and the error of every call of a tenure after its end.
type EndError struct {
	Shard      string
	Generation int64
	Cause      event.Cause
	// Err is what the worker observed, usually a [*checkpoint.StaleError]; nil if the cause
	// is all that is known.
	Err error
	// OutcomeUnknown reports that no answer to the last commit arrived, so it is unknown
	// whether the table accepted it. The commit has not overwritten anything that a
	// successor wrote.
	OutcomeUnknown bool

	soft    bool // only the soft context has ended
	session bool // the tenure is that of a session
}

func (e *EndError) Error() string {
	if e == nil {
		return "<nil>"
	}
	noun, what, why := "shard", ErrEnded.Error(), e.Cause.Error()
	if e.soft {
		what = "the handler should wind down"
	}
	if e.session {
		words := strings.NewReplacer("worker", "session", "shard", "lease", "handler", "holder")
		noun, what, why = "lease", words.Replace(what), words.Replace(why)
	}
	text := fmt.Sprintf("%s %q, generation %d: %s: %s", noun, e.Shard, e.Generation, what, why)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.OutcomeUnknown {
		text += "; outcome of the last commit unknown"
	}
	return text
}

// Is makes errors.Is true for ErrEnded and for the cause.
func (e *EndError) Is(target error) bool {
	return e != nil && (target == ErrEnded || target == e.Cause)
}

// Unwrap returns what the worker observed.
func (e *EndError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// A GroupError means that a worker runs in a group of sessions, or a session in a group of workers.
// Each kind needs groups of its own. The first worker or session of a group decides its kind forever.
type GroupError struct {
	Group    string
	Sessions bool // the group is one of sessions
	// Unclear: the record of the group could not be read, and was deleted while this session ran. If it is
	// a group of workers, its workers write the next plan; otherwise run the session again.
	Unclear bool
}

func (e *GroupError) Error() string {
	if e == nil {
		return "<nil>"
	}
	if e.Unclear {
		return fmt.Sprintf("group %q: its record could not be read and was deleted, so a session does not know whether the group is one of workers", e.Group)
	}
	if e.Sessions {
		return fmt.Sprintf("group %q is one of sessions: a worker needs another group", e.Group)
	}
	return fmt.Sprintf("group %q is one of workers: a session needs another group", e.Group)
}

// A HeldError is the reason why [Session.TryAcquire] has not acquired a lease. [Session.Acquire]
// returns it too if the lease is finished. It matches lease.ErrHeld, unless the lease is finished.
type HeldError struct {
	Name       string
	Owner      lease.Owner // the holder: its name, incarnation and task; zero: nobody holds the lease
	Generation int64
	// Since is when the generation began, by the clock of the machine that began it: the holder's, or the
	// operator's if the lease is reserved. It is for people.
	Since       time.Time
	Lost        bool // the holder is gone or has lost the lease by a command, and its lock delay is not over yet
	Quarantined bool // an operator, or a session after too many failures, has quarantined the lease
	// By is the name of the operator or session that has quarantined the lease, and Why the reason that it has stored.
	By, Why string
	// ReservedFor is the name of the sessions for which an operator has reserved the lease
	// ([Supervisor.Reassign]); empty: the lease is not reserved.
	ReservedFor string
	// LastBeat is when the holder sent its last heartbeat, by the holder's clock: the holder has been silent since
	// then. Zero: the call has read no heartbeat of the holder, for example because the holder is gone.
	LastBeat time.Time
	// LeftUntil is until when this session leaves the free lease to other sessions, because its own last tenure of the
	// lease has failed or stalled. Zero: it does not.
	LeftUntil  time.Time
	Waited     time.Duration // how long the call has waited
	Finished   bool          // the lease is finished: nobody can acquire it again
	Unreadable bool          // the row of the lease cannot be read, and the other fields are empty
}

func (e *HeldError) Error() string {
	if e == nil {
		return "<nil>"
	}
	text := fmt.Sprintf("lease %q", e.Name)
	switch {
	case e.Unreadable:
		return text + ": its row cannot be read"
	case e.Finished:
		return text + " is finished"
	case e.Quarantined:
		if text += " is quarantined"; e.By != "" {
			text += fmt.Sprintf(" by %q", e.By)
		}
		if e.Why != "" {
			text += fmt.Sprintf(" (%s)", e.Why)
		}
		return text + ": no session acquires it until an operator unquarantines it"
	case e.ReservedFor != "":
		return text + fmt.Sprintf(" is reserved for %q since %s", e.ReservedFor, e.Since.Format(time.RFC3339))
	}
	if e.Lost && e.Owner.IsZero() {
		return text + fmt.Sprintf(" was taken from its holder at %s; the lock delay is not over", e.Since.Format(time.RFC3339))
	}
	if !e.LeftUntil.IsZero() {
		return text + fmt.Sprintf(" is left to other sessions until %s, because its last tenure in this session has failed", e.LeftUntil.Format(time.RFC3339Nano))
	}
	if e.Owner.IsZero() {
		return text + " has failed too often, and the seats of the group, which decide whether it is quarantined, cannot be listed"
	}
	text += fmt.Sprintf(" is held by %v under generation %d since %s", e.Owner, e.Generation, e.Since.Format(time.RFC3339))
	switch {
	case e.Lost:
		text += ", who is gone; the lock delay is not over"
	case !e.LastBeat.IsZero() && e.Waited >= time.Second:
		text += fmt.Sprintf(", with its last heartbeat at %s; waited %v", e.LastBeat.Format(time.RFC3339), e.Waited.Truncate(time.Second/10))
	}
	return text
}

// Is makes errors.Is(err, lease.ErrHeld) true, unless the lease is finished.
func (e *HeldError) Is(target error) bool {
	return e != nil && (target == lease.ErrHeld && !e.Finished)
}

// A HookError reports that the user's code misbehaved: a hook, the source, the store or the
// handler panicked, called runtime.Goexit, or returned an answer that cannot be used; or the planner
// has not returned in time.
type HookError struct {
	// Hook is the name of the field of [Config], or "handler", "source", "store.List",
	// "store.Get", "store.Write" or "store.Verify".
	Hook string
	Err  error
}

func (e *HookError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%s: %v", e.Hook, e.Err)
}

// Unwrap returns the panic or the fault in the answer. The chain does not contain the value
// that a store or a source panicked with: even if that value is an error, it is not their
// answer.
func (e *HookError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// A panicError is the panic of a handler or a hook, or its end by runtime.Goexit.
type panicError struct {
	value  any    // nil: runtime.Goexit
	text   string // of value, read once: its methods are the user's
	stack  []byte
	sealed bool // true: Unwrap does not return value
}

func (e *panicError) Error() string {
	if e.value == nil {
		return "called runtime.Goexit"
	}
	return "panic: " + e.text
}

// Unwrap returns the value of the panic, if that is an error.
func (e *panicError) Unwrap() error {
	err, ok := e.value.(error)
	if e.sealed || !ok {
		return nil
	}
	return &givenError{err: err, text: e.text}
}

// A givenError is an error that user code has given to the worker, with its text read once,
// at that time. Its other methods call those of the error apart: the run loop calls them, and
// they may panic or call runtime.Goexit. It has no Unwrap, which would lead around this.
type givenError struct {
	err  error
	text string
}

func (e *givenError) Error() string { return e.text }

// Is makes errors.Is work as for the given error.
func (e *givenError) Is(target error) (is bool) {
	_ = apart(func() { is = errors.Is(e.err, target) })
	return is
}

// As makes errors.As work as for the given error, except that it never finds a nil pointer,
// which the caller would use.
func (e *givenError) As(target any) (as bool) {
	fault := apart(func() { as = errors.As(e.err, target) })
	return fault == nil && as && !isNil(reflect.ValueOf(target).Elem().Interface())
}

// given returns the error as the user code gave it.
func given(err error) error {
	if of, ok := err.(*givenError); ok {
		return of.err
	}
	return err
}

// noteOf returns the type of the innermost cause of an error, which contains nothing of the user's data.
func noteOf(err error) string {
	for {
		switch of := err.(type) {
		case *panicError:
			return printable(fmt.Sprintf("panic: %T", of.value), 64)
		case *givenError:
			note := printable(fmt.Sprintf("%T", of.err), 64) // if its Unwrap fails
			_ = apart(func() { note = noteOf(of.err) })
			return note
		}
		next := errors.Unwrap(err)
		if next == nil {
			return printable(fmt.Sprintf("%T", err), 64)
		}
		err = next
	}
}

// errorText returns the text of a handler's error that the table stores: what Config.ErrorText makes of it, or its first 160
// bytes. Characters that are not printable are escaped, so that a text has one line. If ErrorText fails, the table gets the
// type of the error, and fault why.
func errorText(text func(error) string, err error) (stored string, fault error) {
	const usual = 160
	if text == nil {
		return escaped(err.Error(), usual), nil
	}
	if fault = apart(func() { stored = escaped(text(given(err)), lease.MaxNote) }); fault != nil {
		return noteOf(err), &HookError{Hook: "ErrorText", Err: fault}
	}
	return stored, nil
}

// escaped returns the first limit bytes of s with every character escaped that is not printable.
func escaped(s string, limit int) string {
	var b strings.Builder
	for _, r := range s {
		part := string(r)
		if !unicode.IsPrint(r) {
			part = strings.Trim(strconv.QuoteRune(r), "'")
		}
		if b.Len()+len(part) > limit {
			break
		}
		b.WriteString(part)
	}
	return b.String()
}

// printable returns what can be stored as text of the first limit bytes of s. It cuts first,
// because s may be very long.
func printable(s string, limit int) string {
	if cut := limit; len(s) > limit {
		for cut > limit-utf8.UTFMax && cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
