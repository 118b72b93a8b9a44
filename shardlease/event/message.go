package event

import (
	"slices"
	"strings"
)

// Message returns what has happened, in words: the message of the line that Config.Logger writes. The end of a tenure has its
// cause, and the end of a fault that lasted begins with "over". Programs that match lines use the key "event" instead.
func (e Event) Message() string {
	text := e.Kind.message()
	switch {
	case e.Kind == Ended && e.Cause == CauseGivenUp && e.Err != nil:
		text = "tenure failed"
	case e.Kind == Contended && e.Count > 0:
		text = "leases found taken"
	case e.Cause != 0:
		_, sentence, _ := strings.Cut(e.Cause.Error(), ": ")
		text += ": " + sentence
	}
	if e.Over {
		return "over: " + text
	}
	return text
}

// message returns the kind in words; that of an unknown kind is its number.
func (k Kind) message() string {
	texts := [...]string{
		Joined:      "seat taken",
		Lost:        "seat lost",
		PeerJoined:  "another worker took a seat",
		PeerLeft:    "the seat of another worker is gone",
		PeerLeaving: "another worker shuts down",
		PeerSuspect: "another worker missed a heartbeat",
		PeerEvicted: "another worker evicted",
		Started:     "tenure began",
		Ended:       "tenure ended",
		Requested:   "shard requested",
		Draining:    "handler should wind down",
		Refused:     "checkpoint refused",
		Contended:   "another worker claimed the shard first",
		Quarantined: "shard quarantined",
		Created:     "lease row created",
		Removed:     "lease row removed",
		Retired:     "preparation or request called off",
		StoreFault:  "the table does not answer, or its answer cannot be used",
		SourceFault: "the source cannot be listed, or its listing cannot be used",
		Malformed:   "a record in the table cannot be read",
		Restored:    "table restored: claiming suspended",
		CommitsFail: "the table accepts no commits",
		Silent:      "handlers make no progress",
		Full:        "no worker has room for some shards, or may claim them",
		Unlisted:    "the source no longer lists shards that are not finished",
		Unwell:      "this worker is unwell",
		PlanStale:   "no plan is complete and up to date",
		Unwatched:   "the deathwatch does not work",
		Misjudged:   "this worker was evicted while its lease was valid",
		Hangs:       "the shutdown waits for handlers whose tenures have ended",
		Steered:     "an operator's wish stands",
		Raising:     "fences are not raised",
		HookFault:   "a function of the configuration has failed",
	}
	if k == 0 || int(k) >= len(texts) {
		return k.String()
	}
	return texts[k]
}

// oneLine returns the text of an error in one line. Joined errors have a line each, and the error of a handler often contains
// what the worker has observed too: such a line is left out.
func oneLine(text string) string {
	if !strings.ContainsAny(text, "\n\r") {
		return text
	}
	var lines []string
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		within := func(other string) bool { return strings.Contains(other, line) }
		if line = strings.TrimSpace(line); line == "" || slices.ContainsFunc(lines, within) {
			continue
		}
		lines = append(slices.DeleteFunc(lines, func(other string) bool { return strings.Contains(line, other) }), line)
	}
	return strings.Join(lines, "; ")
}
