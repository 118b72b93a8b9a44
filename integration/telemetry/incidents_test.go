package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/shardlease/shardlease-go/internal/proof/board"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An incident is what happens to a fleet, and which alerts then fire, and no others.
type incident struct {
	name   string
	happen func(ctx context.Context, s *scene, pass func(time.Duration))
	alerts []string // each may have the code of a warning, as in "ShardleaseCritical no-workers"; empty: none fires at any time
	steady []string // some of them, which have fired without a pause for the last 20 minutes
}

var errPoison = errors.New("poison")

// incidents has at least one for each alert.
func incidents() []incident {
	fleet := func(s *scene, pass func(time.Duration)) {
		for _, name := range []string{"a", "b", "c"} {
			s.start(name, shardlease.Config{}, process(time.Second))
		}
		pass(2 * time.Minute)
	}
	return []incident{
		{"a rolling deploy", func(_ context.Context, s *scene, pass func(time.Duration)) {
			fleet(s, pass)
			for _, name := range []string{"a", "b", "c"} {
				s.start(name+"-new", shardlease.Config{}, process(time.Second))
				pass(time.Minute)
				s.stop(name)
				pass(time.Minute)
			}
			pass(10 * time.Minute)
		}, nil, nil},
		{"all workers die", func(_ context.Context, s *scene, pass func(time.Duration)) {
			fleet(s, pass)
			for _, name := range []string{"a", "b", "c"} {
				s.kill(name)
			}
			pass(5 * time.Minute)
		}, []string{"ShardleaseUnowned", "ShardleaseCritical no-workers"}, nil},
		{"the table does not answer", func(_ context.Context, s *scene, pass func(time.Duration)) {
			fleet(s, pass)
			for _, m := range s.members {
				m.link.Cut()
			}
			s.watcher.Cut()
			pass(10 * time.Minute)
		}, []string{"ShardleaseUnhealthy", "ShardleaseStoreFails", "ShardleaseUnwatched"}, nil},
		{"rows cannot be written", func(_ context.Context, s *scene, pass func(time.Duration)) {
			s.start("a", shardlease.Config{}, process(time.Second))
			pass(time.Minute)
			s.of("a").link.OnWrite(func(_ context.Context, w lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
				if w.Key().Kind == lease.KindLease {
					return nil, errPoison
				}
				return send()
			})
			pass(5 * time.Minute)
			s.of("a").link.OnWrite(nil)
		}, []string{"ShardleaseUnhealthy", "ShardleaseCommitsWait", "ShardleaseStoreFails"}, nil},
		{"a poison record", func(_ context.Context, s *scene, pass func(time.Duration)) {
			for _, name := range []string{"a", "b"} {
				s.start(name, shardlease.Config{MaxAttempts: 3}, failing("shard-3"))
			}
			pass(10 * time.Minute)
		}, []string{"ShardleaseCritical quarantined"}, nil},
		{"a record that fails again and again", func(_ context.Context, s *scene, pass func(time.Duration)) {
			for _, name := range []string{"a", "b"} {
				s.start(name, shardlease.Config{}, failing("shard-3"))
			}
			pass(40 * time.Minute)
		}, []string{"ShardleaseWarning failing", "ShardleaseUnowned"}, []string{"ShardleaseUnowned"}},
		{"a handler hangs", func(ctx context.Context, s *scene, pass func(time.Duration)) {
			for _, name := range []string{"a", "b"} {
				s.start(name, shardlease.Config{StallAfter: 30 * time.Second}, func(soft context.Context, t *shardlease.Tenure) error {
					if t.Shard().Name == "shard-3" {
						<-ctx.Done()
						return nil
					}
					return process(time.Second)(soft, t)
				})
			}
			pass(10 * time.Minute)
		}, []string{"ShardleaseHandlerHangs", "ShardleaseUnowned", "ShardleaseCritical hangs", "ShardleaseCritical unclaimed"}, nil},
		{"a fence is not raised", func(_ context.Context, s *scene, pass func(time.Duration)) {
			c := shardlease.Config{Targets: []shardlease.Target{{Name: "ledger", Raise: func(context.Context, string, int64) error { return errPoison }}}}
			s.start("a", c, process(time.Second))
			pass(10 * time.Minute)
		}, []string{"ShardleaseFenceLow", "ShardleaseCritical unwell-worker"}, nil},
		{"workers die one after the other", func(_ context.Context, s *scene, pass func(time.Duration)) {
			fleet(s, pass)
			for i := range 4 {
				name := fmt.Sprint("mortal-", i)
				s.start(name, shardlease.Config{}, process(time.Second))
				pass(2 * time.Minute)
				s.kill(name)
				pass(2 * time.Minute)
			}
			s.kill("a")
			pass(2 * time.Minute)
		}, []string{"ShardleaseDeaths"}, nil},
		{"a worker with six shards dies", func(_ context.Context, s *scene, pass func(time.Duration)) {
			s.start("a", shardlease.Config{}, process(time.Second))
			pass(2 * time.Minute)
			s.kill("a")
			s.start("b", shardlease.Config{}, process(time.Second))
			pass(3 * time.Minute)
		}, []string{"ShardleaseDeaths"}, nil},
		{"the source does not answer", func(_ context.Context, s *scene, pass func(time.Duration)) {
			broken := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) { return nil, errPoison })
			s.startOn("a", broken, shardlease.Config{}, process(time.Second))
			pass(12 * time.Minute)
		}, []string{"ShardleaseUnready"}, nil},
		{"a lease is held for long", func(ctx context.Context, s *scene, pass func(time.Duration)) {
			holder, waiter := s.session("holder", "locks"), s.session("waiter", "locks")
			if _, err := holder.Acquire(ctx, "deploy", shardlease.AcquireOptions{}); err != nil {
				s.t.Error(err)
			}
			s.all.Go(func() { _, _ = waiter.Acquire(ctx, "deploy", shardlease.AcquireOptions{}) })
			pass(12 * time.Minute)
		}, []string{"ShardleaseWaits"}, nil},
		{"a consumer falls behind", func(_ context.Context, s *scene, pass func(time.Duration)) {
			began := time.Now()
			s.telemetry.Kinesis(group, func() map[string]map[string]int64 {
				return map[string]map[string]int64{"": {"behind_max_ms": time.Since(began).Milliseconds()}}
			})
			pass(20 * time.Minute)
		}, []string{"ShardleaseBehind", "ShardleaseWarning no-workers"}, nil},
	}
}

