package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The news that this worker publishes about shards, for the next plan.
//
//	a shard is finished or unlisted, or its row is a tombstone: news until a plan knows it
//	this worker declines a shard: news until it declines it no more
//
// Called by the spine with what the shards report, before each heartbeat, and when a plan has been
// made with the news.
//
// News is in memory and, with the next heartbeat, on the seat. A crash loses it. Then the next plan may assign a
// finished shard once more; the worker that reads its row finds it finished, and publishes that itself.
//
// Invariant: count grows with every change, so that a plan is due when it has not seen one.

// newsRemoved is the kind of the news that the row of an assigned shard is a tombstone.
const newsRemoved = lease.NewsKind("removed")

// newsUnlisted is the kind of the news that a row says that its shard was given up as unlisted.
const newsUnlisted = lease.NewsKind("unlisted")

// News is what this worker publishes about shards. The slice of items is replaced and never changed: a clone
// of the engine shares it.
type news struct {
	items    []lease.News
	count    int64   // how much there was
	added    Instant // when the latest was added
	revision int64   // the complete revision known when the latest was added that a plan settles
}

// add publishes one item, and reports whether it is new. revision is the complete revision that this worker follows: a
// plan two revisions later was surely made with the item.
func (n *news) add(t *turn, kind lease.NewsKind, name string, revision int64) bool {
	item := lease.News{Kind: kind, Shard: name}
	if slices.Contains(n.items, item) {
		return false
	}
	n.items = append(slices.Clip(n.items), item)
	if n.changed(t); kind != lease.NewsDeclined {
		n.revision = revision
	}
	return true
}

// drop drops the items that are no longer so. A plan that was made with them would leave these shards out, or with
// their former workers.
func (n *news) drop(t *turn, over func(lease.News) bool) {
	if slices.ContainsFunc(n.items, over) {
		n.items = slices.DeleteFunc(slices.Clone(n.items), over)
		n.changed(t)
	}
}

// changed makes the seat differ from what it says, so that a heartbeat is due soon (fleet.hurry) and then a plan.
func (n *news) changed(t *turn) {
	n.count++
	n.added = t.now.Mono
}

// settled drops what a plan was made with that the seat says: none is due, or there were two since.
// Otherwise such a shard would be left out of a plan again when it has come back.
//
// said is the count on the seat as last stored, revision that of the plan, and due: a plan is due or open.
func (n *news) settled(said, revision int64, due bool) {
	if len(n.items) > 0 && said == n.count && (!due || revision > n.revision+1) {
		n.items = slices.DeleteFunc(slices.Clone(n.items), func(item lease.News) bool { return item.Kind != lease.NewsDeclined })
	}
}

// says returns what the seat has room for: what a plan settles first, and of each kind the latest. left is how many more
// a plan would settle: it is made from the rows then.
func (n *news) says() (all []lease.News, left int64) {
	for _, declined := range []bool{false, true} {
		for _, item := range slices.Backward(n.items) {
			switch {
			case (item.Kind == lease.NewsDeclined) != declined:
			case len(all) < lease.MaxNews:
				all = append(all, item)
			case !declined:
				left++
			}
		}
	}
	return all, left
}
