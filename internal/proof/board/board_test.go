package board

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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

// TestAlertsHaveRunbooks: the runbook of each alert is a section that exists, and docs/metrics.md lists the alerts.
func TestAlertsHaveRunbooks(t *testing.T) {
	for _, a := range Alerts() {
		file, section, _ := strings.Cut(a.Runbook, "#")
		found := false
		for line := range strings.Lines(read(t, file)) {
			title, heading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
			found = found || heading && line[0] == '#' && strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-") == section
		}
		if !found {
			t.Errorf("%s: docs/%s has no section %q", a.Name, file, section)
		}
	}
	if !strings.Contains(read(t, "metrics.md"), Table()) {
		t.Errorf("docs/metrics.md should contain\n%s", Table())
	}
}

var metric = regexp.MustCompile(`shardlease_[a-z_]+`)

// TestEveryMetricIsShown: each metric of docs/metrics.md is in a query of the dashboard or of an alert, except for rare ones of
// Kinesis, and the queries name no other metric.
func TestEveryMetricIsShown(t *testing.T) {
	var shown, listed []string
	for _, row := range Rows() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				shown = append(shown, metric.FindAllString(q.Expr, -1)...)
			}
		}
	}
	for _, a := range Alerts() {
		shown = append(shown, metric.FindAllString(a.Query, -1)...)
	}
	for i := range shown {
		for _, suffix := range []string{"_bucket", "_count"} {
			shown[i] = strings.TrimSuffix(shown[i], suffix)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(shardlease\\.[a-z._]+)` \\| (\\w+)(?:, (s|By))? \\|").FindAllStringSubmatch(read(t, "metrics.md"), -1) {
		name := strings.ReplaceAll(row[1], ".", "_") + map[string]string{"s": "_seconds", "By": "_bytes"}[row[3]]
		if row[2] == "counter" {
			name += "_total"
		}
		listed = append(listed, name)
	}
	for _, name := range listed {
		if !slices.Contains(shown, name) && !strings.HasPrefix(name, "shardlease_kinesis_") {
			t.Errorf("no query shows %s", name)
		}
	}
	for _, name := range shown {
		if !slices.Contains(listed, name) {
			t.Errorf("a query shows %s, which docs/metrics.md does not list", name)
		}
	}
	if len(listed) < 40 {
		t.Errorf("found only %d metrics: the test may have stopped finding them", len(listed))
	}
}
