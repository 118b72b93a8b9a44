// Package rebalance decides which worker should hold which shard, and on which terms a shard
// moves: [Even] is the planner, [Terms] choose between a gap and an overlap, and a [Handoff]
// chooses the terms of each move.
//
// Even and the terms are pure. A [Planner] of a user need not be: one worker writes each plan, and the
// others follow it.
package rebalance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Mode is what a planned move of a shard costs: a gap or an overlap. There is no default,
// because either would be wrong for some users.
type Mode uint8

const (
	// Eager: no overlap. The owner stops and hands the shard over, then the successor starts. In
	// between nobody processes the shard.
	Eager Mode = iota + 1
	// Cooperative: no gap, unless the successor is slow to start. The owner processes the shard until
	// the successor has taken it over, and then for a grace of 50 ms to 0.5 s. For a moment both
	// process it, and the table refuses late commits of the owner.
	Cooperative
)

// ErrNoMode is the error for a missing or unknown mode. Its text explains the choice.
var ErrNoMode = errors.New(`choose a handoff mode: "eager" (no overlap: for a moment nobody processes a moving shard) ` +
	`or "cooperative" (usually no gap: for a moment two workers process it, and the late commits of the first are refused)`)

// ErrTerms is the error for terms that are out of bounds.
var ErrTerms = errors.New("invalid terms of a move")

// String returns the name of the mode in a configuration.
func (m Mode) String() string {
	switch m {
	case Eager:
		return "eager"
	case Cooperative:
		return "cooperative"
	}
	return "mode " + strconv.Itoa(int(m))
}

// MarshalText returns the name of the mode, or an error if it is not a mode.
func (m Mode) MarshalText() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads "eager" or "cooperative"; for anything else it returns an error that
// explains the choice. It serves flags, JSON, YAML and environment variables.
func (m *Mode) UnmarshalText(text []byte) error {
	for _, mode := range []Mode{Eager, Cooperative} {
		if string(text) == mode.String() {
			*m = mode
			return nil
		}
	}
	return fmt.Errorf("%w; it is %s", ErrNoMode, quoted(string(text)))
}

// quoted returns at most 64 characters of a refused text, quoted, for an error.
func quoted(text string) string { return fmt.Sprintf("%.64q", text) }

// Validate returns ErrNoMode unless m is one of the two modes.
func (m Mode) Validate() error {
	if m != Eager && m != Cooperative {
		return ErrNoMode
	}
	return nil
}

// AfterDrain is what happens if the owner's handler has not returned when the drain time of an
// eager move is over. A cooperative move ignores it: the owner's handler processes the shard until
// the successor has taken it over, and is fenced then.
type AfterDrain uint8

const (
	// Force takes the shard from the owner; whatever the handler still does is fenced.
	Force AfterDrain = iota
	// Wait makes the move wait until the handler returns. The wait ends early if the owner
	// shuts down, or if the handler stalls (shardlease.Config.StallAfter).
	Wait
)

func (a AfterDrain) String() string {
	if a == Wait {
		return "wait"
	}
	return "force"
}

// Terms are the terms of one move of one shard. The successor writes them into its request, and
// both sides follow the terms in the request. So workers with different modes can run together
// during a rollout.
//
// Terms is also the type for a field in a program's configuration. From a JSON or YAML file, a
// flag or an environment variable it reads a mode alone ("cooperative") as well as all terms
// ("eager 20s wait 0s"); see [Terms.UnmarshalText]. The zero Terms are refused, because they have
// no mode.
type Terms struct {
	Mode       Mode          // eager or cooperative
	Drain      time.Duration // how long the owner's handler may take to wind down
	AfterDrain AfterDrain    // what happens in an eager move if the handler takes longer
	// Prepare is how long the successor may prepare before it requests the shard. In a request,
	// 0 means that it does not prepare.
	Prepare time.Duration
}

