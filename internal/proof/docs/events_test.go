package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/event"
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
