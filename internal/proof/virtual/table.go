package virtual

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Store keeps the records of a table. A memstore.Store is one.
type Store interface {
	List(context.Context, lease.Query) iter.Seq2[lease.Record, error]
	Get(context.Context, lease.Key) (lease.Record, error)
	Write(context.Context, lease.Write) (lease.Record, error)
}

// A Sender is the process that has sent a call. The zero value is an operator.
type Sender struct {
	Name string
	life int
}

// A Watcher sees every write that a table accepts, before anybody else can know of it.
type Watcher interface {
	Accepted(by Sender, w lease.Write, after lease.Record)
}

var errSpoilt = errors.New("spoilt by the test")

// A Table answers the calls of engines.
type Table struct {
	Store      Store
	Watcher    Watcher            // may be nil
	Unreadable map[lease.Key]bool // the keys of records that exist and cannot be read
	Verified   error              // the answer to Verify
	// Stale decides for each eventually consistent listing whether it lags behind, and by how much,
	// at most three seconds. If it is nil, no listing does.
	Stale  func() (age time.Duration, stale bool)
	Time   *Time    // for Stale
	Lagged int      // how many listings lagged behind
	past   []change // of the last three seconds
}

// A change is what a record was before a write.
type change struct {
	at     time.Duration
	key    lease.Key
	before lease.Record // nil: there was none
}

// Serve carries out a List, Get, Send or Verify, and returns the answer.
func (t *Table) Serve(by Sender, o engine.Output) engine.Input {
	switch o := o.(type) {
	case engine.List:
		return t.list(o)
	case engine.Get:
		return t.get(o)
	case engine.Send:
		r, err := t.Write(by, o.Write)
		if refused, _ := errors.AsType[*lease.RefusedError](err); t.Unreadable[o.Write.Key()] && (refused != nil && refused.Now != nil || o.Write.Op == lease.OpTransfer) {
			r, err = nil, lease.ErrMalformed // the answer would show the record as it stands
		}
		return engine.Settled{Write: o.Write, Record: r, Err: err}
	case engine.Verify:
		return engine.Verified{Read: o.Read, Err: t.Verified}
	}
	return nil
}

// Unanswered returns the input that a worker gets if its List, Get, Send, Verify or Plan was not answered.
func Unanswered(o engine.Output, err error) engine.Input {
	switch o := o.(type) {
	case engine.List:
		return engine.Listed{Read: o.Read, Err: err}
	case engine.Get:
		return engine.Got{Read: o.Read, Key: o.Key, Err: err}
	case engine.Send:
		return engine.Settled{Write: o.Write, Err: err}
	case engine.Verify:
		return engine.Verified{Read: o.Read, Err: err}
	case engine.Plan:
		return engine.Planned{Ask: o.Ask}
	}
	return nil
}

// Write makes one write.
func (t *Table) Write(by Sender, w lease.Write) (lease.Record, error) {
	before := t.before(w.Key())
	r, err := t.Store.Write(context.Background(), w)
	if err != nil {
		return r, err
	}
	t.keep(w.Key(), before)
	if t.Watcher != nil {
		t.Watcher.Accepted(by, w, r)
	}
	return r, nil
}

// Records returns the records of a kind.
func (t *Table) Records(group string, kind lease.Kind) (all []lease.Record) {
	for r := range t.Store.List(context.Background(), lease.Query{Group: group, Kind: kind}) {
		all = append(all, r)
	}
	return all
}

// Read returns a record as it stands; nil: there is none.
func (t *Table) Read(k lease.Key) lease.Record {
	r, err := t.Store.Get(context.Background(), k)
	if err != nil {
		return nil
	}
	return r
}

// Row returns the row of a shard; zero: there is none.
func (t *Table) Row(group, shard string) lease.Row {
	row, _ := t.Read(lease.Key{Group: group, Kind: lease.KindLease, Name: shard}).(lease.Row)
	return row
}

