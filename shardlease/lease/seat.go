package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/rebalance"
)

// A Seat is the sign of life of one running worker. Its beat grows with every
// heartbeat; whoever watches it stand still for TTL on a clock of its own may
// evict the worker with one conditional delete. Either the next beat lands or
// the eviction does.
//
// A seat is keyed by its incarnation, not by the worker's name: two workers of
// one name are two seats, and a worker that comes back does not come back as
// the one that was evicted.
type Seat struct {
	Group       string
	Incarnation Incarnation
	WriteID     WriteID
	Beat        int64

	Name      string
	Task      string
	TTL       time.Duration // how long its beat may stand still
	MaxShards int64         // how many shards it will hold; 0: any number
	Planner   string        // fingerprint of its planner: workers of one mind may move held shards
	Says                    // what it tells the others with its beat
	At        time.Time     // its wall clock, for people
}

// Says is what a worker has to tell the others. Every beat says all of it anew.
type Says struct {
	Leaving bool // it is on its way out and takes nothing more
	// Wants are what it asks others for; or, while it is leaving, what it has and nobody asks
	// for: a worker of a large fleet may not know.
	Wants []Want
	// Freed counts the shards it has made, finished or given back to nobody.
	// Nobody lists the rows while nothing happens; who sees this grow does.
	Freed int64
}

// A Want asks for one shard, as it stood under one generation: the owner ignores
// a want for any other. It vanishes with the seat it is written on.
type Want struct {
	Shard      string
	Generation int64
	Terms      rebalance.Terms
}

// Stands reports whether the want is about r as it stands.
func (w Want) Stands(r Row) bool { return w.Shard == r.Shard && w.Generation == r.Generation }

func (w Want) validate() error {
	return errors.Join(validName("wanted shard", w.Shard), positive("wanted generation", w.Generation), w.Terms.Validate())
}

func (w Want) String() string { return fmt.Sprintf("%d %v %s", w.Generation, w.Terms, w.Shard) }

// Confirmed reports whether the seat has beaten at all. A worker claims nothing
// before. An unconfirmed seat that a shard's owner names is the late twin of a
// creation that was evicted since: it counts for nothing, and expires. (Were the
// first beat repeated late as well, the seat would count for one lease time
// more. Nothing but that time rests on it.)
func (s Seat) Confirmed() bool { return s.Beat > 0 }

// Key is the seat's address.
func (s Seat) Key() Key { return Key{Group: s.Group, Kind: KindSeat, Name: string(s.Incarnation)} }

// Written is the id of the write that left the seat like this.
func (s Seat) Written() WriteID { return s.WriteID }

func (s Seat) count() int64 { return s.Beat }

// Owner is how the seat's worker signs the rows it takes.
func (s Seat) Owner() Owner { return Owner{Name: s.Name, Incarnation: s.Incarnation, Task: s.Task} }

// Validate reports, all at once, what about s cannot be stored.
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
		return &checkpoint.InvalidError{Field: "wants", Rule: fmt.Sprintf("must be at most %d, are %d", MaxWants, len(s.Wants)), Limit: MaxWants}
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
		fmt.Fprintf(&b, ", wants %d shards", n)
	}
	return b.String()
}

// LogValue gives structured logs the seat by field.
func (s Seat) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("group", s.Group), slog.String("worker", s.Name), slog.String("incarnation", string(s.Incarnation)),
		slog.Int64("beat", s.Beat), slog.Bool("leaving", s.Leaving), slog.Int("wants", len(s.Wants)))
}
