package stream

import (
	"errors"
	"time"
)

// A Start is where a group begins, as it is configured: "trim-horizon", "latest", or a
// time as in RFC 3339.
//
// "Latest" is no place one could come back to: a worker that asks for the latest record,
// dies before it has a checkpoint, and asks again has skipped what came in between; and
// so has one that finds a new shard late. So it has to be turned into a time once, when
// the group begins, and that time kept where all workers find it.
type Start struct {
	Latest bool
	At     time.Time // zero, and not Latest: the oldest record that is left
}

// UnmarshalText reads it.
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

// MarshalText is what UnmarshalText reads.
func (s Start) MarshalText() ([]byte, error) {
	switch {
	case s.Latest:
		return []byte("latest"), nil
	case s.At.IsZero():
		return []byte("trim-horizon"), nil
	}
	return s.At.AppendFormat(nil, time.RFC3339), nil
}
