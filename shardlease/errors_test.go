package shardlease_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
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

// The note of a failure contains the type of the error: its text may contain the user's
// data.
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
