// Package kpl packs records for tests, as the Kinesis Producer Library does.
package kpl

import (
	"crypto/md5"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Record is a record to pack. Hash is its explicit hash key; empty if it has none. Extra is
// encoded fields that are appended to the record.
type Record struct{ Key, Hash, Data, Extra string }

// Pack returns the data of an aggregated record.
func Pack(records ...Record) []byte {
	var keys, bodies []byte
	hashes := uint64(0)
	for i, r := range records {
		keys = field(keys, 1, r.Key)
		body := index(nil, 1, uint64(i))
		if r.Hash != "" {
			keys = field(keys, 2, r.Hash)
			body = index(body, 2, hashes)
			hashes++
		}
		bodies = field(bodies, 3, string(append(field(body, 3, r.Data), r.Extra...)))
	}
	message := append(keys, bodies...)
	sum := md5.Sum(message)
	return append(append([]byte("\xf3\x89\x9a\xc2"), message...), sum[:]...)
}

func field(to []byte, number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), value)
}

func index(to []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), value)
}
