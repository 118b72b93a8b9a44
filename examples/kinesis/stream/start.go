package stream

import (
	"errors"
	"time"
)

// A Start configures where a group begins: "trim-horizon", "latest", or a time in RFC 3339
// format.
//
// A reader cannot return to "latest" later: a worker that requests the latest record, dies before
// its first checkpoint and requests it again skips the records in between, and so does a worker
// that finds a new shard late. So the program must turn "latest" into a time once, when the group
// begins, and store that time where all workers can read it.
type Start struct {
	// Latest means the time at which the group begins.
	Latest bool
	// At is the time to begin at. Zero, without Latest: the oldest record that is left.
	At time.Time
}

// UnmarshalText reads a Start.
func (s *Start) UnmarshalText(text []byte) error {
	switch string(text) {
	case "trim-horizon":
		*s = Start{}
		return nil
	case "latest":
		*s = Start{Latest: true}
		return nil
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New(`must be "trim-horizon", "latest" or a time like 2006-01-02T15:04:05Z`)
	}
	*s = Start{At: at}
	return nil
}

// MarshalText returns the text that UnmarshalText reads.
func (s Start) MarshalText() ([]byte, error) {
	switch {
	case s.Latest:
		return []byte("latest"), nil
	case s.At.IsZero():
		return []byte("trim-horizon"), nil
	}
	return s.At.AppendFormat(nil, time.RFC3339), nil
}
