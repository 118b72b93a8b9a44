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

// Lags records how far the shards of this worker are behind. The zero value is ready for use,
// and so is nil.
type Lags struct {
	mu     sync.Mutex
	shards map[string]Lag

	failed, skipped atomic.Int64
}

// Poison returns how often records have failed in this process, and how many records were left
// out because they failed.
func (l *Lags) Poison() (failed, skipped int64) { return l.failed.Load(), l.skipped.Load() }

// A Lag is how far one shard is behind.
type Lag struct {
	// Behind is the time between the last record that was read and the end of the shard.
	Behind time.Duration
	// Backlog is what has been read and is not in the sink yet.
	Backlog checkpoint.Backlog
	// Read is the number of records that this tenure has read.
	Read int
}

func (l *Lags) record(shard string, batch stream.Batch, backlog checkpoint.Backlog) {
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

// Shards returns the lag of each shard that this worker holds.
func (l *Lags) Shards() map[string]Lag {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.shards)
}

// WriteMetrics writes the lags in the text format of Prometheus. Alert on the largest
// consumer_behind_seconds of the group, and on the number of shards that have one, because a
// shard without an owner has none. Alert on any consumer_skipped_records_total.
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
