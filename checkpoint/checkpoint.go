// Package checkpoint has the types for the progress of a shard: how far it is processed, and
// under which generation the table accepted that.
//
// A position is opaque: the library stores it and compares it if an [Order] defines how, but
// never interprets it. Positions and states are the user's data. Errors, String methods and log
// values contain their lengths and never their contents.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"
	"unicode/utf8"
)

// The limits of one checkpoint. They keep a lease row small enough to be written with every
// commit; DynamoDB bills every kilobyte that is begun.
const (
	MaxPosition = 1024 // how many bytes of UTF-8 a position may have
	MaxState    = 4096 // how many bytes a state may have, of any value
)

// A Mark is the progress of a shard: everything up to Position is processed. State is optional
// and as opaque as the position, for example a small aggregate that belongs to exactly this
// position.
//
// Both are strings because a string cannot change after it was passed on.
type Mark struct {
	Position string
	State    string
}

// IsZero reports whether m is the zero Mark, which marks nothing.
func (m Mark) IsZero() bool { return m == Mark{} }

// Validate returns an [*InvalidError] if m cannot be stored.
func (m Mark) Validate() error {
	switch {
	case m.Position == "":
		return &InvalidError{Field: "position", Rule: "must not be empty"}
	case len(m.Position) > MaxPosition:
		return tooLong("position", len(m.Position), MaxPosition)
	case !utf8.ValidString(m.Position):
		return &InvalidError{Field: "position", Rule: "must be valid UTF-8"}
	case len(m.State) > MaxState:
		return tooLong("state", len(m.State), MaxState)
	}
	return nil
}

// String contains the lengths and never the contents.
func (m Mark) String() string {
	if m.IsZero() {
		return "no mark"
	}
	return fmt.Sprintf("mark of %d bytes with %d bytes of state", len(m.Position), len(m.State))
}

// Format keeps every verb from printing the contents.
func (m Mark) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, m.String()) }

// MarshalJSON keeps the contents out of JSON logs. To store a mark as JSON, store its fields.
func (m Mark) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

// LogValue keeps structured logs from printing the contents.
func (m Mark) LogValue() slog.Value { return slog.StringValue(m.String()) }

// A Checkpoint is a mark that the table accepted, as the lease row had it when it was read.
//
// The zero Checkpoint is that of a shard without an accepted mark.
type Checkpoint struct {
	Mark
	// Generation is the fencing token under which the mark was accepted.
	Generation int64
	// At is the writer's wall clock at that time, for people. Nothing compares it.
	At time.Time
}

// String contains the generation and the lengths, and never the contents.
func (c Checkpoint) String() string {
	if c.IsZero() && c.Generation == 0 {
		return "no checkpoint"
	}
	return fmt.Sprintf("checkpoint of %d bytes with %d bytes of state, generation %d",
		len(c.Position), len(c.State), c.Generation)
}

// Format keeps every verb from printing the contents.
func (c Checkpoint) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalJSON keeps the contents out of JSON logs.
func (c Checkpoint) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// LogValue keeps structured logs from printing the contents.
func (c Checkpoint) LogValue() slog.Value { return slog.StringValue(c.String()) }
