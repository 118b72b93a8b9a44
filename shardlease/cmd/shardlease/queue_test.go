package main

import (
	"slices"
	"testing"
	"time"
)

// TestEventsAreInOrderOfTime: an event waits until a later look has read the rows, because only that one finds what happened
// while the first look read them. The clock of another machine holds no event back for longer, and the changes of hands
// of one shard keep their order.
func TestEventsAreInOrderOfTime(t *testing.T) {
	at := func(seconds int) time.Time { return now().Add(time.Duration(seconds) * time.Second) }
	events := func(list ...any) (all []occurrence) {
		for i := 0; i < len(list); i += 2 {
			all = append(all, occurrence{At: at(list[i].(int)), Subject: list[i+1].(string)})
		}
		return all
	}
	var q queue
	for i, look := range []struct {
		rows, ended int
		found       []occurrence
		want        []string
	}{
		{9, 11, events(10, "b", 11, "joined"), nil},
		{20, 21, events(9, "a", 10, "c", 18, "d", 3600, "ahead", 21, "left"), []string{"a", "b", "c", "joined", "d"}},
		{20, 23, events(23, "unwell"), nil}, // it has not read the rows again
		{30, 31, events(20, "late", 22, "e", 28, "shard", 25, "shard", 26, "f"), []string{"late", "ahead", "left", "e", "unwell", "f", "shard", "shard"}},
		{40, 41, nil, nil},
	} {
		q.add(look.found, at(look.ended))
		var got []string
		for _, e := range q.take(at(look.rows)) {
			got = append(got, e.Subject)
		}
		if !slices.Equal(got, look.want) {
			t.Errorf("look %d: %q, want %q", i, got, look.want)
		}
	}
	if q.add(events(50, "last"), at(50)); len(q.all()) != 1 || len(q) != 0 {
		t.Error("the last event is lost")
	}
}
