package board

import (
	"encoding/json"
	"fmt"
)

// A Panel is one picture of the dashboard.
type Panel struct {
	Title, Help string
	Unit        string // of Grafana
	Queries     []Query
}

// A Query is a query of a panel. In it, $group is an expression for names of groups, and $__rate_interval a duration.
type Query struct{ Expr, Legend string }

// A Row is a line of panels under a title.
type Row struct {
	Title  string
	Panels []Panel
}

// Rows returns the dashboard.
func Rows() []Row {
	return []Row{
		{"The group, from a watcher or shardlease exporter", groupPanels()},
		{"Tenures and moves", movePanels()},
		{"Commits and the table", storePanels()},
		{"Workers and sessions", workerPanels()},
		{"Kinesis", kinesisPanels()},
	}
}

// in is the condition of all queries.
const in = `group=~"$group"`

func one(title, unit, help, expr, legend string) Panel {
	return Panel{title, help, unit, []Query{{expr, legend}}}
}

// times returns a panel with the median and the 99th percentile of a histogram.
func times(title, help, metric, where, by string) Panel {
	quantile := func(q string) string {
		return fmt.Sprintf(`histogram_quantile(%s, sum by (%sle) (rate(%s_bucket{%s%s}[$__rate_interval])))`, q, by, metric, in, where)
	}
	legend := ""
	if by != "" {
		legend = " {{" + by[:len(by)-2] + "}}"
	}
	return Panel{title, help, "s", []Query{{quantile("0.5"), "median" + legend}, {quantile("0.99"), "99 %" + legend}}}
}

func groupPanels() []Panel {
	return []Panel{
		one("Status", "none", "0: all is well, 1: a warning, 2: an error, 3: the table cannot be read", `max by (group) (shardlease_check_status{`+in+`})`, "{{group}}"),
		one("Shards by state", "none", "", `max by (group, state) (shardlease_shards{`+in+`}) > 0`, "{{group}} {{state}}"),
		one("Unowned shards", "none", "free, resting or orphaned", `max by (group) (shardlease_unowned{`+in+`})`, "{{group}}"),
		{"Longest without a worker; of held shards: without a checkpoint", "a shard that nobody holds has no age of a checkpoint", "s", []Query{
			{`max by (group) (shardlease_unowned_age_seconds{` + in + `})`, "{{group}} worker"},
			{`max by (group) (shardlease_commit_age_seconds{` + in + `})`, "{{group}} checkpoint of a held shard"},
		}},
		one("Workers", "none", "", `max by (group) (shardlease_workers{`+in+`})`, "{{group}}"),
		one("Warnings", "none", "docs/operations.md has a section for each", `max by (group, code, level) (shardlease_warnings{`+in+`})`, "{{group}} {{code}} {{level}}"),
		one("Tenures that ended, by reason", "none", "as the table counts: also for workers without metrics", `sum by (reason) (max by (group, reason) (increase(shardlease_group_ends_total{`+in+`}[$__rate_interval])))`, "{{reason}}"),
	}
}

func movePanels() []Panel {
	return []Panel{
		one("Tenures that began, by reason and mode", "none", "", `sum by (reason, mode) (increase(shardlease_transfers_total{`+in+`}[$__rate_interval]))`, "{{reason}} {{mode}}"),
		one("Share of deaths", "percentunit", "how many of the tenures of the last hour began because the owner had died or was paused",
			`sum by (group) (increase(shardlease_transfers_total{`+in+`,reason="expired"}[1h])) / sum by (group) (increase(shardlease_transfers_total{`+in+`,reason!="initial"}[1h]))`, "{{group}}"),
		times("Gap", "nobody processed the shard", "shardlease_handoff_gap_seconds", "", ""),
		times("Overlap", "the earlier owner's handler went on after the takeover", "shardlease_handoff_overlap_seconds", "", ""),
		times("Delay", "from the takeover of an offered shard until the handler was called", "shardlease_handoff_delay_seconds", "", ""),
		times("Drain", "how long handlers took to wind down", "shardlease_drain_duration_seconds", "", "cause, "),
		times("Tenures that ended: how long they lasted", "", "shardlease_tenure_duration_seconds", "", "cause, "),
		one("Marks that were lost with their tenure", "none", "the next owner processes these records again", `sum by (group) (increase(shardlease_marks_unaccepted_total{`+in+`}[$__rate_interval]))`, "{{group}}"),
	}
}

func storePanels() []Panel {
	return []Panel{
		one("Commits per second, by outcome", "ops", "", `sum by (outcome) (rate(shardlease_store_duration_seconds_count{`+in+`,operation="commit"}[$__rate_interval]))`, "{{outcome}}"),
		times("How long commits take", "", "shardlease_store_duration_seconds", `,operation="commit"`, ""),
		times("How long calls take", "", "shardlease_store_duration_seconds", "", "operation, "),
		one("Calls that failed, per second", "ops", "", `sum by (operation, outcome) (rate(shardlease_store_duration_seconds_count{`+in+`,outcome=~"failed|queued"}[$__rate_interval]))`, "{{operation}} {{outcome}}"),
		one("Oldest mark that is not accepted", "s", "", `max by (group) (shardlease_mark_age_seconds{`+in+`})`, "{{group}}"),
		one("Trust left", "s", "for how long a worker may hold its shards without another heartbeat", `min by (group) (shardlease_trust_seconds{`+in+`})`, "{{group}}"),
	}
}

