package report

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

// A page is a Markdown page that is being written.
type page struct{ strings.Builder }

// say writes a paragraph or a list, in lines of at most 140 characters.
func (p *page) say(format string, a ...any) {
	for text := range strings.SplitSeq(fmt.Sprintf(format, a...), "\n") {
		indent := ""
		if strings.HasPrefix(text, "- ") {
			indent = "  "
		}
		line := ""
		for word := range strings.FieldsSeq(text) {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line+" "+word) > 140:
				p.WriteString(line + "\n")
				line = indent + word
			default:
				line += " " + word
			}
		}
		p.WriteString(line + "\n")
	}
	p.WriteByte('\n')
}

func (p *page) table(head ...string) {
	p.row(head...)
	p.row(slices.Repeat([]string{"---"}, len(head))...)
}

func (p *page) row(cells ...string) { fmt.Fprintf(p, "| %s |\n", strings.Join(cells, " | ")) }

func (p *page) section(title string) { fmt.Fprintf(p, "\n## %s\n\n", title) }

// page returns docs/measurements.md.
func (r *report) page() string {
	p := new(page)
	p.say("# Measurements")
	p.say("Written by `go test ./integration/report -run TestReport -report -timeout 60m`, except [one section](#bounds-of-the-target-assignment). `TestReport` runs fleets of workers in one process against DynamoDB Local. Each worker has its own transport, which counts requests and, for figures in units, bills them by [DynamoDB's rules](table.md#what-an-operation-costs). Gaps and overlaps are measured from the calls and returns of handlers, not from the library's events. T is the lease time, and h = T/3 the time between two heartbeats.")
	p.say("%s", r.circumstances())
	r.goalTable(p)
	r.elsewhere(p)
	r.costTable(p)
	r.movePart(p)
	r.crashPart(p)
	r.restartPart(p)
	r.benchPart(p)
	p.section("How busy the machine was")
	p.say("Shares of all cores, including DynamoDB Local, the meter and the handlers; stolen is the share that the host of a virtual machine took. In fleets without crashes, the workers counted %d missed heartbeats, lost seats and unanswered calls; and %d writes of lease rows were not answered at the first attempt, for example when the three fleets whose cost is measured start 1,320 shards at once.", r.beatLost, r.rowsLate)
	p.table("part", "took", "busy", "stolen")
	for _, s := range r.sections {
		busy, stolen := "unknown", "unknown"
		if s.busy >= 0 {
			busy, stolen = fmt.Sprintf("%.0f %%", 100*s.busy), fmt.Sprintf("%.0f %%", 100*s.stolen)
		}
		p.row(s.name, s.took.Round(time.Second).String(), busy, stolen)
	}
	return p.String()
}

// circumstances describes when and on which machine everything was measured.
func (r *report) circumstances() string {
	database := local.Image + ", in a container"
	if os.Getenv("DYNAMODB_ENDPOINT") != "" {
		database = *reportServer
		if database == "" {
			database = "DynamoDB Local at DYNAMODB_ENDPOINT, whose version was not given by `-report.server`"
		}
	}
	quick := ""
	if r.quick {
		quick = " This is a quick run, so its figures are not reliable."
	}
	return fmt.Sprintf("Measured %s in %v, on %d cores (%s), %s/%s, %s; %s.%s",
		r.began.UTC().Format("2006-01-02 15:04 UTC"), time.Since(r.began).Round(time.Second),
		runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, runtime.Version(), database, quick)
}

// processor returns the model of the processor, if the system reports it.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "of an unknown model"
}

func (r *report) goalTable(p *page) {
	p.section("What was to be reached")
	p.say("T = %v unless stated otherwise. Times are the longest of all trials unless they are called mean. The two columns for the Kinesis Client Library, version 3.5 for Java, were measured with its defaults on DynamoDB Local when this library was designed, and not in this run.", r.plan.slow)
	p.table("", "bound", "measured", "", "KCL, v2 mode", "KCL, v3")
	for _, g := range r.goals() {
		p.row(g.what, "≤ "+g.show(g.limit), g.show(g.got), g.verdict(), g.kcl2, g.kcl3)
	}
	p.say("")
	p.say("Times depend on the machine: [below](#how-busy-the-machine-was) is the share that its host took in each part. With a lease time of a second, a worker that gets no processor for most of a second loses its seat, and its shards move as well.")
	p.say("A cold start is limited by the processor: all rows are created and claimed at once. On a faster machine (AMD EPYC, 2026-11-22, the engine before) the slowest took 949 ms, and a commit 6.3 µs.")
	p.say("The largest of the three fleets has more than eight workers. Its first three watchers list the seats every 500 ms, every second and every two seconds: that is 3.5 requests a second, however many shards there are, and more for each worker than in a small fleet.")
	p.say("Of a commit, %s is the transition, the store's check and the write, as `memstore`'s own benchmark measures them on the same machine. The rest is two steps of the engine and four switches between goroutines: from the caller to the worker, to the call, and back. To save them, the handler's goroutine would have to step the engine (including a planner of the user) and wait for the store even after its context has ended. That is not worth it compared with the milliseconds of a table.",
		seconds10(r.benchOf("memstore", "Commit").values["ns/op"]))
}

