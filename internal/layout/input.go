package layout

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The inputs of a layout, and what finds them in the records of a group.

// An Input is all that a layout depends on.
type Input struct {
	Seats   []lease.Seat        // the confirmed seats, sorted by incarnation. A seat that cannot be read has only its incarnation
	Wishes  []lease.Wish        // those that stand, sorted
	Targets []lease.Target      // the targets of the plan before, each as one page, sorted by incarnation: see Join
	Broken  []lease.Incarnation // the targets of these workers cannot be read
	Shards  []rebalance.Place   // those that need a worker, sorted by name. The owners are the workers to which they are assigned
	Still   bool                // the seats stand still: held shards may move
	Stalls  []Stall             // sorted

	// Me is the seat of the worker that plans. That worker knows its own seat even if nobody can read it. Bars reports
	// whether the source of that worker no longer lists a shard. Both are zero if the layout is only shown.
	Me   lease.Seat
	Bars func(shard string) bool
}

// A Stall is a shard that no worker holds, because the worker to which it is assigned beats and does not take it. It
// counts as declined by that worker.
type Stall struct {
	Worker lease.Incarnation
	Shard  string
}

// Compare orders stalls by worker and shard.
func (s Stall) Compare(other Stall) int {
	return cmp.Or(cmp.Compare(s.Worker, other.Worker), cmp.Compare(s.Shard, other.Shard))
}

// The kinds of news that only workers need.
const (
	NewsRemoved  = lease.NewsKind("removed")  // the row of an assigned shard is a tombstone
	NewsUnlisted = lease.NewsKind("unlisted") // a row says that its shard was given up as unlisted
)

// Wants reports whether a wish of that kind stands for the worker or shard.
func (in *Input) Wants(kind lease.WishKind, subject string) bool {
	_, ok := in.wish(kind, subject)
	return ok
}

// wish returns that wish.
func (in *Input) wish(kind lease.WishKind, subject string) (w lease.Wish, ok bool) {
	at, ok := slices.BinarySearchFunc(in.Wishes, lease.Wish{Kind: kind, Subject: subject}, lease.Wish.Compare)
	if ok {
		w = in.Wishes[at]
	}
	return w, ok
}

// Says reports whether a worker publishes news of one of these kinds about the shard. at is the place of the worker among
// the seats; Nobody (-1) publishes nothing.
func (in *Input) Says(at int, shard string, kinds ...lease.NewsKind) bool {
	return at >= 0 && slices.ContainsFunc(in.Seats[at].News, func(n lease.News) bool {
		return n.Shard == shard && slices.Contains(kinds, n.Kind)
	})
}

// Declines reports whether a worker cannot have the shard: because it publishes that, because it does not take it, or
// because it is the worker that plans, and its source no longer lists the shard.
func (in *Input) Declines(at int, shard string) bool {
	if at < 0 {
		return false
	}
	worker := in.Seats[at].Incarnation
	return in.Says(at, shard, lease.NewsDeclined) || in.stalls(worker, shard) ||
		in.Bars != nil && worker == in.Me.Incarnation && in.Bars(shard)
}

func (in *Input) stalls(worker lease.Incarnation, shard string) bool {
	_, is := slices.BinarySearchFunc(in.Stalls, Stall{worker, shard}, Stall.Compare)
	return is
}

// Limit returns how many shards a worker may have; 0: any number. The planner knows its own limit even if nobody can read its
// seat.
func (in *Input) Limit(at int) int64 {
	if in.Seats[at].Incarnation == in.Me.Incarnation {
		return in.Me.MaxShards
	}
	return in.Seats[at].MaxShards
}

// Declined reports whether no worker can have the shard at present.
func (in *Input) Declined(shard string) bool {
	for at := range in.Seats {
		if !in.Declines(at, shard) {
			return false
		}
	}
	return true
}

// Standing returns the wishes that have not ended.
func Standing(list []lease.Wish, now time.Time) []lease.Wish {
	return slices.DeleteFunc(slices.Clone(list), func(w lease.Wish) bool { return !w.Stands(now) })
}