func workerPanels() []Panel {
	return []Panel{
		{"Shards by process", "held, and requested by others", "none", []Query{
			{`sum by (group, instance) (shardlease_held{` + in + `})`, "{{group}} {{instance}}"},
			{`sum by (group, instance) (shardlease_moving{` + in + `})`, "{{group}} {{instance}} moving"},
		}},
		{"Not well", "docs/operations.md has a section for each", "none", []Query{
			{`sum by (group) (shardlease_unhealthy{` + in + `})`, "{{group}} not healthy"},
			{`sum by (group) (shardlease_unready{` + in + `})`, "{{group}} not ready"},
			{`sum by (group) (shardlease_abandoned{` + in + `})`, "{{group}} handlers hang"},
			{`sum by (group) (shardlease_unraised{` + in + `})`, "{{group}} fences not raised"},
		}},
		one("Events that are warnings or errors", "none", "", `sum by (kind, level) (increase(shardlease_events_total{`+in+`,level=~"warn|error"}[$__rate_interval])) > 0`, "{{kind}} {{level}}"),
		one("Events that were dropped", "none", "Observe or Logger was too slow", `sum by (group) (increase(shardlease_events_dropped_total{`+in+`}[$__rate_interval]))`, "{{group}}"),
		one("Acquisitions that found the lease taken", "none", "of sessions", `sum by (group, outcome) (increase(shardlease_acquisitions_total{`+in+`}[$__rate_interval]))`, "{{group}} {{outcome}}"),
		one("Longest wait for a lease", "s", "of sessions", `max by (group) (shardlease_acquisition_wait_seconds{`+in+`})`, "{{group}}"),
	}
}

func kinesisPanels() []Panel {
	rate := func(metric, legend string) Query {
		return Query{`sum by (group) (rate(shardlease_kinesis_` + metric + `_total{` + in + `}[$__rate_interval]))`, "{{group}} " + legend}
	}
	return []Panel{
		{"Behind the stream", "the shard that is furthest behind; all shards together; the oldest record that was read and is not processed", "s", []Query{
			{`max by (group) (shardlease_kinesis_behind_seconds{` + in + `})`, "{{group}} furthest"},
			{`sum by (group) (shardlease_kinesis_behind_sum_seconds{` + in + `})`, "{{group}} sum"},
			{`max by (group) (shardlease_kinesis_age_seconds{` + in + `})`, "{{group}} oldest record"},
		}},
		{"Records per second", "", "ops", []Query{rate("records", "read"), rate("processed", "processed"), rate("left_out", "left out"), rate("failed", "calls failed")}},
		{"Bytes per second", "", "Bps", []Query{rate("data_bytes", "read")}},
		{"Requests that failed, per second", "", "ops", []Query{rate("throttles", "refused: too many"), rate("read_errors", "other reasons"), rate("fallbacks", "fan-out failed")}},
	}
}

// Dashboard returns the dashboard as the JSON that Grafana imports.
func Dashboard() string {
	var panels []any
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, row := range Rows() {
		panels = append(panels, map[string]any{"id": next(), "type": "row", "title": row.Title, "collapsed": false, "panels": []any{}, "gridPos": place(0, y, 24, 1)})
		y++
		for i, p := range row.Panels {
			panels = append(panels, p.json(next(), place(i%3*8, y+i/3*8, 8, 8)))
		}
		y += (len(row.Panels) + 2) / 3 * 8
	}
	group := map[string]any{
		"name": "group", "label": "Group", "type": "query", "datasource": source, "query": `label_values({__name__=~"shardlease_check_status|shardlease_held"}, group)`,
		"refresh": 2, "multi": true, "includeAll": true, "allValue": ".+", "current": map[string]any{"text": "All", "value": "$__all"},
	}
	prometheus := map[string]any{"name": "prometheus", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
	text, err := json.MarshalIndent(map[string]any{
		"uid": "shardlease", "title": "shardlease", "tags": []string{"shardlease"}, "schemaVersion": 39, "editable": true,
		"time": map[string]any{"from": "now-6h", "to": "now"}, "refresh": "30s",
		"templating": map[string]any{"list": []any{prometheus, group}}, "panels": panels,
	}, "", "  ")
	if err != nil {
		panic(err) // only strings and numbers
	}
	return string(text) + "\n"
}

var source = map[string]any{"type": "prometheus", "uid": "${prometheus}"}

func place(x, y, w, h int) map[string]any { return map[string]any{"x": x, "y": y, "w": w, "h": h} }

func (p Panel) json(id int, at map[string]any) map[string]any {
	var targets []any
	for i, q := range p.Queries {
		targets = append(targets, map[string]any{"refId": string(rune('A' + i)), "expr": q.Expr, "legendFormat": q.Legend, "datasource": source})
	}
	return map[string]any{
		"id": id, "type": "timeseries", "title": p.Title, "description": p.Help, "datasource": source, "gridPos": at, "targets": targets,
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.Unit, "min": 0}, "overrides": []any{}},
	}
}
