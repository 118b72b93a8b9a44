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
)

// TestOperationsListsEveryEvent: docs/operations.md describes every kind of event at its level,
// and every cause of the end of a tenure.
func TestOperationsListsEveryEvent(t *testing.T) {
	second := map[string]string{} // the second cell of the row that begins with a name
	for _, row := range tableRow.FindAllStringSubmatch(documents(t)["docs/operations.md"], -1) {
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			second[name[1]] = row[2]
		}
	}
	kinds, causes := 0, 0
	for k := event.Kind(1); !strings.HasPrefix(k.String(), "event-"); k++ {
		kinds++
		level := strings.ToLower(event.Event{Kind: k}.Level().String())
		if !strings.Contains(second[k.String()], level) {
			t.Errorf("docs/operations.md does not list the event %v at level %s", k, level)
		}
	}
	for c := event.Cause(1); !strings.HasPrefix(c.String(), "cause-"); c++ {
		causes++
		if second[c.String()] == "" {
			t.Errorf("docs/operations.md does not list the cause %v", c)
		}
	}
	if kinds < 20 || causes < 10 {
		t.Errorf("found only %d kinds and %d causes: the test may have stopped finding them", kinds, causes)
	}
}
