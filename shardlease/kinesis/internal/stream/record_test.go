package stream

import (
	"bytes"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/kpl"
	"google.golang.org/protobuf/encoding/protowire"
)

// sample was packed by another implementation of the format: the key "partition_key" with the
// data "data".
var sample = []byte{
	243, 137, 154, 194, 10, 13, 112, 97, 114, 116, 105, 116, 105, 111, 110, 95, 107, 101, 121, 26, 8, 8, 0, 26, 4,
	100, 97, 116, 97, 208, 54, 153, 218, 90, 34, 47, 163, 33, 8, 173, 27, 217, 85, 161, 78,
}

func all(t testing.TB) keyRange {
	t.Helper()
	r, err := newKeyRange(&types.HashKeyRange{
		StartingHashKey: aws.String("0"), EndingHashKey: aws.String("340282366920938463463374607431768211455"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(s shard, data []byte) Entry {
	drop := func(time.Time) (bool, error) { return false, nil }
	e, _ := s.entry("a", types.Record{SequenceNumber: aws.String("7"), PartitionKey: aws.String("outer"), Data: data}, drop)
	return e
}

func TestUnpack(t *testing.T) {
	s := shard{keys: all(t)}
	for _, c := range []struct {
		name string
		data []byte
		want []string // the key and the data of each record
	}{
		{"as others pack it", sample, []string{"partition_key data"}},
		{"plain", []byte("hello"), []string{"outer hello"}},
		{"nothing", nil, []string{"outer "}},
		{"many", kpl.Pack(kpl.Record{Key: "a", Data: "1"}, kpl.Record{Key: "b", Data: "2"}, kpl.Record{Key: "a", Data: "3"}),
			[]string{"a 1", "b 2", "a 3"}},
		{"none", kpl.Pack(), nil},
		{"with tags", kpl.Pack(kpl.Record{Key: "a", Data: "1", Extra: "\x22\x03\x0a\x01t"}), []string{"a 1"}},
		{"with a fixed number of a newer version", kpl.Pack(kpl.Record{Key: "a", Data: "1", Extra: "\x29\x00\x00\x00\x00\x00\x00\x00\x00"}), []string{"a 1"}},
	} {
		e := read(s, c.data)
		var got []string
		for _, r := range e.Records {
			got = append(got, r.Key+" "+string(r.Data))
		}
		if !slices.Equal(got, c.want) || e.Sequence != "7" {
			t.Errorf("%s: got %q of %s, want %q", c.name, got, e.Sequence, c.want)
		}
	}
}

// TestUnpackLeavesWhatItCannotRead: data that only begins like an aggregated record, or was damaged,
// is read as one plain record.
func TestUnpackLeavesWhatItCannotRead(t *testing.T) {
	s := shard{keys: all(t)}
	for i := range sample {
		damaged := bytes.Clone(sample)
		damaged[i]++
		for _, data := range [][]byte{damaged, sample[:i]} {
			if e := read(s, data); len(e.Records) != 1 || e.Records[0].Key != "outer" || !bytes.Equal(e.Records[0].Data, data) {
				t.Fatalf("%d: %q is read as %v", i, data, e)
			}
		}
	}
}

// TestUnpackLeavesOthersKeys: records of keys that belong to another shard now are put again to
// that shard, and must not be processed in this one.
func TestUnpackLeavesOthersKeys(t *testing.T) {
	half := new(big.Int).Lsh(big.NewInt(1), 127)
	lower, err := newKeyRange(&types.HashKeyRange{StartingHashKey: aws.String("0"), EndingHashKey: aws.String(new(big.Int).Sub(half, big.NewInt(1)).String())})
	if err != nil {
		t.Fatal(err)
	}
	data := kpl.Pack(
		kpl.Record{Key: "a", Hash: half.String(), Data: "other"}, // the first hash key of the other half
		kpl.Record{Key: "a", Hash: "0", Data: "ours"},
		kpl.Record{Key: "a", Data: "by MD5"}, // 0cc1…
		kpl.Record{Key: "b", Data: "other"},  // 92eb…
	)
	var got []string
	e := read(shard{keys: lower}, data)
	for _, r := range e.Records {
		got = append(got, string(r.Data))
	}
	if want := []string{"ours", "by MD5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if e.Foreign != 2 {
		t.Errorf("%d records are counted as left out, want 2", e.Foreign)
	}
	if e.Records[0].Index != 1 || e.Records[1].Index != 2 {
		t.Error("records that are left out must still count in the indexes of the others")
	}
}

// TestOrder: the texts of Order sort as the records do.
func TestOrder(t *testing.T) {
	var texts []string
	for _, r := range []Record{
		{Sequence: "0"}, {Sequence: "9"}, {Sequence: "9", Index: 1}, {Sequence: "9", Index: 10}, {Sequence: "10"}, {Sequence: "11"},
		{Sequence: "49680432012421693192906901846246322160952532893572268034"},
		{Sequence: "149680432012421693192906901846246322160952532893572268034"},
	} {
		texts = append(texts, r.Order())
	}
	if !slices.IsSorted(texts) {
		t.Errorf("out of order: %q", texts)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(sample)
	f.Add(kpl.Pack(kpl.Record{Key: "a", Hash: "5", Data: "1"}))
	s := shard{keys: all(f)}
	f.Fuzz(func(t *testing.T, message []byte) {
		read(s, message) // must not panic
		_ = fields(message, func(protowire.Number, uint64, []byte) {})
		_, _ = unpackOne(message, []string{"a"}, []string{"5"})
	})
}
