package docs

import (
	"regexp"
	"strings"
	"testing"

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
	kinds, causes := 0, 0
	for k := event.Kind(1); !strings.HasPrefix(k.String(), "event-"); k++ {
		kinds++
		at := strings.ToLower(event.Event{Kind: k}.Level().String())
		if !strings.Contains(levels[k.String()], at) {
			t.Errorf("docs/operations.md does not list the event %v at level %s", k, at)
		}
	}
	for c := event.Cause(1); !strings.HasPrefix(c.String(), "cause-"); c++ {
		causes++
		if ends[c.String()] == "" {
			t.Errorf("docs/operations.md does not list the cause %v", c)
		}
	}
	if kinds < 20 || causes < 10 {
		t.Errorf("found only %d kinds and %d causes: the test may have stopped finding them", kinds, causes)
	}
}
