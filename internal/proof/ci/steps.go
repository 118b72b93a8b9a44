package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
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

// The path of the root module, and the folders of other modules.
const (
	root        = "github.com/shardlease/shardlease-go"
	integration = "integration"
	program     = "shardlease/cmd/shardlease"
	kinesis     = "shardlease/kinesis"
)

// The packages of the long suites.
const (
	transitions = "./internal/proof/storm"
	interleaved = "./internal/proof/explore"
	engines     = "./internal/engine"
	simulator   = "./internal/proof/sim"
	largeFleets = "./internal/proof/scale"
	broken      = "./internal/proof/mutants"
	releases    = "./internal/release"
	judged      = "./shardlease/kinesis/internal/endtoend"
	histories   = "./integration/histories"
	processes   = "./integration/processes"
	onDynamoDB  = "./integration/store"
	inWorkers   = "./integration/workers"
)

// realTime matches the tests of integration that check bounds in real time, without those of processes.
const realTime = "^(TestWorkerLife|TestOutageOnDynamoDB|TestLateCommitIsRefusedByDynamoDB|TestCommitLoad|TestColdStart|" +
	"TestThrottledForHalfALease|TestWhatLookingCosts)$"

// streams are the consumers of examples.
var streams = []string{"kinesis", "dynamodbstreams"}

// sampled are the packages of the root module in which tests at full size have found no fault. Only the nightly run has
// that size.
var sampled = []string{transitions, interleaved, engines, releases, "./dynamostore", "./rebalance", "./shardlease"}

// fast returns the steps that must pass for a pull request.
func fast(modules []string) []step {
	return append(checks(modules), fixes(modules), versions, each("go test", modules, "go", "test", "./..."))
}

// full returns the steps that must pass on main. The three parts run side by side in .github/workflows.
func full(modules []string) []step {
	return slices.Concat(proof(modules), source(modules), servers(modules))
}

// proof returns the README's commands, and then the suites that attack the library in virtual time. The suites that have
// found faults run at full size; the explorers and storms, which have found none, do so every night.
func proof([]string) []step {
	return []step{
		{"the README's commands: go run ./examples/quickstart, go test ./...", func(out io.Writer) error {
			quickstart := command{args: []string{"go", "run", "./examples/quickstart"}, show: results, last: 8}
			if _, err := quickstart.run(out); err != nil {
				return err
			}
			_, err := command{args: []string{"go", "test", "./..."}}.run(out)
			return err
		}},
		{"the root module at full size, without what only the nightly run has at full size", func(out io.Writer) error {
			packages, err := packagesOf(out, ".", func(name string) bool { return !slices.Contains(sampled, name) })
			if err != nil {
				return err
			}
			// A package whose tests do not ask for the size has just been tested, and go test knows its result.
			_, err = command{long: true, args: append([]string{"go", "test"}, packages...)}.run(out)
			return err
		}},
		sample("exploration of transitions, 7,500 states a story", `states|FAIL|ok`,
			transitions, "-run", "TestExplore", "-explore.states", "7500", "-v"),
		sample("the real engines in every interleaving, up to 1,500 states a story", `FAIL|^ok`,
			interleaved, "-explore.states", "1500", "-v"),
		sample("storm, 10 seeds", `writes stored|FAIL|^ok`,
			transitions, "-run", "TestStorm$", "-storm.rounds", "10", "-v"),
		test("the simulator: real engines in bad weather, until each kind of fault has happened 100 times", results, 12,
			simulator, "-run", "Rounds", "-sim.commits", "1000000", "-sim.each", "100", "-timeout", "20m", "-v"),
		test("fleets of 100 workers, held to their bounds", results, 12,
			largeFleets, "-run", "TestBounds", "-scale.sizes", "10000x100", "-v"),
		sample("the consumer of Kinesis end to end, in memory, 10,000 records", `records|FAIL|^ok`,
			judged, "-run", "TestEndToEnd", "-endtoend.records", "10000", "-v"),
		test("mutants", only(`mutants killed|FAIL|^ok|does not`), 0, broken, "-mutants", "-v", "-timeout", "20m"),
	}
}

