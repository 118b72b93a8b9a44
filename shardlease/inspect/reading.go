package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A reading collects the records from which a snapshot is made.
//
// Invariant: the rows are read before the seats. The other way round, the claim of a worker that has
// just joined would look as if its owner had no seat.
type reading struct {
	ctx     context.Context
	from    Lister
	group   string
	options Options
	partial bool

	rows     []sized
	rowsAt   time.Time
	badRows  []Unreadable
	seats    []lease.Seat
	badSeats []Unreadable
	plan     *lease.Plan
	wishes   []lease.Wish
	targets  []lease.Target
	known    bool           // the targets were read
	moving   []lease.Target // of LookAt: the targets of the workers to which the shard moves
	badPages []Unreadable
	restored string // why the table counts as restored
	unsure   error  // why the store could not verify the table
	cost     Cost

	ends      []lease.Ends
	endsAt    time.Time // when they were read
	endsFrom  time.Time // the first hour that was asked for
	uncounted error     // why some or all of them could not be
}

// A sized is a row and the size of its item.
type sized struct {
	lease.Row
	size int
}

// readRows lists the rows.
func (r *reading) readRows() error {
	began := r.options.now()
	rows, bad, err := r.listRows(!r.options.Consistent)
	if err != nil {
		return err
	}
	r.rows, r.badRows, r.rowsAt = rows, bad, began
	return nil
}

func (r *reading) listRows(eventually bool) (rows []sized, bad []Unreadable, err error) {
	q := lease.Query{Group: r.group, Kind: lease.KindLease, Eventually: eventually}
	err = r.list(q, &bad, func(record lease.Record, size int) {
		if row, ok := record.(lease.Row); ok {
			rows = append(rows, sized{row, size})
		}
	})
	return rows, bad, err
}

// readSeats lists the seats, the plan and the wishes.
func (r *reading) readSeats() error {
	r.seats, r.badSeats, r.plan, r.wishes = nil, nil, nil, nil
	return r.list(lease.Query{Group: r.group, Kind: lease.KindSeat}, &r.badSeats, func(record lease.Record, _ int) {
		switch of := record.(type) {
		case lease.Seat:
			r.seats = append(r.seats, of)
		case lease.Plan:
			r.plan = &of
		case lease.Wishes:
			r.wishes = slices.DeleteFunc(of.List, func(w lease.Wish) bool { return w.Kind == protocol.WishLook })
		}
	})
}

// ofSessions reports whether the group is one of sessions: their record has the key of the plan.
func (r *reading) ofSessions() bool { return r.plan != nil && r.plan.Sessions }

// readTargets lists the targets. Without a plan they may be left of an earlier one, and no worker follows them.
func (r *reading) readTargets() error {
	r.targets, r.badPages, r.known = nil, nil, false
	if r.options.NoTargets || r.ofSessions() {
		return nil
	}
	r.known = r.plan != nil
	return r.list(lease.Query{Group: r.group, Kind: lease.KindTarget, Eventually: true}, &r.badPages, func(record lease.Record, _ int) {
		if page, ok := record.(lease.Target); ok {
			r.targets = append(r.targets, page)
		}
	})
}

// readMove reads the targets of the workers to which a shard moves: they have the cause. Without them the cause is unknown.
func (r *reading) readMove(row lease.Row) error {
	for i := range r.seats {
		seat := &r.seats[i]
		wants := slices.ContainsFunc(seat.Wants, func(w lease.Want) bool { return w.Stands(row) })
		if !wants && (row.OfferedTo == "" || row.OfferedTo != seat.Incarnation) {
			continue
		}
		key := lease.Target{Group: r.group, Incarnation: seat.Incarnation}
		for pages := int64(1); key.Page < pages; key.Page++ {
			bill := meter{}
			record, err := r.from.Get(r.ctx, key.Key())
			page, is := record.(lease.Target)
			if err == nil && is {
				bill.add(lease.Encode(page).Size())
				r.moving, pages = append(r.moving, page), page.Pages
			}
			r.cost.ReadUnits += bill.units()
		}
	}
	return r.ctx.Err()
}

