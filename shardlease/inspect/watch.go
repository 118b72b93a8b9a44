package inspect

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// WatchOptions are the settings of a watch. The zero WatchOptions are ready to use.
type WatchOptions struct {
	Options
	Every time.Duration // how often the seats are read; default 2 s
	// RowsEvery is how often all rows are read at least, and the counts of ends, and the table verified. Default 30 s.
	RowsEvery time.Duration
}

func (o WatchOptions) withDefaults() WatchOptions {
	if o.Every <= 0 {
		o.Every = 2 * time.Second
	}
	if o.RowsEvery <= 0 {
		o.RowsEvery = 30 * time.Second
	}
	return o
}

// Watch yields a snapshot after each look, until ctx ends or the caller stops. An [Observer] has seen
// each of them. Watch yields (nil, error) for a look that was not possible, and goes on: the next one
// may succeed.
//
// A look reads the seats, with the plan and the wishes. It reads the rows too if the seats show that
// something has happened (a worker has come, gone, or changed its requests, its news or its
// revision, or the plan is another one), and at least every RowsEvery. For a minute after such an event,
// each look reads the rows while shards are in a move, without an owner or not where the plan wants them; with more than 1,000
// shards, less often in proportion. It reads the targets when another plan is complete.
func Watch(ctx context.Context, l Lister, group string, o WatchOptions) iter.Seq2[*Snapshot, error] {
	return func(yield func(*Snapshot, error) bool) {
		w := watch{WatchOptions: o.withDefaults(), latest: reading{ctx: ctx, from: l, group: group, options: o.Options}}
		tick := time.NewTicker(w.Every)
		defer tick.Stop()
		for ctx.Err() == nil {
			s, err := w.look()
			if ctx.Err() != nil || !yield(s, err) {
				return
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}
}

// A watch is what is known between two looks.
type watch struct {
	WatchOptions
	latest   reading
	before   []lease.Seat
	plan     planKey   // as at the look before
	planned  planKey   // the plan of which the targets were read
	restless bool      // a shard is in a move, without an owner, or not where the plan wants it
	stirred  time.Time // when the seats last showed that something has happened
	observer Observer
}

// calm is how long after the last event shards that are in a move or without an owner are read often.
const calm = time.Minute

// look reads what is due.
//
// Invariant: the seats of a snapshot were read after its rows.
func (w *watch) look() (*Snapshot, error) {
	r := &w.latest
	r.cost = Cost{}
	read := w.rowsDue()
	if read {
		if err := w.readRows(); err != nil {
			return nil, err
		}
	}
	if err := r.readSeats(); err != nil {
		return nil, err
	}
	if w.happened() {
		w.stirred = w.Options.now()
		if !read {
			if err := w.readRows(); err != nil {
				return nil, err
			}
			if err := r.readSeats(); err != nil {
				return nil, err
			}
		}
	}
	w.before, w.plan = r.seats, planOf(r.plan)
	if err := w.readTargets(); err != nil {
		return nil, err
	}
	if r.endsAt.IsZero() || w.Options.now().Sub(r.endsAt) >= w.RowsEvery {
		if err := r.readEnds(); err != nil {
			return nil, err
		}
	}
	s := r.snapshot()
	w.restless = slices.ContainsFunc(s.Shards, func(of Shard) bool {
		return of.State == Moving || of.State == Free || of.State == Orphaned || of.State == Resting
	}) || slices.ContainsFunc(s.Workers, func(of Worker) bool { return of.Lacking > 0 })
	w.observer.See(s)
	return s, nil
}

// rowsDue reports whether to read the rows although the seats may show nothing new.
func (w *watch) rowsDue() bool {
	r := &w.latest
	now := w.Options.now()
	age, pace := now.Sub(r.rowsAt), w.Every*time.Duration(1+len(r.rows)/1000)
	restless := w.restless && now.Sub(w.stirred) < calm
	return r.rowsAt.IsZero() || age >= w.RowsEvery || restless && age >= pace
}

// readRows reads the rows and verifies the table. If a row is older than at the look before, the listing
// lags behind or the table went back: a consistent listing shows which.
func (w *watch) readRows() error {
	r := &w.latest
	known := r.rows
	if err := r.readRows(); err != nil {
		return err
	}
	if !r.options.Consistent && older(r.rows, known) {
		rows, bad, err := r.listRows(false)
		if err != nil {
			return err
		}
		r.rows, r.badRows = rows, bad
	}
	return r.verify()
}

// older reports whether a row is older than it was. Both listings are sorted by shard.
func older(rows, known []sized) bool {
	for i := range rows {
		for len(known) > 0 && known[0].Shard < rows[i].Shard {
			known = known[1:]
		}
		if len(known) > 0 && known[0].Shard == rows[i].Shard && rows[i].Compare(known[0].Row) < 0 {
			return true
		}
	}
	return false
}

// readTargets reads the targets of a plan that is complete and another one than before. While a planner writes
// them, the earlier ones are shown.
func (w *watch) readTargets() error {
	r := &w.latest
	plan := planOf(r.plan)
	if plan == w.planned || plan.open && r.known {
		return nil
	}
	if err := r.readTargets(); err != nil {
		return err
	}
	w.planned = plan
	return nil
}

// happened reports whether the seats or the plan show something that may have changed rows.
func (w *watch) happened() bool {
	return planOf(w.latest.plan) != w.plan || !slices.EqualFunc(w.before, w.latest.seats, func(a, b lease.Seat) bool {
		return a.Incarnation == b.Incarnation && a.Confirmed() == b.Confirmed() && a.Leaving == b.Leaving &&
			a.Revision == b.Revision && a.Freed == b.Freed && slices.Equal(a.Wants, b.Wants)
	})
}

func planOf(p *lease.Plan) planKey {
	if p == nil {
		return planKey{}
	}
	return planKey{p.Revision, p.Open}
}