// SeatOf returns the place of a worker among the seats, or Nobody.
func SeatOf(seats []lease.Seat, inc lease.Incarnation) int {
	compare := func(s lease.Seat, inc lease.Incarnation) int { return cmp.Compare(s.Incarnation, inc) }
	if i, ok := slices.BinarySearchFunc(seats, inc, compare); ok {
		return i
	}
	return rebalance.Nobody
}

// A Found is one place where a shard was found. A shard may be in two targets, if a planner died between its writes.
type Found struct {
	lease.Assigned
	Owner int
	Rank  int64 // for a target its revision, so that the later one of two targets counts
}

// The other ranks.
const (
	Holding  = math.MaxInt64 // a row with a living owner, if there is no whole plan: the row says who holds it
	Row      = 0             // a row without a living owner, if there is no whole plan
	Unplaced = -1            // a shard that the plan lacks: it counts only if nothing else has it
)

// Choose returns the place that counts for each shard, which is the one with the highest rank, sorted by name. It changes
// all.
func Choose(all []Found) []Found {
	slices.SortStableFunc(all, func(a, b Found) int {
		return cmp.Or(strings.Compare(a.Shard, b.Shard), cmp.Compare(b.Rank, a.Rank))
	})
	return slices.CompactFunc(all, func(a, b Found) bool { return a.Shard == b.Shard })
}

// Join joins the pages of each target, as the store lists them, and returns the targets sorted by incarnation. Pages of
// different revisions are joined too, but no page that is left from an earlier, longer target.
func Join(pages []lease.Target) (whole []lease.Target) {
	for _, page := range pages {
		if n := len(whole); n > 0 && whole[n-1].Incarnation == page.Incarnation {
			if page.Page >= whole[n-1].Pages {
				continue
			}
			whole[n-1].Hold = append(slices.Clip(whole[n-1].Hold), page.Hold...)
			causes := slices.Concat(whole[n-1].Causes, page.Causes)
			whole[n-1].Causes = nil // the page has them too
			for _, c := range causes {
				whole[n-1].Because(c)
			}
			whole[n-1].Revision = max(whole[n-1].Revision, page.Revision)
		} else {
			whole = append(whole, page)
		}
	}
	return whole
}

// Torn returns the workers whose pages do not form a whole target.
func Torn(pages []lease.Target) (all []lease.Incarnation) {
	for at, page := range pages {
		if (at == 0 || pages[at-1].Incarnation != page.Incarnation) && !Whole(pages[at:]) {
			all = append(all, page.Incarnation)
		}
	}
	return all
}

// Whole reports whether the first of these pages form a whole target, which its worker can follow.
// Pages of other workers may come after them.
func Whole(pages []lease.Target) bool { _, ok := lease.JoinPages(pages); return ok }

// Broken returns the workers whose targets cannot be read, because of pages with these keys. A page beyond a whole target
// does not matter.
func Broken(pages []lease.Target, unreadable []lease.Key) (all []lease.Incarnation) {
	for _, key := range unreadable {
		worker := lease.Incarnation(key.Name[:max(strings.LastIndexByte(key.Name, '/'), 0)])
		if !Whole(slices.DeleteFunc(slices.Clone(pages), func(page lease.Target) bool { return page.Incarnation != worker })) {
			all = append(all, worker)
		}
	}
	return all
}

// Confine removes the owners of shards that the plan lacks if these workers have reached their limits with other shards, without
// those that they decline. The planner's knowledge of such owners may be out of date, and must give no worker more than its limit.
// A worker that does hold the shard keeps it: an owner never stops because of a plan.
func (in *Input) Confine(all []Found) []Found {
	loads := make([]int64, len(in.Seats))
	for _, e := range all {
		if e.Owner != rebalance.Nobody && e.Rank != Unplaced && !in.Declines(e.Owner, e.Shard) {
			loads[e.Owner]++
		}
	}
	for i := range all {
		e := &all[i]
		if e.Owner == rebalance.Nobody || e.Rank != Unplaced {
			continue
		}
		if most := in.Limit(e.Owner); most > 0 && loads[e.Owner] >= most {
			e.Owner = rebalance.Nobody
		} else {
			loads[e.Owner]++
		}
	}
	return all
}
