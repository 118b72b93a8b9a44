// Package rebalance decides which worker should hold which shard, and on which terms a
// shard moves: plan.go has the planner, terms.go the named choice between a gap and an
// overlap, and strategy.go the choice of the terms of each move.
//
// All of it is pure: the same input gives the same answer on every worker, so no
// leader is needed to agree.
package rebalance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Mode says what a planned move of a shard may cost: a gap or an overlap.
// There is no default, because either is wrong for somebody.
type Mode uint8

const (
	// Eager: no overlap. The owner stops and hands over, then the successor
	// starts; in between nobody processes the shard.
	Eager Mode = iota + 1
	// Cooperative: no gap. The owner processes until the successor has taken
	// over; for a moment both do, and the table refuses what the owner
	// commits late.
	Cooperative
)

// ErrNoMode refuses the zero Mode with the question that has to be answered.
var ErrNoMode = errors.New(`choose a handoff mode: "eager" (no overlap: for a moment nobody processes a moving shard) ` +
	`or "cooperative" (no gap: for a moment two do, and the late commits of the first are refused)`)

// ErrTerms refuses terms nobody could keep.
var ErrTerms = errors.New("invalid terms of a move")

// String is the name a configuration would use.
func (m Mode) String() string {
	switch m {
	case Eager:
		return "eager"
	case Cooperative:
		return "cooperative"
	}
	return "mode " + strconv.Itoa(int(m))
}

// MarshalText gives that name, and refuses what is no mode.
func (m Mode) MarshalText() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads "eager" or "cooperative"; anything else is an error that
// explains the choice. It serves flags, JSON, YAML and the environment alike.
func (m *Mode) UnmarshalText(text []byte) error {
	for _, mode := range []Mode{Eager, Cooperative} {
		if string(text) == mode.String() {
			*m = mode
			return nil
		}
	}
	return fmt.Errorf("%w; it is %s", ErrNoMode, quoted(string(text)))
}

// quoted is a refused text as an error shows it: quoted, and at most 64 characters of it.
func quoted(text string) string { return fmt.Sprintf("%.64q", text) }

// Validate refuses everything but the two modes.
func (m Mode) Validate() error {
	if m != Eager && m != Cooperative {
		return ErrNoMode
	}
	return nil
}

// AfterDrain says what happens to an owner whose handler has not returned when
// the drain time of an eager move is over.
type AfterDrain uint8

const (
	// Force takes the shard away; what the handler still does is fenced.
	Force AfterDrain = iota
	// Wait lets the move wait for the handler, however long it takes.
	Wait
)

func (a AfterDrain) String() string {
	if a == Wait {
		return "wait"
	}
	return "force"
}

// Terms are the terms of one move of one shard. The successor writes them down
// when it asks for the shard, and both sides go by what is written: a rollout
// that changes the mode mixes safely.
//
// Terms is also the type of a field in a program's configuration. From a JSON or YAML file, a
// flag or the environment it reads a mode alone ("cooperative") as well as whole terms
// ("eager 20s wait 0s"); see [Terms.UnmarshalText]. The zero Terms are refused, because
// nobody has chosen a mode.
type Terms struct {
	Mode       Mode
	Drain      time.Duration // how long the owner's handler may take to wind down
	AfterDrain AfterDrain
	Prepare    time.Duration // how long the successor may prepare before it asks; on the wire, 0: it does not
}

// MaxDuration bounds Drain and Prepare, so that no move can wait for ever
// unless it says so with [Wait].
const MaxDuration = 24 * time.Hour

// Validate reports what about t cannot be agreed on.
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

// String gives the text form in which a request stores its terms: "eager 20s force 0s".
func (t Terms) String() string {
	return fmt.Sprintf("%v %v %v %v", t.Mode, t.Drain, t.AfterDrain, t.Prepare)
}

// byWorker is the word for a duration that a configuration leaves to the worker.
const byWorker = "default"

// MarshalText writes the text that UnmarshalText reads, in the shortest form. It refuses
// terms that are not valid.
func (t Terms) MarshalText() ([]byte, error) {
	if err := t.Fill(0).Validate(); err != nil {
		return nil, err
	}
	if t == (Terms{Mode: t.Mode}) {
		return t.Mode.MarshalText()
	}
	return fmt.Appendf(nil, "%v %s %v %s", t.Mode, durationText(t.Drain), t.AfterDrain, durationText(t.Prepare)), nil
}

func durationText(d time.Duration) string {
	if d == 0 {
		return byWorker
	}
	return max(d, 0).String()
}

// UnmarshalText reads terms from a configuration: "mode drain after-drain prepare", such
// as "eager 20s wait 5s". Words may be missing at the end. A duration that is missing or
// reads "default" is left to the worker that uses the terms; a missing third word means
// "force". "0s" means no time at all, and becomes a negative field. UnmarshalText refuses an
// unknown word: in a configuration it is a slip.
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
		return refuse(`must read "mode drain after-drain prepare", or less at the end`, text)
	case errDrain != nil || errPrepare != nil:
		return refuse(fmt.Sprintf(`drain and prepare must be durations between 0s and %v, or "default"`, MaxDuration), text)
	case words[2] == Wait.String():
		terms.AfterDrain = Wait
	case words[2] != Force.String():
		return refuse(`after-drain must be "force" or "wait"`, text)
	}
	*t = terms
	return nil
}

// parseDuration reads a duration of a configuration; 0 is left to the worker, -1 is no time.
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