// elsewhere describes what other systems do better. It is written by hand, and no measurement.
func (r *report) elsewhere(p *page) {
	p.section("Where others do better")
	p.say(`- **KCL reads the stream.** It fetches, retries, unpacks aggregated records and follows a stream that is split or merged; with this library the handler and the source do that.
- **KCL v3 balances by load.** It moves leases by the CPU use of its workers; this library makes the numbers of shards even, unless you supply a planner.
- **KCL in v2 mode moves a lease with one write,** unannounced, and the former owner continues until it notices. A cooperative move of this library needs up to three writes: the offer, the takeover, and sometimes a second offer.
- **KCL's settled workers do not read each other's heartbeats.** In this library up to eight workers list all seats once per h; above that eight of them do for all, and the others read the plan.
- **A consumer group of Kafka costs no table at all;** its brokers store the assignment.
- **franz-go's sticky balancer** plans 100,000 partitions for 1,000 members in 2.1–2.5 ms, a figure that was not measured in this run; its input is by name and topic, which is more work.`)
}

// The section of docs/measurements.md that is written by hand, and the one after it.
const (
	byHand = "\n## Bounds of the target assignment\n"
	after  = "\n## Where others do better\n"
)

// keeping returns the new page with the section of the old one that is written by hand.
func keeping(old, page string) (string, error) {
	_, rest, begins := strings.Cut(old, byHand)
	text, _, ends := strings.Cut(rest, after)
	if !begins || !ends || !strings.Contains(page, after) {
		return "", fmt.Errorf("no section %q before %q", byHand, after)
	}
	return strings.Replace(page, after, byHand+text+after, 1), nil
}

// costHead begins the table that docs/costs.md has too.
const costHead = "shards × workers"

// costsIn returns the text with its cost table replaced by that of the page.
func costsIn(text, page string) (string, error) {
	table := regexp.MustCompile(`(?m)^\| ` + costHead + ` \|(.*\n\|)*.*\n`)
	if !table.MatchString(text) || !table.MatchString(page) {
		return "", errors.New("no table of the costs of a settled fleet")
	}
	return table.ReplaceAllLiteralString(text, table.FindString(page)), nil
}

func (r *report) costTable(p *page) {
	p.section("What a settled fleet costs")
	p.say("T = %v; the fleets run side by side. Each fleet is measured for %d audit periods while it is idle, and for %d while it commits; in an audit period, %v on average, each of up to eight workers lists all rows once; in a larger fleet one worker does. These rows have about 300 bytes; rows with longer names, positions and histories have up to a kilobyte, and audits of them read accordingly more. Units are the units that DynamoDB bills; prices are the list price of on-demand capacity in us-east-1, $%.3f for a million write units and $%.3f for a million read units, and a month has 730 hours. Rows of a busy fleet commit once each %v.", r.plan.slow, r.plan.idle, r.plan.busy, fleetPlan{audit: r.plan.audit}.auditPeriod(), writePrice*1e6, readPrice*1e6, r.plan.between)
	p.table(costHead, "", "requests/s", "write units/s", "read units/s", "commits/s", "a month")
	for _, c := range r.costs {
		what := "idle"
		if c.busy {
			what = "with commits"
		}
		p.row(fmt.Sprintf("%d × %d", c.shards, c.workers), what, fmt.Sprintf("%.2f", c.requests), fmt.Sprintf("%.2f", c.writes),
			fmt.Sprintf("%.2f", c.reads), fmt.Sprintf("%.1f", c.commits), fmt.Sprintf("$%.2f", c.price()))
	}
}

var lotHead = []string{"", "trials", "mean", "p50", "p99", "max"}

func (p *page) lot(what string, l lot) { p.row(append([]string{what}, l.cells()...)...) }

func (r *report) movePart(p *page) {
	p.section("Starts, joins, stops and moves")
	p.say("%d shards, %d workers, T = %v. A worker joins; when the shards are even the oldest worker shuts down gracefully; and so on, at random moments between heartbeats. A start is measured from before the store is opened, a stop from its request, until a worker that stays serves every shard. The first cold start does not count: meanwhile the virtual machine of DynamoDB Local compiles what all of them use.", base.shards, base.workers, r.plan.slow)
	p.table(lotHead...)
	p.lot("cold start: all held", r.held)
	p.lot("cold start: even", r.even)
	for i, mode := range []string{"eager", "cooperative"} {
		p.lot(mode+": a worker joins, until even", r.modes[i].joins)
		p.lot(mode+": clean stop, until all held", r.modes[i].stops)
		p.lot(mode+": gap of a move", r.modes[i].gaps)
		p.lot(mode+": overlap of a move", r.modes[i].overlaps)
	}
	p.say("")
	p.say("![two timelines: an eager fleet and a cooperative one, while a worker joins and another leaves](measurements/timelines.svg)")
	p.say("![distribution of gaps and overlaps](measurements/moves.svg)")
	p.say("In these fleets handlers committed only for moves, so every write of a row belongs to a move. Seat writes in addition to heartbeats are requests, and the creation and deletion of seats. Each join and each leave also needs a plan: two swaps, and a write for each target that differs.")
	p.table("", "moves", "minimum", "changes of hands", "offers and withdrawals", "other writes", "refused (included)", "writes per move", "extra seat writes per move", "writes of plans per join or leave", "records processed twice")
	for i, mode := range []string{"eager", "cooperative"} {
		f := r.modes[i]
		least := r.plan.cycles * 2 * (base.shards / (base.workers + 1)) // a leaving worker may hold one shard more
		p.row(mode, fmt.Sprint(f.moved), fmt.Sprintf("%d–%d", least, least+r.plan.cycles), fmt.Sprint(f.rows.handed), fmt.Sprint(f.rows.offers), fmt.Sprint(f.rows.commits),
			fmt.Sprint(f.rows.refused), fmt.Sprintf("%.2f", f.writesPerMove()), fmt.Sprintf("%.2f", f.extraSeats/float64(max(1, f.moved))), fmt.Sprintf("%.1f", float64(f.rows.plans)/float64(2*r.plan.cycles)), fmt.Sprint(f.again))
	}
}

