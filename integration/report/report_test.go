package report

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/rebalance"
)

var (
	reportFull   = flag.Bool("report", false, "measure, and write docs/measurements.md and the table of docs/costs.md: half an hour on an idle machine")
	reportQuick  = flag.Bool("report.quick", false, "measure everything once in about a minute, and write nothing")
	reportOut    = flag.String("report.out", "", "the folder to write to; default: docs, or none with -report.quick")
	reportServer = flag.String("report.server", "", "the server at DYNAMODB_ENDPOINT, as the page should name it")
)

// A reportPlan configures how much is measured. slow is the lease time of most measurements, fast that of
// trials which would take too long with slow.
type reportPlan struct {
	slow, fast           time.Duration
	cold                 int // number of cold starts
	sizes                []size
	audit                time.Duration // Config.AuditEvery of a settled fleet
	idle, busy           int           // how many audit periods an idle and a busy fleet are measured
	between              time.Duration // the time between two commits of a shard
	cycles               int           // how often a worker joins and the oldest leaves
	restarts             int           // rolling restarts of a fleet, in each mode
	fleets, crashes      int           // with slow: fleets that run side by side, and crashes in each
	fastFleets, fastDies int
	bench                []string
	held                 int // number of shards in the measurement of memory
}

type size struct{ shards, workers int }

// base is the fleet of most measurements.
var base = size{64, 4}

func planOf(quick bool) reportPlan {
	if quick {
		return reportPlan{
			slow: 2 * time.Second, fast: time.Second, cold: 1, sizes: []size{base, {96, 6}, {128, 8}},
			audit: 10 * time.Second, idle: 1, busy: 1, between: 2 * time.Second,
			cycles: 1, restarts: 1, fleets: 2, crashes: 1, fastFleets: 2, fastDies: 2,
			bench: []string{"-benchtime", "5ms"}, held: 2000,
		}
	}
	return reportPlan{
		slow: 10 * time.Second, fast: time.Second, cold: 8, sizes: []size{base, {256, 8}, {1000, 20}},
		audit: time.Minute, idle: 3, busy: 2, between: 10 * time.Second,
		cycles: 24, restarts: 3, fleets: 4, crashes: 8, fastFleets: 3, fastDies: 40,
		bench: []string{"-count", "3"}, held: 20_000,
	}
}

// TestReport measures the figures of docs/measurements.md. It runs only with -report.
func TestReport(t *testing.T) {
	if !*reportFull && !*reportQuick {
		t.Skip("go test ./integration/report -run TestReport -report -timeout 60m measures for half an hour and writes docs/measurements.md")
	}
	local.Endpoint(t)
	r := &report{T: t, plan: planOf(*reportQuick), table: local.Table(t), began: time.Now(), quick: *reportQuick}
	r.section("benchmarks, one after the other", func() { r.benchmarks(); r.memory() })
	r.section("cold start", r.coldStarts)
	r.section("steady cost", r.steady)
	r.section("joins, leaves and the moves they make", r.bothModes(func(m rebalance.Mode) { r.joinsAndLeaves(m) }))
	r.section("rolling restart", r.bothModes(func(m rebalance.Mode) { r.rolling(m) }))
	r.section("crashes, slow", func() { r.crashes(r.plan.slow, r.plan.fleets, r.plan.crashes, &r.slowCrash) })
	r.section("crashes, fast", func() { r.crashes(r.plan.fast, r.plan.fastFleets, r.plan.fastDies, &r.fastCrash) })
	r.section("timelines", func() { r.bothModes(func(m rebalance.Mode) { r.timeline(m) })() })
	r.publish()
}

// publish writes the page and its pictures if no test has failed.
func (r *report) publish() {
	files := map[string]string{
		"measurements.md":            r.page(),
		"measurements/timelines.svg": r.timelinesPicture(),
		"measurements/crashes.svg":   r.crashPicture(),
		"measurements/moves.svg":     r.movesPicture(),
	}
	to := *reportOut
	if to == "" {
		if r.quick {
			r.Logf("\n%s", files["measurements.md"])
			return
		}
		to = "../../docs"
		r.edit(files, "costs.md", costsIn)
		r.edit(files, "measurements.md", keeping)
	}
	if err := os.MkdirAll(filepath.Join(to, "measurements"), 0o755); err != nil {
		r.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			r.Fatal(err)
		}
	}
}

// edit makes a file of docs from its old text and the page of the report.
func (r *report) edit(files map[string]string, name string, from func(old, page string) (string, error)) {
	old, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		r.Fatal(err)
	}
	if files[name], err = from(string(old), files["measurements.md"]); err != nil {
		r.Fatal(err)
	}
}
