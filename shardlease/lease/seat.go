package lease

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
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
	Says                    // what the worker publishes with its heartbeat
	At        time.Time     // the worker's wall clock at its last heartbeat, for people

	// The other fields are for people and tools, and do not change during the life of the seat. An empty
	// text or a zero time means unknown.

	Build   string        // the version of the worker's program
	Since   time.Time     // when the worker took this seat, by its wall clock
	Handoff string        // its handoff mode or terms; "custom": it decides for each shard
	Backoff time.Duration // how long a failed shard rests at first; 0: DefaultBackoff; negative: not at all
}

// DefaultBackoff is the default of shardlease's Config.Backoff, and the backoff of a worker whose seat stores
// none.
const DefaultBackoff = time.Second

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
		validTask(s.Task), s.Says.validate(),
		validText("build", s.Build, MaxName), validText("handoff", s.Handoff, MaxName),
	}
	if s.Beat < 0 {
		errs = append(errs, invalid("beat", "must not be negative"))
	}
	if s.TTL < time.Millisecond || s.TTL > rebalance.MaxDuration {
		errs = append(errs, invalid("lease time", fmt.Sprintf("must be between 1ms and %v", rebalance.MaxDuration)))
	}
	if s.Backoff > rebalance.MaxDuration {
		errs = append(errs, invalid("backoff", fmt.Sprintf("must be at most %v", rebalance.MaxDuration)))
	}
	if s.Handoff == noHandoff {
		errs = append(errs, invalid("handoff", "must be empty if there is none"))
	}
	if s.MaxShards < 0 {
		errs = append(errs, invalid("max shards", "must not be negative"))
	}
	return errors.Join(errs...)
}

// clone returns a copy that shares no memory with s.
func (s Seat) clone() Seat {
	s.Says = s.Says.clone()
	return s
}

func (s Seat) encode(put func(string, any)) {
	put(attr.Beat, s.Beat)
	put(attr.Name, s.Name)
	put(attr.Task, s.Task)
	put(attr.TTL, s.TTL.Milliseconds())
	put(attr.MaxShards, s.MaxShards)
	s.Says.encode(put)
	put(attr.At, millis(s.At))
	put(attr.Build, s.Build)
	put(attr.Since, millis(s.Since))
	put(attr.Handoff, storedHandoff(s.Handoff))
	put(attr.Backoff, s.Backoff.Milliseconds())
}

func (in *reader) seat(key Key) Seat {
	return Seat{
		Group: key.Group, Incarnation: Incarnation(key.Name), WriteID: WriteID(in.text(attr.WriteID)), Beat: in.number(attr.Beat),
		Name: in.text(attr.Name), Task: in.text(attr.Task), TTL: in.duration(attr.TTL),
		MaxShards: in.number(attr.MaxShards), Says: in.says(), At: in.time(attr.At),
		Build: in.text(attr.Build), Since: in.time(attr.Since), Handoff: readHandoff(in.text(attr.Handoff)),
		Backoff: in.duration(attr.Backoff),
	}
}

// The handoff strategy as a seat stores it. Cooperative is not stored, and that there is none is: an attribute of
// all seats of a large fleet makes every listing more expensive.
const noHandoff = "none"

func storedHandoff(handoff string) string {
	switch handoff {
	case "":
		return noHandoff
	case rebalance.Cooperative.String():
		return ""
	}
	return handoff
}

func readHandoff(stored string) string {
	switch stored {
	case "":
		return rebalance.Cooperative.String()
	case noHandoff:
		return ""
	}
	return stored
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
	if n := int64(len(s.Waits)) + s.WaitsLeft; n > 0 {
		fmt.Fprintf(&b, ", waits for %d leases", n)
	}
	if s.Health.Unwell != "" {
		fmt.Fprintf(&b, ", unwell: %s", s.Health.Unwell)
	}
	if n := s.Health.Silent; n > 0 {
		fmt.Fprintf(&b, ", %d silent tenures", n)
	}
	return b.String()
}

// LogValue returns the seat as a group of fields for structured logs.
func (s Seat) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("group", s.Group), slog.String("worker", s.Name), slog.String("incarnation", string(s.Incarnation)),
		slog.Int64("beat", s.Beat), slog.Bool("leaving", s.Leaving), slog.Int("wants", len(s.Wants)))
}
