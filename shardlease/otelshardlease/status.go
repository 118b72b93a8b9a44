package otelshardlease

import (
	"maps"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// Status adds the figures of a worker or session, given its method Status. They are left out when its Run has returned.
func (t *Telemetry) Status(of func() shardlease.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statuses[&status{of}] = struct{}{}
}

type status struct{ of func() shardlease.Status }

// Kinesis adds the figures of a consumer of package kinesis, of which this module imports nothing:
//
//	telemetry.Kinesis("orders", func() map[string]map[string]int64 { return consumer.Stats().Figures() })
func (t *Telemetry) Kinesis(group string, figures func() map[string]map[string]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams = append(t.streams, stream{group, figures})
}

type stream struct {
	group   string
	figures func() map[string]map[string]int64
}

// A gauge is a figure that is combined over the workers of one group in this process: the sum, the largest or the
// smallest.
type gauge struct {
	inspect.Figure
	of      func(shardlease.Status) float64
	combine func(a, b float64) float64
}

func sum(a, b float64) float64      { return a + b }
func largest(a, b float64) float64  { return max(a, b) }
func smallest(a, b float64) float64 { return min(a, b) }

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func statusGauges() []gauge {
	count := func(name, unit, help string, of func(shardlease.Status) int) gauge {
		return gauge{inspect.Figure{Name: name, Unit: unit, Help: help}, func(s shardlease.Status) float64 { return float64(of(s)) }, sum}
	}
	age := func(name, help string, of func(shardlease.Status) time.Duration, combine func(a, b float64) float64) gauge {
		return gauge{inspect.Figure{Name: name, Unit: "s", Help: help}, func(s shardlease.Status) float64 { return of(s).Seconds() }, combine}
	}
	type of = shardlease.Status
	return []gauge{
		count("shardlease.held", "{shard}", "Shards or leases that this process holds.", func(s of) int { return s.Held }),
		count("shardlease.moving", "{shard}", "Shards of this process that other workers request.", func(s of) int { return s.Moving }),
		age("shardlease.trust", "For how long this process may hold its shards without another confirmed heartbeat.", func(s of) time.Duration { return s.Trust }, smallest),
		age("shardlease.mark.age", "The age of the oldest mark that the table has not accepted.", func(s of) time.Duration { return s.OldestMark }, largest),
		count("shardlease.abandoned", "{handler}", "Handlers that run although their tenures are over.", func(s of) int { return s.Abandoned }),
		count("shardlease.unraised", "{tenure}", "Tenures whose fences are not raised at all targets.", func(s of) int { return s.Unraised }),
		{inspect.Figure{Name: "shardlease.unhealthy", Unit: "{worker}", Help: "Workers or sessions for which Healthy returns an error."}, func(s of) float64 { return one(s.Unhealthy != "") }, sum},
		{inspect.Figure{Name: "shardlease.unready", Unit: "{worker}", Help: "Workers or sessions for which Ready returns an error."}, func(s of) float64 { return one(s.Unready != "") }, sum},
		age("shardlease.acquisition.wait", "How long the oldest waiting acquisition of a session has waited.", func(s of) time.Duration { return s.LongestWait }, largest),
	}
}

// acquired describes the acquisitions of sessions.
var acquired = inspect.Figure{Name: "shardlease.acquisitions", Unit: "{acquisition}", Help: "Acquisitions of sessions that found the lease taken, by whether they were refused or waited.", Total: true}

// acquisitions are counts of a status.
type acquisitions struct{ refused, waited int }

func (a acquisitions) plus(s shardlease.Status) acquisitions {
	return acquisitions{a.refused + s.Refused, a.waited + s.Waited}
}

// A streamGauge is a figure of package kinesis.
type streamGauge struct {
	inspect.Figure
	key     string // in the figures of the consumer
	scale   float64
	combine func(a, b float64) float64
}

func streamGauges() []streamGauge {
	total := func(key, unit, help string) streamGauge {
		return streamGauge{inspect.Figure{Name: "shardlease.kinesis." + key, Unit: unit, Help: help, Total: true}, key, 1, sum}
	}
	gauge := func(name, unit, help, key string, scale float64, combine func(a, b float64) float64) streamGauge {
		return streamGauge{inspect.Figure{Name: "shardlease.kinesis." + name, Unit: unit, Help: help}, key, scale, combine}
	}
	return []streamGauge{
		gauge("behind", "s", "How far the shard that is furthest behind is from the end of the stream.", "behind_max_ms", 1e-3, largest),
		gauge("behind.sum", "s", "How far all shards of this process together are from the end of the stream.", "behind_ms", 1e-3, sum),
		gauge("age", "s", "How long ago Kinesis received the oldest record that was read and is not processed.", "age_ms", 1e-3, largest),
		gauge("shards", "{shard}", "Shards that this process reads.", "shards", 1, sum),
		gauge("fan_out", "{shard}", "Shards that are read by fan-out.", "fan_out", 1, sum),
		total("records", "{record}", "Records that were read."),
		{inspect.Figure{Name: "shardlease.kinesis.data", Unit: "By", Help: "The data and keys of the records that were read.", Total: true}, "bytes", 1, sum},
		total("reads", "{read}", "Answers of Kinesis, and events of subscriptions."),
		total("throttles", "{request}", "Requests that Kinesis refused because there were too many."),
		total("read_errors", "{request}", "Requests that failed for other reasons."),
		total("processed", "{record}", "Records for which the function has returned nil."),
		total("failed", "{call}", "Calls of the function that failed."),
		total("left_out", "{record}", "Records that the dead letter function has taken."),
		total("foreign", "{record}", "Packed records that were dropped because their keys belong to other shards."),
		total("lost", "{loss}", "How often records had expired before they were read."),
		total("stalls", "{tenure}", "Tenures that ended by a stall."),
		total("fallbacks", "{fallback}", "How often a shard was polled because fan-out had failed."),
		total("subscriptions", "{subscription}", "Subscriptions that Kinesis accepted."),
		total("silent", "{subscription}", "Subscriptions that were given up because nothing arrived."),
		total("take_overs", "{subscription}", "Subscriptions that were refused or ended because of another one to the same shard."),
		total("broken", "{subscription}", "Subscriptions that ended early without an error."),
	}
}

// gauges returns what collect collects, without values.
func (t *Telemetry) gauges() (kinds []inspect.Figure) {
	for _, g := range statusGauges() {
		kinds = append(kinds, g.Figure)
	}
	kinds = append(kinds, acquired)
	for _, g := range streamGauges() {
		kinds = append(kinds, g.Figure)
	}
	return kinds
}

// collect returns the figures of all workers, sessions and consumers of this process. It calls their functions without the
// lock.
func (t *Telemetry) collect() []inspect.Figure {
	t.mu.Lock()
	statuses, streams := slices.Collect(maps.Keys(t.statuses)), slices.Clone(t.streams)
	t.mu.Unlock()
	now := map[*status]shardlease.Status{}
	for _, s := range statuses {
		now[s] = s.of()
	}
	return append(t.addStatuses(now), addStreams(streams)...)
}

// addStatuses adds up the figures of workers and sessions, and drops those that have stopped. What the sessions among them
// have counted stays in past: a total never falls.
func (t *Telemetry) addStatuses(now map[*status]shardlease.Status) (all []inspect.Figure) {
	by := map[string][]shardlease.Status{}
	t.mu.Lock()
	for from, s := range now {
		if s.Phase != "stopped" {
			by[s.Group] = append(by[s.Group], s)
		} else if _, still := t.statuses[from]; still {
			delete(t.statuses, from)
			t.past[s.Group] = t.past[s.Group].plus(s)
		}
	}
	totals := maps.Clone(t.past)
	t.mu.Unlock()
	for group, list := range by {
		for _, g := range statusGauges() {
			value := g.of(list[0])
			for _, s := range list[1:] {
				value = g.combine(value, g.of(s))
			}
			all = append(all, valued(g.Figure, group, value))
		}
		for _, s := range list {
			totals[group] = totals[group].plus(s)
		}
	}
	for group, count := range totals {
		all = append(all, valued(acquired, group, float64(count.refused), "outcome", "refused"), valued(acquired, group, float64(count.waited), "outcome", "waited"))
	}
	return all
}

func addStreams(streams []stream) (all []inspect.Figure) {
	by := map[string][]map[string]int64{}
	for _, s := range streams {
		by[s.group] = append(by[s.group], s.figures()[""])
	}
	for group, list := range by {
		for _, g := range streamGauges() {
			value := float64(list[0][g.key])
			for _, figures := range list[1:] {
				value = g.combine(value, float64(figures[g.key]))
			}
			all = append(all, valued(g.Figure, group, value*g.scale))
		}
	}
	return all
}

// valued returns a figure with its group, further labels and value. Labels are names, each followed by its value.
func valued(f inspect.Figure, group string, value float64, labels ...string) inspect.Figure {
	f.Labels, f.Value = [][2]string{{"group", group}}, value
	for ; len(labels) > 0; labels = labels[2:] {
		f.Labels = append(f.Labels, [2]string{labels[0], labels[1]})
	}
	return f
}
