package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The tools, at fixed versions. They are updated by hand, because a tool in go.mod would
// raise the versions of what users import.
const (
	staticcheck = "honnef.co/go/tools/cmd/staticcheck@v0.8.2"
	actionlint  = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
	govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.8.0"
)

// The path of the root module, and the folders of its largest neighbours.
const (
	root        = "github.com/shardlease/shardlease-go"
	integration = "integration"
	program     = "shardlease/cmd/shardlease"
)

// The packages of the long suites.
const (
	transitions = "./internal/storm"
	interleaved = "./internal/explore"
	engines     = "./internal/engine"
	simulator   = "./internal/sim"
	largeFleets = "./internal/scale"
	broken      = "./internal/mutants"
	histories   = "./integration/histories"
	processes   = "./integration/processes"
	onDynamoDB  = "./integration/store"
)

// calm are the dearest packages that start no goroutine, nor does what they import. The race detector makes them ten
// times slower and has nothing to find, so only the nightly run uses it there. TestCalmPackages holds them to that.
var calm = []string{
	"internal/docs", "internal/engine", "internal/explore", "internal/imports", "internal/mutants", "internal/scale",
	"internal/storm", "rebalance",
}

// sideBySide are the arguments of go test for a few of the tests, in calm packages and of the simulator, that run side by
// side with t.Parallel. A few show whether they share anything.
var sideBySide = [][]string{
	{"-run", "TestRounds$", simulator, "-sim.rounds", "6"},
	{"-run", "TestStorm$", transitions, "-storm.rounds", "2"},
	{"-run", "TestEngines$", interleaved, "-explore.states", "50"},
	{"-run", "TestPoisonIsQuarantined", engines},
}

// fast returns the steps that must pass for a pull request.
func fast(modules []string) []step {
	return append(checks(modules), each("go test", modules, "go", "test", "./..."))
}

// checks returns the steps that check the source.
func checks(modules []string) []step {
	return []step{
		{"gofmt", command{args: []string{"gofmt", "-l", "."}}.silent},
		each("go vet", modules, "go", "vet", "./..."),
		inEach("go fix", modules, func(out io.Writer, dir string) error {
			return inModule(dir, "go", "fix", "-diff", "./...").silent(out)
		}),
		each("go mod tidy", modules, "go", "mod", "tidy", "-diff"),
		each("staticcheck", modules, "go", "run", staticcheck, "./..."),
		// Without shellcheck, which some machines lack: the result should be the same on all.
		{"actionlint", command{args: []string{"go", "run", actionlint, "-shellcheck=", "-pyflakes="}}.silent},
	}
}

// each runs a command in every module.
func each(name string, modules []string, args ...string) step {
	return inEach(name, modules, func(out io.Writer, dir string) error {
		_, err := inModule(dir, args...).run(out)
		return err
	})
}

// inEach calls do for every module.
func inEach(name string, modules []string, do func(out io.Writer, dir string) error) step {
	return step{name, func(out io.Writer) error {
		for _, dir := range modules {
			if err := do(out, dir); err != nil {
				return err
			}
		}
		return nil
	}}
}

// full returns the steps that must pass on main.
func full(modules []string) []step {
	steps := append(checks(modules), vulnerabilities(modules))
	others := slices.DeleteFunc(slices.Clone(modules), func(dir string) bool {
		return slices.Contains([]string{".", integration, program}, dir)
	})
	shuffled := func(name string, modules ...string) step {
		return inEach("race detector, shuffled: "+name, modules, raceModule)
	}
	steps = append(steps,
		shuffled("the root module", "."),
		together(shuffled(program, program), shuffled("the small modules", others...)),
		shuffled(integration, integration),
		step{"race detector: simulated fleets and storms side by side", func(out io.Writer) error {
			for _, args := range sideBySide {
				if err := race(out, ".", args...); err != nil {
					return err
				}
			}
			return nil
		}},
		test("exploration, 75,000 states a story", only(`states|FAIL|ok`), 0,
			transitions, "-run", "TestExplore", "-explore.states", "75000", "-v"),
		test("the real engines in every interleaving, up to 15,000 states a story", only(`states|FAIL|^ok`), 0,
			interleaved, "-explore.states", "15000", "-v", "-timeout", "30m"),
		test("the simulator: real engines in bad weather, until each kind of fault has happened 100 times", results, 12,
			simulator, "-run", "Rounds", "-sim.commits", "1000000", "-sim.each", "100", "-timeout", "20m", "-v"),
		test("fleets of 100 workers, held to their bounds", results, 12,
			largeFleets, "-run", "TestBounds", "-scale.sizes", "10000x100", "-v"),
		test("storm, 100 seeds", only(`writes stored|FAIL|^ok`), 0,
			transitions, "-run", "TestStorm$", "-storm.rounds", "100", "-v"),
		test("histories on DynamoDB Local, 8,000 operations", only(`operations|FAIL|^ok`), 0,
			histories, "-run", "TestHistories", "-history.ops", "8000", "-v"),
		test("processes, 12 killed and 12 frozen", results, 15,
			processes, "-run", "TestProcesses$", "-v", "-process.kills", "12", "-process.stops", "12", "-timeout", "20m"),
		test("processes with a deathwatch, 6 times killed", results, 8,
			processes, "-run", "TestDeathwatch$", "-v", "-process.ttl", "10s", "-process.deaths", "6", "-timeout", "20m"),
		consumer("kinesis"), consumer("dynamodbstreams"), // one after the other: each uses more than half of two cores, in real time
		test("mutants", only(`mutants killed|FAIL|^ok|does not`), 0, broken, "-mutants", "-v", "-timeout", "20m"),
	)
	return append(steps, fuzz("3s", modules))
}