// source returns the steps that check the source, and the tests with the race detector. Only the nightly run uses the
// detector for the other modules: integration tests code that other packages test too, and the rest, which have few
// goroutines of their own, take minutes to compile for it. The tests of the command need a terminal, so they are in servers.
func source(modules []string) []step {
	consumers := []string{"examples/dynamodbstreams", "examples/kinesis", kinesis}
	others := slices.DeleteFunc(slices.Clone(modules), func(dir string) bool {
		return slices.Contains(append(consumers, ".", integration, program), dir)
	})
	return append(checks(modules),
		vulnerabilities(modules), versions,
		inEach("race detector, shuffled: the root module", []string{"."}, raceModule),
		inEach("race detector, shuffled: the consumers", consumers, raceModule),
		each("go test: the other small modules", others, "go", "test", "-vet=off", "./..."), // vetted in checks
	)
}

// servers returns the steps that need DynamoDB Local, PostgreSQL, Kinesis or a terminal. Its first step installs and
// starts the servers. The tests that check bounds in real time have the machine for themselves.
func servers([]string) []step {
	return []step{
		provide,
		beside("the command and the consumers, side by side",
			each("go test: "+program, []string{program}, "go", "test", "-count=1", "-vet=off", "./..."),
			consumers(streams[night()%2]), // on alternate days, because each takes minutes; the nightly run has both
			step{"the consumer of Kinesis end to end, on kinesis-local", func(out io.Writer) error {
				return suite(out, command{dir: "examples/kinesis", own: true, show: results, last: 12, args: []string{
					"./run-local", "go", "-C", "../../shardlease/kinesis", "test", "-count=1", "-vet=off", "./internal/endtoend", "-run", "TestKinesisLocal", "-v"}})
			}},
		),
		{"integration, without processes, histories and bounds in real time", func(out io.Writer) error {
			packages, err := packagesOf(out, integration, func(name string) bool { return name != "./processes" && name != "./histories" })
			if err != nil {
				return err
			}
			_, err = inModule(integration, append([]string{"go", "test", "-count=1", "-vet=off", "-skip", realTime}, packages...)...).run(out)
			return err
		}},
		test("histories on DynamoDB Local, 8,000 operations", only(`operations|FAIL|^ok`), 0, histories, "-history.ops", "8000", "-v"),
		test("integration: bounds in real time", only(`^ *---|FAIL|^ok`), 0,
			"-p", "1", onDynamoDB, inWorkers, "-run", realTime, "-v"),
		test("a listing of 10,000 shards", only(`ms|FAIL|^ok`), 0, "./"+program, "-run", "TestLargeGroup", "-v"),
		test("processes, 12 killed and 12 frozen, in a group with buckets", results, 15,
			processes, "-skip", "TestProcesses$|TestProcessWorker|TestZombieProcess|Soak|TestDeathwatch|TestRecords", "-v", "-process.kills", "12", "-process.stops", "12", "-timeout", "20m"),
		test("processes with a deathwatch, 6 times killed", results, 8,
			processes, "-run", "TestDeathwatch$", "-v", "-process.ttl", "10s", "-process.deaths", "6", "-timeout", "20m"),
	}
}

