package kinesis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
)

// A Config is the configuration of a [Consumer]. The zero value of a field means its default; Stream or
// Streams, Group and Handoff have none. All workers of a group should have the same configuration, except
// for Name.
type Config struct {
	// Stream is the name or the ARN of the stream. The names of the leases are the ids of its shards.
	Stream string
	// Streams are the names or ARNs of several streams that one fleet reads. Set it instead of Stream.
	// The leases have names like "orders/shardId-000000000000".
	Streams []string
	// Group is the name of the fleet. Each group reads the whole stream. Required.
	Group string
	// Handoff chooses the cost of a planned move: rebalance.Eager (a gap) or rebalance.Cooperative
	// (an overlap). Required.
	Handoff rebalance.Handoff
	// Name identifies this worker to people. Default: host, process id and a few random letters.
	Name string

	// Start is where a new group begins: by default at the oldest record that is left. The first worker fixes
	// the place for the whole group; after that another Start has no effect, and is logged. Shards that are
	// created later are read from their beginning.
	Start Start
	// Idle is the time between two reads of a shard that is polled and has no new records. A shard that is
	// behind is read up to four times per second; Kinesis allows five reads for all groups together.
	// Default 1 s.
	Idle time.Duration
	// Read is how shards are read: by [Auto] (the default), [Poll] or [FanOut].
	Read Read

	// Foreign decides about packed records whose keys belong to another shard since a split or merge.
	// Default [Drop]: they are left out, counted ([ShardStats].Foreign), and logged once per tenure.
	Foreign Foreign

	// Lanes is the maximum number of simultaneous calls of the function for a shard. Records with the same
	// key are never in two of them, so they keep their order. Default 4.
	Lanes int
	// InFlight is how many records of a shard may be read and not yet processed. Default 10,000.
	InFlight int
	// ShardMemory and Memory bound the bytes that are read and not yet processed: of one shard, and of
	// all shards of this consumer. A shard that has reached its bound is not read. One answer of Kinesis
	// may have 10 MiB. Default 16 MiB and 256 MiB.
	ShardMemory, Memory int64

	// Batch is the maximum number of records that RunBatch passes to the function. Default 100.
	Batch int
	// Window is how long RunBatch waits for a batch to become full, from its first record. Default: it
	// does not wait. At most one minute.
	Window time.Duration

	// Tries is how often, within one tenure, the function is called for a record that fails alone. The pauses
	// double from 100 ms to 10 s. Default 5.
	Tries int
	// Attempts is the number of tenures that may fail in a row at the front of a shard. If the last of them
	// failed at a record, DeadLetter gets this record; without DeadLetter the shard is quarantined. The
	// shard rests between two attempts, and often another worker makes the next one. Failures for other
	// reasons, such as the death of a worker, count too; a stall does not. A record that is processed
	// resets the count. Default 3.
	Attempts int
	// DeadLetter is called for a record that has failed in Attempts tenures, with the last error. If it
	// returns nil, the record is left out, which is counted and logged as an error; otherwise the tenure ends
	// before the record. It may be called again for the same record. [Skip] does nothing but leave the
	// record out. Default: the shard stops: it is quarantined before the record.
	DeadLetter func(ctx context.Context, r Record, err error) error
	// MaxAge is the greatest age of a record for which the function is called. DeadLetter, which must be
	// set then, gets older records, with [ErrTooOld]. Default: no limit.
	MaxAge time.Duration

	// StallAfter is how long one call of the function may last, or reads may go unanswered, before the
	// worker releases the shard to another one. [Alive] restarts the time of a call. Default 15 min;
	// negative: off. In any case event.Silent reports a shard without progress for 5 minutes.
	StallAfter time.Duration

	// Observe is called with the events of the worker, one at a time. [Consumer.Stats] has the figures.
	Observe func(event.Event)
	// Logger logs the events, records that fail or are left out, and reads that are tried again.
	// Default: nothing is logged.
	Logger *slog.Logger

	// Worker has the other settings of the worker, such as TTL, Drain, MaxBackoff and Deathwatch. Do not
	// set Order, nor a field that Config itself has.
	Worker shardlease.Config
}

// ErrTooOld is the error with which [Config.DeadLetter] gets a record that is older than [Config.MaxAge].
var ErrTooOld = errors.New("the record is older than Config.MaxAge")

// Skip is a function for [Config.DeadLetter]: it leaves the record out and does nothing else.
func Skip(context.Context, Record, error) error { return nil }

