package stream

import (
	"bytes"
	"crypto/md5" // #nosec: it is how Kinesis places keys, and no protection
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"google.golang.org/protobuf/encoding/protowire"
)

// A Record is one record as its producer has put it.
type Record struct {
	Shard    string
	Sequence string    // the sequence number of its entry
	Index    int       // its index within a packed entry
	Key      string    // its partition key
	Keyless  bool      // it has no partition key, so it has no place in an order either
	Data     []byte    // its data
	Arrived  time.Time // when Kinesis received the entry
}

// Order returns the place of a record in its shard, as a text: a later record has a greater
// text. Sequence numbers are decimal numbers of any length, so the text begins with their
// length.
func (r Record) Order() string {
	return fmt.Sprintf("%03d.%s.%06d", len(r.Sequence), r.Sequence, r.Index)
}

// OrderKey returns the key whose records must stay in order. A record without a key has no order,
// so its OrderKey is one that no other record has.
func (r Record) OrderKey() string {
	if r.Keyless {
		return "\x00" + r.Shard + "/" + r.Order()
	}
	return r.Key
}

// An Entry is one entry of the stream. It has one record, or many that the Kinesis Producer
// Library (KPL) has packed, or none if the packed records belong to other shards.
type Entry struct {
	Sequence string
	Records  []Record
	Foreign  int   // how many packed records were left out, because their keys belong to other shards
	Bytes    int64 // how much it uses of its reader's room
	packed   bool
}

// Position returns the position at which the entry is processed up to record i.
func (e Entry) Position(i int) string {
	return Position{Sequence: e.Sequence, Index: e.Records[i].Index, Packed: e.packed}.String()
}

// after leaves out the records up to a position. It returns false if the whole entry is before
// the position.
func (e Entry) after(p Position) (Entry, bool) {
	if p.covers(e.Sequence, math.MaxInt) {
		return e, false
	}
	if !p.Packed {
		return e, true // the position is at the end of an earlier entry
	}
	if p.Sequence == e.Sequence {
		e.Foreign = 0 // counted when the first part of the entry was read
	}
	had := len(e.Records)
	e.Records = slices.DeleteFunc(e.Records, func(r Record) bool { return p.covers(e.Sequence, r.Index) })
	return e, had == 0 || len(e.Records) > 0
}

// entry unpacks an entry of the stream.
//
// If a shard was split or merged after the KPL packed an entry, the entry may contain records
// whose keys belong to another shard now. The KPL detects that and puts these records again. So
// entry leaves them out, as the Kinesis Client Library does; otherwise the order of a key
// would depend on two shards. If there are any, keep decides whether they stay: on a stream
// that ignores keys they are in the right shard, and nobody puts them again.
func (s shard) entry(name string, in types.Record, keep func(arrived time.Time) (bool, error)) (Entry, error) {
	template := Record{Shard: name, Sequence: *in.SequenceNumber, Arrived: aws.ToTime(in.ApproximateArrivalTimestamp)}
	records, ok := unpack(in.Data)
	if !ok {
		// On a stream that distributes its records by itself, producers need not set a key.
		template.Key, template.Keyless, template.Data = aws.ToString(in.PartitionKey), in.PartitionKey == nil, in.Data
		return Entry{Sequence: template.Sequence, Records: []Record{template}}, nil
	}
	kept := in.PartitionKey == nil
	foreign := func(p packed) bool { return !s.keys.contains(p.hash) }
	if !kept && slices.ContainsFunc(records, foreign) {
		var err error
		if kept, err = keep(template.Arrived); err != nil {
			return Entry{}, err
		}
	}
	e := Entry{Sequence: template.Sequence, packed: true}
	for i, p := range records {
		if !kept && foreign(p) {
			e.Foreign++
			continue
		}
		template.Index, template.Key, template.Data = i, p.key, p.data
		e.Records = append(e.Records, template)
	}
	return e, nil
}

// magic begins an aggregated record. The format is in aggregation-format.md of
// awslabs/amazon-kinesis-producer: a magic number, a protocol buffers message, and its MD5.
const magic = "\xf3\x89\x9a\xc2"

type packed struct {
	key  string
	hash [16]byte
	data []byte
}

// unpack reads an aggregated record. It returns false if the data is no aggregated record or
// cannot be read; the data is then treated as one record, which the consumer processes or refuses.
func unpack(data []byte) ([]packed, bool) {
	message, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok || len(message) < md5.Size {
		return nil, false
	}
	message, sum := message[:len(message)-md5.Size], message[len(message)-md5.Size:]
	if digest := md5.Sum(message); !bytes.Equal(digest[:], sum) {
		return nil, false
	}
	var keys, hashes []string
	var records [][]byte
	err := fields(message, func(number protowire.Number, _ uint64, value []byte) {
		switch number {
		case 1:
			keys = append(keys, string(value))
		case 2:
			hashes = append(hashes, string(value))
		case 3:
			records = append(records, value)
		}
	})
	all := make([]packed, len(records))
	for i, record := range records {
		var one error
		all[i], one = unpackOne(record, keys, hashes)
		err = errors.Join(err, one)
	}
	return all, err == nil
}

// unpackOne reads one record of a message. The record contains the indexes of its keys.
func unpackOne(record []byte, keys, hashes []string) (p packed, err error) {
	var key, hash uint64
	hashed := false
	err = fields(record, func(number protowire.Number, index uint64, value []byte) {
		switch number {
		case 1:
			key = index
		case 2:
			hash, hashed = index, true
		case 3:
			p.data = value
		}
	})
	if err != nil || key >= uint64(len(keys)) || hashed && hash >= uint64(len(hashes)) {
		return p, errMessage
	}
	p.key, p.hash = keys[key], md5.Sum([]byte(keys[key]))
	if hashed {
		var ok bool
		if p.hash, ok = hashKey(hashes[hash]); !ok {
			return p, errMessage
		}
	}
	return p, nil
}

var errMessage = errors.New("no message of the Kinesis Producer Library")

// fields visits the fields of a protocol buffers message that are varints or bytes. The format has
// no others; those that a newer version adds are ignored, whatever they are.
func fields(message []byte, visit func(number protowire.Number, value uint64, bytes []byte)) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errMessage
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return errMessage
		}
		switch kind {
		case protowire.VarintType:
			value, _ := protowire.ConsumeVarint(message)
			visit(number, value, nil)
		case protowire.BytesType:
			value, _ := protowire.ConsumeBytes(message)
			visit(number, 0, value)
		}
		message = message[n:]
	}
	return nil
}