// provide installs and starts what the tests need, on a bare Debian machine as root.
var provide = step{"a Docker engine, DynamoDB Local for it, PostgreSQL, tmux, and Prometheus", func(out io.Writer) error {
	for _, script := range []string{"start-docker", "provide-tmux", "provide-prometheus", "provide-image", "start-postgres"} {
		if _, err := (command{args: []string{integration + "/" + script}}).run(out); err != nil {
			return err
		}
	}
	for name, value := range map[string]string{
		// Tests that need a server or a terminal then fail without it, and are not skipped.
		"SHARDLEASE_REQUIRE_DYNAMODB": "1", "SHARDLEASE_REQUIRE_POSTGRES": "1", "SHARDLEASE_REQUIRE_TMUX": "1",
		"SHARDLEASE_REQUIRE_PROMETHEUS": "1",
		"SHARDLEASE_POSTGRES":           "postgres://postgres@127.0.0.1:54329/postgres?sslmode=disable",
		// A machine that looks like a container to testcontainers reaches what it starts
		// on its own loopback. The tests terminate their containers themselves.
		"TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1", "TESTCONTAINERS_RYUK_DISABLED": "true",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}}

// night returns the number of days since the beginning of 2026.
func night() int { return int(time.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Hours() / 24) }

// nightly returns the steps that take hours. Each night uses seeds of its own; a failure
// prints the seed, and every command is printed before it runs.
func nightly(modules []string) []step {
	seed := func(n int) string { return fmt.Sprint(n * night()) }
	return []step{
		provide, fixes(modules),
		{"every test of the root module at full size", func(out io.Writer) error {
			_, err := command{long: true, args: []string{"go", "test", "-count=1", "-timeout", "60m", "./..."}}.run(out)
			return err
		}},
		{"race detector, shuffled: the calm packages and the simulator", func(out io.Writer) error {
			args := []string{"-shuffle=on", "-timeout", "60m", simulator}
			for _, name := range calm {
				args = append(args, "./"+name)
			}
			return race(out, ".", args...)
		}},
		{"integration at full size, one package after the other, without processes", func(out io.Writer) error {
			packages, err := withoutProcesses(out)
			if err != nil {
				return err
			}
			_, err = command{dir: integration, own: true, long: true, args: append([]string{"go", "test", "-count=1", "-p", "1", "-timeout", "20m"}, packages...)}.run(out)
			return err
		}},
		test("the measurements of docs/measurements.md, each once", only(`^ *---|FAIL|^ok`), 0, "./integration/report", "-run", "TestReport$", "-report.quick", "-timeout", "20m", "-v"),
		{"the command at full size", func(out io.Writer) error {
			_, err := command{dir: program, own: true, long: true, args: []string{"go", "test", "-count=1", "-timeout", "20m", "./..."}}.run(out)
			return err
		}},
		{"the consumer of Kinesis at full size", func(out io.Writer) error {
			_, err := command{dir: kinesis, own: true, long: true, args: []string{"go", "test", "-count=1", "-timeout", "20m", "./..."}}.run(out)
			return err
		}},
		{"the consumer of Kinesis on kinesis-local", func(out io.Writer) error {
			return suite(out, command{dir: kinesis, own: true, show: results, last: 12, args: []string{
				"../../examples/kinesis/run-local", "go", "test", "-count=1", ".", "./internal/stream", "-run", "OnKinesisLocal", "-v"}})
		}},
		{"race detector, shuffled: integration", raceIntegration},
		inEach("race detector, shuffled: the small modules", slices.DeleteFunc(slices.Clone(modules), func(dir string) bool {
			return dir == "." || dir == integration
		}), raceModule),
		test("two methods of the store fail at the same time, 100 pairs", results, 12,
			engines, "-run", "TestAttackPairs", "-attack.pairs", "100", "-attack.seed", seed(1), "-timeout", "60m", "-v"),
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
		test("the consumer of Kinesis end to end, in memory, 100,000 records", results, 12,
			judged, "-run", "TestEndToEnd", "-endtoend.seed", seed(1), "-timeout", "20m", "-v"),
		test("large fleets", results, 60, largeFleets, "-run", "TestScale$", "-scale", "-timeout", "2h", "-v"),
		test("all workers sick for half an hour", results, 12, engines, "-run", "TestAllSick", "-sick.for", "30m", "-v"),
		test("storm, 1,000 seeds", results, 12,
			transitions, "-run", "TestStorm$", "-storm.rounds", "1000", "-storm.seed", seed(1_000), "-timeout", "60m", "-v"),
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
		consumers(streams...),
		fuzz("2m", modules),
		// dynalite shares no code with DynamoDB Local. It has no transactions, so TestFence is left out.
		{"the store's contract on dynalite", func(out io.Writer) error {
			return suite(out, command{long: true, show: results, last: 12, args: []string{
				integration + "/start-dynalite", "go", "test", onDynamoDB, "-run", "TestStore$|TestSameAsInMemory|TestStorm$", "-v"}})
		}},
	}
}

// checks returns the steps that check the source.
func checks(modules []string) []step {
	return []step{
		{"gofmt", command{args: []string{"gofmt", "-l", "."}}.silent},
		{"measure", func(out io.Writer) error { return measure(out, ".", false) }},
		each("go vet", modules, "go", "vet", "./..."),
		each("go mod tidy", modules, "go", "mod", "tidy", "-diff"),
		each("staticcheck", modules, "go", "run", staticcheck, "./..."),
		// Without shellcheck, which some machines lack: the result should be the same on all.
		{"actionlint", command{args: []string{"go", "run", actionlint, "-shellcheck=", "-pyflakes="}}.silent},
	}
}

// fixes returns a step that checks whether the source uses what the newest Go offers. It takes a minute and finds no fault,
// so only pull requests and the nightly run have it.
func fixes(modules []string) step {
	return inEach("go fix", modules, func(out io.Writer, dir string) error {
		return inModule(dir, "go", "fix", "-diff", "./...").silent(out)
	})
}

// vulnerabilities returns a step that checks whether the modules reach known vulnerabilities. The plan fast does
// without, because a vulnerability that was published last night is not the fault of a pull request.
func vulnerabilities(modules []string) step {
	scan := each("govulncheck", modules, "go", "run", govulncheck, "./...")
	return step{scan.name, func(out io.Writer) error {
		client := http.Client{Timeout: 10 * time.Second}
		answer, err := client.Head("https://vuln.go.dev/index/db.json")
		if err != nil {
			return unchecked(err.Error())
		}
		_ = answer.Body.Close()
		return scan.do(out)
	}}
}

// versions checks which versions a user's program gets. The test fetches them, and skips itself if that is not possible.
var versions = step{"the versions that users keep", func(out io.Writer) error {
	text, err := command{args: []string{"go", "test", "-count=1", "-vet=off", releases, "-run", "TestUsersKeepTheirVersions", "-v"}, show: results}.run(out)
	if err == nil {
		if why := skipped(text); why != nil {
			return unchecked(why.Error())
		}
	}
	return err
}}

// each returns a step that runs a command in every module.
func each(name string, modules []string, args ...string) step {
	return inEach(name, modules, func(out io.Writer, dir string) error {
		_, err := inModule(dir, args...).run(out)
		return err
	})
}

// inEach returns a step that calls do for every module.
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

// test returns the step of one suite at full size. The step prints the lines that match show: the last ones, if last is
// positive, or else all.
func test(name string, show *regexp.Regexp, last int, args ...string) step {
	return step{name, func(out io.Writer) error {
		return suite(out, command{long: true, args: append([]string{"go", "test", "-count=1"}, args...), show: show, last: last})
	}}
}

// sample returns the step of one suite, not at full size: the arguments set the size.
func sample(name, show string, args ...string) step {
	return step{name, func(out io.Writer) error {
		return suite(out, command{args: append([]string{"go", "test"}, args...), show: only(show)})
	}}
}

func only(lines string) *regexp.Regexp { return regexp.MustCompile(lines) }

// results matches all lines of go test -v except those that report that a test begins or
// continues.
var results = only(`^([^=]|=[^=]|==[^=]|===[^ ])`)

// consumers returns a step that runs the tests of the consumers on local servers, also those of their sinks, which are
// skipped without these servers. For the streams in turn it also runs the consumer end to end.
func consumers(turn ...string) step {
	return inEach("the consumers on local servers, end to end: "+strings.Join(turn, ", "), streams, func(out io.Writer, stream string) error {
		args := []string{"./run-local", "go", "test", "-count=1", "-vet=off", "-p", "1", "-timeout", "10m", "-v"}
		if !slices.Contains(turn, stream) {
			args = append(args, "-skip", "EndToEnd")
		}
		return suite(out, command{dir: "examples/" + stream, own: true, show: results, last: 30, args: append(args, "./...")})
	})
}