const (
	defaultStall = 15 * time.Minute
	longestWait  = time.Minute // of Window
)

// faults collects the faults of a configuration.
type faults []error

func (f *faults) add(field, rule string, args ...any) {
	*f = append(*f, &shardlease.ConfigError{Field: field, Rule: fmt.Sprintf(rule, args...)})
}

// count sets a number that is zero to its default.
func count[T int | int64](f *faults, field string, value *T, otherwise T) {
	if *value = cmp.Or(*value, otherwise); *value < 1 {
		f.add(field, "must be at least 1, is %d; it cannot be turned off", *value)
	}
}

// withDefaults sets the fields that are zero to their defaults. It reports every fault at once,
// except those of Worker, which shardlease.New reports.
func (c Config) withDefaults() (Config, error) {
	var f faults
	c.streams(&f)
	c.reading(&f)
	count(&f, "Lanes", &c.Lanes, 4)
	count(&f, "InFlight", &c.InFlight, 10_000)
	count(&f, "ShardMemory", &c.ShardMemory, 16<<20)
	count(&f, "Memory", &c.Memory, 256<<20)
	count(&f, "Batch", &c.Batch, 100)
	count(&f, "Tries", &c.Tries, 5)
	count(&f, "Attempts", &c.Attempts, 3)
	c.times(&f)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.worker(&f)
	return c, errors.Join(f...)
}

func (c *Config) streams(f *faults) {
	switch {
	case c.Stream == "" && len(c.Streams) == 0:
		f.add("Stream", "must be given: the name or the ARN of the stream, or use Streams")
	case c.Stream != "" && len(c.Streams) > 0:
		f.add("Streams", "must be empty if Stream is given")
	}
	var names []string
	for _, s := range c.Streams {
		switch name := nameOf(s); {
		case name == "":
			f.add("Streams", "must not contain an empty name")
		case slices.Contains(names, name):
			f.add("Streams", "must not contain two streams of the name %q: their leases would have the same names", name)
		default:
			names = append(names, name)
		}
	}
}

func (c *Config) times(f *faults) {
	c.StallAfter = max(cmp.Or(c.StallAfter, defaultStall), 0)
	switch {
	case c.StallAfter > 0 && c.StallAfter < max(time.Minute, 2*c.Idle): // a healthy shard may have no sign of life for a while
		f.add("StallAfter", "must be at least 1m, and twice Idle, is %v; negative turns it off", c.StallAfter)
	case c.MaxAge > 0 && c.DeadLetter == nil:
		f.add("MaxAge", "needs DeadLetter, which gets the records that are too old; kinesis.Skip leaves them out")
	}
	if c.Foreign != Drop && c.Foreign != Keep {
		f.add("Foreign", "must be Drop or Keep, is %d", c.Foreign)
	}
	if c.Window < 0 || c.Window > longestWait {
		f.add("Window", "must be between 0 and %v, is %v", longestWait, c.Window)
	}
}

// worker completes the settings of the worker.
func (c *Config) worker(f *faults) {
	w := &c.Worker
	for _, taken := range []struct {
		field string
		set   bool
	}{
		{"Group", w.Group != ""}, {"Handoff", w.Handoff != nil}, {"Name", w.Name != ""}, {"Order", w.Order != nil},
		{"StallAfter", w.StallAfter != 0}, {"Observe", w.Observe != nil}, {"Logger", w.Logger != nil},
	} {
		if taken.set {
			f.add("Worker."+taken.field, "must not be set: the consumer sets it, from the field of Config with this name if there is one")
		}
	}
	switch {
	case c.DeadLetter == nil:
		w.MaxAttempts = cmp.Or(w.MaxAttempts, c.Attempts)
	case w.MaxAttempts > 0 && w.MaxAttempts <= c.Attempts:
		f.add("Worker.MaxAttempts", "must be more than Attempts (%d), is %d: the shard would be quarantined before DeadLetter is called", c.Attempts, w.MaxAttempts)
	}
	w.Group, w.Handoff, w.Name = c.Group, c.Handoff, c.Name
	w.Order, w.Observe, w.Logger = stream.Order, c.Observe, c.Logger
	w.StallAfter = -1 // the consumer knows which call stalls, and a stall must not count as a failure
}

// nameOf returns the name of a stream, given its name or its ARN.
func nameOf(s string) string {
	if strings.HasPrefix(s, "arn:") {
		_, s, _ = strings.Cut(s, "/")
	}
	return s
}
