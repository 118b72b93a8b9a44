package lease_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// fullPlan returns a plan that uses every field, with names and ids of the given length.
func fullPlan(name, id int) lease.Plan {
	pad := func(s string, n int) string { return (s + strings.Repeat("-", n))[:n] }
	p := lease.Plan{
		Group: pad("orders", name), WriteID: lease.WriteID(pad("w", id)), Revision: 1 << 62, Open: true,
		By:      lease.Owner{Name: pad("worker", name), Incarnation: lease.Incarnation(pad("i", id)), Task: pad("task", name)},
		Planner: "even", Tick: 99, Late: true, At: time.Unix(5, 0).UTC(),
		Finding: lease.Finding{Inputs: pad("hash", 43), Members: 1000, Unplaced: 99_999, Shards: 100_000},
	}
	for i := range lease.MaxWatchers {
		p.Watchers = append(p.Watchers, lease.Incarnation(pad(fmt.Sprint(9-i), id)))
	}
	for i := range 20 {
		p.Examples = append(p.Examples, pad(fmt.Sprintf("shard-%02d", i), name))
	}
	p.Finding = p.Fit()
	return p
}

func TestPlansComeBack(t *testing.T) {
	small := lease.Plan{Group: "g", WriteID: "w", Revision: 7, By: lease.Owner{Name: "a", Incarnation: "a b"}}
	for _, p := range []lease.Plan{small, fullPlan(40, 26)} {
		back, err := lease.Decode(lease.Encode(p))
		if err != nil || !reflect.DeepEqual(back, lease.Record(p)) {
			t.Errorf("%v was read back as %v, %v", p, back, err)
		}
		clone := lease.Clone(p).(lease.Plan)
		if !reflect.DeepEqual(clone, p) {
			t.Errorf("the clone is %v", clone)
		}
		if len(p.Watchers) > 0 {
			clone.Watchers[0], clone.Examples[0] = "changed", "changed"
			if p.Watchers[0] == "changed" || p.Examples[0] == "changed" {
				t.Error("a clone shares memory")
			}
		}
	}
}

// TestPlanStaysSmall: every worker reads the plan with every heartbeat, so it never costs more
// than one read unit, and with ordinary names half of that.
func TestPlanStaysSmall(t *testing.T) {
	if size := lease.Encode(fullPlan(40, 26)).Size(); size > 2048 {
		t.Errorf("a plan with names of 40 bytes has %d bytes", size)
	}
	if p := fullPlan(40, 26); len(p.Examples) != 10 || p.Validate() != nil {
		t.Errorf("a plan with %d examples, %v", len(p.Examples), p.Validate())
	}
	p := fullPlan(lease.MaxName, lease.MaxID)
	p.Planner, p.Inputs = strings.Repeat("x", lease.MaxID), strings.Repeat("x", lease.MaxID)
	p.Tick, p.Members, p.Unplaced, p.Shards = math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64
	if size := lease.Encode(p).Size(); size > 4096 || len(p.Examples) != 4 || p.Validate() != nil {
		t.Errorf("the largest plan has %d bytes and %d examples: %v", size, len(p.Examples), p.Validate())
	}
	p.Examples = append(p.Examples, strings.Repeat("z", lease.MaxName))
	if err := p.Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("a larger plan: %v", err)
	}
}

func TestPlansThatCannotBeStored(t *testing.T) {
	for name, spoil := range map[string]func(p *lease.Plan){
		"no group":           func(p *lease.Plan) { p.Group = "" },
		"no write id":        func(p *lease.Plan) { p.WriteID = "" },
		"no revision":        func(p *lease.Plan) { p.Revision = 0 },
		"made by nobody":     func(p *lease.Plan) { p.By = lease.Owner{} },
		"negative tick":      func(p *lease.Plan) { p.Tick = -1 },
		"negative members":   func(p *lease.Plan) { p.Members = -1 },
		"negative unplaced":  func(p *lease.Plan) { p.Unplaced = -1 },
		"negative shards":    func(p *lease.Plan) { p.Shards = -1 },
		"too many watchers":  func(p *lease.Plan) { p.Watchers = append(p.Watchers, "one more") },
		"a watcher twice":    func(p *lease.Plan) { p.Watchers[1] = p.Watchers[0] },
		"a watcher, nobody":  func(p *lease.Plan) { p.Watchers[1] = "" },
		"too many examples":  func(p *lease.Plan) { p.Examples = append(p.Examples, "z") },
		"examples, unsorted": func(p *lease.Plan) { p.Examples[0] = "z" },
		"an example, empty":  func(p *lease.Plan) { p.Examples[0] = "" },
		"long planner":       func(p *lease.Plan) { p.Planner = strings.Repeat("p", 65) },
		"long inputs":        func(p *lease.Plan) { p.Inputs = strings.Repeat("p", 65) },
		"planner not UTF-8":  func(p *lease.Plan) { p.Planner = "\xff" },
	} {
		p := fullPlan(40, 26)
		spoil(&p)
		if err := p.Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: Validate returns %v", name, err)
		}
		if r, err := lease.Decode(lease.Encode(p)); !errors.Is(err, lease.ErrMalformed) && name != "examples, unsorted" { // a set is sorted when it is read
			t.Errorf("%s: Decode returns %v, %v", name, r, err)
		}
	}
}

