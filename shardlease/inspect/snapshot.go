package inspect

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Snapshot is the state of a group at one moment. Its parts were read one after the other: the
// rows first.
type Snapshot struct {
	Group   string
	At      time.Time // when the look ended, by the reader's clock
	RowsAt  time.Time // when the rows were read, by the reader's clock; [Watch] reads them less often than seats
	Shards  []Shard   // sorted by name
	Workers []Worker  // sorted by name and incarnation
	Plan    *lease.Plan
	// Sessions reports that the group is one of sessions: Shards are its leases by name, Workers are its
	// sessions, and it has no plan. Sessions is false if the record cannot be read that says so.
	Sessions bool
	// PlanAge is how long the plan has had its revision, open or complete.
	PlanAge Age
	Wishes  []lease.Wish // those of operators, also if they have ended and no planner has removed them yet
	// Targets are the pages of the target assignments, sorted by worker and page. With [Options.NoTargets], and from
	// [LookAt], there are none.
	Targets []lease.Target

	// Unreadable lists the records that exist and cannot be read, sorted by kind and name.
	Unreadable []Unreadable
	// Restored reports that the table was restored or replaced: the workers claim nothing until an
	// operator adopts it. RestoredWhy is the store's reason.
	Restored    bool
	RestoredWhy string
	Unverified  error // why the store could not find out whether the table was restored; nil: it could

	// Ends are the counts of the tenures that have ended, by hour, as far back as [Options].Ends; from [LookAt] there are none.
	// Uncounted is why some or all of them cannot be read; nil: they were.
	Ends      []lease.Ends
	Uncounted error

	Partial bool // only some shards were read, by [LookAt]
	Cost    Cost // what this look has read

	maxBackoff, quiet time.Duration          // as in Options
	endsFrom          time.Time              // the first hour that Ends would have
	ended             map[lease.Reason]int64 // how many tenures have ended since the first look of an Observer; nil: unknown
}

// An Unreadable is a record that exists and cannot be read.
type Unreadable struct {
	Key   lease.Key
	Cause error
}

// A Cost is an estimate of what a look has read. It counts the bytes of the records as DynamoDB does:
// a unit for each 4 KB of a page of at most 1 MB, and half a unit where the read may lag behind. It
// does not know of tombstones, of buckets and of the reads with which a store verifies its table.
type Cost struct {
	ReadUnits float64
}

// A State is what a shard is doing.
type State string

// The states of a shard.
const (
	Held        State = "held"        // a worker holds it
	Moving      State = "moving"      // a worker holds it, and another requests it or is offered it
	Free        State = "free"        // no worker holds it, and any worker may claim it
	Resting     State = "resting"     // no worker holds it, and it rests after a failure
	Blocked     State = "blocked"     // no worker holds it, because a parent is not finished
	Orphaned    State = "orphaned"    // its owner has no seat any more
	Unlisted    State = "unlisted"    // the source no longer lists it, although it is not finished
	Quarantined State = "quarantined" // it is set aside until an operator decides
	Finished    State = "finished"    // it is processed to its end
	Removed     State = "removed"     // its row is a tombstone
)

// States returns all states.
func States() []State {
	return []State{Held, Moving, Free, Resting, Blocked, Orphaned, Unlisted, Quarantined, Finished, Removed}
}

// A Shard is one shard and what is known about it.
type Shard struct {
	Name     string
	State    State
	Row      lease.Row
	Owner    lease.Owner // the worker that holds it; zero: nobody
	Target   lease.Owner // the worker to which the plan assigns it; zero: unknown
	Attempts int64       // how many tenures have failed since it last made progress
	// LastFailure is the latest transfer that ended a failed tenure, if the row remembers one.
	LastFailure *lease.Transfer
	Checkpoint  Age      // how long ago a checkpoint was last accepted
	Tenure      Age      // how long ago the shard last changed hands
	Since       Age      // how long the shard has been in this state
	Blockers    []string // the parents for which a blocked shard waits
	Move        *Move    // the planned move of a held shard; nil: none
	Size        int      // the size of the row, in bytes as DynamoDB counts them

	waits []waiter // see Waiters
}

