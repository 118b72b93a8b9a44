package telemetry

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/board"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// whenMissing is a test for promtool: after ten minutes the figures of the group are missing, and a process is down.
const whenMissing = `
rule_files: [missing.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'shardlease_check_status{group="orders"}', values: '0x10 _x20'}
      - {series: 'up{job="orders"}', values: '1x10 0x20'}
    alert_rule_test:
      - {eval_time: 10m, alertname: ShardleaseMissing, exp_alerts: []}
      - {eval_time: 10m, alertname: ShardleaseDown, exp_alerts: []}
      - {eval_time: 25m, alertname: ShardleaseMissing, exp_alerts: [{exp_labels: {severity: page, group: orders}}]}
      - {eval_time: 25m, alertname: ShardleaseDown, exp_alerts: [{exp_labels: {severity: ticket, job: orders}}]}
`

// TestPrometheusOfThePage: Prometheus accepts the files of docs/metrics.md, and their rules notice that metrics are missing.
func TestPrometheusOfThePage(t *testing.T) {
	promtool := program(t, "promtool")
	page, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(begin string) string {
		found := regexp.MustCompile("(?s)```yaml\n(" + begin + ".*?)```").FindSubmatch(page)
		if found == nil {
			t.Fatalf("docs/metrics.md has no block that begins with %q", begin)
		}
		return string(found[1])
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"prometheus.yml":        block("# prometheus.yml\n") + block("    metric_relabel_configs:"),
		"missing.yaml":          block("# missing.yaml\n"),
		"prometheus-rules.yaml": board.Rules(),
		"test.yaml":             whenMissing,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"test", "rules", "test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}