// MaxDuration is the longest Drain and the longest Prepare, so that no move can wait forever
// unless its terms say [Wait].
const MaxDuration = 24 * time.Hour

// Validate returns an error if t has no mode or is out of bounds.
func (t Terms) Validate() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"drain", t.Drain}, {"prepare", t.Prepare}} {
		if d.value < 0 || d.value > MaxDuration {
			return fmt.Errorf("%w: %s must be between 0 and %v, is %v", ErrTerms, d.field, MaxDuration, d.value)
		}
	}
	if t.AfterDrain > Wait {
		return fmt.Errorf("%w: after-drain must be Force or Wait", ErrTerms)
	}
	return t.Mode.Validate()
}

// String returns the text that MarshalText writes: "eager", or "eager 20s wait default". For terms
// that are not valid it returns all four words as they are, such as "eager 48h0m0s force default".
func (t Terms) String() string {
	if t == (Terms{Mode: t.Mode}) {
		return t.Mode.String()
	}
	return fmt.Sprintf("%v %s %v %s", t.Mode, durationText(t.Drain), t.AfterDrain, durationText(t.Prepare))
}

// form is the order of the words in the text of terms.
const form = "MODE [DRAIN [force|wait [PREPARE]]]"

// byWorker is the word for a duration that the worker's configuration decides.
const byWorker = "default"

// MarshalText writes the text that UnmarshalText reads, in the shortest form. It refuses
// terms that are not valid.
func (t Terms) MarshalText() ([]byte, error) {
	if err := t.Fill(0).Validate(); err != nil {
		return nil, err
	}
	return []byte(t.String()), nil
}

func durationText(d time.Duration) string {
	if d == 0 {
		return byWorker
	}
	return max(d, 0).String()
}

// UnmarshalText reads terms from a configuration: "MODE [DRAIN [force|wait [PREPARE]]]", such as
// "eager 20s wait 5s". Words at the end may be missing. A duration that is missing or is "default"
// is decided by the configuration of the worker that uses the terms. A missing third word means
// "force"; a cooperative move ignores the third word. "0s" means no time at all, and becomes a
// negative field. UnmarshalText refuses an unknown word, because in a configuration it is a
// mistake.
func (t *Terms) UnmarshalText(text []byte) error {
	var terms Terms
	words := [4]string{1: byWorker, 2: Force.String(), 3: byWorker}
	fields := strings.Split(string(text), " ")
	copy(words[:], fields)
	if terms.Mode.UnmarshalText([]byte(words[0])) != nil {
		return fmt.Errorf("%w; it is %s", ErrNoMode, quoted(string(text)))
	}
	var errDrain, errPrepare error
	terms.Drain, errDrain = parseDuration(words[1])
	terms.Prepare, errPrepare = parseDuration(words[3])
	switch {
	case len(fields) > len(words):
		return refuse(fmt.Sprintf("must be %q", form), text)
	case errDrain != nil || errPrepare != nil:
		return refuse(fmt.Sprintf(`in %q, DRAIN and PREPARE must be durations between 0s and %v, or "default"`, form, MaxDuration), text)
	case words[2] == Wait.String():
		terms.AfterDrain = Wait
	case words[2] != Force.String():
		return refuse(fmt.Sprintf(`in %q, the third word must be "force" or "wait"`, form), text)
	}
	*t = terms
	return nil
}

// parseDuration reads a duration of a configuration. It returns 0 for "default", and -1 for no
// time at all.
func parseDuration(word string) (time.Duration, error) {
	if word == byWorker {
		return 0, nil
	}
	d, err := time.ParseDuration(word)
	switch {
	case err != nil:
		return 0, err
	case d < 0 || d > MaxDuration:
		return 0, ErrTerms
	case d == 0:
		return -1, nil
	}
	return d, nil
}

func refuse(rule string, text []byte) error {
	return fmt.Errorf("%w: %s; it is %s", ErrTerms, rule, quoted(string(text)))
}