func (r *report) crashPart(p *page) {
	p.section("Crashes")
	p.say("%d shards, %d workers, half of the fleets in each mode. A worker is cut off at one instant, and the work of its handlers no longer counts, as after a kill -9. The instant is a random moment between two heartbeats. The time ends when every shard of the dead worker is processed again. Records twice are the records of a shard after its last commit, at 20 records a second and one commit per T/2.", base.shards, base.workers)
	p.table(append(slices.Clone(lotHead), "records twice, mean", "max")...)
	for _, f := range []crashFigures{r.fastCrash, r.slowCrash} {
		sum := 0
		for _, n := range f.again {
			sum += n
		}
		p.row(append(append([]string{fmt.Sprintf("T = %v", f.ttl)}, f.recovery.cells()...),
			fmt.Sprintf("%.1f", float64(sum)/float64(max(1, len(f.again)))), fmt.Sprint(slices.Max(append(f.again, 0))))...)
	}
	p.say("")
	p.say("![distribution of recoveries](measurements/crashes.svg)")
}

func (r *report) restartPart(p *page) {
	p.section("A rolling restart of the whole fleet")
	p.say("%d shards, %d workers, T = %v, default commit policy. The workers stop in turn: when the Run of one has returned its successor starts, and when the shards are even the next one stops.", base.shards, base.workers, r.plan.slow)
	p.table(lotHead...)
	for i, mode := range []string{"eager", "cooperative"} {
		p.lot(mode+": the whole restart", r.modes[i].restarts)
		p.lot(mode+": gap of a shard, all its moves together", r.modes[i].restartGaps)
		p.lot(mode+": overlap of one move", r.modes[i].restartOverlaps)
	}
	p.say("")
	for i, mode := range []string{"Eager", "Cooperative"} {
		f := r.modes[i]
		restarts := float64(max(1, len(f.restarts)))
		p.say("%s: %.0f moves a restart, %.1f records processed twice, of about %.0f.", mode, float64(f.restartMoves)/restarts,
			float64(f.restartAgain)/restarts, 20*float64(base.shards)*f.restarts.mean().Seconds())
	}
}

func (r *report) benchPart(p *page) {
	p.section("Benchmarks")
	p.say("`go test -run '^$' -bench . -benchmem %s`, one after the other on the idle machine; the median if a benchmark runs several times; those of internal/engine run once. %s", strings.Join(r.plan.bench, " "), r.benchNote)
	p.table("package", "benchmark", "time", "bytes", "allocations", "other")
	for _, l := range r.bench {
		other := ""
		if v, ok := l.values["heap-B/shard"]; ok {
			other = fmt.Sprintf("%.0f B heap, %.0f B stack a shard", v, l.values["stack-B/shard"])
		}
		p.row(l.pkg, l.name, seconds10(l.values["ns/op"]), fmt.Sprintf("%.0f", l.values["B/op"]), fmt.Sprintf("%.0f", l.values["allocs/op"]), other)
	}
	p.say("")
	u, v := r.memoryOf.library, r.memoryOf.user
	p.say("Memory: a worker on memstore that holds %d shards, compared with a memstore with the same rows and as many goroutines, each blocked on a context of its own. For each shard:", r.plan.held)
	p.table("", "heap", "stacks", "goroutines")
	for _, c := range []struct {
		what string
		use
	}{{"worker and handlers", u}, {"rows, goroutines and contexts alone", v}, {"the library's part", u.minus(v)}} {
		p.row(c.what, fmt.Sprintf("%.0f B", c.heap), fmt.Sprintf("%.0f B", c.stack), fmt.Sprintf("%.2f", c.goroutines))
	}
}

// seconds10 returns nanoseconds for readers, with a decimal below one.
func seconds10(ns float64) string {
	switch {
	case ns < 1000:
		return plain(ns) + " ns"
	case ns < 1e6:
		return plain(ns/1e3) + " µs"
	}
	return plain(ns/1e6) + " ms"
}
