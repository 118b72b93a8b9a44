package layout

import (
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Cause returns why the plan assigns a shard to another worker than the plan before, after Settle; zero: it does not, or the
// shard had no worker. Of several causes it is the strongest. A worker that shuts down loses its shards whatever operators
// want, so Leaving comes first. A wish for one shard comes before a wish for its worker.
func (l *Layout) Cause(i int) lease.MoveCause {
	to, from := l.To[i], l.before[i]
	switch wish, obeyed := l.obeyed[i]; {
	case from == rebalance.Nobody, to == rebalance.Nobody, to == from:
		return lease.MoveCause{}
	case l.in.Seats[from].Leaving:
		return l.Cleared(from)
	case obeyed && wish.To == l.in.Seats[to].Name:
		return causedBy(wish)
	case l.View.Shards[i].Owner != from: // New has taken it from the worker that declines it
		return lease.MoveCause{Why: rebalance.Returned}
	}
	if cause := l.Cleared(from); cause.Why != 0 {
		return cause
	}
	return lease.MoveCause{Why: rebalance.Balance}
}

// Cleared returns why the plan takes all shards from a worker; zero: it does not.
func (l *Layout) Cleared(at int) lease.MoveCause {
	if l.in.Seats[at].Leaving {
		return lease.MoveCause{Why: rebalance.Leaving}
	}
	if wish, drained := l.in.wish(lease.WishDrain, l.in.Seats[at].Name); drained {
		return causedBy(wish)
	}
	return lease.MoveCause{}
}

// Before returns the worker to which the plan before has assigned a shard, or Nobody. Unlike the owner in View, it may
// decline the shard.
func (l *Layout) Before(i int) int { return l.before[i] }

// Outlasts reports whether a cause of the plan before counts on if its owner still leaves or is drained, the shard has not moved
// yet, and the next plan sends it to another worker for the cause next.
func Outlasts(before, next rebalance.Why) bool {
	holds := before == rebalance.Leaving || before == rebalance.Drained
	return holds && (next == rebalance.Balance || next == rebalance.Returned)
}

// causedBy returns the cause that a wish is.
func causedBy(w lease.Wish) lease.MoveCause {
	why := map[lease.WishKind]rebalance.Why{
		lease.WishDrain: rebalance.Drained, lease.WishPin: rebalance.Pinned, lease.WishMove: rebalance.Ordered,
	}[w.Kind]
	note := "by " + w.By
	if w.Why != "" {
		note += ": " + w.Why
	}
	return lease.MoveCause{Why: why, Note: note}
}
