package stream_test

import (
	"context"
	"errors"
	"io"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/kpl"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// half is the first hash key of the upper half of all keys.
var half = new(big.Int).Lsh(big.NewInt(1), 127)

// entriesOf reads a shard to its end.
func entriesOf(t *testing.T, s *stream.Stream, shard string) (all []stream.Entry) {
	t.Helper()
	for batch, err := range s.Read(t.Context(), shard, "", nil) {
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch.Entries...)
	}
	return all
}

// TestRecordsWithoutAKey: records whose key is absent are read like others. Before, the reader
// panicked at the first of them.
func TestRecordsWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(kinesistest.Shard{Name: "a", Closed: true, Records: []kinesistest.Record{
			{Data: []byte("0")}, {Data: kpl.Pack(kpl.Record{Key: "", Data: "1"})}, {Data: kpl.Pack(kpl.Record{Key: "k", Data: "2"})},
		}})
		all := entriesOf(t, &stream.Stream{Client: server.Client(), Name: "orders"}, "a")
		if len(all) != 3 {
			t.Fatalf("%d entries, want 3", len(all))
		}
		none, empty, inner := all[0].Records[0], all[1].Records[0], all[2].Records[0]
		if !none.Keyless || empty.Keyless || inner.Keyless || inner.Key != "k" {
			t.Errorf("read %+v, %+v and %+v", none, empty, inner)
		}
		if none.OrderKey() == empty.OrderKey() || empty.OrderKey() != "" || inner.OrderKey() != "k" {
			t.Errorf("the keys of their orders are %q, %q and %q", none.OrderKey(), empty.OrderKey(), inner.OrderKey())
		}
	})
}

// lower returns a closed shard of the lower half of the keys with entries that have a packed
// record of each half. An entry arrives every second, so that the last ones are new.
func lower(n int) kinesistest.Shard {
	s := kinesistest.Shard{Name: "a", Closed: true, From: "0", To: new(big.Int).Sub(half, big.NewInt(1)).String()}
	for range n {
		data := kpl.Pack(kpl.Record{Key: "ours", Hash: "0", Data: "x"}, kpl.Record{Key: "other", Hash: half.String(), Data: "y"})
		s.Records = append(s.Records, kinesistest.Record{Key: "outer", Data: data, Arrived: time.Now()})
	}
	return s
}

// TestForeignRecords: packed records whose keys belong to another shard are left out and counted,
// or kept if Foreign is Keep.
func TestForeignRecords(t *testing.T) {
	for what, want := range map[stream.Foreign][2]int{stream.Drop: {4, 4}, stream.Keep: {8, 0}} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(lower(4))
			records, foreign := 0, 0
			for _, e := range entriesOf(t, &stream.Stream{Client: server.Client(), Name: "orders", Foreign: what}, "a") {
				records, foreign = records+len(e.Records), foreign+e.Foreign
			}
			if records != want[0] || foreign != want[1] {
				t.Errorf("%d records, and %d left out; want %v", records, foreign, want)
			}
			if n := len(server.Calls("DescribeStreamSummary")); n > 2 {
				t.Errorf("%d descriptions of the stream for one answer", n)
			}
		})
	}
}

// TestSwitchToAutoDistribution: on a stream with AUTO distribution no packed record is left out,
// also directly after the stream was switched. Before, half of the records were lost.
func TestSwitchToAutoDistribution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := lower(0)
		open.Closed = false
		server := newFake(open)
		s := &stream.Stream{Client: server.Client(), Name: "orders"}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		records, foreign := 0, 0
		time.AfterFunc(10*time.Second+time.Millisecond, func() { // between two reads
			server.SetStrategy(types.RecordDistributionStrategyAuto)
			server.Forget("a")
			server.Add(lower(3))
		})
		for batch := range s.Read(ctx, "a", "", nil) {
			for _, e := range batch.Entries {
				records, foreign = records+len(e.Records), foreign+e.Foreign
			}
		}
		if records != 6 || foreign != 0 {
			t.Errorf("%d records, and %d left out; want 6 and 0", records, foreign)
		}
	})
}
