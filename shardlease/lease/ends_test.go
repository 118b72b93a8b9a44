package lease_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestEndsHaveOneForm: counts that no transition writes are refused, and so are items that are spoilt.
func TestEndsHaveOneForm(t *testing.T) {
	hour := time.Date(2026, 11, 28, 17, 0, 0, 0, time.UTC)
	whole := lease.Ends{Group: "g", Hour: hour, WriteID: "w", Recent: []lease.WriteID{"v"}, Counts: map[lease.Reason]int64{"released": 1}}
	if err := whole.Validate(); err != nil {
		t.Error(err)
	}
	for what, spoil := range map[string]func(*lease.Ends){
		"half an hour":     func(e *lease.Ends) { e.Hour = hour.Add(30 * time.Minute) },
		"no write id":      func(e *lease.Ends) { e.WriteID = "" },
		"an id in two":     func(e *lease.Ends) { e.WriteID = "a b" },
		"a count of 0":     func(e *lease.Ends) { e.Counts = map[lease.Reason]int64{"released": 0} },
		"a reason in two":  func(e *lease.Ends) { e.Counts = map[lease.Reason]int64{"a b": 1} },
		"an empty recent":  func(e *lease.Ends) { e.Recent = []lease.WriteID{""} },
		"too many recent":  func(e *lease.Ends) { e.Recent = make([]lease.WriteID, 21) },
		"no group":         func(e *lease.Ends) { e.Group = "" },
		"too many reasons": func(e *lease.Ends) { e.Counts = many(41) },
	} {
		e := whole
		if spoil(&e); e.Validate() == nil {
			t.Errorf("%s: nothing is wrong with %v", what, e)
		}
	}
	for attribute, value := range map[string]any{
		attr.Key: "2026-11-28T17:00", attr.Ends: []string{"released"}, attr.Recent: int64(7), attr.WriteID: "a b",
	} {
		item := lease.Encode(whole)
		item[attribute] = value
		if e, err := lease.Decode(item); err == nil {
			t.Errorf("%s %v is read as %v", attribute, value, e)
		}
	}
	for _, number := range []string{"-1", "+1", "01", "1 2", ""} {
		item := lease.Encode(whole)
		item[attr.Ends] = []string{"released " + number}
		if e, err := lease.Decode(item); err == nil {
			t.Errorf("the count %q is read as %v", number, e)
		}
	}
	if got, want := lease.Encode(whole)[attr.Expires], hour.Add(90*24*time.Hour).Unix(); got != want {
		t.Errorf("the counts may be deleted from %v on, want %d", got, want)
	}
}

func many(n int) map[lease.Reason]int64 {
	all := map[lease.Reason]int64{}
	for i := range n {
		all[lease.Reason(fmt.Sprint("reason-", i))] = 1
	}
	return all
}

// TestEndsCostOneUnit: the counts of an hour in which hundreds of processes have ended tenures for every reason have less than a
// KB, so that each addition costs one write unit.
func TestEndsCostOneUnit(t *testing.T) {
	e := lease.Ends{Group: strings.Repeat("g", 40), Hour: protocol.HourOf(time.Now())}
	counts := map[lease.Reason]int64{}
	for _, reason := range fixture.Kinds[lease.Reason](t) {
		counts[reason] = 123456
	}
	for range 300 {
		w := fixture.Write(t)(protocol.AddEnds(e, counts, protocol.Stamp{ID: lease.WriteID(fixture.Stamp().ID[:13]), At: time.Now()}))
		e = w.Next.(lease.Ends)
	}
	if size := lease.Encode(e).Size(); size > 1000 {
		t.Errorf("%d bytes", size)
	} else {
		t.Logf("%d bytes", size)
	}
}
