// Package kpl packs records for tests, as the Kinesis Producer Library does.
package kpl

import (
	"crypto/md5"
	"encoding/binary"
)

// A Record is a record to pack. Hash is its explicit hash key; empty if it has none.
type Record struct{ Key, Hash, Data string }

// Pack returns the data of an aggregated record.
func Pack(records ...Record) []byte {
	var keys, bodies []byte
	hashes := uint64(0)
	for i, r := range records {
		keys = field(keys, 1, r.Key)
		body := binary.AppendUvarint([]byte{1 << 3}, uint64(i))
		if r.Hash != "" {
			keys = field(keys, 2, r.Hash)
			body = binary.AppendUvarint(append(body, 2<<3), hashes)
			hashes++
		}
		bodies = field(bodies, 3, string(field(body, 3, r.Data)))
	}
	message := append(keys, bodies...)
	sum := md5.Sum(message)
	return append(append([]byte("\xf3\x89\x9a\xc2"), message...), sum[:]...)
}

func field(to []byte, number byte, value string) []byte {
	return append(binary.AppendUvarint(append(to, number<<3|2), uint64(len(value))), value...)
}
