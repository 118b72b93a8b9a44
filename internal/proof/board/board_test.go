package board

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

const pages = "../../../docs"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(pages, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAlertsHaveRunbooks: the runbook of each alert is a section that exists, for each code of a warning if the alert has one, and
// docs/metrics.md lists the alerts.
func TestAlertsHaveRunbooks(t *testing.T) {
	codes := fixture.Kinds[inspect.Code](t)
	for _, a := range Alerts() {
		for _, code := range codes {
			if file, section, _ := strings.Cut(Fill(a.Runbook, "", string(code)), "#"); !hasSection(t, file, section) {
				t.Errorf("%s: docs/%s has no section %q", a.Name, file, section)
			}
		}
	}
	if !strings.Contains(read(t, "metrics.md"), Table()) {
		t.Errorf("docs/metrics.md should contain\n%s", Table())
	}
}

func hasSection(t *testing.T, file, section string) bool {
	for line := range strings.Lines(read(t, file)) {
		title, heading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		title = strings.ReplaceAll(strings.ToLower(strings.Trim(title, "`\n")), " ", "-")
		if heading && line[0] == '#' && title == section {
			return true
		}
	}
	return false
}

// listed returns the names in Prometheus of the metrics of docs/metrics.md, with what exports them.
func listed(t *testing.T) map[string]string {
	sources := map[string]string{
		"From workers and sessions": Workers, "The state of workers and sessions": Workers, "From a consumer of Kinesis": Kinesis, "From a watcher": Watcher,
	}
	all := map[string]string{}
	for part := range strings.SplitSeq(read(t, "metrics.md"), "\n### ") {
		title, text, _ := strings.Cut(part, "\n")
		for _, row := range regexp.MustCompile("(?m)^\\| `(shardlease\\.[a-z._]+)` \\| (\\w+)(?:, (s|By))? \\|").FindAllStringSubmatch(text, -1) {
			name := strings.ReplaceAll(row[1], ".", "_") + map[string]string{"s": "_seconds", "By": "_bytes"}[row[3]]
			if row[2] == "counter" {
				name += "_total"
			}
			all[name] = sources[title]
		}
	}
	if len(all) < 40 {
		t.Errorf("found only %d metrics: the test may have stopped finding them", len(all))
	}
	return all
}

// TestAlertsKnowTheirSources: the section of docs/metrics.md that lists a metric is that of what exports it.
func TestAlertsKnowTheirSources(t *testing.T) {
	for name, source := range listed(t) {
		if got := SourceOf(name); got != source {
			t.Errorf("%s is from %s, and in the section of %q", name, got, source)
		}
	}
}

// TestEveryMetricIsShown: each metric of docs/metrics.md is in a query of the dashboard or of an alert, except for rare ones of
// Kinesis, and the queries name no other metric.
func TestEveryMetricIsShown(t *testing.T) {
	var shown []string
	for _, row := range Rows() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				shown = append(shown, names.FindAllString(q.Expr, -1)...)
			}
		}
	}
	for _, a := range Alerts() {
		shown = append(shown, names.FindAllString(a.Query, -1)...)
	}
	for i := range shown {
		for _, suffix := range []string{"_bucket", "_count"} {
			shown[i] = strings.TrimSuffix(shown[i], suffix)
		}
	}
	all := listed(t)
	for name := range all {
		if !slices.Contains(shown, name) && !strings.HasPrefix(name, "shardlease_kinesis_") {
			t.Errorf("no query shows %s", name)
		}
	}
	for _, name := range shown {
		if all[name] == "" {
			t.Errorf("a query shows %s, which docs/metrics.md does not list", name)
		}
	}
}
