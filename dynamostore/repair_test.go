package dynamostore

import (
	"errors"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func num(n string) types.AttributeValue  { return &types.AttributeValueMemberN{Value: n} }
func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// spoiltRow returns an item that is a held row with a checkpoint, failed attempts, a history and an attribute of the user.
func spoiltRow(t *testing.T) (lease.Row, map[string]types.AttributeValue) {
	t.Helper()
	next := fixture.Next(t)
	failed := fixture.Held(t, "a")
	failed = next(protocol.Commit(failed, fixture.Hold(failed), checkpoint.Mark{Position: "100", State: "s"}, fixture.Stamp()))
	failed = next(protocol.Release(failed, fixture.Hold(failed), protocol.End{Reason: lease.ReasonFailed, Note: "broken"}, fixture.Stamp()))
	row := next(protocol.Claim(failed, fixture.Worker("b"), fixture.Stamp()))
	item := encode(row)
	item["mine"] = text("stays")
	return row, item
}

// TestRepairOfARow: whatever is wrong with a row, a repair keeps what can be read, names the rest, and makes a row without an
// owner under a generation above all. A shard whose state is not known is set aside.
func TestRepairOfARow(t *testing.T) {
	row, good := spoiltRow(t)
	above, far := row.Generation+7, generation.First(time.Now().Add(time.Hour))
	for name, c := range map[string]struct {
		spoil map[string]types.AttributeValue // nil: the attribute is removed
		lost  string
		aside bool
		check func(lease.Row) bool
	}{
		"no write id":        {spoil: map[string]types.AttributeValue{attr.WriteID: nil}, lost: attr.WriteID},
		"no version":         {spoil: map[string]types.AttributeValue{attr.Version: nil}, lost: attr.Version},
		"a counter of words": {spoil: map[string]types.AttributeValue{attr.Counter: text("seven")}, lost: attr.Counter},
		"a huge counter":     {spoil: map[string]types.AttributeValue{attr.Counter: num("9223372036854775808")}, lost: attr.Counter},
		"no generation": {spoil: map[string]types.AttributeValue{attr.Generation: nil}, lost: "generation transfer transfers",
			check: func(r lease.Row) bool { return len(r.History()) == 0 }},
		"a generation that is too low": {spoil: map[string]types.AttributeValue{attr.CheckpointGeneration: num(itoa(above))}, lost: "generation transfer transfers",
			check: func(r lease.Row) bool {
				return r.Generation >= above+generation.Lost && r.Checkpoint.Generation == above
			}},
		"failures that are text": {spoil: map[string]types.AttributeValue{attr.Failures: text("1")}, lost: attr.Failures},
		"negative errors":        {spoil: map[string]types.AttributeValue{attr.Errors: num("-3")}, lost: attr.Errors},
		"no last transfer":       {spoil: map[string]types.AttributeValue{attr.Last: nil}, lost: attr.Past},
		"a broken history": {spoil: map[string]types.AttributeValue{attr.Past: text("x")}, lost: attr.Past,
			check: func(r lease.Row) bool { return len(r.History()) == 1 }},
		"parents that are no set":       {spoil: map[string]types.AttributeValue{attr.Parents: text("p")}, lost: attr.Parents},
		"no incarnation":                {spoil: map[string]types.AttributeValue{attr.Incarnation: nil}, lost: attr.Owner},
		"a time of words":               {spoil: map[string]types.AttributeValue{attr.CheckpointAt: text("noon")}, lost: attr.CheckpointAt},
		"a checkpoint of no generation": {spoil: map[string]types.AttributeValue{attr.CheckpointGeneration: text("x")}, lost: attr.CheckpointGeneration},
		"a checkpoint that is a number": {spoil: map[string]types.AttributeValue{attr.Position: num("5")}, lost: "checkpoint state", aside: true},
		"a state that is text":          {spoil: map[string]types.AttributeValue{attr.State: text("s")}, lost: "checkpoint state", aside: true},
		"finished, or not":              {spoil: map[string]types.AttributeValue{attr.Finished: text("yes")}, lost: attr.Finished, aside: true},
		"quarantined, or not":           {spoil: map[string]types.AttributeValue{attr.Quarantined: num("1")}, lost: attr.Quarantined, aside: true},
		"removed, or not":               {spoil: map[string]types.AttributeValue{attr.Removed: num("0")}, lost: attr.Removed, aside: true},
		"a generation that is text": {spoil: map[string]types.AttributeValue{attr.Generation: text(itoa(far))}, lost: "generation transfer transfers",
			check: func(r lease.Row) bool { return r.Generation >= far+generation.Lost }},
		"held, and finished": {spoil: map[string]types.AttributeValue{attr.Finished: &types.AttributeValueMemberBOOL{Value: true}}, lost: "finished incarnation leaseOwner", aside: true,
			check: func(r lease.Row) bool { return !r.Finished }},
		"two faults": {spoil: map[string]types.AttributeValue{attr.Counter: nil, attr.Failures: text("x")}, lost: attr.Failures + " " + attr.Counter,
			check: func(r lease.Row) bool { return r.Checkpoint.Position == "100" }},
	} {
		s, f := opened(t, 0)
		item := maps.Clone(good)
		for name, value := range c.spoil {
			if delete(item, name); value != nil {
				item[name] = value
			}
		}
		f.put(t, item)
		var shown lease.Record
		var lost []string
		got, err := s.Repair(t.Context(), row.Key(), "ann", "edited by hand", func(next lease.Record, names []string) error {
			shown, lost = next, names
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := strings.Fields(c.lost)
		slices.Sort(want)
		now, err := s.Get(t.Context(), row.Key())
		r, _ := now.(lease.Row)
		if err != nil || r.String() != got.String() || r.String() != shown.String() {
			t.Errorf("%s: stored %v, %v; returned %v", name, now, err, got)
		}
		if !slices.Equal(lost, want) {
			t.Errorf("%s: lost %v", name, lost)
		}
		if !r.Owner.IsZero() || r.Generation <= row.Generation || r.Quarantined != c.aside || c.check != nil && !c.check(r) ||
			r.Last.Did != "repaired" || r.Last.By != "ann" || r.Last.Note != "edited by hand" || r.WriteID == row.WriteID {
			t.Errorf("%s: %v", name, r)
		}
		if _, broken := c.spoil[attr.Counter]; !broken && r.Counter != row.Counter+1 {
			t.Errorf("%s: counter %d after %d", name, r.Counter, row.Counter)
		}
		if !c.aside && r.Checkpoint.Position != "100" || f.get(t, keyOf("orders/lease", row.Shard))["mine"] == nil {
			t.Errorf("%s: at %q, and the user's attribute is %v", name, r.Checkpoint.Position, f.get(t, keyOf("orders/lease", row.Shard))["mine"])
		}
	}
}

func itoa(n int64) string { return attribute(n).(*types.AttributeValueMemberN).Value }

// TestRepairOfASeat: a seat keeps its write id and its heartbeat, so that its worker keeps it. One that has no name, no lease
// time or no heartbeat is deleted.
func TestRepairOfASeat(t *testing.T) {
	seat := fixture.Seat()
	for name, c := range map[string]struct {
		attr  string
		value types.AttributeValue
		kept  bool
	}{
		"a build that is a number": {attr.Build, num("7"), true},
		"requests that are no set": {attr.Wants, text("all"), false}, // its worker would not store these again
		"a limit of words":         {attr.MaxShards, text("many"), false},
		"a text for a flag":        {attr.Leaving, text("yes"), false},
		"no name":                  {attr.Name, nil, false},
		"a lease time of words":    {attr.TTL, text("long"), false},
		"a heartbeat of words":     {attr.Beat, text("seven"), false},
		"a number for a write id":  {attr.WriteID, num("7"), false},
	} {
		s, f := opened(t, 0)
		item := encode(seat)
		if !slices.Contains(demands, c.attr) {
			for _, name := range demands { // so that only the fault decides
				delete(item, name)
			}
		}
		if delete(item, c.attr); c.value != nil {
			item[c.attr] = c.value
		}
		f.put(t, item)
		got, err := s.Repair(t.Context(), seat.Key(), "ann", "why", func(next lease.Record, lost []string) error {
			if (next != nil) != c.kept || c.kept && !slices.Equal(lost, []string{c.attr}) || slices.Contains(lost, attr.News) {
				t.Errorf("%s: %v, lost %v", name, next, lost)
			}
			return nil
		})
		now, nowErr := s.Get(t.Context(), seat.Key())
		if !c.kept {
			if err != nil || got != nil || !errors.Is(nowErr, lease.ErrNotFound) {
				t.Errorf("%s: %v, %v; stored %v, %v", name, got, err, now, nowErr)
			}
			continue
		}
		r, _ := now.(lease.Seat)
		if err != nil || nowErr != nil || r.WriteID != seat.WriteID || r.Beat != seat.Beat || r.Name != seat.Name {
			t.Errorf("%s: %v, %v; stored %v, %v", name, got, err, now, nowErr)
		}
	}
}

// TestRepairIsConditional: a repair writes nothing over an item that has changed since it was read, in whatever attribute; nor
// over a record that can be read or is that of a newer version; nor if the caller does not agree. An answer that was lost does
// not matter.
func TestRepairIsConditional(t *testing.T) {
	row, good := spoiltRow(t)
	spoilt := maps.Clone(good)
	spoilt[attr.Failures] = text("x")
	no := errors.New("no")
	for name, c := range map[string]struct {
		item    map[string]types.AttributeValue
		between func(item map[string]types.AttributeValue) // changes the item before the write
		agree   error
		want    error
	}{
		"it can be read":       {item: good, want: protocol.ErrReadable},
		"of a newer version":   {item: with(spoilt, attr.Version, num("2")), want: protocol.ErrNewer},
		"the caller disagrees": {item: spoilt, agree: no, want: no},
		"another write":        {item: spoilt, between: func(item map[string]types.AttributeValue) { item[attr.WriteID] = text("other") }, want: protocol.ErrRewritten},
		"a hand's edit":        {item: spoilt, between: func(item map[string]types.AttributeValue) { item[attr.Position] = text("200") }, want: protocol.ErrRewritten},
		"an attribute that is new": {item: spoilt, between: func(item map[string]types.AttributeValue) {
			item[attr.Finished] = &types.AttributeValueMemberBOOL{Value: true}
		}, want: protocol.ErrRewritten},
		"the user's attribute": {item: spoilt, between: func(item map[string]types.AttributeValue) { item["mine"] = text("new") }, want: protocol.ErrRewritten},
	} {
		s, f := opened(t, 0)
		f.put(t, c.item)
		last := c.item
		_, err := s.Repair(t.Context(), row.Key(), "ann", "why", func(lease.Record, []string) error {
			if c.between != nil {
				last = maps.Clone(c.item)
				c.between(last)
				f.put(t, last)
			}
			return c.agree
		})
		if now := f.get(t, keyOf("orders/lease", row.Shard)); !errors.Is(err, c.want) || !reflect.DeepEqual(now, imageOf(t, last)) {
			t.Errorf("%s: %v; stored %v", name, err, now)
		}
	}
	for _, k := range []lease.Key{{Group: "orders", Kind: lease.KindLease, Name: "none"}, {Group: "orders", Kind: lease.KindTarget, Name: "a/0001"}} {
		s, _ := opened(t, 0)
		if _, err := s.Repair(t.Context(), k, "ann", "why", func(lease.Record, []string) error { return nil }); err == nil {
			t.Errorf("%v was repaired", k)
		}
	}
	_, f := opened(t, 0)
	f.put(t, spoilt)
	lossy := &loses{service: f}
	s := f.open(t, lossy, Options{Timeout: time.Minute})
	lossy.once = true
	if _, err := s.Repair(t.Context(), row.Key(), "ann", "why", func(lease.Record, []string) error { return nil }); err != nil {
		t.Errorf("with a lost answer: %v", err)
	}
	if now, err := s.Get(t.Context(), row.Key()); err != nil || now.(lease.Row).Last.Did != "repaired" || lossy.once {
		t.Errorf("with a lost answer: %v, %v", now, err)
	}
}

func with(item map[string]types.AttributeValue, name string, value types.AttributeValue) map[string]types.AttributeValue {
	item = maps.Clone(item)
	item[name] = value
	return item
}

// loses loses the answer of the next update.
type loses struct {
	*service
	once bool
}

func (l *loses) Do(r *http.Request) (*http.Response, error) {
	answer, err := l.service.Do(r)
	if l.once && strings.HasSuffix(r.Header.Get("X-Amz-Target"), "UpdateItem") {
		l.once = false
		return nil, errors.New("connection reset")
	}
	return answer, err
}

// TestRepairKnowsTheFormat: a repair knows every attribute of rows and seats.
func TestRepairKnowsTheFormat(t *testing.T) {
	for _, r := range fixture.Full(t) {
		kind := r.Key().Kind
		if kind != lease.KindLease && kind != lease.KindSeat {
			continue
		}
		for name := range lease.Encode(r) {
			if name != attr.Group && name != attr.Key && !slices.Contains(formatAttributes(kind), name) {
				t.Errorf("formatAttributes lacks %s of a %v", name, kind)
			}
		}
	}
}

// TestMendInTheSecondOfTheClaim: the generation of a row that was made and claimed in this second cannot be read. The repaired
// row has a higher one.
func TestMendInTheSecondOfTheClaim(t *testing.T) {
	made := time.Date(2026, 11, 28, 19, 0, 0, 0, time.UTC)
	issued, unread := generation.First(made)+1, lease.Row{Group: "orders", Shard: "s", Generation: 1, Counter: 1, WriteID: "-"}
	r, err := protocol.Mend(unread, protocol.Command{By: "ann"}, false, protocol.Stamp{ID: "id", At: made.Add(900 * time.Millisecond)})
	if err != nil || r.Generation <= issued {
		t.Errorf("generation %d after %d, %v", r.Generation, issued, err)
	}
}

// TestMendKeepsALockDelay: nobody may hold a lease whose holder had a lock delay before an operator has looked at it, nor one
// that a release has left with a delay.
func TestMendKeepsALockDelay(t *testing.T) {
	for _, r := range []lease.Row{
		{Group: "orders", Shard: "s", Generation: 1, Counter: 1, WriteID: "-", Owner: lease.Owner{Name: "a", Incarnation: "a", LockDelay: time.Minute}},
		{Group: "orders", Shard: "s", Generation: 1, Counter: 1, WriteID: "-", Reserved: lease.Reservation{Delay: time.Minute}},
	} {
		if next, err := protocol.Mend(r, protocol.Command{By: "ann"}, false, fixture.Stamp()); err != nil || !next.Quarantined {
			t.Errorf("%v: %v, %v", r, next, err)
		}
	}
}

// TestMend: a row with the highest numbers is not repaired to lower ones, and the error says what is left to do.
func TestMend(t *testing.T) {
	row, _ := spoiltRow(t)
	for name, c := range map[string]struct {
		edit func(*lease.Row, *protocol.Stamp)
		want error // nil: it is repaired
	}{
		"the highest generation":        {func(r *lease.Row, _ *protocol.Stamp) { r.Generation = math.MaxInt64 }, protocol.ErrHighest},
		"the first that is too high":    {func(r *lease.Row, _ *protocol.Stamp) { r.Generation = math.MaxInt64 - generation.Lost + 1 }, protocol.ErrHighest},
		"the last that is not too high": {func(r *lease.Row, _ *protocol.Stamp) { r.Generation = math.MaxInt64 - generation.Lost }, nil},
		"the highest counter":           {func(r *lease.Row, _ *protocol.Stamp) { r.Counter = math.MaxInt64 }, protocol.ErrHighest},
		"a clock that is not set":       {func(_ *lease.Row, s *protocol.Stamp) { s.At = time.Unix(0, 0) }, checkpoint.ErrInvalid},
	} {
		r, stamp := row, fixture.Stamp()
		c.edit(&r, &stamp)
		r.Last, r.Past = lease.Transfer{}, "" // as of a row whose generation cannot be compared with its history
		if got, err := protocol.Mend(r, protocol.Command{By: "ann"}, false, stamp); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	s, f := opened(t, 0)
	f.put(t, with(with(encode(row), attr.Generation, num(itoa(math.MaxInt64))), attr.Failures, text("x")))
	rule, _ := errors.AsType[*lease.RuleError](func() error {
		_, err := s.Repair(t.Context(), row.Key(), "ann", "why", func(lease.Record, []string) error { return nil })
		return err
	}())
	if rule == nil || !errors.Is(rule, protocol.ErrHighest) {
		t.Errorf("a repair: %v", rule)
	}
}
