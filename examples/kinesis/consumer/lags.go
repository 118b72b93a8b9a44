package consumer

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
)

// Lags is how far the shards of this worker are. Its zero value is ready for use, and a
// nil one too.
type Lags struct {
	mu     sync.Mutex
	shards map[string]Lag

	failed, skipped atomic.Int64
}

// Poison gives how many times a record failed in this process, and how many records were
// left out for that.
func (l *Lags) Poison() (failed, skipped int64) { return l.failed.Load(), l.skipped.Load() }

// A Lag is how far one shard is: it was read up to Behind before its end, and of what was
// read, Backlog is not in the sink yet.
type Lag struct {
	Behind  time.Duration
	Backlog checkpoint.Backlog
	Read    int // records, in this tenure
}

func (l *Lags) tell(shard string, batch stream.Batch, backlog checkpoint.Backlog) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shards == nil {
		l.shards = map[string]Lag{}
	}
	next := Lag{Behind: batch.Behind, Backlog: backlog, Read: l.shards[shard].Read}
	for _, entry := range batch.Entries {
		next.Read += len(entry.Records)
	}
	l.shards[shard] = next
}

func (l *Lags) forget(shard string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.shards, shard)
}

// Shards gives the lag of each shard that this worker holds.
func (l *Lags) Shards() map[string]Lag {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.shards)
}

// WriteMetrics writes the lags in the text format of Prometheus. Alert on the largest
// consumer_behind_seconds of the group: a shard that nobody holds has none here, so alert
// on their number too. Alert on any consumer_skipped_records_total.
func (l *Lags) WriteMetrics(w io.Writer) {
	shards := l.Shards()
	names := slices.Sorted(maps.Keys(shards))
	for _, metric := range []struct {
		name, kind string
		value      func(Lag) float64
	}{
		{"consumer_behind_seconds", "gauge", func(l Lag) float64 { return l.Behind.Seconds() }},
		{"consumer_unfinished_entries", "gauge", func(l Lag) float64 { return float64(l.Backlog.Begun) }},
		{"consumer_oldest_unfinished_seconds", "gauge", func(l Lag) float64 { return l.Backlog.Open.Seconds() }},
		{"consumer_read_records_total", "counter", func(l Lag) float64 { return float64(l.Read) }},
	} {
		fmt.Fprintf(w, "# TYPE %s %s\n", metric.name, metric.kind)
		for _, name := range names {
			fmt.Fprintf(w, "%s{shard=%q} %g\n", metric.name, name, metric.value(shards[name]))
		}
	}
	failed, skipped := l.Poison()
	fmt.Fprintf(w, "# TYPE consumer_failures_total counter\nconsumer_failures_total %d\n", failed)
	fmt.Fprintf(w, "# TYPE consumer_skipped_records_total counter\nconsumer_skipped_records_total %d\n", skipped)
}
