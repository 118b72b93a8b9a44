// Package board has the alerts and the dashboard for the metrics of a fleet. The command internal/proof/draw writes them to
// docs/deploy: rules for Prometheus, and a dashboard for Grafana. The tests of integration/telemetry run every query on a
// real Prometheus that has scraped a real fleet, and every alert on recorded incidents.
//
// Both are plain data: a library that makes dashboards would add a dependency, and shorten nothing.
package board

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// An Alert is one rule of Prometheus. It fires while Query, compared with Than by Is, has held for a time.
type Alert struct {
	Name, Query, Is, Than string
	For                   string // a duration, as Prometheus writes it
	Keep                  string // for how long the alert still fires after that; empty: not at all
	Severity              string // page: somebody has to act now; ticket: today
	Text                  string // one sentence; {{ $labels.group }} is the group
	Runbook               string // a page of docs, with its section, which is the code of a warning if the alert has one
}

// Expr returns the expression of the rule.
func (a Alert) Expr() string { return fmt.Sprintf("%s %s %s", a.Query, a.Is, a.Than) }

const (
	page   = "page"
	ticket = "ticket"
)

// Sources are what exports metrics, in the words of docs/metrics.md.
const (
	Workers = "workers" // package otelshardlease in workers and sessions
	Watcher = "watcher" // its Watch, or the command's exporter
	Kinesis = "kinesis" // its Kinesis
)

var ofWatcher = []string{
	"shardlease_check_status", "shardlease_shards", "shardlease_unowned", "shardlease_unowned_age_seconds", "shardlease_commit_age_seconds",
	"shardlease_workers", "shardlease_warnings", "shardlease_group_ends_total",
}

// SourceOf returns what exports a metric.
func SourceOf(metric string) string {
	switch {
	case slices.Contains(ofWatcher, metric):
		return Watcher
	case strings.HasPrefix(metric, "shardlease_kinesis_"):
		return Kinesis
	}
	return Workers
}

var names = regexp.MustCompile(`shardlease_[a-z_]+`)

// From returns the sources of the metrics of an alert. Each of them is enough for the alert to fire.
func (a Alert) From() (all []string) {
	for _, metric := range names.FindAllString(a.Query, -1) {
		if from := SourceOf(metric); !slices.Contains(all, from) {
			all = append(all, from)
		}
	}
	return all
}

// Alerts returns all alerts, the most urgent first. Labels other than the group and the code of a warning are aggregated
// away, so that one fault is one alert, however many processes report it.
func Alerts() []Alert {
	return []Alert{
		{"ShardleaseUnowned", `max by (group) (shardlease_unowned_age_seconds)`, ">", "60", "1m", "10m", page,
			"A free, resting or orphaned shard of {{ $labels.group }} has had no worker for more than a minute.", "operations.md#a-shard-is-stuck"},
		{"ShardleaseCritical", `max by (group, code) (shardlease_warnings{level="error"})`, ">", "0", "2m", "", page,
			"shardlease check reports an error of {{ $labels.group }}: {{ $labels.code }}.", "operations.md#{{ $labels.code }}"},
		{"ShardleaseUnhealthy", `sum by (group) (shardlease_unhealthy)`, ">", "0", "1m", "", page,
			"Workers of {{ $labels.group }} cannot reach the table, cannot commit, or fail whatever the shard.", "operations.md#which-probe-is-for-what"},
		{"ShardleaseStoreFails", `sum by (group) (rate(shardlease_store_duration_seconds_count{outcome="failed"}[5m])) / sum by (group) (rate(shardlease_store_duration_seconds_count[5m]))`, ">", "0.1", "2m", "", page,
			"More than a tenth of the calls of {{ $labels.group }} to the table fail.", "operations.md#the-table-does-not-answer"},
		{"ShardleaseUnwatched", `max by (group) (shardlease_check_status)`, "==", "3", "5m", "", page,
			"The watcher of {{ $labels.group }} cannot read the table, or there is no such group.", "operations.md#the-table-does-not-answer"},
		{"ShardleaseCommitsWait", `max by (group) (shardlease_mark_age_seconds)`, ">", "60", "1m", "", page,
			"The table has accepted no mark of a shard of {{ $labels.group }} for a minute.", "operations.md#commits-fail"},
		{"ShardleaseHandlerHangs", `sum by (group) (shardlease_abandoned)`, ">", "0", "5m", "", ticket,
			"Handlers of {{ $labels.group }} run although their tenures are over.", "operations.md#a-handler-hangs"},
		{"ShardleaseFenceLow", `sum by (group) (shardlease_unraised)`, ">", "0", "5m", "", ticket,
			"A system that handlers of {{ $labels.group }} change does not refuse earlier owners yet.", "operations.md#a-fence-is-not-raised"},
		{"ShardleaseDeaths", `max by (group) (increase(shardlease_group_ends_total{reason="expired"}[1h])) > 5 or sum by (group) (increase(shardlease_transfers_total{reason="expired"}[1h]))`, ">", "5", "0m", "", ticket,
			"More than five shards of {{ $labels.group }} have lost their workers in an hour: these have died, were paused, or could not reach the table.", "operations.md#a-worker-was-evicted"},
		{"ShardleaseUnready", `sum by (group) (shardlease_unready)`, ">", "0", "10m", "", ticket,
			"Workers of {{ $labels.group }} are not ready.", "operations.md#a-worker-is-not-ready"},
		{"ShardleaseWarning", `max by (group, code) (shardlease_warnings{level="warn"})`, ">", "0", "15m", "", ticket,
			"shardlease check reports a warning of {{ $labels.group }}: {{ $labels.code }}.", "operations.md#{{ $labels.code }}"},
		{"ShardleaseWaits", `max by (group) (shardlease_acquisition_wait_seconds)`, ">", "600", "0m", "", ticket,
			"A session of {{ $labels.group }} has waited for a lease for ten minutes.", "operations.md#a-group-of-sessions"},
		{"ShardleaseBehind", `max by (group) (shardlease_kinesis_behind_seconds)`, ">", "300", "10m", "", ticket,
			"A consumer of {{ $labels.group }} is five minutes behind its stream.", "kinesis.md#figures"},
	}
}

// Fill returns a text of an alert for a group and the code of a warning.
func Fill(text, group, code string) string {
	return strings.NewReplacer("{{ $labels.group }}", group, "{{ $labels.code }}", code).Replace(text)
}

// Table returns the alerts as a table of docs/metrics.md.
func Table() string {
	var b strings.Builder
	b.WriteString("| alert | severity | from | it fires when | runbook |\n|---|---|---|---|---|\n")
	for _, a := range Alerts() {
		runbook := Fill(a.Runbook, "", "warnings") // their section has a table of all codes
		file, section, _ := strings.Cut(runbook, "#")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | [%s: %s](%s) |\n", a.Name, a.Severity, strings.Join(a.From(), " or "), Fill(a.Text, "the group", "its code"),
			strings.TrimSuffix(file, ".md"), strings.ReplaceAll(section, "-", " "), runbook)
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
		fmt.Fprintf(&b, "      - alert: %s\n        expr: '%s'\n        for: %s\n", a.Name, a.Expr(), a.For)
		if a.Keep != "" {
			fmt.Fprintf(&b, "        keep_firing_for: %s\n", a.Keep)
		}
		fmt.Fprintf(&b, "        labels: {severity: %s}\n        annotations:\n          summary: '%s'\n          runbook: '%s%s'\n", a.Severity, a.Text, Docs, a.Runbook)
	}
	return b.String()
}