// failing fails on one shard, and processes the others.
func failing(shard string) shardlease.Handler {
	return func(ctx context.Context, t *shardlease.Tenure) error {
		if t.Shard().Name == shard {
			return errPoison
		}
		return process(time.Second)(ctx, t)
	}
}

// TestIncidents: each alert fires in an incident that a real fleet has in virtual time, from the metrics of each source that the
// alert names, and none fires during a rolling deploy.
func TestIncidents(t *testing.T) {
	t.Parallel() // beside a test that mostly waits
	promtool := program(t, "promtool")
	fired := map[string]bool{}
	for _, of := range incidents() {
		for _, alert := range of.alerts {
			name, _, _ := strings.Cut(alert, " ")
			fired[name] = true
		}
		t.Run(strings.ReplaceAll(of.name, " ", "_"), func(t *testing.T) { of.check(t, promtool) })
	}
	for _, a := range board.Alerts() {
		if !fired[a.Name] {
			t.Errorf("there is no incident in which %s fires", a.Name)
		}
	}
}

func (of incident) check(t *testing.T, promtool string) {
	recording := of.record(t)
	if len(recording.samples) < 5 {
		t.Fatalf("the fleet reports only %d time series", len(recording.samples))
	}
	file := filepath.Join(t.TempDir(), "incident.yaml")
	if err := os.WriteFile(file, []byte(recording.test(of)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput()
	if err != nil {
		text := string(out)
		t.Errorf("%v: %s", err, text[:min(len(text), 4000)])
	}
}

// step is the time between two samples.
const step = 15 * time.Second

// record lets the incident happen in a bubble.
func (of incident) record(t *testing.T) *recording {
	r := &recording{samples: map[string][]string{}}
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		ctx, stop := context.WithCancel(t.Context())
		s.watch(ctx, group, inspect.WatchOptions{})
		of.happen(ctx, s, func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(step)
				r.sample(t, s)
			}
		})
		stop()
		s.end()
	})
	return r
}

