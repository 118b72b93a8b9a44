package dynamostore

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// eventful is a service with something that happens before and after each update and deletion. An answer for which after
// returns true is lost.
type eventful struct {
	*service
	before func()
	after  func() (lost bool)
}

func (e *eventful) Do(r *http.Request) (*http.Response, error) {
	action := r.Header.Get("X-Amz-Target")
	if !strings.HasSuffix(action, "UpdateItem") && !strings.HasSuffix(action, "DeleteItem") {
		return e.service.Do(r)
	}
	if e.before != nil {
		e.before()
	}
	answer, err := e.service.Do(r)
	if e.after != nil && e.after() {
		return nil, errors.New("connection reset")
	}
	return answer, err
}

// TestRepairOfALivingSeat: a seat is repaired, or deleted, although its worker stores heartbeats meanwhile, and the person is
// asked once. It is not if something else has changed, or if the worker is quicker each time.
func TestRepairOfALivingSeat(t *testing.T) {
	seat := fixture.Seat()
	good := encode(seat)
	for _, name := range demands {
		delete(good, name)
	}
	for name, c := range map[string]struct {
		attr    string
		value   types.AttributeValue
		changes string // besides the heartbeat; empty: nothing
		beats   int64
		want    error
		kept    bool
	}{
		"three heartbeats":                        {attr: attr.Build, value: num("7"), beats: 3, kept: true},
		"a heartbeat each time":                   {attr: attr.Build, value: num("7"), beats: 1000, want: protocol.ErrRewritten},
		"other damage":                            {attr: attr.Build, value: num("7"), changes: attr.Handoff, beats: 1, want: protocol.ErrRewritten},
		"another value of it":                     {attr: attr.Build, value: num("7"), changes: attr.Build, beats: 1, want: protocol.ErrRewritten},
		"the user's attribute":                    {attr: attr.Build, value: num("7"), changes: "mine", beats: 1, want: protocol.ErrRewritten},
		"a seat that is deleted, three":           {attr: attr.Wants, value: text("all"), beats: 3},
		"a seat without a lease time":             {attr: attr.TTL, value: text("long"), beats: 3},
		"a seat that is deleted, another value":   {attr: attr.Wants, value: text("all"), changes: attr.Wants, beats: 1, want: protocol.ErrRewritten},
		"a seat that needs to be deleted by then": {attr: attr.Build, value: num("7"), changes: attr.Wants, beats: 1, want: protocol.ErrRewritten},
	} {
		_, f := opened(t, 0)
		live := &eventful{service: f}
		s := f.open(t, live, Options{})
		item := with(good, c.attr, c.value)
		f.put(t, item)
		beat, asked := seat.Beat, 0
		live.before = func() {
			if beat-seat.Beat == c.beats {
				return
			}
			beat++
			item = with(with(item, attr.Beat, num(itoa(beat))), attr.WriteID, text("beat "+itoa(beat)))
			if c.changes != "" {
				item[c.changes] = num(itoa(beat))
			}
			f.put(t, item)
		}
		next, err := s.Repair(t.Context(), seat.Key(), "ann", "why", func(lease.Record, []string) error {
			asked++
			return nil
		})
		live.before = nil
		now, nowErr := s.Get(t.Context(), seat.Key())
		switch kept, _ := now.(lease.Seat); {
		case !errors.Is(err, c.want) || asked != 1:
			t.Errorf("%s: %v, asked %d times", name, err, asked)
		case c.want != nil && !errors.Is(nowErr, lease.ErrMalformed):
			t.Errorf("%s: stored %v, %v", name, now, nowErr)
		case c.kept && (nowErr != nil || kept.Beat != seat.Beat+c.beats || kept.String() != next.String()):
			t.Errorf("%s: %v; stored %v, %v", name, next, now, nowErr)
		case c.want == nil && !c.kept && (next != nil || !errors.Is(nowErr, lease.ErrNotFound)):
			t.Errorf("%s: %v; stored %v, %v", name, next, now, nowErr)
		}
	}
}

