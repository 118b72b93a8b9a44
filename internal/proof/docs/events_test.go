package docs

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var (
	tableRow = regexp.MustCompile("(?m)^\\| (`[^|]*) \\| ([^|]*) \\|")
	quoted   = regexp.MustCompile("`([a-z-]+)`")
	level    = regexp.MustCompile(`^(debug|info|warn|error)\b`)
)

// TestOperationsListsEveryEvent: docs/operations.md describes every kind of event at its level,
// and every cause of the end of a tenure.
func TestOperationsListsEveryEvent(t *testing.T) {
	levels, ends := map[string]string{}, map[string]string{} // the second cell of the row that begins with a name
	for _, row := range tableRow.FindAllStringSubmatch(documents(t)["docs/operations.md"], -1) {
		cells := ends
		if level.MatchString(row[2]) {
			cells = levels
		}
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			cells[name[1]] = row[2]
		}
	}
	for _, k := range fixture.Kinds[event.Kind](t) {
		at := strings.ToLower(event.Event{Kind: k}.Level().String())
		if !strings.Contains(levels[k.String()], at) {
			t.Errorf("docs/operations.md does not list the event %v at level %s", k, at)
		}
	}
	for _, c := range fixture.Kinds[event.Cause](t) {
		if ends[c.String()] == "" {
			t.Errorf("docs/operations.md does not list the cause %v", c)
		}
	}
}

var (
	eventRow  = regexp.MustCompile("(?m)^\\| (`[^|]*) \\| (?:debug|info|warn|error)[^|]* \\|.*$")
	eventLink = regexp.MustCompile(`\]\(#([a-z-]+)\)`)
)

// TestEveryWarningEventHasASection: the row of each event that can be a warning or an error leads to a section of
// docs/operations.md that names the event and says what to do: in words, in a table, or by a command.
func TestEveryWarningEventHasASection(t *testing.T) {
	page := documents(t)["docs/operations.md"]
	checked := 0
	for _, row := range eventRow.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(row[0], "warn |") && !strings.Contains(row[0], "error |") && !strings.Contains(row[0], "warn;") {
			continue
		}
		name := quoted.FindStringSubmatch(row[1])[1]
		found := false
		for _, link := range eventLink.FindAllStringSubmatch(row[0], -1) {
			text := sectionOf(page, link[1])
			says := slices.ContainsFunc([]string{"**Do**", "|---|", "\nshardlease "}, func(part string) bool { return strings.Contains(text, part) })
			found = found || says && strings.Contains(text, "`"+name+"`")
		}
		if checked++; !found {
			t.Errorf("no section to which the row of %s leads names it and says what to do", name)
		}
	}
	if checked < 15 {
		t.Errorf("found only %d rows: the test may have stopped finding them", checked)
	}
}

// TestOperationsListsEveryKey: docs/operations.md lists the keys of the lines that Config.Logger writes, and no others.
func TestOperationsListsEveryKey(t *testing.T) {
	keys := []string{"stack"} // package shardlease adds it
	e := event.Event{
		At: time.Unix(1, 0), Group: "g", Worker: "a", Shard: "s", Generation: 2, Peer: "b", Task: "t", Reason: lease.ReasonForced, Cause: event.CauseForced,
		Attempt: 1, Transfer: lease.Transfer{From: "b", By: "ann", Note: "why"}, Targets: []string{"db"}, Next: 3, Terms: rebalance.Terms{Mode: rebalance.Eager},
		Gap: time.Second, Delay: time.Second, Continued: time.Second, Took: time.Second, Drained: time.Second, Pending: 1, Lasted: time.Second,
		Why: rebalance.Drained, Wish: "drain of a", Over: true, Count: 2, Shards: []string{"s"}, Running: true, Err: errors.New("down"), Dropped: 1,
	}
	for of, v := 1, reflect.ValueOf(e); of < v.NumField(); of++ { // the first is the kind
		if v.Field(of).IsZero() {
			t.Errorf("the test does not set the field %s", v.Type().Field(of).Name)
		}
	}
	for _, e.Kind = range fixture.Kinds[event.Kind](t) {
		for _, attr := range e.LogValue().Group() {
			keys = append(keys, attr.Key)
		}
	}
	slices.Sort(keys)
	var listed []string
	for _, row := range tableRow.FindAllStringSubmatch(section(t, "### Keys of a line"), -1) {
		for _, key := range quoted.FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, key[1])
		}
	}
	slices.Sort(listed)
	if keys = slices.Compact(keys); !slices.Equal(keys, listed) {
		t.Errorf("docs/operations.md, Keys of a line: it lists\n%q, and lines have\n%q", listed, keys)
	}
}
