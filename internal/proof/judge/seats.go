package judge

import (
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Seats are the seats that a fleet has had.
type Seats map[lease.Incarnation]Seat

// A Seat is what the judge has seen of a seat.
type Seat struct {
	By      any           // the process that has created it
	Began   time.Duration // when it was created
	Written time.Duration // when it was last written
	Deleted time.Duration // when it was first deleted
	Gone    bool          // it was deleted. Only a late twin of its creation can have stored it again
}

// Wrote records a write of a seat by a process, and checks it. A process may delete the seat of another process only if
// that seat has stood still for its lease time, by the fastest clock, or if the deletion is excused.
func (s Seats) Wrote(w lease.Write, by any, now time.Duration, clocks Clocks, excused bool) error {
	inc := lease.Incarnation(w.Key().Name)
	of, known := s[inc]
	if !known {
		of = Seat{By: by, Began: now}
	}
	defer func() { s[inc] = of }()
	old, _ := w.Old.(lease.Seat)
	if next, ok := w.Next.(lease.Seat); ok {
		of.Written = now
		if of.By != by { // the writer may be of a build that does not know all attributes of the seat
			return fmt.Errorf("%v wrote the seat %v of %v", by, inc, of.By)
		}
		if next.Revision < old.Revision {
			return fmt.Errorf("%v goes back from revision %d to %d", inc, old.Revision, next.Revision)
		}
		return nil
	}
	var early error
	if still := now - of.Written; of.By != by && !of.Gone && still < clocks.Least(old.TTL) && !excused {
		early = fmt.Errorf("S4: %v evicted %s of %v, which had stood still for %v only", by, inc, of.By, still)
	}
	if !of.Gone {
		of.Deleted, of.Gone = now, true
	}
	return early
}

// Clocks is by how much the fastest clock of a world is too fast, in thousandths. Zero means that all clocks are right.
type Clocks int

// Least returns how much time has passed at least when any clock has counted d.
func (c Clocks) Least(d time.Duration) time.Duration {
	if c == 0 {
		return d
	}
	return d*1000/(1000+time.Duration(c)) - time.Millisecond
}

// Requests are the requests that seats have had, each with the time when it was first there.
type Requests map[Request]time.Duration

// A Request is the request of one worker for the shard of a tenure.
type Request struct {
	By lease.Incarnation
	Of Tenure
}

// Saw records the requests of a seat.
func (r Requests) Saw(s lease.Seat, now time.Duration) {
	for _, want := range s.Wants {
		of := Request{s.Incarnation, Tenure{want.Shard, want.Generation}}
		if _, known := r[of]; !known {
			r[of] = now
		}
	}
}

// Any reports whether any worker has requested the shard of the tenure.
func (r Requests) Any(t Tenure) bool {
	for of := range r {
		if of.Of == t {
			return true
		}
	}
	return false
}
