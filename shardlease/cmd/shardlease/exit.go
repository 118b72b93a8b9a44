package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The exit codes of all commands except check.
const (
	exitError    = 1
	exitUsage    = 2 // nothing was read or written
	exitNotFound = 3
	exitRefused  = 4 // the row, the table or the group does not allow the command
	exitUnknown  = 5 // a write was sent and not answered: it may have been stored
)

// An unanswered error reports a write that was sent and not answered.
type unanswered struct{ error }

// Unwrap returns the cause.
func (e unanswered) Unwrap() error { return e.error }

// A missingError reports something that a command names and that does not exist.
type missingError struct{ text string }

func (e missingError) Error() string { return e.text }

// Is makes errors.Is(err, lease.ErrNotFound) true.
func (missingError) Is(target error) bool { return target == lease.ErrNotFound }

func missing(format string, args ...any) error { return missingError{fmt.Sprintf(format, args...)} }

// exitCode returns the exit code for an error.
func (p *program) exitCode(err error) int {
	if p.isUsage(err) {
		return exitUsage
	}
	if _, open := errors.AsType[unanswered](err); open {
		return exitUnknown
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	_, rule := errors.AsType[*lease.RuleError](err)
	_, pending := errors.AsType[*kcl.PendingError](err)
	_, config := errors.AsType[*shardlease.ConfigError](err)
	switch {
	case rule, pending, is(lease.ErrRefused, lease.ErrWentBack, kcl.ErrRunning, kcl.ErrExists, kcl.ErrMoving, kcl.ErrUnstarted, kcl.ErrPacked):
		return exitRefused
	case is(lease.ErrNotFound, dynamostore.ErrNoTable):
		return exitNotFound
	case is(lease.ErrMalformed):
		return exitError
	case config, is(checkpoint.ErrInvalid):
		return exitUsage
	}
	return exitError
}

// explain returns the text for an error.
func explain(err error, code int) string {
	text := err.Error()
	malformed, _ := errors.AsType[*lease.MalformedError](err)
	switch {
	case malformed != nil && malformed.Key.Kind == lease.KindWishes:
		return text + "\nNo wish can be made or lifted alone: 'shardlease lift all' deletes the record, and all wishes with it."
	case errors.Is(err, context.Canceled) && code != exitUnknown:
		return "interrupted"
	case code == exitUnknown:
		return text + "\nThe outcome is unknown: the write may have been stored. Look at the row before you repeat the command."
	case errors.Is(err, dynamostore.ErrNoTable):
		return text + "\nCompare the table and the region with those of the workers, or create the table with 'shardlease table create'."
	case isDenied(err):
		return text + "\nThe permissions do not allow this, and this write was not stored: see docs/iam.md."
	}
	return text
}

// isDenied reports whether the service has refused a request because of permissions.
func isDenied(err error) bool {
	return errors.Is(err, dynamostore.ErrDenied) || slices.Contains([]string{
		"AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException", "ExpiredTokenException",
	}, serviceCode(err))
}

// serviceCode returns the code of an error that the service has answered, or nothing.
func serviceCode(err error) string {
	var api interface {
		error
		ErrorCode() string
	}
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// isAnswer reports whether an error of a write proves that it was not stored.
func isAnswer(err error) bool {
	return errors.Is(err, lease.ErrRefused) || errors.Is(err, lease.ErrQueued) || errors.Is(err, lease.ErrBadWrite) || isDenied(err) ||
		slices.Contains([]string{"ResourceNotFoundException", "ValidationException"}, serviceCode(err))
}

// A witness is a store that remembers which of its writes were not answered. With a change of a row
// the wish is stored that makes workers read the row at once; neither that wish nor the entry in the journal counts.
type witness struct {
	lease.Store
	wishes bool // the command is about wishes
	mu     sync.Mutex
	open   map[string]bool // the writes that may have been stored
}

// Write makes a write, and notes whether it was answered. The same write can be sent again.
func (w *witness) Write(ctx context.Context, of lease.Write) (lease.Record, error) {
	record, err := w.Store.Write(ctx, of)
	if kind := of.Key().Kind; kind == lease.KindEnds || kind == lease.KindJournal || kind == lease.KindWishes && !w.wishes {
		return record, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := strings.Join([]string{of.Key().String(), of.Op.String(), string(of.ID())}, " "); err == nil || isAnswer(err) {
		delete(w.open, id)
	} else {
		if w.open == nil {
			w.open = map[string]bool{}
		}
		w.open[id] = true
	}
	return record, err
}

// marked returns the error of a command, marked if a write of it was not answered.
func (w *witness) marked(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || len(w.open) == 0 {
		return err
	}
	return unanswered{err}
}