// readEnds lists the counts of the tenures that have ended. Nothing depends on them, so a look succeeds without them.
func (r *reading) readEnds() error {
	now, span := r.options.now(), cmp.Or(r.options.Ends, 24*time.Hour)
	r.ends, r.endsAt, r.uncounted = nil, now, nil
	if span < 0 {
		r.uncounted = errors.New("they were not asked for")
		return nil
	}
	r.endsFrom = protocol.HourOf(now.Add(-span))
	q := lease.Query{Group: r.group, Kind: lease.KindEnds, Eventually: true, After: lease.Ends{Hour: r.endsFrom.Add(-time.Hour)}.Key().Name}
	var bad []Unreadable
	err := r.list(q, &bad, func(record lease.Record, _ int) {
		if of, ok := record.(lease.Ends); ok {
			r.ends = append(r.ends, of)
		}
	})
	for _, u := range bad {
		r.uncounted = errors.Join(r.uncounted, u.Cause)
	}
	r.uncounted = errors.Join(r.uncounted, err)
	return r.ctx.Err()
}

// list calls each with every record of a query, and notes those that cannot be read.
func (r *reading) list(q lease.Query, bad *[]Unreadable, each func(lease.Record, int)) error {
	bill := meter{eventually: q.Eventually}
	defer func() { r.cost.ReadUnits += bill.units() }()
	for record, err := range r.from.List(r.ctx, q) {
		malformed, spoilt := errors.AsType[*lease.MalformedError](err)
		switch {
		case spoilt && malformed != nil:
			bill.add(spoiltSize)
			*bad = append(*bad, Unreadable{Key: malformed.Key, Cause: err})
		case err != nil:
			return fmt.Errorf("list the %vs of group %q: %w", q.Kind, r.group, err)
		default:
			size := lease.Encode(record).Size()
			bill.add(size)
			each(record, size)
		}
	}
	return r.ctx.Err()
}

// readRow reads one row, and keeps it.
func (r *reading) readRow(shard string) (lease.Row, error) {
	bill := meter{}
	defer func() { r.cost.ReadUnits += bill.units() }()
	record, err := r.from.Get(r.ctx, lease.Key{Group: r.group, Kind: lease.KindLease, Name: shard})
	if err != nil {
		return lease.Row{}, err
	}
	row, ok := record.(lease.Row)
	if !ok {
		return lease.Row{}, fmt.Errorf("%w: the record is no lease row", lease.ErrMalformed)
	}
	size := lease.Encode(row).Size()
	bill.add(size)
	r.rows = append(r.rows, sized{row, size})
	return row, nil
}

// readParent reads the row of a parent. A parent without a row blocks nothing. A parent that cannot be
// read must not keep an operator from looking at its child.
func (r *reading) readParent(name string) error {
	_, err := r.readRow(name)
	switch {
	case err == nil || errors.Is(err, lease.ErrNotFound):
		return nil
	case r.ctx.Err() != nil:
		return r.ctx.Err()
	}
	r.badRows = append(r.badRows, Unreadable{Key: lease.Key{Group: r.group, Kind: lease.KindLease, Name: name}, Cause: err})
	return nil
}

// verify asks the store whether the table was restored. Only [lease.ErrWentBack] says so: any other error
// means that the store does not know.
func (r *reading) verify() error {
	r.restored, r.unsure = "", nil
	if len(r.rows)+len(r.badRows) == 0 {
		return nil
	}
	err := r.from.Verify(r.ctx, r.group)
	switch {
	case err == nil:
	case errors.Is(err, lease.ErrWentBack):
		r.restored = err.Error()
	case r.ctx.Err() != nil:
		return r.ctx.Err()
	default:
		r.unsure = err
	}
	return nil
}

// unreadable returns all records that cannot be read.
func (r *reading) unreadable() []Unreadable {
	all := slices.Concat(r.badRows, r.badSeats, r.badPages)
	slices.SortFunc(all, func(a, b Unreadable) int {
		return cmp.Or(cmp.Compare(a.Key.Kind, b.Key.Kind), strings.Compare(a.Key.Name, b.Key.Name))
	})
	return all
}

// The rules of the bill. A query is billed for the bytes of each of its pages, and a page has at most a
// megabyte.
const (
	unitBytes  = 4096
	pageBytes  = 1 << 20
	spoiltSize = 1024 // a guess for a record that cannot be read
)

// A meter estimates what a query or a read of one record costs.
type meter struct {
	eventually bool
	page       int // the bytes of the page so far
	started    float64
}

func (m *meter) add(size int) {
	if m.page > 0 && m.page+size > pageBytes {
		m.started += pageUnits(m.page)
		m.page = 0
	}
	m.page += size
}

func (m *meter) units() float64 {
	units := m.started + pageUnits(m.page)
	if m.eventually {
		return units / 2
	}
	return units
}

// pageUnits returns the consistent units of a page; an empty one costs a unit too.
func pageUnits(size int) float64 { return float64(max(1, (size+unitBytes-1)/unitBytes)) }
