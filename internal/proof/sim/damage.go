package sim

import (
	"fmt"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// What happens to the table itself: it goes back in time, and old tombstones are swept.

// A backup has the snapshot of a table, and notes what became of a restored table.
type backup struct {
	w        *world
	snapshot *snapshot
	keeping  bool          // a snapshot will be taken soon
	went     bool          // the table was restored, and nobody has adopted it yet
	restored time.Duration // when the table last went back; 0: never
	adopted  time.Duration
}

// A snapshot is the table at some moment, to be restored.
type snapshot struct {
	store *virtual.Deletable
	at    time.Duration
}

// lately reports whether the table went back not long ago. Then engines may know of later writes than the table.
func (b *backup) lately() bool {
	return b.restored > 0 && (b.went || b.w.Now()-b.adopted < 15*b.w.set.ttl)
}

// goBack restores the table as it was some time ago. The restore takes a while, and until it is complete there is no table,
// for longer than any worker trusts its lease.
//
// SkewedRestore restores the table while all clocks are wrong. A lost row that is created again begins with the seconds of
// its creator's clock. So from the snapshot to the restore, clocks are off by less time than the restore takes. Before and
// after that they may be an hour ahead: rows that are created then are in the snapshot, and adoption has to leave room above
// them.
func goBack(f *faults, of Fault, _ *node) (time.Duration, bool) {
	w, b, off := f.w, &f.backup, of == SkewedRestore
	switch {
	case b.keeping:
		return 0, false
	case b.snapshot == nil && off:
		w.skew(w.set.ttl / 2)
		b.keeping = true
		for _, n := range w.nodes {
			n.mute = false
		}
		w.After(5*w.set.ttl, b.keep) // what was stamped before has arrived or never will
		return 0, false
	case w.net.down || b.went || b.snapshot == nil:
		b.keep()
		return 0, false
	}
	w.net.down = true
	w.After(w.between(2*w.set.ttl, 4*w.set.ttl), func() {
		if w.peace {
			return
		}
		b.restore()
		if off {
			w.skew(w.set.ttl / 2)
		}
		w.net.down, b.snapshot = false, nil
		w.After(f.upTo(3), func() {
			b.adopt()
			if off && b.snapshot == nil && !b.keeping {
				w.skew(time.Hour)
			}
		})
	})
	return itself, true
}

func adoptTable(f *faults, _ *node) {
	f.backup.adopt()
	if !f.w.set.seasonal {
		f.backup.snapshot = nil // in a season, the next restore may be to one of days ago
	}
}

// keep takes a snapshot, if there is none.
func (b *backup) keep() {
	b.keeping = false
	if b.snapshot == nil {
		b.snapshot = &snapshot{store: b.w.store.Clone(), at: b.w.Now()}
	}
}

// restore puts the table back to the snapshot. Until somebody adopts the table, Verify reports another table.
func (b *backup) restore() {
	w := b.w
	w.trace("restore", "", func() string { return b.snapshot.at.String() })
	w.store, b.went, b.restored = b.snapshot.store.Clone(), true, w.Now()
	w.table.Restore(w.store)
	w.table.Verified = fmt.Errorf("another table: %w", lease.ErrWentBack)
	clear(w.table.Unreadable)
	var rows []lease.Row
	for _, s := range w.streams.all {
		row, exists := w.table.Read(rowKey(s.name)).(lease.Row)
		if exists {
			rows = append(rows, row)
		}
		s.swept = s.swept && !exists
		if !row.Finished && !row.Removed && (exists || !s.dropped) {
			s.ended = 0 // what was done is to be done again
		}
	}
	w.promises.wentBack(rows)
}

// adopt lets the operator adopt a table that went back.
func (b *backup) adopt() {
	if b.went {
		b.w.operator.adopt()
		b.went, b.w.table.Verified, b.adopted = false, nil, b.w.Now()
	}
}

// skew sets every wall clock, also the operator's, up to d ahead, or behind by less than a restore takes.
func (w *world) skew(d time.Duration) {
	behind := min(d, w.set.ttl/2)
	w.operator.wall = w.between(-behind, d)
	for _, n := range w.nodes {
		n.Clock.Wall = w.between(-behind, d)
	}
}

// sweepDaily deletes old tombstones, as time to live does.
func (w *world) sweepDaily() {
	for _, s := range w.streams.all {
		row := w.promises.Row(s.name)
		if row.Removed && virtual.Epoch().Add(w.Now()).Sub(row.Last.At) > lease.TombstoneAge && !s.swept {
			s.swept = true
			w.trace("sweep", s.name, nil)
			w.stats.Swept++
			w.store.Delete(rowKey(s.name))
		}
	}
	w.After(24*time.Hour, w.sweepDaily)
}