// A Move is a planned move of one shard from its owner to a successor.
type Move struct {
	From, To lease.Owner
	Mode     rebalance.Mode // zero: unknown
	Why      rebalance.Why  // the cause, as the plan says; zero: unknown
	Note     string         // by whom and why, if an operator has caused the move
	Phase    Phase
	For      Age           // how long the move has been standing; only an [Observer] knows it
	May      time.Duration // how long it may stand; 0: any time
}

// A Phase is how far a move has come.
type Phase string

// The phases of a move.
const (
	Requested Phase = "requested" // the successor requests the shard
	Offered   Phase = "offered"   // the owner offers the shard, and the successor may take it over
	Dangling  Phase = "dangling"  // the shard is offered to a worker that has no seat
)

// A Worker is one seat and what is known about its worker.
type Worker struct {
	Seat   lease.Seat
	Held   int // how many shards it holds
	Giving int // how many of them are in a move to another worker
	Taking int // how many shards are in a move to it
	Target int // how many shards the plan assigns to it; -1: unknown
	// Lacking is how many of Target it does not hold although they need a worker.
	Lacking int
	Seated  Age // how long it has had its seat
	Silent  Age // how long ago its last heartbeat was
	// Dead reports that the heartbeat is so late that another worker should have evicted this one.
	Dead   bool
	Leaves bool   // it shuts down
	Health string // why it is not well; empty: it is well
	// Hangs are the shards whose handlers have not returned although their tenures on this worker have ended, as its
	// seat names them. While a handler hangs, its process claims the shard no more; only a restart ends it.
	Hangs []string
	// Wish is the kind of the wish that stands for the workers of its name, the last of [lease.WishKinds]; empty:
	// there is none.
	Wish    lease.WishKind
	Beating Tri // whether its heartbeat moves

	// Unsettled is how long the worker has not seen the complete plan, or has not held what it
	// assigns. It is unknown for a worker that does hold it.
	Unsettled Age
	// Emptying is how long the number of its shards has not fallen although it leaves. Only an
	// [Observer] knows it.
	Emptying Age

	waits int // see Waits
}

// A Tri is a fact that may be unknown.
type Tri string

// The values of a Tri.
const (
	Unknown Tri = "unknown" // not watched for long enough
	Yes     Tri = "yes"
	No      Tri = "no"
)

// Shard returns the shard of that name, or nil.
func (s *Snapshot) Shard(name string) *Shard {
	at, ok := slices.BinarySearchFunc(s.Shards, name, func(of Shard, name string) int { return strings.Compare(of.Name, name) })
	if !ok {
		return nil
	}
	return &s.Shards[at]
}

// Worker returns the worker of that incarnation, or nil.
func (s *Snapshot) Worker(inc lease.Incarnation) *Worker {
	at := slices.IndexFunc(s.Workers, func(of Worker) bool { return of.Seat.Incarnation == inc })
	if at < 0 {
		return nil
	}
	return &s.Workers[at]
}

// Count returns how many shards are in a state.
func (s *Snapshot) Count(state State) (n int) {
	for i := range s.Shards {
		if s.Shards[i].State == state {
			n++
		}
	}
	return n
}

// noun returns the noun for those that have a seat in this group.
func (s *Snapshot) noun() string {
	if s.Sessions {
		return "session"
	}
	return "worker"
}

// told returns the shards of which the seat of the worker has news of one kind.
func (w *Worker) told(kind lease.NewsKind) (shards []string) {
	for _, n := range w.Seat.News {
		if n.Kind == kind {
			shards = append(shards, n.Shard)
		}
	}
	return shards
}

func (w *Worker) alive() bool { return !w.Dead && w.Seat.Confirmed() }

// living returns the workers that have a seat, have stored a heartbeat, and are not dead.
func (s *Snapshot) living() (all []*Worker) {
	for i := range s.Workers {
		if w := &s.Workers[i]; w.alive() {
			all = append(all, w)
		}
	}
	return all
}

// leaseTime returns the longest lease time of the workers.
func (s *Snapshot) leaseTime() time.Duration {
	longest := time.Duration(0)
	for i := range s.Workers {
		longest = max(longest, s.Workers[i].Seat.TTL)
	}
	return cmp.Or(longest, 10*time.Second)
}
