// Package checkpoint holds what a consumer remembers about a shard: how far it
// has been processed, and under which generation that was accepted.
//
// A position is opaque: the library stores it, compares it where an [Order]
// says how, and never interprets it. Positions and states are the user's data.
// They do not appear in errors, in String or in log values; what does appear
// is their length.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"
	"unicode/utf8"
)

// The limits of what one checkpoint can hold. They keep a lease row small
// enough to be written for every commit; DynamoDB bills each started kilobyte.
const (
	MaxPosition = 1024 // bytes of UTF-8
	MaxState    = 4096 // bytes, of any value
)

// A Mark says "done up to here". State is optional and as opaque as the
// position: a small aggregate, say, that belongs to exactly this position.
//
// Both are strings because a string cannot change after it was handed over.
type Mark struct {
	Position string
	State    string
}

// IsZero reports whether m marks nothing.
func (m Mark) IsZero() bool { return m == Mark{} }

// Validate reports what about m cannot be stored, as an [*InvalidError].
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

// String tells the lengths, never the contents.
func (m Mark) String() string {
	if m.IsZero() {
		return "no mark"
	}
	return fmt.Sprintf("mark of %d bytes with %d bytes of state", len(m.Position), len(m.State))
}

// Format keeps every verb from printing the contents.
func (m Mark) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, m.String()) }

// MarshalJSON keeps the contents out of logs that are JSON. Who wants to store a
// mark stores its fields.
func (m Mark) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

// LogValue keeps structured logs from printing the contents.
func (m Mark) LogValue() slog.Value { return slog.StringValue(m.String()) }

// A Checkpoint is a mark that was accepted: it is in the lease row, or was when
// the row was read.
//
// The zero Checkpoint is that of a shard nobody has checkpointed yet.
type Checkpoint struct {
	Mark
	// Generation is the fencing token the mark was accepted under.
	Generation int64
	// At is the writer's wall clock, for people. Nothing compares it.
	At time.Time
}

// String tells the generation and the lengths, never the contents.
func (c Checkpoint) String() string {
	if c.IsZero() && c.Generation == 0 {
		return "no checkpoint"
	}
	return fmt.Sprintf("checkpoint of %d bytes with %d bytes of state, generation %d",
		len(c.Position), len(c.State), c.Generation)
}

// Format keeps every verb from printing the contents.
func (c Checkpoint) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalJSON keeps the contents out of logs that are JSON.
func (c Checkpoint) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// LogValue keeps structured logs from printing the contents.
func (c Checkpoint) LogValue() slog.Value { return slog.StringValue(c.String()) }
