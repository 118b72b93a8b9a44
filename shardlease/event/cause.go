package event

import (
	"fmt"
	"strings"
)

// A Cause is the reason why a tenure ends, or has to wind down. It is an error, so that
// errors.Is(context.Cause(ctx), event.CauseHandedOff) is true in a handler whose shard
// moves to another worker.
type Cause uint8

// The causes. With CauseStalled, CauseExpired and CauseUnreachable this worker itself noticed
// that something was wrong with it.
const (
	CauseHandedOff   Cause = iota + 1 // the shard moved or moves to another worker, as planned
	CauseFenced                       // another worker holds the shard
	CauseExpired                      // this worker was paused so long that its lease may have expired, or it was evicted
	CauseUnreachable                  // the store did not answer for nearly a lease time
	CauseStalled                      // no progress in StallAfter, or no accepted commit in CommitTimeout
	CauseForced                       // an operator or a supervisor took the shard away
	CauseStopped                      // the worker shuts down
	CauseFinished                     // the shard itself has ended
	CauseGivenUp                      // the handler called Release, or returned
	CauseVanished                     // the lease row is gone, or the table was restored to an earlier state
	CauseConflict                     // the table names another owner under the same generation
	CauseUnlisted                     // the source of this worker no longer lists the shard
)

// String returns the cause as one word, for logs and metrics.
func (c Cause) String() string {
	word, _, _ := strings.Cut(c.Error(), ":")
	return word
}

// Error returns the cause as a word and a sentence.
func (c Cause) Error() string {
	sentences := [...]string{
		CauseHandedOff:   "handed-off: the shard moves to another worker, as planned",
		CauseFenced:      "fenced: another worker holds the shard",
		CauseExpired:     "expired: this worker was silent for so long that others may have taken the shard, or an operator evicted it",
		CauseUnreachable: "unreachable: the store has not answered for nearly a lease time, so others may soon take the shard",
		CauseStalled:     "stalled: the handler made no progress, or the table accepted none of its commits",
		CauseForced:      "forced: an operator took the shard away",
		CauseStopped:     "stopped: this worker shuts down",
		CauseFinished:    "finished: the shard has ended and is processed to its end",
		CauseGivenUp:     "given-up: the handler returned, or called Release",
		CauseVanished:    "vanished: the lease row is gone, or older than it was",
		CauseConflict:    "conflict: the table names another owner under the same generation",
		CauseUnlisted:    "unlisted: the source of this worker no longer lists the shard",
	}
	if c == 0 || int(c) >= len(sentences) {
		return fmt.Sprintf("cause-%d", uint8(c))
	}
	return sentences[c]
}
