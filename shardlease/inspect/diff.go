package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Change is one difference between two snapshots.
type Change struct {
	At       time.Time // the stored time of a transfer or a new seat, or when the later look ended
	Kind     ChangeKind
	Subject  string          // the name of a shard or of a worker; empty: the group
	Transfer *lease.Transfer // the change of hands; nil: the change is of another kind
	Text     string          // one line for people
}

// A ChangeKind is what has changed.
type ChangeKind string

// The kinds of change.
const (
	ChangeNew        ChangeKind = "new"        // a shard is listed that was not listed before
	ChangeTransfer   ChangeKind = "transfer"   // a shard has changed hands
	ChangeMissing    ChangeKind = "missing"    // a row is not listed any more: it was removed, or the listing lags behind
	ChangeMoveBegan  ChangeKind = "move-began" // a worker requests a shard
	ChangeMoveEnded  ChangeKind = "move-ended" // a request or an offer has ended without a change of hands
	ChangeJoined     ChangeKind = "joined"     // a worker has taken a seat
	ChangeLeaving    ChangeKind = "leaving"    // a worker shuts down
	ChangeLeft       ChangeKind = "left"       // a seat is gone
	ChangeUnwell     ChangeKind = "unwell"     // a worker is not well, or for another reason than before
	ChangeWell       ChangeKind = "well"       // a worker is well again
	ChangePlan       ChangeKind = "plan"       // the plan has another revision, or is complete
	ChangeWish       ChangeKind = "wish"       // an operator has made or changed a wish
	ChangeLifted     ChangeKind = "lifted"     // a wish has ended
	ChangeUnreadable ChangeKind = "unreadable" // a record cannot be read any more; the text says why
	ChangeReadable   ChangeKind = "readable"   // a record can be read again, or is gone
	ChangeRestored   ChangeKind = "restored"   // the table was restored
	ChangeAdopted    ChangeKind = "adopted"    // the table is in use again
)

// Diff returns what has changed from the old to the new snapshot, ordered by time. Transfers that
// were missed between the two looks are recovered from the history of the rows, as far as they reach
// back. A record that is missing or cannot be read is not reported as removed or as a worker that left.
//
// A row that is older than in the old snapshot comes from a listing that lags behind, and is no change.
func Diff(old, new *Snapshot) []Change {
	d := differ{old: old, new: new}
	d.shards()
	d.workers()
	d.plan()
	d.wishes()
	d.records()
	return d.sorted()
}

type differ struct {
	old, new *Snapshot
	all      []Change
}

func (d *differ) add(kind ChangeKind, subject, text string) {
	d.all = append(d.all, Change{At: d.new.At, Kind: kind, Subject: subject, Text: text})
}

// noun returns the noun for those that have a seat in this group. If the record of the group's kind cannot be
// read in one of the two snapshots, the other one may show the kind.
func (d *differ) noun() string {
	if d.old.Sessions {
		return d.old.noun()
	}
	return d.new.noun()
}

// sorted returns the changes by time. The transfers of one shard keep the order of their generations, also
// where the clocks of workers differ.
func (d *differ) sorted() []Change {
	latest := map[string]time.Time{}
	place := make([]time.Time, len(d.all))
	order := make([]int, len(d.all))
	for i, c := range d.all {
		order[i], place[i] = i, c.At
		if c.Transfer != nil {
			if before := latest[c.Subject]; place[i].Before(before) {
				place[i] = before
			}
			latest[c.Subject] = place[i]
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return place[a].Compare(place[b]) })
	sorted := make([]Change, len(d.all))
	for i, at := range order {
		sorted[i] = d.all[at]
	}
	if len(sorted) == 0 {
		return nil
	}
	return sorted
}

// shards compares the shards. A snapshot of LookAt lacks shards that exist, so nothing is said of those.
func (d *differ) shards() {
	bad := unreadableNames(d.new, lease.KindLease)
	was := unreadableNames(d.old, lease.KindLease)
	for i := range d.new.Shards {
		now := &d.new.Shards[i]
		old := d.old.Shard(now.Name)
		switch {
		case old != nil:
			d.shard(old, now)
		case !d.old.Partial && !was[now.Name]:
			d.appeared(now)
		}
	}
	for i := range d.old.Shards {
		of := &d.old.Shards[i]
		if !d.new.Partial && d.new.Shard(of.Name) == nil && !bad[of.Name] && of.State != Removed {
			d.add(ChangeMissing, of.Name, "its row is not listed any more")
		}
	}
}

func (d *differ) shard(old, now *Shard) {
	if now.Row.Compare(old.Row) < 0 {
		return
	}
	if now.Row.Generation > old.Row.Generation {
		d.transfers(now, func(t lease.Transfer) bool { return t.Generation > old.Row.Generation })
	} else if old.Move != nil && (now.Move == nil || now.Move.To != old.Move.To) {
		d.add(ChangeMoveEnded, now.Name, fmt.Sprintf("the move from %q to %q has ended without a change of hands", old.Move.From.Name, old.Move.To.Name))
	}
	began := now.Move != nil && (old.Move == nil || now.Move.To != old.Move.To || now.Row.Generation > old.Row.Generation)
	if began {
		d.add(ChangeMoveBegan, now.Name, fmt.Sprintf("worker %q requests the shard from worker %q (%s)", now.Move.To.Name, now.Move.From.Name, now.Move.Phase))
	}
}

