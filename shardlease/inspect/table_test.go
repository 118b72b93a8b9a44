package inspect_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	group = "orders"
	ttl   = 9 * time.Second
)

// A table is a Lister with records that a test has made by hand. Its clock is that of the reader and, unless a
// test sets other times, of all workers.
type table struct {
	t       testing.TB
	now     time.Time
	rows    map[string]*lease.Row
	seats   map[string]*lease.Seat // by name
	plan    *lease.Plan
	wishes  []lease.Wish
	targets []lease.Target
	bad     []lease.Key
	owner   string
	verify  error
	lists   map[lease.Kind]int
	gets    int
	lag     map[string]lease.Row // rows as an eventually consistent listing shows them
	frozen  string               // the name of a worker that does nothing any more
	idle    bool                 // no worker commits
	ends    []lease.Ends
	uncount error // why the counts of ends cannot be read
}

func newTable(t testing.TB) *table {
	return &table{
		t: t, now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), rows: map[string]*lease.Row{}, seats: map[string]*lease.Seat{},
		lists: map[lease.Kind]int{}, lag: map[string]lease.Row{},
	}
}

// settled returns a table in which the workers a and b hold two shards each, and have done so for an hour.
func settled(t testing.TB) *table {
	of := newTable(t)
	of.seat("a")
	of.seat("b")
	for i, name := range []string{"a", "b", "a", "b"} {
		row := of.row(fmt.Sprintf("shard-%d", i))
		of.begin(row, lease.ReasonInitial, name, "")
		of.commit(row)
	}
	of.planned(1)
	of.pass(time.Hour)
	return of
}

// pass lets time pass while the workers beat and commit.
func (of *table) pass(d time.Duration) {
	of.now = of.now.Add(d)
	for _, seat := range of.seats {
		if seat.Beat > 0 && seat.Name != of.frozen {
			of.beat(seat)
		}
	}
	for _, row := range of.rows {
		if !row.Owner.IsZero() && row.Owner.Name != of.frozen && !of.idle {
			of.commit(row)
		}
	}
}

func (of *table) beat(seat *lease.Seat) { seat.Beat, seat.At = seat.Beat+1, of.now }

func (of *table) seat(name string) *lease.Seat {
	seat := &lease.Seat{
		Group: group, Incarnation: lease.Incarnation(name + "-1"), WriteID: "w", Beat: 1, Name: name, TTL: ttl, At: of.now,
		Since: of.now,
	}
	of.seats[name] = seat
	return seat
}

func (of *table) row(shard string, parents ...string) *lease.Row {
	row := &lease.Row{
		Group: group, Shard: shard, Parents: parents, Counter: 1, WriteID: "w", Generation: 1,
		Last: lease.Transfer{Generation: 1, Reason: lease.ReasonInitial, By: "a", At: of.now, WriteID: "w"},
	}
	of.rows[shard] = row
	return row
}

// begin makes a change of hands. An empty name is nobody.
func (of *table) begin(row *lease.Row, why lease.Reason, to, by string) {
	owner := lease.Owner{}
	if seat := of.seats[to]; seat != nil {
		owner = seat.Owner()
	} else if to != "" {
		owner = lease.Owner{Name: to, Incarnation: lease.Incarnation(to + "-1")}
	}
	row.Past = row.Followed(row.Generation + 1)
	from := row.Owner.Name
	if by == "" {
		by = to
	}
	row.Generation, row.Counter, row.Owner, row.OfferedTo = row.Generation+1, row.Counter+1, owner, ""
	row.Last = lease.Transfer{Generation: row.Generation, Reason: why, From: from, By: by, At: of.now, WriteID: "w"}
}

// fail makes the owner of a shard fail it, and leaves it free.
func (of *table) fail(row *lease.Row) {
	row.Failures = lease.Failures{Count: row.Attempts() + 1, Last: row.Generation, Errors: row.Attempts() + 1}
	of.begin(row, lease.ReasonFailed, "", row.Owner.Name)
}

func (of *table) commit(row *lease.Row) {
	row.Counter++
	row.Checkpoint = checkpoint.Checkpoint{Mark: checkpoint.Mark{Position: fmt.Sprint(row.Counter)}, Generation: row.Generation, At: of.now}
}

