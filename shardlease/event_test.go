package shardlease_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease"
)

// The causes and kinds are the engine's, number for number: they are converted and
// not looked up.
func TestNamesMatchTheEngine(t *testing.T) {
	for end, cause := range map[engine.End]shardlease.Cause{
		engine.HandedOff: shardlease.HandedOff, engine.Fenced: shardlease.Fenced, engine.Expired: shardlease.Expired,
		engine.Unreachable: shardlease.Unreachable, engine.Stalled: shardlease.Stalled, engine.Forced: shardlease.Forced,
		engine.Stopped: shardlease.Stopped, engine.Finished: shardlease.Finished, engine.GivenUp: shardlease.GivenUp,
		engine.Vanished: shardlease.Vanished, engine.Conflict: shardlease.Conflict,
	} {
		if uint8(end) != uint8(cause) {
			t.Errorf("%v is %d here and %d there", cause, cause, end)
		}
	}
	for theirs, ours := range map[engine.Kind]shardlease.EventKind{
		engine.Joined: shardlease.Joined, engine.Lost: shardlease.Lost, engine.PeerJoined: shardlease.PeerJoined,
		engine.PeerLeft: shardlease.PeerLeft, engine.PeerLeaving: shardlease.PeerLeaving, engine.PeerSuspect: shardlease.PeerSuspect,
		engine.PeerEvicted: shardlease.PeerEvicted, engine.Started: shardlease.Started, engine.Ended: shardlease.Ended,
		engine.Asked: shardlease.Asked, engine.Draining: shardlease.Draining, engine.Refused: shardlease.Refused,
		engine.Contended: shardlease.Contended, engine.Quarantined: shardlease.Quarantined, engine.Created: shardlease.Created,
		engine.Removed: shardlease.Removed, engine.Retired: shardlease.Retired, engine.StoreFault: shardlease.StoreFault,
		engine.SourceFault: shardlease.SourceFault, engine.Malformed: shardlease.Malformed, engine.Restored: shardlease.Restored, engine.CommitsFail: shardlease.EventCommitsFail,
	} {
		if uint8(theirs) != uint8(ours) {
			t.Errorf("%v is %d here and %d there", ours, ours, theirs)
		}
	}
}

func TestEveryCauseAndKindHasAName(t *testing.T) {
	seen := map[string]bool{}
	for c := shardlease.HandedOff; c <= shardlease.Conflict; c++ {
		if word := c.String(); word == "" || seen[word] || !strings.HasPrefix(c.Error(), word+": ") {
			t.Errorf("%d: %q, %q", c, word, c.Error())
		}
		seen[c.String()] = true
	}
	for k := shardlease.Joined; k <= shardlease.EventCommitsFail; k++ {
		if word := k.String(); word == "" || strings.HasPrefix(word, "event") {
			t.Errorf("%d: %q", k, word)
		}
	}
	unknown := fmt.Sprint(shardlease.EventKind(0), shardlease.EventKind(99), shardlease.Cause(0), shardlease.Cause(99))
	if unknown != "event 0 event 99 cause 0 cause 99" {
		t.Errorf("unknown ones read %q", unknown)
	}
}

func TestEventReadsLikeAnIncident(t *testing.T) {
	e := shardlease.Event{
		Kind: shardlease.Ended, At: time.Date(2026, 7, 1, 12, 0, 0, 5e6, time.UTC), Worker: "a", Shard: "s", Generation: 7, Peer: "b",
		Cause: shardlease.Fenced, Took: time.Minute, Pending: 3, Running: true, Dropped: 2,
		Err: &checkpoint.StaleError{Shard: "s", Mine: 7, Observed: 8, Owner: "b"},
	}
	const want = `2026-07-01T12:00:00.005Z ended: worker a, shard s, generation 7, peer b, cause fenced, took 1m0s, pending 3, ` +
		`running true, err shard "s": stale generation: written under generation 7, now at 8 and "b" holds it, dropped 2`
	if got := e.String(); got != want {
		t.Errorf("reads\n%s\nnot\n%s", got, want)
	}
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "e", e)
	if !strings.Contains(b.String(), "e.event=ended") || !strings.Contains(b.String(), "e.took=1m0s") {
		t.Errorf("logged as %s", b.String())
	}
}

func TestEndErrorTellsWhatIsNotKnown(t *testing.T) {
	err := &shardlease.EndError{Shard: "s", Generation: 7, Cause: shardlease.Unreachable, Err: errDown, OutcomeUnknown: true}
	if text := err.Error(); !strings.Contains(text, "unreachable") || !strings.Contains(text, "down") || !strings.HasSuffix(text, "outcome of the last commit unknown") {
		t.Error(text)
	}
	if errors.Is(err, shardlease.Fenced) || !errors.Is(err, errDown) {
		t.Error("is what it is not")
	}
}

// What the table remembers of an error is its type: the text may be anybody's.
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
