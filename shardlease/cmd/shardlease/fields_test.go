package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestWorkersShowEverySeatField: workers -o json shows every field of a seat, except for those with a reason.
func TestWorkersShowEverySeatField(t *testing.T) {
	reasons := map[string]string{
		"Group": "the head of the list", "WriteID": "only the table compares it", "At": "its age: heartbeatAge", "Leaving": "inspect.Worker.Leaves",
		"Wants": "the moves of shards", "Freed": "for planners", "Missing": "for planners", "News": "for planners", "NewsLeft": "for planners",
		"Health": "inspect.Worker.Health", "WaitsLeft": "inspect.Worker.Waits", "Backoff": "the time that resting shards rest",
	}
	shown := func(seat lease.Seat) string {
		text, err := json.Marshal(objectOf(workerFields(), &inspect.Worker{Seat: seat}))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	full := shown(fixture.Seat())
	for _, of := range reflect.VisibleFields(reflect.TypeFor[lease.Seat]()) {
		seat := fixture.Seat()
		v := reflect.ValueOf(&seat).Elem().FieldByIndex(of.Index)
		v.SetZero()
		if !of.Anonymous && shown(seat) == full && reasons[of.Name] == "" {
			t.Errorf("no field of workerFields shows lease.Seat.%s: add one, or the reason why not to this test", of.Name)
		}
	}
}

// TestJSONHasEveryColumn: what a column shows of an item, JSON has too, in a field of its own or within another one.
func TestJSONHasEveryColumn(t *testing.T) {
	seat := fixture.Seat()
	owner, at := lease.Owner{Name: "owner", Incarnation: "owner-1", Task: "run"}, time.Unix(5, 0)
	last := lease.Transfer{Generation: 7, Reason: lease.ReasonForced, From: "from", By: "by", Task: "task", Did: "released", At: at, Note: "a note"}
	mark := checkpoint.Mark{Position: "a position", State: "a state"}
	row := lease.Row{Generation: 7, Last: last, Checkpoint: checkpoint.Checkpoint{Mark: mark, Generation: 6}}
	everyColumn(t, workerFields(), &inspect.Worker{Seat: seat}, "STATE") // dead, leaving, health and wish
	everyColumn(t, shardFields(true), &inspect.Shard{Name: "shard", State: inspect.Held, Row: row, Owner: owner, Target: owner})
	everyColumn(t, transferFields(), pastTransfer{"shard", last})
	everyColumn(t, tallyFields(), inspect.Tally{Reason: lease.ReasonExpired, Count: 7})
	everyColumn(t, wishFields(at), fixture.Wishes().List[0])
	everyColumn(t, warningFields(), inspect.Warning{Code: inspect.CodeWish, Subject: "a", Text: "a text", Do: "a command"})
	everyColumn(t, eventFields(), occurrence{at, "left", "a", "a text", &last})
	everyColumn(t, groupFields(), groupSize{name: "orders", rows: 3, workers: 2})
}

func everyColumn[T any](t *testing.T, fields []field[T], item T, composed ...string) {
	t.Helper()
	whole, err := json.Marshal(objectOf(fields, item))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range fields {
		if f.json != "" && names[f.json] {
			t.Errorf("%T: two fields are called %s in JSON", item, f.json)
		}
		names[f.json] = true
		if f.title == "" || f.json != "" || slices.Contains(composed, cols(f.title)[0].title) {
			continue
		}
		if text := cellsOf([]field[T]{f}, item)[0]; text == "" || !strings.Contains(string(whole), fmt.Sprintf("%q", text)) {
			t.Errorf("%T: JSON lacks what the column %s shows, %q: %s", item, f.title, text, whole)
		}
	}
}

// TestNumbersInJSONAreShort: durations are rounded to the millisecond, and no number has digits that only a double needs.
func TestNumbersInJSONAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1747 * time.Millisecond:                    "1.747",
		1746999501 * time.Nanosecond:               "1.747",
		time.Hour + 23*time.Millisecond + 456*1000: "3600.023",
		0: "0",
	} {
		text, err := json.Marshal(forJSON(d))
		if err != nil || string(text) != want {
			t.Errorf("%v is %s in JSON, want %s (%v)", d, text, want, err)
		}
	}
}

// TestEveryWishHasACommand: there is a command for each kind of wish, and the help of each command about wishes names
// each kind. The column STATE of a worker shows a wish for it.
func TestEveryWishHasACommand(t *testing.T) {
	root := new(program).root()
	for _, kind := range lease.WishKinds() {
		if c, _, err := root.Find([]string{string(kind)}); err != nil || c.Name() != string(kind) {
			t.Errorf("there is no command %s", kind)
		}
		for _, name := range []string{"lift", "wishes", "plan"} {
			c, _, err := root.Find([]string{name})
			if err != nil || !strings.Contains(c.Long, string(kind)) {
				t.Errorf("the help of %s does not name the wish %s: %v", name, kind, err)
			}
		}
		if state := workerState(&inspect.Worker{Seat: fixture.Seat(), Wish: kind}); !strings.Contains(state, string(kind)) {
			t.Errorf("the state of a worker under the wish %s is %q", kind, state)
		}
	}
}