// appeared reports a shard that was not listed before: it is new, or it was removed and is listed again.
func (d *differ) appeared(now *Shard) {
	d.add(ChangeNew, now.Name, "its row is listed")
	since, whole := int64(0), false
	for _, t := range append([]lease.Transfer{now.Row.Last}, now.Row.History()...) {
		if t.Reason == lease.ReasonInitial && t.From == "" {
			since, whole = t.Generation, true // the transfers before it are those of a row that was removed
		}
		if whole && t.Reason != lease.ReasonInitial {
			break
		}
	}
	if whole {
		d.transfers(now, func(t lease.Transfer) bool { return t.Generation >= since })
	}
}

// transfers reports the transfers of a row that were missed, oldest first.
func (d *differ) transfers(now *Shard, missed func(lease.Transfer) bool) {
	past := append([]lease.Transfer{now.Row.Last}, now.Row.History()...)
	if known := slices.IndexFunc(past, func(t lease.Transfer) bool { return !missed(t) }); known >= 0 {
		past = past[:known]
	}
	for _, t := range slices.Backward(past) {
		t = now.Row.Noted(t)
		d.all = append(d.all, Change{At: t.At, Kind: ChangeTransfer, Subject: now.Name, Transfer: &t, Text: t.String()})
	}
}

func (d *differ) workers() {
	bad, was := unreadableNames(d.new, lease.KindSeat), unreadableNames(d.old, lease.KindSeat)
	for i := range d.new.Workers {
		now := &d.new.Workers[i]
		inc := now.Seat.Incarnation
		old := d.old.Worker(inc)
		if old == nil {
			if was[string(inc)] {
				continue
			}
			d.add(ChangeJoined, now.Seat.Name, fmt.Sprintf("the %s has taken seat %s", d.noun(), inc))
			if since := now.Seat.Since; !since.Before(d.old.At) && since.Before(d.new.At) {
				d.all[len(d.all)-1].At = since
			}
			old = &Worker{}
		}
		if now.Leaves && !old.Leaves {
			d.add(ChangeLeaving, now.Seat.Name, "the "+d.noun()+" shuts down")
		}
		switch {
		case now.Health != "" && now.Health != old.Health:
			d.add(ChangeUnwell, now.Seat.Name, now.Health)
		case now.Health == "" && old.Health != "":
			d.add(ChangeWell, now.Seat.Name, "the worker is well again")
		}
	}
	for i := range d.old.Workers {
		seat := &d.old.Workers[i].Seat
		if d.new.Worker(seat.Incarnation) == nil && !bad[string(seat.Incarnation)] {
			d.add(ChangeLeft, seat.Name, fmt.Sprintf("seat %s is gone", seat.Incarnation))
		}
	}
}

// plan compares the plans. A plan that is missing may be unreadable, and records reports that.
func (d *differ) plan() {
	old, now := d.old.Plan, d.new.Plan
	if now == nil || old != nil && old.Revision == now.Revision && old.Open == now.Open {
		return
	}
	state := "complete"
	if now.Open {
		state = "open"
	}
	d.add(ChangePlan, "", fmt.Sprintf("revision %d by worker %q is %s, with %d shards for %d workers", now.Revision, now.By.Name, state, now.Shards, now.Members))
}

func (d *differ) wishes() {
	key := lease.Wishes{Group: d.new.Group}.Key()
	if unreadableNames(d.new, key.Kind)[key.Name] || unreadableNames(d.old, key.Kind)[key.Name] {
		return
	}
	for _, wish := range d.new.Wishes {
		at := slices.IndexFunc(d.old.Wishes, func(old lease.Wish) bool { return old.Compare(wish) == 0 })
		if at < 0 || d.old.Wishes[at] != wish {
			d.add(ChangeWish, wish.Subject, wish.String())
		}
	}
	for _, wish := range d.old.Wishes {
		if !slices.ContainsFunc(d.new.Wishes, func(now lease.Wish) bool { return now.Compare(wish) == 0 }) {
			d.add(ChangeLifted, wish.Subject, strings.TrimSpace(string(wish.Kind)+" "+wish.Subject)+" has ended")
		}
	}
}

// records compares what cannot be read, and whether the table was restored.
func (d *differ) records() {
	for _, u := range d.new.Unreadable {
		if !unreadableNames(d.old, u.Key.Kind)[u.Key.Name] && !d.old.Partial {
			d.add(ChangeUnreadable, u.Key.Name, u.Cause.Error())
		}
	}
	for _, u := range d.old.Unreadable {
		if !unreadableNames(d.new, u.Key.Kind)[u.Key.Name] && !d.new.Partial {
			d.add(ChangeReadable, u.Key.Name, fmt.Sprintf("the record %v can be read again, or is gone", u.Key))
		}
	}
	switch {
	case d.new.Restored && !d.old.Restored:
		d.add(ChangeRestored, "", d.new.RestoredWhy)
	case d.old.Restored && !d.new.Restored && d.new.Unverified == nil:
		d.add(ChangeAdopted, "", "the table is in use again")
	}
}

// unreadableNames returns the names of the records of one kind that cannot be read.
func unreadableNames(s *Snapshot, kind lease.Kind) map[string]bool {
	names := map[string]bool{}
	for _, u := range s.Unreadable {
		if u.Key.Kind == kind {
			names[u.Key.Name] = true
		}
	}
	return names
}