// nightly returns the steps that take hours. Each night uses seeds of its own; a failure
// prints the seed, and every command is printed before it runs.
func nightly(modules []string) []step {
	night := int(time.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Hours() / 24)
	seed := func(n int) string { return fmt.Sprint(n * night) }
	return []step{
		{"race detector, shuffled: the calm packages and the simulator", func(out io.Writer) error {
			args := []string{"-shuffle=on", "-timeout", "60m", simulator}
			for _, name := range calm {
				args = append(args, "./"+name)
			}
			return race(out, ".", args...)
		}},
		test("exploration, 400,000 states a story", results, 12,
			transitions, "-run", "TestExplore", "-explore.states", "400000", "-v"),
		test("the real engines in every interleaving, up to 700,000 states a story", results, 40,
			interleaved, "-explore.states", "700000", "-parallel", "1", "-timeout", "3h", "-v"),
		test("the simulator, 100,000,000 commits", results, 12,
			simulator, "-run", "Rounds", "-sim.commits", "100000000", "-sim.from", seed(1_000_000), "-timeout", "3h", "-v"),
		test("the simulator, weeks and months", results, 12,
			simulator, "-run", "Seasons", "-sim.hours", "50000", "-sim.from", seed(1_000), "-timeout", "3h", "-v"),
		test("1,000 sessions, each for 10 leases by name", results, 12,
			simulator, "-run", "TestSessions", "-sim.rounds", "3", "-sim.from", seed(1_000), "-sim.sessions", "1000", "-sim.leases", "10", "-sim.most", "3m", "-timeout", "60m", "-v"),
		test("large fleets", results, 60, largeFleets, "-run", "TestScale$", "-scale", "-timeout", "2h", "-v"),
		test("all workers sick for half an hour", results, 12, engines, "-run", "TestAllSick", "-sick.for", "30m", "-v"),
		test("storm, 1,000 seeds", results, 12,
			transitions, "-run", "TestStorm$", "-storm.rounds", "1000", "-storm.seed", seed(1_000), "-v"),
		test("histories on DynamoDB Local, 20,000 operations", results, 12,
			histories, "-run", "TestHistories", "-history.ops", "20000", "-v"),
		test("storm on DynamoDB Local", results, 12,
			onDynamoDB, "-run", "TestStorm$", "-storm.lost", "10000", "-storm.seed", seed(1_000), "-timeout", "90m", "-v"),
		test("processes, 150 killed and 150 frozen", results, 15,
			processes, "-run", "TestProcesses$", "-process.kills", "150", "-process.stops", "150", "-process.seed", seed(1), "-timeout", "60m", "-v"),
		test("processes with a deathwatch, 100 times killed, T = 10 s", results, 8,
			processes, "-run", "TestDeathwatch$", "-v", "-process.ttl", "10s", "-process.deaths", "100", "-process.seed", seed(1), "-timeout", "60m"),
		test("processes with a deathwatch, 100 times killed, T = 1 min", results, 8,
			processes, "-run", "TestDeathwatch$", "-v", "-process.ttl", "1m", "-process.deaths", "100", "-process.seed", seed(1), "-timeout", "90m"),
		test("twelve processes for an hour", results, 15,
			processes, "-run", "TestProcessesSoak", "-process.soak", "60m", "-process.ttl", "5s", "-timeout", "75m", "-v"),
		fuzz("2m", modules),
	}
}

// test returns the step of one suite. It prints the lines that match show: all of them, or
// the last so many.
func test(name string, show *regexp.Regexp, last int, args ...string) step {
	return step{name, func(out io.Writer) error {
		return long(out, command{args: append([]string{"go", "test"}, args...), show: show, last: last})
	}}
}

func only(lines string) *regexp.Regexp { return regexp.MustCompile(lines) }

