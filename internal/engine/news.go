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
// Two kinds are for people, and no plan depends on them (tell): they are not kept here, but found again for each heartbeat.
//
// News is in memory and, with the next heartbeat, on the seat. A crash loses it. Then the next plan may assign a
// finished shard once more; the worker that reads its row finds it finished, and publishes that itself.
//
// Invariant: count grows with every change, so that a plan is due when it has not seen one.

// News is what this worker publishes about shards. The slice of items is replaced and never changed: a clone
// of the engine shares it.
type news struct {
	items []reported
	count int64   // how much there was
	added Instant // when the latest was added
}

// A reported is one item, and the complete revision that this worker followed when it was added.
type reported struct {
	lease.News
	revision int64
}

// add publishes one item, and reports whether it is new. revision is the complete revision that this worker follows: a
// plan two revisions later was surely made with the item.
func (n *news) add(t *turn, kind lease.NewsKind, name string, revision int64) bool {
	item := lease.News{Kind: kind, Shard: name}
	if slices.ContainsFunc(n.items, func(of reported) bool { return of.News == item }) {
		return false
	}
	n.items = append(slices.Clip(n.items), reported{item, revision})
	n.changed(t)
	return true
}

// drop removes the items that are over. A plan made with them would leave out a shard that is back, or keep from this
// worker one that it no longer declines.
func (n *news) drop(t *turn, over func(lease.News) bool) {
	gone := func(of reported) bool { return over(of.News) }
	if slices.ContainsFunc(n.items, gone) {
		n.items = slices.DeleteFunc(slices.Clone(n.items), gone)
		n.changed(t)
	}
}

// changed makes the seat differ from what it says, so that a heartbeat is due soon (fleet.hurry) and then a plan.
func (n *news) changed(t *turn) {
	n.count++
	n.added = t.now.Mono
}

// settled drops the items that a plan has taken into account: the seat says all of them, and no plan is due, or there
// were two since an item was added. Otherwise such a shard would be left out of a plan again when it has come back.
//
// said is the count on the seat as last stored, revision that of the plan, and due: a plan is due or open.
func (n *news) settled(said, revision int64, due bool) {
	over := func(of reported) bool { return of.Kind != lease.NewsDeclined && (!due || revision > of.revision+1) }
	if said == n.count && slices.ContainsFunc(n.items, over) {
		n.items = slices.DeleteFunc(slices.Clone(n.items), over)
	}
}

// says returns the news for which the seat has room: first what a plan settles, then declined shards; of both the latest.
// left is how many that a plan settles have no room. If any, the planner lists the rows first.
func (n *news) says() (all []lease.News, left int64) {
	for _, declined := range []bool{false, true} {
		for _, item := range slices.Backward(n.items) {
			switch {
			case (item.Kind == lease.NewsDeclined) != declined:
			case len(all) < lease.MaxNews:
				all = append(all, item.News)
			case !declined:
				left++
			}
		}
	}
	return all, left
}

// tell adds to the news of a heartbeat, as far as there is room, what no plan depends on: which handlers hang, and which are
// silent. It hurries no heartbeat, and makes no plan due.
func tell(says *lease.Says, t *turn, l *shards, silent []string) {
	add := func(kind lease.NewsKind, name string) {
		if len(says.News) < lease.MaxNews {
			says.News = append(slices.Clip(says.News), lease.News{Kind: kind, Shard: name})
		}
	}
	for _, s := range l.all {
		if hangs(t, s) {
			add(lease.NewsHangs, s.name)
		}
	}
	for _, name := range silent {
		add(lease.NewsSilent, name)
	}
}
