package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// A Seat is the row that shows that one worker is running. Its heartbeat counter grows with
// every heartbeat. A worker that sees the counter stand still for TTL, measured on its own
// clock, may evict the other with one conditional delete. Either the next heartbeat is stored
// or the eviction, never both.
//
// A seat is keyed by its incarnation, not by the name of its worker: two workers with the same
// name have two seats, and a worker that was evicted returns under a new incarnation.
type Seat struct {
	Group       string
	Incarnation Incarnation
	WriteID     WriteID
	Beat        int64 // the heartbeat counter

	Name      string
	Task      string
	TTL       time.Duration // the lease time: how long the heartbeat counter may stand still
	MaxShards int64         // how many shards the worker holds at most; 0: any number
	Planner   string        // the fingerprint of the worker's planner; held shards move only while all workers have the same
	Says                    // what the worker publishes with its heartbeat
	At        time.Time     // the worker's wall clock at its last heartbeat, for people
}

// Says is what a worker publishes with its heartbeats. Every heartbeat writes all of it again.
type Says struct {
	Leaving bool // the worker is shutting down and takes no more shards
	// Wants are the shards that the worker requests. A leaving worker writes the shards that it
	// holds and that nobody requests: the workers of a large fleet may not know of them.
	Wants []Want
	// Freed counts the shards that the worker has created, finished or released to nobody. While
	// nothing happens no worker lists the rows, so the others list them when they see Freed grow.
	Freed int64
}

// A Want is the request for one shard under one generation: the owner ignores a request for
// any other generation. A request vanishes with the seat that contains it.
type Want struct {
	Shard      string
	Generation int64
	Terms      rebalance.Terms
}

// Stands reports whether the request is for r and for its present generation.
func (w Want) Stands(r Row) bool { return w.Shard == r.Shard && w.Generation == r.Generation }

func (w Want) validate() error {
	return errors.Join(validName("wanted shard", w.Shard), positive("wanted generation", w.Generation), w.Terms.Validate())
}

// String returns the text in which a seat stores the request, such as "7 eager 20s force 0s shard-1".
func (w Want) String() string {
	t := w.Terms
	return fmt.Sprintf("%d %v %v %v %v %s", w.Generation, t.Mode, t.Drain, t.AfterDrain, t.Prepare, w.Shard)
}

// Confirmed reports whether the worker has stored its first heartbeat. It claims nothing
// before. An unconfirmed seat proves no life, even if a lease row names its incarnation: the
// write that created it may have arrived late, after the seat had been evicted. Such a seat
// expires. (If the first heartbeat arrives late as well, the seat proves life for one lease
// time more, and costs nothing but this time.)
func (s Seat) Confirmed() bool { return s.Beat > 0 }

// Key returns the address of the seat.
func (s Seat) Key() Key { return Key{Group: s.Group, Kind: KindSeat, Name: string(s.Incarnation)} }

// Written returns the id of the write that made the seat what it is.
func (s Seat) Written() WriteID { return s.WriteID }

func (s Seat) count() int64 { return s.Beat }

// Owner returns the owner that the seat's worker writes into the rows that it takes.
func (s Seat) Owner() Owner { return Owner{Name: s.Name, Incarnation: s.Incarnation, Task: s.Task} }

// Validate reports everything that makes s impossible to store.
func (s Seat) Validate() error {
	errs := []error{
		s.Key().Validate(), validID("write id", string(s.WriteID)), validName("worker name", s.Name),
		validText("task", s.Task, MaxName), validText("planner", s.Planner, MaxID), s.validateWants(),
	}
	if s.Beat < 0 {
		errs = append(errs, invalid("beat", "must not be negative"))
	}
	if s.TTL < time.Millisecond || s.TTL > rebalance.MaxDuration {
		errs = append(errs, invalid("lease time", fmt.Sprintf("must be between 1ms and %v", rebalance.MaxDuration)))
	}
	if s.MaxShards < 0 || s.Freed < 0 {
		errs = append(errs, invalid("max shards and freed", "must not be negative"))
	}
	return errors.Join(errs...)
}

func (s Seat) validateWants() error {
	if len(s.Wants) > MaxWants {
		return tooMany("wants", len(s.Wants), MaxWants)
	}
	for i, want := range s.Wants {
		if err := want.validate(); err != nil {
			return err
		}
		if i > 0 && s.Wants[i-1].Shard >= want.Shard {
			return invalid("wants", "must be sorted, one for each shard")
		}
	}
	return nil
}

func (s Seat) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %v, beat %d, lease time %v", s.Key(), s.Owner(), s.Beat, s.TTL)
	if !s.Confirmed() {
		b.WriteString(", unconfirmed")
	}
	if s.Leaving {
		b.WriteString(", leaving")
	}
	if n := len(s.Wants); n > 0 {
		fmt.Fprintf(&b, ", requests %d shards", n)
	}
	return b.String()
}

// LogValue returns the seat as a group of fields for structured logs.
func (s Seat) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("group", s.Group), slog.String("worker", s.Name), slog.String("incarnation", string(s.Incarnation)),
		slog.Int64("beat", s.Beat), slog.Bool("leaving", s.Leaving), slog.Int("wants", len(s.Wants)))
}