// results matches all lines of go test -v except those that report that a test begins or
// continues.
var results = only(`^([^=]|=[^=]|==[^=]|===[^ ])`)

// consumer returns a step that runs an example end to end on local servers.
func consumer(stream string) step {
	return step{"a consumer of " + stream + " on local servers, end to end", func(out io.Writer) error {
		return long(out, command{
			dir: "examples/" + stream, show: results, last: 30,
			args: []string{"./run-local", "go", "test", "-count=1", "-run", "EndToEnd", "-timeout", "8m", "-v", "."},
		})
	}}
}

// inRealTime are the packages of integration that measure time. Nothing runs beside them.
var inRealTime = []string{"report", "workers"}

// raceModule tests a module with the race detector, without its calm packages, the simulator, and a test that runs
// go test, without the detector, for examples. The processes have a longer lease, because the detector makes
// everything several times slower.
func raceModule(out io.Writer, dir string) error {
	list, err := inModule(dir, "go", "list", "./...").output(out)
	if err != nil {
		return err
	}
	rooms, alone := []string{"-shuffle=on", "-skip", "TestExamplesOnDynamoDB"}, []string{"-shuffle=on", "-p", "1"}
	for pkg := range strings.Lines(list) {
		pkg = strings.TrimSpace(pkg)
		switch name := path.Base(pkg); {
		case isCalm(pkg), name == path.Base(simulator), name == path.Base(processes):
		case dir == integration && slices.Contains(inRealTime, name):
			alone = append(alone, pkg)
		default:
			rooms = append(rooms, pkg)
		}
	}
	if err := race(out, dir, rooms...); err != nil || dir != integration {
		return err
	}
	if err := race(out, dir, alone...); err != nil {
		return err
	}
	return race(out, dir, "-shuffle=on", "./processes", "-process.ttl", "3s", "-timeout", "20m")
}

func isCalm(pkg string) bool {
	return slices.ContainsFunc(calm, func(name string) bool { return pkg == root+"/"+name })
}

// vulnerabilities checks whether the modules reach known vulnerabilities. It is not in
// fast, because a vulnerability that was published last night is not the fault of a pull
// request.
func vulnerabilities(modules []string) step {
	scan := each("govulncheck", modules, "go", "run", govulncheck, "./...")
	return step{scan.name, func(out io.Writer) error {
		client := http.Client{Timeout: 10 * time.Second}
		answer, err := client.Head("https://vuln.go.dev/index/db.json")
		if err != nil {
			fmt.Fprintln(out, "not checked:", err)
			return nil
		}
		_ = answer.Body.Close()
		return scan.do(out)
	}}
}

// fuzz runs each fuzz test of the modules for the time each.
func fuzz(each string, modules []string) step {
	return step{"fuzzing, " + each + " each", func(out io.Writer) error {
		found := 0
		for _, dir := range modules {
			all, err := targets(out, dir)
			if err != nil {
				return err
			}
			for _, t := range all {
				found++
				if err := t.fuzz(out, dir, each); err != nil {
					return err
				}
			}
		}
		if found == 0 {
			return errors.New("no fuzz test found")
		}
		return nil
	}}
}

// A target is a fuzz test.
type target struct{ pkg, name string }

// fuzz runs the target for the time each. The fuzzing of Go before 1.27 can report the end
// of that time as a failure of its own (go.dev/issue/75804). A run that ends so has found
// nothing and proves nothing, so fuzz repeats it, at most twice.
func (t target) fuzz(out io.Writer, dir, each string) error {
	for attempt := 1; ; attempt++ {
		run := inModule(dir, "go", "test", "-run", "xxx", "-fuzz", "^"+t.name+"$", "-fuzztime", each, t.pkg)
		text, err := run.run(out)
		if err == nil || attempt == 3 || !outOfTime(t.name, text) {
			return err
		}
		fmt.Fprintln(out, "repeated: the run ended by Go's own deadline, go.dev/issue/75804")
	}
}

// outOfTime reports whether the only thing that the output of a fuzz test complains about is
// the end of its time.
func outOfTime(name, text string) bool {
	_, failure, failed := strings.Cut(text, "--- FAIL: "+name+" (")
	_, failure, _ = strings.Cut(failure, "\n")
	return failed && strings.HasPrefix(failure, "    context deadline exceeded\nFAIL\n")
}

var fuzzTest = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// targets returns the fuzz tests of a module. It searches the source, because go test -list links the tests of
// every package.
func targets(out io.Writer, dir string) (found []target, err error) {
	list, err := inModule(dir, "go", "list", "-f", "{{.ImportPath}} {{.Dir}}", "./...").output(out)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		pkg, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, name := range fuzzTest.FindAllSubmatch(src, -1) {
				found = append(found, target{pkg, string(name[1])})
			}
		}
	}
	return found, nil
}
