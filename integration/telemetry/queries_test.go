package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/board"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// TestQueriesReturnData: every query of the dashboard and of the alerts returns data from a real Prometheus that scrapes a
// real fleet, which lives, moves shards, and dies in parts. The names are those that docs/metrics.md says.
func TestQueriesReturnData(t *testing.T) {
	t.Parallel() // it mostly waits
	path := program(t, "prometheus")
	s := newScene(t)
	ctx, stop := context.WithCancel(t.Context())
	s.live(ctx)
	defer s.end()
	defer stop()
	metrics := httptest.NewServer(promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	defer metrics.Close()
	server := startPrometheus(t, path, strings.TrimPrefix(metrics.URL, "http://"))
	waiting := queries()
	if len(waiting) < 50 {
		t.Errorf("there are only %d queries: the test may have stopped finding them", len(waiting))
	}
	// About 10 s. On a busy machine it may take longer, and only a query that never returns data is a fault.
	began := time.Now()
	for len(waiting) > 0 && time.Since(began) < 2*time.Minute {
		waiting = slices.DeleteFunc(waiting, func(query string) bool { return server.answers(t, query) })
		t.Logf("after %v %d queries have no data yet", time.Since(began).Round(time.Millisecond), len(waiting))
		wait(t.Context(), 500*time.Millisecond)
	}
	for _, query := range waiting {
		t.Errorf("no data: %s", query)
	}
	server.checkRules(t)
	server.checkNames(t)
}

// queries returns the queries of the dashboard and of the alerts.
func queries() (all []string) {
	fill := strings.NewReplacer("$group", ".+", "$__rate_interval", "10s")
	for _, row := range board.Rows() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				all = append(all, fill.Replace(q.Expr))
			}
		}
	}
	for _, a := range board.Alerts() {
		all = append(all, a.Query)
	}
	return all
}

// live starts a fleet with a short lease time, in which something happens all the time until ctx ends.
func (s *scene) live(ctx context.Context) {
	config := func(mode rebalance.Mode) shardlease.Config {
		return shardlease.Config{
			TTL: time.Second, Drain: time.Second, Handoff: mode, Commit: checkpoint.Policy{Every: 100 * time.Millisecond},
			EventQueue: 1, Observe: func(event.Event) { time.Sleep(20 * time.Millisecond) }, // drops events
		}
	}
	handler := process(20 * time.Millisecond)
	for _, of := range []string{group, "dead", "none"} { // the second gets an error, and the third a warning
		s.watch(ctx, of, inspect.WatchOptions{Every: 200 * time.Millisecond, RowsEvery: 200 * time.Millisecond})
	}
	dead := config(rebalance.Eager)
	dead.Group = "dead"
	held := make(chan struct{}, 1)
	s.start("dies", dead, func(ctx context.Context, t *shardlease.Tenure) error {
		select {
		case held <- struct{}{}:
		default:
		}
		return handler(ctx, t)
	})
	s.start("stays", config(rebalance.Eager), handler)
	holder, waiter := s.session("holder", "locks"), s.session("waiter", "locks")
	s.all.Go(func() {
		if _, err := holder.Acquire(ctx, "deploy", shardlease.AcquireOptions{}); err == nil {
			_, _ = waiter.Acquire(ctx, "deploy", shardlease.AcquireOptions{})
		}
	})
	began := time.Now()
	s.telemetry.Kinesis(group, func() map[string]map[string]int64 {
		return map[string]map[string]int64{"": {"behind_max_ms": 1500, "behind_ms": 2500, "age_ms": 700, "records": time.Since(began).Milliseconds()}}
	})
	s.all.Go(func() {
		select {
		case <-held:
			s.kill("dies")
		case <-ctx.Done():
		}
		for n := 0; ctx.Err() == nil; n++ {
			name, mode := fmt.Sprint("comes-", n), []rebalance.Mode{rebalance.Eager, rebalance.Cooperative}[n%2]
			s.start(name, config(mode), handler)
			wait(ctx, 2*time.Second)
			if n%3 == 0 {
				s.of(name).link.Cut() // its marks are never accepted
				wait(ctx, 2*time.Second)
			}
			s.stop(name)
		}
	})
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// A server is a Prometheus.
type server struct{ url string }

// startPrometheus starts a Prometheus that scrapes a target, and ends it with the test.
func startPrometheus(t *testing.T, path, target string) server {
	t.Helper()
	rules, err := filepath.Abs("../../docs/deploy/prometheus-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, config := t.TempDir(), ""
	config = fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [%s]\nscrape_configs:\n  - job_name: fleet\n    static_configs: [{targets: ['%s']}]\n", rules, target)
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	var log strings.Builder
	cmd := exec.CommandContext(t.Context(), path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		http.DefaultClient.CloseIdleConnections()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	s := server{"http://" + address}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); wait(t.Context(), 50*time.Millisecond) {
		if r, err := http.Get(s.url + "/-/ready"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s
			}
		}
	}
	t.Fatal("Prometheus is not ready")
	return s
}

// get decodes the data of an answer of the API.
func (s server) get(t *testing.T, path string, data any) {
	t.Helper()
	r, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v %s", path, err, answer.Error)
	}
}

// answers reports whether a query returns a number.
func (s server) answers(t *testing.T, query string) bool {
	t.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	s.get(t, "/api/v1/query?query="+url.QueryEscape(query), &data)
	for _, of := range data.Result {
		if of.Value[1] != "NaN" {
			return true
		}
	}
	return false
}

// checkRules checks that Prometheus evaluates every rule.
func (s server) checkRules(t *testing.T) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	s.get(t, "/api/v1/rules", &data)
	n := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if n++; r.Health != "ok" {
				t.Errorf("the rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if n != len(board.Alerts()) {
		t.Errorf("Prometheus has %d rules, and there are %d alerts", n, len(board.Alerts()))
	}
}

// checkNames checks that Prometheus knows each metric of docs/metrics.md by the name that the page says, and no other.
func (s server) checkNames(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(shardlease\\.[a-z._]+)` \\| (\\w+)(?:, (s|By))? \\|").FindAllStringSubmatch(string(page), -1) {
		name := strings.ReplaceAll(row[1], ".", "_") + map[string]string{"s": "_seconds", "By": "_bytes"}[row[3]]
		switch {
		case row[2] == "counter":
			name += "_total"
		case row[2] == "histogram":
			name += "_count"
		}
		listed[name] = true
	}
	var known []string
	s.get(t, "/api/v1/label/__name__/values", &known)
	for _, name := range known {
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum")
		if strings.HasPrefix(name, "shardlease_") && !listed[name] && !listed[name+"_count"] {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
	for name := range listed {
		if !slices.Contains(known, name) {
			t.Errorf("docs/metrics.md lists %s, which Prometheus does not know", name)
		}
	}
}
