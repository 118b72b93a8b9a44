package shardlease_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func TestEndErrorTellsWhatIsNotKnown(t *testing.T) {
	err := &shardlease.EndError{Shard: "s", Generation: 7, Cause: event.CauseUnreachable, Err: errDown, OutcomeUnknown: true}
	if text := err.Error(); !strings.Contains(text, "unreachable") || !strings.Contains(text, "down") || !strings.HasSuffix(text, "outcome of the last commit unknown") {
		t.Error(text)
	}
	if errors.Is(err, event.CauseFenced) || !errors.Is(err, errDown) {
		t.Error("the error matches another cause, or does not match what was observed")
	}
}

// TestHeldErrorNamesWhatItKnows: the holder, or why nobody can acquire the lease.
func TestHeldErrorNamesWhatItKnows(t *testing.T) {
	by := lease.Owner{Name: "a", Incarnation: "a-1", Task: "deploy 7"}
	for want, err := range map[string]*shardlease.HeldError{
		`held by "a" (a-1) for task "deploy 7" under generation 12`: {Name: "lock", Owner: by, Generation: 12},
		"with its last heartbeat at 2026-11-28T12:00:00Z; waited 4.2s": {
			Name: "lock", Owner: by, Generation: 12, LastBeat: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Waited: 4234 * time.Millisecond,
		},
		"the lock delay is not over": {Name: "lock", Owner: by, Generation: 12, Lost: true},
		"was taken from its holder":  {Name: "lock", Generation: 12, Lost: true},
		"has failed too often":       {Name: "lock", Generation: 12},
		"is quarantined":             {Name: "lock", Generation: 12, Quarantined: true},
		"cannot be read":             {Name: "lock", Unreadable: true},
		"is finished":                {Name: "lock", Generation: 12, Finished: true},
	} {
		if !strings.Contains(err.Error(), want) || errors.Is(err, lease.ErrHeld) == err.Finished {
			t.Errorf("%v: want %q", err, want)
		}
	}
	for want, err := range map[string]error{
		"one of sessions": &shardlease.GroupError{Group: "g", Sessions: true},
		"one of workers":  &shardlease.GroupError{Group: "g"},
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}

// If ErrorText fails, the table gets the type of the error: its text may contain what ErrorText would have hidden.
func TestNotesHoldNoText(t *testing.T) {
	secret := errors.New("card 4111 1111 1111 1111")
	for _, err := range []error{
		secret, fmt.Errorf("record: %w", secret), &fs.PathError{Op: "open", Path: "4111", Err: secret}, errors.Join(secret, secret),
	} {
		if note := shardlease.NoteOf(err); strings.Contains(note, "4111") || note == "" {
			t.Errorf("%T is noted as %q", err, note)
		}
	}
}
