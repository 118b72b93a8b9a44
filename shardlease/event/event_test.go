package event_test

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestTextsAreOneWord: dashboards and log queries match the texts of kinds and causes, so
// each has one of its own, without spaces.
func TestTextsAreOneWord(t *testing.T) {
	word, seen := regexp.MustCompile(`^[a-z]+(-[a-z]+)?$`), map[string]bool{}
	for _, c := range fixture.Kinds[event.Cause](t) {
		if text := c.String(); !word.MatchString(text) || seen[text] || !strings.HasPrefix(c.Error(), text+": ") {
			t.Errorf("%d: %q, %q", c, text, c.Error())
		}
		seen[c.String()] = true
	}
	clear(seen)
	for _, k := range fixture.Kinds[event.Kind](t) {
		if text := k.String(); !word.MatchString(text) || seen[text] {
			t.Errorf("%d: %q", k, text)
		}
		seen[k.String()] = true
	}
	unknown := fmt.Sprint(event.Kind(0), " ", event.Kind(99), " ", event.Cause(0), " ", event.Cause(99))
	if unknown != "event-0 event-99 cause-0 cause-99" {
		t.Errorf("unknown ones read %q", unknown)
	}
}

func TestEventReadsLikeAnIncident(t *testing.T) {
	e := event.Event{
		Kind: event.Ended, At: time.Date(2026, 7, 1, 12, 0, 0, 5e6, time.UTC), Group: "orders", Worker: "a", Shard: "s", Generation: 7, Peer: "b",
		Cause: event.CauseFenced, Transfer: lease.Transfer{Generation: 8}, Next: 8, Delay: time.Second, Continued: 82 * time.Millisecond, Took: time.Minute, Pending: 3, Running: true, Dropped: 2,
		Err: &checkpoint.StaleError{Shard: "s", Mine: 7, Observed: 8, Owner: "b"},
	}
	const want = `2026-07-01T12:00:00.005Z ended: group orders, worker a, shard s, generation 7, peer b, next 8, cause fenced, delay 1s, continued 82ms, took 1m0s, pending 3, ` +
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

// TestMessages: the message of an event says in words what has happened: of each kind in words of its own, of a tenure with its
// cause, and of a fault that has ended that it is over.
func TestMessages(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range fixture.Kinds[event.Kind](t) {
		text := event.Event{Kind: k}.Message()
		if seen[text] || !strings.Contains(text, " ") || text == k.String() {
			t.Errorf("%v: %q", k, text)
		}
		seen[text] = true
	}
	for want, e := range map[string]event.Event{
		"tenure ended: another worker holds the shard":          {Kind: event.Ended, Cause: event.CauseFenced},
		"tenure ended: the handler returned, or called Release": {Kind: event.Ended, Cause: event.CauseGivenUp},
		"tenure failed": {Kind: event.Ended, Cause: event.CauseGivenUp, Err: errors.New("down")},
		"handler should wind down: this worker shuts down": {Kind: event.Draining, Cause: event.CauseStopped},
		"leases found taken":                     {Kind: event.Contended, Count: 2},
		"over: the table accepts no commits":     {Kind: event.CommitsFail, Over: true},
		"another worker claimed the shard first": {Kind: event.Contended},
		"event-99":                               {Kind: 99},
	} {
		if got := e.Message(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestErrorHasOneLine: the text of an error has no line break, and what a joined error repeats is left out. The error itself is
// passed on unchanged.
func TestErrorHasOneLine(t *testing.T) {
	stale := &checkpoint.StaleError{Shard: "s", Mine: 7, Observed: 8, Owner: "b"}
	for want, err := range map[string]error{
		"down":                              errors.New("down"),
		"sink: " + stale.Error():            errors.Join(stale, fmt.Errorf("sink: %w", stale)),
		"again: " + stale.Error():           errors.Join(fmt.Errorf("again: %w", stale), stale, stale),
		"a: one; two; three":                fmt.Errorf("a: %w", errors.Join(errors.New("one"), errors.New("two"), errors.New("three"))),
		"two errors:; * the first; * other": errors.New("two errors:\n\t* the first\r\n\n\t* other\n"),
	} {
		text := event.Event{Kind: event.Ended, Err: err}.String()
		if text != "ended: err "+want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

func TestLevels(t *testing.T) {
	down := errors.New("down")
	for _, tc := range []struct {
		level slog.Level
		event event.Event
	}{
		{slog.LevelDebug, event.Event{Kind: event.Draining, Cause: event.CauseHandedOff}},
		{slog.LevelDebug, event.Event{Kind: event.Requested}},
		{slog.LevelInfo, event.Event{Kind: event.Started, Reason: lease.ReasonHandoff}},
		{slog.LevelInfo, event.Event{Kind: event.Ended, Cause: event.CauseHandedOff}},
		{slog.LevelInfo, event.Event{Kind: event.Ended, Cause: event.CauseStopped}},
		{slog.LevelInfo, event.Event{Kind: event.Ended, Cause: event.CauseFinished}},
		{slog.LevelInfo, event.Event{Kind: event.Ended, Cause: event.CauseGivenUp}},
		{slog.LevelWarn, event.Event{Kind: event.Ended, Cause: event.CauseHandedOff, Err: down}},
		{slog.LevelWarn, event.Event{Kind: event.Ended, Cause: event.CauseHandedOff, Running: true}},
		{slog.LevelWarn, event.Event{Kind: event.Ended, Cause: event.CauseExpired}},
		{slog.LevelError, event.Event{Kind: event.Ended, Cause: event.CauseConflict}},
		{slog.LevelInfo, event.Event{Kind: event.Refused, Reason: lease.ReasonHandoff}},
		{slog.LevelWarn, event.Event{Kind: event.Refused, Reason: lease.ReasonExpired, Err: down}},
		{slog.LevelWarn, event.Event{Kind: event.StoreFault, Err: down}},
		{slog.LevelInfo, event.Event{Kind: event.StoreFault, Over: true}},
		{slog.LevelError, event.Event{Kind: event.Lost}},
		{slog.LevelError, event.Event{Kind: event.CommitsFail}},
		{slog.LevelInfo, event.Event{Kind: event.CommitsFail, Over: true}},
		{slog.LevelWarn, event.Event{Kind: event.Unwell}},
		{slog.LevelWarn, event.Event{Kind: event.Silent}},
		{slog.LevelWarn, event.Event{Kind: event.Full}},
		{slog.LevelWarn, event.Event{Kind: event.Unlisted}},
		{slog.LevelWarn, event.Event{Kind: event.PlanStale}},
	} {
		if got := tc.event.Level(); got != tc.level {
			t.Errorf("%v is logged as %v, not as %v", tc.event, got, tc.level)
		}
	}
}