// TestRepairWhoseAnswerIsLost: a repair that was stored without an answer was made, whatever was written since. Without a lost
// answer, and where somebody else has written, it was not.
func TestRepairWhoseAnswerIsLost(t *testing.T) {
	row, good := spoiltRow(t)
	spoiltItem := with(good, attr.Failures, text("x"))
	seat := fixture.Seat()
	seatItem := with(encode(seat), attr.Build, num("7"))
	claimed := func(t *testing.T, s *Store, by ...string) {
		for _, name := range by {
			now, err := s.Get(t.Context(), row.Key())
			if err != nil {
				t.Fatal(err)
			}
			r := now.(lease.Row)
			if !r.Owner.IsZero() {
				r = stored(t, s)(protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
			}
			stored(t, s)(protocol.Claim(r, fixture.Worker(name), fixture.Stamp()))
		}
	}
	beaten := func(t *testing.T, s *Store) {
		now, err := s.Get(t.Context(), seat.Key())
		if err != nil {
			t.Fatal(err)
		}
		w, err := protocol.NextBeat(now.(lease.Seat), now.(lease.Seat).Says, fixture.Stamp())
		if err == nil {
			_, err = s.Write(t.Context(), w)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		item  map[string]types.AttributeValue
		since func(t *testing.T, s *Store) // what happens after the first request, which is carried out
		first func(f *service)             // what happens before it, so that it is refused
		lost  bool
		want  error
	}{
		"a row":                        {item: spoiltItem, lost: true},
		"a row that is claimed":        {item: spoiltItem, lost: true, since: func(t *testing.T, s *Store) { claimed(t, s, "c") }},
		"a row that is claimed again":  {item: spoiltItem, lost: true, since: func(t *testing.T, s *Store) { claimed(t, s, "c", "d") }},
		"a seat with a heartbeat":      {item: seatItem, lost: true, since: beaten},
		"a row that another repairs":   {item: spoiltItem, lost: true, first: func(f *service) { f.put(t, good) }, want: protocol.ErrRewritten},
		"a seat that another repairs":  {item: seatItem, first: func(f *service) { f.put(t, encode(seat)) }, want: protocol.ErrRewritten},
		"a row that another spoils so": {item: spoiltItem, lost: true, first: func(f *service) { f.put(t, with(spoiltItem, attr.Counter, num("7"))) }, want: protocol.ErrRewritten},
	} {
		t.Run(name, func(t *testing.T) {
			plain, f := opened(t, 0)
			live := &eventful{service: f}
			s := f.open(t, live, Options{Timeout: time.Minute})
			f.put(t, c.item)
			lost := c.lost
			live.before = func() {
				if c.first != nil {
					c.first(f)
					c.first = nil
				}
			}
			live.after = func() bool {
				if !lost {
					return false
				}
				if lost = false; c.since != nil {
					c.since(t, plain)
				}
				return true
			}
			key := row.Key()
			if c.item[attr.Beat] != nil {
				key = seat.Key()
			}
			if _, err := s.Repair(t.Context(), key, "ann", "why", func(lease.Record, []string) error { return nil }); !errors.Is(err, c.want) {
				t.Error(err)
			}
		})
	}
}

// stored returns a function that stores a write, and returns the row.
func stored(t *testing.T, s *Store) func(lease.Write, error) lease.Row {
	return func(w lease.Write, err error) lease.Row {
		t.Helper()
		if err == nil {
			var r lease.Record
			if r, err = s.Write(t.Context(), w); err == nil {
				return r.(lease.Row)
			}
		}
		t.Fatal(err)
		return lease.Row{}
	}
}

// TestRepairOfALockDelay: a lock delay, or one that cannot be read, sets the shard aside. It costs nothing of the history.
func TestRepairOfALockDelay(t *testing.T) {
	next := fixture.Next(t)
	free := fixture.Held(t, "a")
	free = next(protocol.Release(free, fixture.Hold(free), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
	owner := fixture.Worker("b")
	owner.LockDelay = time.Minute
	held := next(protocol.Claim(free, owner, fixture.Stamp()))
	command := protocol.Command{Seen: held.Generation, By: "ann", Note: "why"}
	released := next(protocol.ForceRelease(held, command, fixture.Stamp()))
	reassigned := next(protocol.Reassign(held, command, lease.Reservation{For: "c", Lasts: time.Minute}, fixture.Stamp()))
	for name, c := range map[string]struct {
		row     lease.Row
		spoil   map[string]types.AttributeValue
		lost    string
		aside   bool
		history bool
	}{
		"of the owner":                         {held, map[string]types.AttributeValue{attr.Failures: text("x")}, attr.Failures, true, true},
		"of the owner, unreadable":             {held, map[string]types.AttributeValue{attr.LockDelay: text("x")}, attr.LockDelay, true, true},
		"of an owner who cannot be read":       {held, map[string]types.AttributeValue{attr.Owner: num("1")}, "incarnation leaseOwner lockDelayMillis", true, true},
		"of a release":                         {released, map[string]types.AttributeValue{attr.Failures: text("x")}, attr.Failures, true, true},
		"of a release, unreadable":             {released, map[string]types.AttributeValue{attr.LockDelay: text("x")}, attr.LockDelay, true, true},
		"of a reservation":                     {reassigned, map[string]types.AttributeValue{attr.Failures: text("x")}, attr.Failures, true, true},
		"of a reservation, unreadable":         {reassigned, map[string]types.AttributeValue{attr.LockDelay: text("x")}, attr.LockDelay, true, true},
		"of a reservation for a number":        {reassigned, map[string]types.AttributeValue{attr.ReservedFor: num("1")}, "lockDelayMillis reservedFor reservedMillis", true, true},
		"of a reservation without its command": {reassigned, map[string]types.AttributeValue{attr.Last: num("1")}, "lockDelayMillis transfer transfers", true, false},
		"of nobody any more":                   {free, map[string]types.AttributeValue{attr.Failures: text("x"), attr.LockDelay: num("60000")}, attr.Failures, false, true},
	} {
		s, f := opened(t, 0)
		item := encode(c.row)
		maps.Copy(item, c.spoil)
		f.put(t, item)
		var lost []string
		got, err := s.Repair(t.Context(), c.row.Key(), "ann", "why", func(_ lease.Record, names []string) error {
			lost = names
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := got.(lease.Row)
		remembers := slices.ContainsFunc(r.History(), func(t lease.Transfer) bool { return t.Generation == c.row.Generation && t.Reason == c.row.Last.Reason })
		if strings.Join(lost, " ") != c.lost || r.Quarantined != c.aside || remembers != c.history {
			t.Errorf("%s: lost %v; %v; history %v", name, lost, r, r.History())
		}
	}
}
