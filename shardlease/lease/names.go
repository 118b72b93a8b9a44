package lease

import (
	"bytes"
	"encoding/binary"
	"math"
)

// This file packs the shard names of a target assignment into one binary attribute. The names
// are front-coded: each is stored as the number of bytes that it shares with the name before
// it, and the bytes that follow. docs/table.md describes the format.
//
// Invariant: a list has exactly one packed form. Reading therefore packs the result again and
// compares; no other check of the form is needed.

// packHold packs the assigned shards.
func packHold(hold []Assigned) []byte {
	var data []byte
	previous := ""
	for _, a := range hold {
		data = appendName(data, previous, a.Shard, len(a.Parents) > 0)
		if previous = a.Shard; len(a.Parents) == 0 {
			continue
		}
		data = binary.AppendUvarint(data, uint64(len(a.Parents)))
		before := a.Shard
		for _, parent := range a.Parents {
			data = appendName(data, before, parent, false)
			before = parent
		}
	}
	return data
}

// packGive packs the hints. The successors are front-coded too: many hints name the same one.
func packGive(give []Give) []byte {
	var data []byte
	var previous Give
	for _, g := range give {
		data = appendName(data, previous.Shard, g.Shard, false)
		data = appendName(data, string(previous.To), string(g.To), false)
		previous = g
	}
	return data
}

// appendName appends the number of bytes that name shares with the previous name; twice the
// number of its other bytes, plus 1 if it is marked; and these bytes.
func appendName(data []byte, previous, name string, marked bool) []byte {
	shared := 0
	for shared < len(previous) && shared < len(name) && previous[shared] == name[shared] {
		shared++
	}
	rest := uint64(len(name)-shared) << 1
	if marked {
		rest |= 1
	}
	data = binary.AppendUvarint(data, uint64(shared))
	data = binary.AppendUvarint(data, rest)
	return append(data, name[shared:]...)
}

// An unpacker reads packed names. After the first fault every read returns nothing.
type unpacker struct {
	data   []byte
	broken bool
}

// unpackHold reads the assigned shards, and reports whether data is a list of at most
// MaxPage shards.
func unpackHold(data []byte) ([]Assigned, bool) {
	in := unpacker{data: data}
	var hold []Assigned
	previous := ""
	for len(in.data) > 0 && len(hold) < MaxPage {
		name, marked := in.name(previous)
		a := Assigned{Shard: name}
		if marked {
			before := name
			for range min(in.number(), MaxParents+1) {
				before, _ = in.name(before)
				a.Parents = append(a.Parents, before)
			}
		}
		hold, previous = append(hold, a), name
	}
	return hold, !in.broken && bytes.Equal(packHold(hold), data)
}

// unpackGive reads the hints, and reports whether data is a list of at most MaxPage hints.
func unpackGive(data []byte) ([]Give, bool) {
	in := unpacker{data: data}
	var give []Give
	var previous Give
	for len(in.data) > 0 && len(give) < MaxPage {
		shard, _ := in.name(previous.Shard)
		to, _ := in.name(string(previous.To))
		previous = Give{Shard: shard, To: Incarnation(to)}
		give = append(give, previous)
	}
	return give, !in.broken && bytes.Equal(packGive(give), data)
}

func (in *unpacker) number() int {
	n, size := binary.Uvarint(in.data)
	if size <= 0 || n > math.MaxInt16 {
		in.data, in.broken = nil, true
		return 0
	}
	in.data = in.data[size:]
	return int(n)
}

// name reads a name. It is at most MaxName bytes long, so a few bytes of data cannot make a
// reader allocate much.
func (in *unpacker) name(previous string) (name string, marked bool) {
	shared, rest := in.number(), in.number()
	marked, rest = rest&1 == 1, rest>>1
	if shared > len(previous) || rest > len(in.data) || shared+rest > MaxName {
		in.data, in.broken = nil, true
		return "", false
	}
	name = previous[:shared] + string(in.data[:rest])
	in.data = in.data[rest:]
	return name, marked
}
