package kinesis

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
)

// BenchmarkFigures measures what the figures cost for each record: answers of 1,000 records, which are processed one by
// one.
func BenchmarkFigures(b *testing.B) {
	records := make([]stream.Entry, 1000)
	for i := range records {
		records[i].Records = []stream.Record{{Key: "k", Data: make([]byte, 100)}}
	}
	var all figures
	lanes := []*lane{{}}
	s := newFigures(b.Context(), "a", 0)
	all.begin(s, lanes)
	arrived := Record{Arrived: time.Now()}
	for n := 0; b.Loop(); n++ {
		if n%1000 == 0 {
			s.read(stream.Batch{Entries: records})
		}
		lanes[0].await(arrived)
		s.processed.Add(1)
		lanes[0].arrived.Store(0)
	}
}
