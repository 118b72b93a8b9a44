// Package board has the alerts and the dashboard for the metrics of a fleet. The command internal/proof/draw writes them to
// docs/deploy: rules for Prometheus, and a dashboard for Grafana. The tests of integration/telemetry run every query on a
// real Prometheus that has scraped a real fleet, and every alert on recorded incidents.
//
// Both are plain data: a library that makes dashboards would add a dependency, and shorten nothing.
package board

import (
	"fmt"
	"strings"
)

// An Alert is one rule of Prometheus. It fires while Query, compared with Than by Is, has held for a time.
type Alert struct {
	Name, Query, Is, Than string
	For                   string // a duration, as Prometheus writes it
	Severity              string // page: somebody has to act now; ticket: today
	Text                  string // one sentence; {{ $labels.group }} is the group
	Runbook               string // a page of docs, with its section
}

// Expr returns the expression of the rule.
func (a Alert) Expr() string { return fmt.Sprintf("%s %s %s", a.Query, a.Is, a.Than) }

const (
	page   = "page"
	ticket = "ticket"
)

// Alerts returns all alerts, the most urgent first. Labels other than the group are aggregated away, so that one fault is one
// alert, however many processes report it.
func Alerts() []Alert {
	return []Alert{
		{"ShardleaseUnowned", `max by (group) (shardlease_unowned_age_seconds)`, ">", "60", "1m", page,
			"A shard of {{ $labels.group }} has had no worker for more than a minute.", "operations.md#a-shard-is-stuck"},
		{"ShardleaseCritical", `max by (group) (shardlease_check_status)`, "==", "2", "2m", page,
			"shardlease check reports an error of {{ $labels.group }}.", "operations.md#warnings"},
		{"ShardleaseUnhealthy", `sum by (group) (shardlease_unhealthy)`, ">", "0", "1m", page,
			"Workers of {{ $labels.group }} cannot reach the table, cannot commit, or fail whatever the shard.", "operations.md#which-probe-is-for-what"},
		{"ShardleaseStoreFails", `sum by (group) (rate(shardlease_store_duration_seconds_count{outcome="failed"}[5m])) / sum by (group) (rate(shardlease_store_duration_seconds_count[5m]))`, ">", "0.1", "2m", page,
			"More than a tenth of the calls of {{ $labels.group }} to the table fail.", "operations.md#the-table-does-not-answer"},
		{"ShardleaseUnwatched", `max by (group) (shardlease_check_status)`, "==", "3", "5m", page,
			"The watcher of {{ $labels.group }} cannot read the table.", "operations.md#the-table-does-not-answer"},
		{"ShardleaseCommitsWait", `max by (group) (shardlease_mark_age_seconds)`, ">", "60", "1m", page,
			"The table has accepted no mark of a shard of {{ $labels.group }} for a minute.", "operations.md#commits-fail"},
		{"ShardleaseQuarantined", `max by (group) (shardlease_shards{state="quarantined"})`, ">", "0", "0m", ticket,
			"A shard of {{ $labels.group }} is quarantined.", "operations.md#a-poison-record"},
		{"ShardleaseHandlerHangs", `sum by (group) (shardlease_abandoned)`, ">", "0", "5m", ticket,
			"Handlers of {{ $labels.group }} run although their tenures are over.", "operations.md#a-handler-hangs"},
		{"ShardleaseFenceLow", `sum by (group) (shardlease_unraised)`, ">", "0", "5m", ticket,
			"A system that handlers of {{ $labels.group }} change does not refuse earlier owners yet.", "operations.md#a-fence-is-not-raised"},
		{"ShardleaseDeaths", `sum by (group) (increase(shardlease_transfers_total{reason="expired"}[1h]))`, ">", "5", "0m", ticket,
			"Workers of {{ $labels.group }} have died or were paused, instead of stopping: more than five shards in an hour.", "operations.md#a-worker-was-evicted"},
		{"ShardleaseUnready", `sum by (group) (shardlease_unready)`, ">", "0", "10m", ticket,
			"Workers of {{ $labels.group }} are not ready.", "operations.md#a-worker-is-not-ready"},
		{"ShardleaseWarning", `max by (group) (shardlease_check_status)`, "==", "1", "15m", ticket,
			"shardlease check reports a warning of {{ $labels.group }}.", "operations.md#warnings"},
		{"ShardleaseWaits", `max by (group) (shardlease_acquisition_wait_seconds)`, ">", "600", "0m", ticket,
			"A session of {{ $labels.group }} has waited for a lease for ten minutes.", "operations.md#a-group-of-sessions"},
		{"ShardleaseBehind", `max by (group) (shardlease_kinesis_behind_seconds)`, ">", "300", "10m", ticket,
			"A consumer of {{ $labels.group }} is five minutes behind its stream.", "kinesis.md#figures"},
	}
}

// Table returns the alerts as a table of docs/metrics.md.
func Table() string {
	var b strings.Builder
	b.WriteString("| alert | severity | it fires when | runbook |\n|---|---|---|---|\n")
	for _, a := range Alerts() {
		file, section, _ := strings.Cut(a.Runbook, "#")
		fmt.Fprintf(&b, "| `%s` | %s | %s | [%s: %s](%s) |\n", a.Name, a.Severity, strings.ReplaceAll(a.Text, "{{ $labels.group }}", "the group"),
			strings.TrimSuffix(file, ".md"), strings.ReplaceAll(section, "-", " "), a.Runbook)
	}
	return b.String()
}

// Docs is where the runbooks are.
const Docs = "https://github.com/shardlease/shardlease-go/blob/main/docs/"

// Rules returns the file of rules for Prometheus.
func Rules() string {
	var b strings.Builder
	b.WriteString("# Alerts on the metrics of docs/metrics.md. Written by go run ./internal/proof/draw: do not edit.\ngroups:\n  - name: shardlease\n    rules:\n")
	for _, a := range Alerts() {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: '%s'\n        for: %s\n        labels: {severity: %s}\n        annotations:\n          summary: '%s'\n          runbook: %s%s\n",
			a.Name, a.Expr(), a.For, a.Severity, a.Text, Docs, a.Runbook)
	}
	return b.String()
}