// TestReservedNames: the plan and the wishes are beside the seats, under names that no seat has.
func TestReservedNames(t *testing.T) {
	for _, r := range []lease.Record{lease.Plan{Group: "g"}, lease.Wishes{Group: "g"}} {
		k := r.Key()
		if err := k.Validate(); err != nil || k.Kind.Listed() != lease.KindSeat || k.Name >= "\"" {
			t.Errorf("%v is listed with the %vs: %v", k, k.Kind.Listed(), err)
		}
		asSeat := lease.Key{Group: "g", Kind: lease.KindSeat, Name: k.Name}
		asOther := lease.Key{Group: "g", Kind: k.Kind, Name: "!other"}
		for _, k := range []lease.Key{asSeat, asOther} {
			if err := k.Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
				t.Errorf("%v is accepted", k)
			}
		}
		if err := (lease.Query{Group: "g", Kind: k.Kind}).Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("a listing of a %v is accepted", k.Kind)
		}
	}
	for _, inc := range []lease.Incarnation{"!", "!x", " x", ""} {
		if err := (lease.Owner{Name: "a", Incarnation: inc}).Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("the incarnation %q is accepted", inc)
		}
	}
	// A reserved record of a newer version is no seat, and hides none.
	item := lease.Encode(lease.Seat{Group: "g", Incarnation: "i", WriteID: "w", Name: "n", TTL: time.Second})
	item[attr.Key] = "!newer"
	_, err := lease.Decode(item)
	if malformed, ok := errors.AsType[*lease.MalformedError](err); !ok || malformed.Key.Kind == lease.KindSeat {
		t.Errorf("got %v", err)
	}
}

func TestMalformedPlansAndWishesAreNamed(t *testing.T) {
	plan, wishes := lease.Encode(fullPlan(20, 20)), lease.Encode(fullWishes())
	for name, tc := range map[string]struct {
		item  lease.Item
		attr  string
		value any
	}{
		"revision as text":  {plan, attr.Revision, "7"},
		"negative revision": {plan, attr.Revision, int64(-7)},
		"open as text":      {plan, attr.Open, "yes"},
		"watchers as a set": {plan, attr.Watchers, []string{"a"}},
		"an empty watcher":  {plan, attr.Watchers, "a\t\tb"},
		"examples as text":  {plan, attr.Examples, "a"},
		"a newer version":   {plan, attr.Version, int64(attr.Format + 1)},
		"wishes as text":    {wishes, attr.Wishes, "pause"},
		"a short wish":      {wishes, attr.Wishes, []string{"pause\t\t\t0\tme"}},
		"a long wish":       {wishes, attr.Wishes, []string{"pause\t\t\t0\tme\twhy\tmore"}},
		"no end":            {wishes, attr.Wishes, []string{"pause\t\t\t\tme\twhy"}},
		"a padded end":      {wishes, attr.Wishes, []string{"pause\t\t\t007\tme\twhy"}},
		"of nobody":         {wishes, attr.Wishes, []string{"pause\t\t\t0\t\twhy"}},
		"twice":             {wishes, attr.Wishes, []string{"pause\t\t\t0\ta\twhy", "pause\t\t\t0\tb\twhy"}},
	} {
		item := maps.Clone(tc.item)
		item[tc.attr] = tc.value
		r, err := lease.Decode(item)
		malformed, ok := errors.AsType[*lease.MalformedError](err)
		if !ok || r != nil || malformed.Key.Kind.Listed() != lease.KindSeat || malformed.Key.Kind == lease.KindSeat {
			t.Errorf("%s: got %v, %v", name, r, err)
		}
	}
}

// FuzzDecodePlan: a plan is read as it could have been written, or not at all.
func FuzzDecodePlan(f *testing.F) {
	f.Add(int64(7), int64(3), "a", "i\tj", "shard", "hash", true)
	f.Add(int64(-7), int64(-3), "", "\t", "", "\xff", false)
	f.Fuzz(func(t *testing.T, n, m int64, owner, watchers, example, text string, flag bool) {
		item := lease.Item{
			attr.Group: "g/seat", attr.Key: "!plan", attr.Version: int64(attr.Format), attr.WriteID: "w",
			attr.Revision: n, attr.Open: flag, attr.Owner: owner, attr.Incarnation: "i", attr.Planner: text,
			attr.Inputs: text, attr.Members: m, attr.Watchers: watchers, attr.Unplaced: m, attr.Examples: []string{example},
			attr.Shards: m, attr.Tick: m, attr.Late: flag, attr.At: m,
		}
		comesBackOrIsMalformed(t, item)
	})
}

// comesBackOrIsMalformed checks that a decoded item can be encoded and decoded again.
func comesBackOrIsMalformed(t *testing.T, item lease.Item) {
	t.Helper()
	r, err := lease.Decode(item)
	if err != nil {
		if r != nil || !errors.Is(err, lease.ErrMalformed) {
			t.Fatalf("got %v, %v", r, err)
		}
		return
	}
	if again, err := lease.Decode(lease.Encode(r)); err != nil || !reflect.DeepEqual(again, r) {
		t.Fatalf("%v came back as %v, %v", r, again, err)
	}
}
