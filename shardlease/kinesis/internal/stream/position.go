package stream

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/shardlease/shardlease-go/checkpoint"
)

// A Position records how far a shard has been processed: up to an entry, or up to a record within
// an entry that the Kinesis Producer Library (KPL) has packed. Its text is one of
//
//	4968…034     the entry with this sequence number, and all before it
//	4968…034/6   all before this entry, and its records 0 to 6
//	TRIM_HORIZON nothing yet; begin with the oldest record that is left
//	LATEST, AT_TIMESTAMP
//	             nothing yet; begin where the group does
//
// An import from the Kinesis Client Library (KCL) creates the last three for shards that were
// not read yet.
//
// The second number is the sub-sequence number of a KCL checkpoint. A position in a packed entry
// always has it, also at the last record, so a reader need not know how many records the entry
// has.
type Position struct {
	Sequence string // the sequence number of the entry; empty: nothing is processed yet
	Index    int    // the index of the last processed record in a packed entry
	Packed   bool   // whether Index is valid; if not, the whole entry is processed
	Begin    string // if Sequence is empty: TRIM_HORIZON, LATEST, AT_TIMESTAMP or empty
}

const (
	trimHorizon = "TRIM_HORIZON"
	latest      = "LATEST"
	atTimestamp = "AT_TIMESTAMP"
)

// ParsePosition reads the text of a position. The empty text is the zero Position.
func ParsePosition(text string) (Position, error) {
	switch text {
	case "", trimHorizon, latest, atTimestamp:
		return Position{Begin: text}, nil
	}
	var p Position
	var index string
	p.Sequence, index, p.Packed = strings.Cut(text, "/")
	_, err := checkpoint.Decimal(p.Sequence, p.Sequence)
	if err == nil && p.Packed {
		var n uint64
		n, err = strconv.ParseUint(index, 10, 31)
		p.Index = int(n)
	}
	if err != nil { // the text of err may contain the position, which is the user's data
		return Position{}, &checkpoint.InvalidError{Field: "position", Rule: "must be a sequence number, perhaps with the number of a record after a slash"}
	}
	return p, nil
}

// String returns the text of the position.
func (p Position) String() string {
	if !p.Packed {
		return p.Begin + p.Sequence
	}
	return p.Sequence + "/" + strconv.Itoa(p.Index)
}

// covers reports whether a record of an entry is at or before the position.
func (p Position) covers(sequence string, index int) bool {
	if p.Sequence == "" {
		return false
	}
	order, _ := checkpoint.Decimal(sequence, p.Sequence)
	return order < 0 || order == 0 && (!p.Packed || index <= p.Index)
}

// Order compares two positions of a shard. It is for shardlease.Config.Order.
func Order(a, b string) (int, error) {
	p, errA := ParsePosition(a)
	q, errB := ParsePosition(b)
	if err := cmp.Or(errA, errB); err != nil {
		return 0, err
	}
	order := 0
	switch {
	case p.Sequence != "" && q.Sequence != "":
		order, _ = checkpoint.Decimal(p.Sequence, q.Sequence)
	default: // positions without a sequence number sort first
		order = cmp.Compare(len(p.Sequence), len(q.Sequence))
	}
	return cmp.Or(order, cmp.Compare(p.last(), q.last())), nil
}

// last returns the index of the last processed record of the entry.
func (p Position) last() int {
	if p.Packed || p.Sequence == "" {
		return p.Index
	}
	return 1 << 31
}