// A recording has the samples of each time series that an alert reads.
type recording struct {
	steps   int
	samples map[string][]string
}

// sample adds what the fleet reports now.
func (r *recording) sample(t *testing.T, s *scene) {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, labels []*dto.LabelPair, value float64) {
		if !used[name] {
			return
		}
		var of []string
		for _, l := range labels {
			of = append(of, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		key := name + "{" + strings.Join(of, ",") + "}"
		for len(r.samples[key]) < r.steps {
			r.samples[key] = append(r.samples[key], "_")
		}
		r.samples[key] = append(r.samples[key], strconv.FormatFloat(value, 'g', 9, 64))
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch {
			case m.GetHistogram() != nil:
				add(f.GetName()+"_count", m.GetLabel(), float64(m.GetHistogram().GetSampleCount()))
			case m.GetCounter() != nil:
				add(f.GetName(), m.GetLabel(), m.GetCounter().GetValue())
			case !math.IsNaN(m.GetGauge().GetValue()):
				add(f.GetName(), m.GetLabel(), m.GetGauge().GetValue())
			}
		}
	}
	r.steps++
	for key, values := range r.samples {
		for len(values) < r.steps {
			values = append(values, "_")
		}
		r.samples[key] = values
	}
}

// used are the metrics that alerts read.
var used = func() map[string]bool {
	all := map[string]bool{}
	for _, a := range board.Alerts() {
		for _, name := range regexp.MustCompile(`shardlease_\w+`).FindAllString(a.Query, -1) {
			all[name] = true
		}
	}
	return all
}()

// test returns the test for promtool: the alerts of the incident fire at its end, and no others. If it has none, no alert fires at
// any time. With the metrics of one source alone, those of them fire that are from it. A watcher whose workers may not count their
// ends hides nothing.
func (r *recording) test(of incident) string {
	var b strings.Builder
	rules, err := filepath.Abs("../../docs/deploy/prometheus-rules.yaml")
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(&b, "rule_files: [%s]\nevaluation_interval: %v\ntests:\n", rules, step)
	const uncounted = "no ends are counted"
	for _, only := range []string{"", uncounted, board.Workers, board.Watcher, board.Kinesis} {
		whole := only == "" || only == uncounted
		fmt.Fprintf(&b, "  - name: %s\n    interval: %v\n    input_series:\n", only, step)
		for _, key := range slices.Sorted(maps.Keys(r.samples)) {
			name, _, _ := strings.Cut(key, "{")
			values := strings.Join(r.samples[key], " ")
			if only == uncounted && name == "shardlease_group_ends_total" {
				values = fmt.Sprintf("0x%d", r.steps)
			}
			if whole || only == board.SourceOf(name) {
				fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", key, values)
			}
		}
		b.WriteString("    alert_rule_test:\n")
		for _, a := range board.Alerts() {
			expected := ""
			if whole || slices.Contains(a.From(), only) {
				expected = of.expected(a)
			}
			for at := r.from(of, a); at < time.Duration(r.steps)*step; at += step {
				fmt.Fprintf(&b, "      - {eval_time: %v, alertname: %s, exp_alerts: [%s]}\n", at, a.Name, expected)
			}
		}
	}
	return b.String()
}

// from returns from when on an alert should be as it is at the end.
func (r *recording) from(of incident, a board.Alert) time.Duration {
	end := time.Duration(r.steps-1) * step
	switch {
	case len(of.alerts) == 0:
		return time.Minute
	case slices.Contains(of.steady, a.Name):
		return end - 20*time.Minute
	}
	return end
}

// expected returns an alert as it fires in the incident.
func (of incident) expected(a board.Alert) string {
	var all []string
	for _, alert := range of.alerts {
		name, code, _ := strings.Cut(alert, " ")
		if name != a.Name {
			continue
		}
		group, labels := group, ""
		if name == "ShardleaseWaits" {
			group = "locks"
		}
		if code != "" {
			labels = ", code: " + code
		}
		all = append(all, fmt.Sprintf("{exp_labels: {severity: %s, group: %s%s}, exp_annotations: {summary: '%s', runbook: '%s'}}",
			a.Severity, group, labels, board.Fill(a.Text, group, code), board.Docs+board.Fill(a.Runbook, group, code)))
	}
	return strings.Join(all, ", ")
}