// Plan returns the plan of a group; zero: there is none.
func (t *Table) Plan(group string) lease.Plan {
	plan, _ := t.Read(lease.Plan{Group: group}.Key()).(lease.Plan)
	return plan
}

// Wishes returns the wishes of the operators of a group.
func (t *Table) Wishes(group string) lease.Wishes {
	wishes, _ := t.Read(lease.Wishes{Group: group}.Key()).(lease.Wishes)
	wishes.Group = group
	return wishes
}

// Seats returns the seats of a group.
func (t *Table) Seats(group string) (seats []lease.Seat) {
	for _, r := range t.Records(group, lease.KindSeat) {
		if seat, is := r.(lease.Seat); is {
			seats = append(seats, seat)
		}
	}
	return seats
}

// Restore replaces the store: the table went back in time. From then on, listings that lag behind
// show nothing of the former store.
func (t *Table) Restore(s Store) { t.Store, t.past = s, nil }

func (t *Table) list(o engine.List) engine.Input {
	if o.Query.Eventually && t.Stale != nil {
		if records, ok := t.earlier(o.Query); ok {
			return engine.Listed{Read: o.Read, Records: records}
		}
	}
	in := engine.Listed{Read: o.Read}
	for r, err := range t.Store.List(context.Background(), o.Query) {
		switch {
		case err != nil:
			in.Err = err
		case len(t.Unreadable) > 0 && t.Unreadable[r.Key()]:
			spoilt := &lease.MalformedError{Key: r.Key(), WriteID: r.Written()}
			in.Unreadable = append(in.Unreadable, engine.Unreadable{Key: spoilt.Key, WriteID: spoilt.WriteID, Err: spoilt})
		default:
			in.Records = append(in.Records, r)
		}
	}
	return in
}

func (t *Table) get(o engine.Get) engine.Input {
	r, err := t.Store.Get(context.Background(), o.Key)
	switch {
	case errors.Is(err, lease.ErrNotFound):
		err = nil
	case t.Unreadable[o.Key]:
		r, err = nil, &lease.MalformedError{Key: o.Key, WriteID: r.Written(), Cause: errSpoilt}
	}
	return engine.Got{Read: o.Read, Key: o.Key, Record: r, Err: err}
}

// earlier returns the records of a listing as a replica that lags behind shows them.
func (t *Table) earlier(q lease.Query) ([]lease.Record, bool) {
	age, stale := t.Stale()
	if !stale || len(t.Unreadable) > 0 {
		return nil, false
	}
	t.Lagged++
	all := t.Records(q.Group, q.Kind)
	for _, c := range slices.Backward(t.past) {
		if c.at <= t.Time.Now()-age {
			break
		}
		if c.key.Kind.Listed() != q.Kind {
			continue
		}
		i, found := slices.BinarySearchFunc(all, c.key.Name, func(r lease.Record, name string) int { return strings.Compare(r.Key().Name, name) })
		row, _ := c.before.(lease.Row)
		switch shown := c.before != nil && !row.Removed; {
		case found && shown:
			all[i] = c.before
		case found:
			all = slices.Delete(all, i, i+1)
		case shown:
			all = slices.Insert(all, i, c.before)
		}
	}
	all = slices.DeleteFunc(all, func(r lease.Record) bool { return r.Key().Name <= q.After })
	if q.Limit > 0 {
		all = all[:min(q.Limit, len(all))]
	}
	return all, true
}

// before returns a record as it stands, if a listing may show it so later.
func (t *Table) before(k lease.Key) lease.Record {
	if t.Stale == nil {
		return nil
	}
	r, _ := t.Store.Get(context.Background(), k)
	return r
}

// keep keeps what a record was before a write.
func (t *Table) keep(k lease.Key, before lease.Record) {
	if t.Stale == nil {
		t.past = nil
		return
	}
	now := t.Time.Now()
	t.past = append(t.past, change{at: now, key: k, before: before})
	for t.past[0].at < now-3*time.Second {
		t.past = t.past[1:]
	}
}
