package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/internal/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// What happens to the table itself: it goes back in time, records of it are spoilt, and
// what is old enough is swept.

// A snapshot is the table at some moment, to be restored.
type snapshot struct {
	store *store
	at    time.Duration
}

// goBack restores the table as it was some time ago. Such a thing takes its time:
// meanwhile there is no table, for longer than anybody trusts itself.
//
// skewed: and nobody's clock is right. A row that was lost and is made anew begins with
// the seconds of its maker's clock, so from the snapshot until the restore clocks are off
// by less than that takes. Before and after they may be an hour ahead: the rows of then are
// in the snapshot, and adoption has to leave room above them.
func (w *world) goBack(skewed bool) bool {
	if w.keeping {
		return false
	}
	if w.snapshot == nil && skewed {
		w.skew(w.set.ttl / 2)
		w.keeping = true
		for _, n := range w.nodes {
			n.mute = false
		}
		w.After(5*w.set.ttl, w.keep) // what was stamped before has arrived or never will
		return false
	}
	if w.net.down || w.went || w.snapshot == nil {
		w.keep()
		return false
	}
	w.net.down = true
	w.After(w.between(2*w.set.ttl, 4*w.set.ttl), func() {
		if w.peace {
			return
		}
		w.restore()
		if skewed {
			w.skew(w.set.ttl / 2)
		}
		w.net.down, w.snapshot = false, nil
		w.After(w.between(0, 3*w.set.ttl), func() {
			if w.went {
				w.adopt()
			}
			if skewed && w.snapshot == nil && !w.keeping {
				w.skew(time.Hour)
			}
		})
	})
	return true
}

// keep takes a snapshot, if there is none.
func (w *world) keep() {
	w.keeping = false
	if w.snapshot == nil {
		w.snapshot = &snapshot{store: w.store.clone(), at: w.Now()}
	}
}

// restore puts the table back to what it was. Until somebody adopts it, it says
// that it is another.
func (w *world) restore() {
	w.trace("restore", "", func() string { return w.snapshot.at.String() })
	j := w.judge
	w.store, w.went = w.snapshot.store.clone(), true
	w.table.Restore(w.store)
	w.table.Verified = fmt.Errorf("another table: %w", lease.ErrWentBack)
	j.restored = w.Now()
	clear(w.table.Unreadable)
	var rows []lease.Row
	for _, s := range w.streams {
		r, err := w.store.Get(context.Background(), rowKey(s.name))
		row, _ := r.(lease.Row)
		if err == nil {
			rows = append(rows, row)
		}
		s.swept = s.swept && err != nil
		if !row.Finished && !row.Removed && (err == nil || !s.dropped) {
			s.ended = 0 // what was done is to be done again
		}
	}
	j.promises.Restored(rows)
	clear(j.revisions)
	clear(j.planted) // no worker has the incarnation that it had in the snapshot
}

// skew sets every wall clock, the operator's too, up to d ahead, and not as much behind
// as a restore takes.
func (w *world) skew(d time.Duration) {
	behind := min(d, w.set.ttl/2)
	w.wall = w.between(-behind, d)
	for _, n := range w.nodes {
		n.Clock.Wall = w.between(-behind, d)
	}
}

// adopt does what an operator does then: every row goes over to generations that
// the lost future cannot have issued.
func (w *world) adopt() {
	w.trace("adopt", "", nil)
	for _, s := range w.streams {
		row := w.judge.row(s.name)
		if row.Generation == 0 || row.Removed {
			continue
		}
		write, err := protocol.Adopt(row, "operator", w.stamp())
		if err != nil {
			w.fault("adoption: %v", err)
			return
		}
		_, _ = w.table.Write(virtual.Sender{}, write)
	}
	w.went, w.table.Verified, w.judge.adopted = false, nil, w.Now()
}

func (w *world) stamp() protocol.Stamp {
	return protocol.Stamp{ID: lease.WriteID("op" + virtual.Epoch().Add(time.Duration(w.Unique())).Format("150405.000000000")), At: virtual.Epoch().Add(w.Now() + w.wall)}
}

// spoil makes a record unreadable for a while: somebody has edited it by hand.
func (w *world) spoil(f Fault, n *node) bool {
	key := lease.Key{Group: group, Kind: lease.KindSeat, Name: string(n.me)}
	there := w.judge.sits(n.me)
	switch f {
	case MalformedPlan:
		key = lease.Plan{Group: group}.Key()
		_, there = w.theirs()
	case MalformedTarget:
		key = lease.Target{Group: group, Incarnation: n.me}.Key()
		_, err := w.store.Get(context.Background(), key)
		there = err == nil
	case MalformedRow:
		s := w.streams[w.chance.IntN(len(w.streams))]
		key.Kind, key.Name = lease.KindLease, s.name
		there = w.judge.row(s.name).Generation > 0 && !w.judge.row(s.name).Removed
	}
	if !there || w.went || w.table.Unreadable[key] {
		return false
	}
	w.table.Unreadable[key] = true
	w.After(w.between(0, 10*w.set.ttl), func() { w.mend(key) })
	return true
}

func (w *world) mend(key lease.Key) {
	if w.table.Unreadable[key] {
		w.trace("mended", key.Name, nil)
		delete(w.table.Unreadable, key)
	}
}

// sweepDaily sweeps the tombstones that are old enough.
func (w *world) sweepDaily() {
	for _, s := range w.streams {
		row := w.judge.row(s.name)
		if row.Removed && virtual.Epoch().Add(w.Now()).Sub(row.Last.At) > lease.TombstoneAge && !s.swept {
			s.swept = true
			w.trace("sweep", s.name, nil)
			w.stats.Swept++
			w.store.sweep(s.name)
		}
	}
	w.After(24*time.Hour, w.sweepDaily)
}
