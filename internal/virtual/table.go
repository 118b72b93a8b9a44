package virtual

import (
	"context"
	"errors"
	"iter"
	"slices"
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

// A Table answers the calls of engines.
type Table struct {
	Store      Store
	Watcher    Watcher            // may be nil
	Unreadable map[lease.Key]bool // records that are there and cannot be read
	Verified   error              // the answer to Verify
	// Stale decides for each eventually consistent listing of the seats whether it lags behind,
	// and by how much. If it is nil, no listing does.
	Stale  func() (age time.Duration, stale bool)
	Time   *Time // for Stale
	Lagged int   // how many listings lagged behind
	past   []seating
}

// A seating is who had a seat from a moment on.
type seating struct {
	at    time.Duration
	seats []lease.Record
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
		if t.Unreadable[o.Write.Key()] && (err != nil || o.Write.Op == lease.OpTransfer) {
			r, err = nil, lease.ErrMalformed // the answer would show the record as it stands
		}
		return engine.Settled{Write: o.Write, Record: r, Err: err}
	case engine.Verify:
		return engine.Verified{Read: o.Read, Err: t.Verified}
	}
	return nil
}

// Unanswered returns what a worker is told of a List, Get, Send or Verify that was not answered.
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
	}
	return nil
}

// Write makes one write.
func (t *Table) Write(by Sender, w lease.Write) (lease.Record, error) {
	r, err := t.Store.Write(context.Background(), w)
	if err != nil {
		return r, err
	}
	if t.Watcher != nil {
		t.Watcher.Accepted(by, w, r)
	}
	if k := w.Key(); k.Kind == lease.KindSeat {
		t.keep(k.Group)
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

// Restore puts another store in place of the present one: the table went back in time. Nothing
// shows it as it was before.
func (t *Table) Restore(s Store) { t.Store, t.past = s, nil }

func (t *Table) list(o engine.List) engine.Input {
	if o.Query.Eventually && t.Stale != nil {
		if seats, ok := t.earlier(); ok {
			return engine.Listed{Read: o.Read, Records: seats}
		}
	}
	in := engine.Listed{Read: o.Read}
	for r, err := range t.Store.List(context.Background(), o.Query) {
		switch {
		case err != nil:
			in.Err = err
		case len(t.Unreadable) > 0 && t.Unreadable[r.Key()]:
			in.Unreadable = append(in.Unreadable, r.Key())
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
		r, err = nil, lease.ErrMalformed
	}
	return engine.Got{Read: o.Read, Key: o.Key, Record: r, Err: err}
}

// earlier returns the seats as a replica that lags behind shows them.
func (t *Table) earlier() ([]lease.Record, bool) {
	age, stale := t.Stale()
	if !stale || len(t.Unreadable) > 0 {
		return nil, false
	}
	for _, s := range slices.Backward(t.past) {
		if s.at <= t.Time.Now()-age {
			t.Lagged++
			return slices.Clone(s.seats), true
		}
	}
	return nil, false
}

// keep keeps the seats as they are now, which a listing may show within the next two seconds.
func (t *Table) keep(group string) {
	if t.Stale == nil {
		t.past = nil
		return
	}
	now := t.Time.Now()
	t.past = append(t.past, seating{at: now, seats: t.Records(group, lease.KindSeat)})
	for len(t.past) > 1 && t.past[1].at < now-2*time.Second {
		t.past = t.past[1:]
	}
}