// planned completes a plan that has every shard where it is.
func (of *table) planned(revision int64) {
	of.plan = &lease.Plan{Group: group, WriteID: "w", Revision: revision, By: of.seats["a"].Owner(), Planner: "even/1", At: of.now}
	of.targets = nil
	for _, seat := range of.seats {
		seat.Revision = revision
		target := lease.Target{Group: group, Incarnation: seat.Incarnation, Pages: 1, WriteID: "w", Revision: revision}
		for _, name := range of.names() {
			if of.rows[name].Owner.Incarnation == seat.Incarnation {
				target.Hold = append(target.Hold, lease.Assigned{Shard: name})
			}
		}
		of.targets = append(of.targets, target)
	}
}

// want makes a worker request a shard.
func (of *table) want(name, shard string, terms string) {
	want := lease.Want{Shard: shard, Generation: of.rows[shard].Generation, Owner: of.rows[shard].Owner.Incarnation}
	if err := want.Terms.UnmarshalText([]byte(terms)); err != nil {
		of.t.Fatal(err)
	}
	want.Terms = want.Terms.Fill(20 * time.Second)
	of.seats[name].Wants = []lease.Want{want}
}

func (of *table) names() (all []string) {
	for name := range of.rows {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (of *table) records(q lease.Query) (all []lease.Record) {
	switch q.Kind {
	case lease.KindLease:
		for _, name := range of.names() {
			row, late := of.lag[name]
			if !late || !q.Eventually {
				row = *of.rows[name]
			}
			if !row.Removed {
				all = append(all, row)
			}
		}
	case lease.KindSeat:
		if of.plan != nil {
			all = append(all, *of.plan)
		}
		if of.wishes != nil {
			all = append(all, lease.Wishes{Group: group, WriteID: "w", List: of.wishes})
		}
		for _, seat := range of.seats {
			all = append(all, *seat)
		}
	case lease.KindTarget:
		for _, target := range of.targets {
			all = append(all, target)
		}
	case lease.KindEnds:
		for _, hour := range of.ends {
			if hour.Key().Name > q.After {
				all = append(all, hour)
			}
		}
	}
	slices.SortFunc(all, func(a, b lease.Record) int { return strings.Compare(a.Key().Name, b.Key().Name) })
	return all
}

func (of *table) isBad(k lease.Key) bool { return slices.Contains(of.bad, k) }

func (of *table) List(_ context.Context, q lease.Query) iter.Seq2[lease.Record, error] {
	of.lists[q.Kind]++
	return func(yield func(lease.Record, error) bool) {
		for _, record := range of.records(q) {
			if !of.isBad(record.Key()) && !yield(record, nil) {
				return
			}
		}
		if q.Kind == lease.KindEnds && of.uncount != nil {
			yield(nil, of.uncount)
			return
		}
		for _, k := range of.bad {
			if k.Kind.Listed() == q.Kind && !yield(nil, &lease.MalformedError{Key: k, Cause: checkpoint.ErrInvalid, Owner: of.owner}) {
				return
			}
		}
	}
}

func (of *table) Get(_ context.Context, k lease.Key) (lease.Record, error) {
	of.gets++
	row := of.rows[k.Name]
	switch {
	case of.isBad(k):
		return nil, &lease.MalformedError{Key: k, Cause: checkpoint.ErrInvalid}
	case k.Kind == lease.KindTarget && slices.ContainsFunc(of.targets, func(t lease.Target) bool { return t.Key() == k }):
		return of.targets[slices.IndexFunc(of.targets, func(t lease.Target) bool { return t.Key() == k })], nil
	case row == nil || k.Kind != lease.KindLease:
		return nil, lease.ErrNotFound
	}
	return *row, nil
}

func (of *table) Verify(context.Context, string) error { return of.verify }

func (of *table) clock() time.Time { return of.now }

func (of *table) look() *inspect.Snapshot {
	of.t.Helper()
	s, err := inspect.Look(of.t.Context(), of, group, inspect.Options{Now: of.clock})
	if err != nil {
		of.t.Fatal(err)
	}
	return s
}

func key(kind lease.Kind, name string) lease.Key {
	return lease.Key{Group: group, Kind: kind, Name: name}
}

// warned returns the warnings of a code.
func warned(s *inspect.Snapshot, code inspect.Code) (all []inspect.Warning) {
	for _, w := range s.Warnings() {
		if w.Code == code {
			all = append(all, w)
		}
	}
	return all
}
