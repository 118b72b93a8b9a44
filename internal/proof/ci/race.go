package main

import (
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
)

// calm are packages that start no goroutine and import no package that does: TestCalmPackages checks that. The race
// detector makes their tests ten times slower, and can find nothing there except data that parallel tests share, so
// only the nightly run uses it.
var calm = []string{
	"internal/digest", "internal/engine", "internal/handoff", "internal/proof/docs", "internal/proof/draw", "internal/proof/explore",
	"internal/proof/imports", "internal/proof/judge", "internal/proof/mutants", "internal/proof/scale", "internal/proof/storm",
	"internal/proof/transcript", "internal/proof/virtual", "internal/protocol", "internal/release", "rebalance", "shardlease/event",
	"shardlease/fence", "shardlease/lease",
}

// raceModule tests a module with the race detector. Of the root module, it leaves out the calm packages and the
// simulator.
func raceModule(out io.Writer, dir string) error {
	packages, err := packagesOf(out, dir, func(name string) bool {
		return dir != "." || name != simulator && !slices.Contains(calm, path.Clean(name))
	})
	if err != nil {
		return err
	}
	return race(out, dir, append([]string{"-shuffle=on"}, packages...)...)
}

// raceIntegration tests integration with the race detector, without the test that runs go test for the examples. The
// processes have a longer lease time, because the detector makes everything several times slower.
func raceIntegration(out io.Writer) error {
	packages, err := withoutProcesses(out)
	if err != nil {
		return err
	}
	if err := race(out, integration, append([]string{"-shuffle=on", "-p", "1", "-skip", "TestExamplesOnDynamoDB", "-timeout", "30m"}, packages...)...); err != nil {
		return err
	}
	return race(out, integration, "-shuffle=on", "-timeout", "30m", "./processes", "-process.ttl", "3s")
}

// withoutProcesses returns the packages of integration except processes, whose tests need flags of their own.
func withoutProcesses(out io.Writer) ([]string, error) {
	return packagesOf(out, integration, func(name string) bool { return name != "./processes" })
}

// race runs tests with the race detector. Sometimes the detector itself crashes when a
// timer of a fake clock fires (compare go.dev/issue/78156): once or twice in a hundred runs
// of internal/proof/story. A package in which only that happened is tested once more.
func race(out io.Writer, dir string, args ...string) error {
	test := func(args []string) (string, error) {
		return inModule(dir, append([]string{"go", "test", "-race", "-vet=off"}, args...)...).run(out)
	}
	text, err := test(args)
	if packages := crashed(text); err != nil && packages != nil {
		fmt.Fprintln(out, "the race detector crashed: testing these packages again")
		_, err = test(packages)
	}
	return err
}

var (
	crash      = regexp.MustCompile(`(?m)^SIGSEGV`)
	inBubble   = regexp.MustCompile(`(?m)^goroutine 0 .*synctest bubble`)
	elseFailed = regexp.MustCompile(`(?m)^ *--- FAIL|DATA RACE|^panic:|^fatal error|^goleak`)
	failedLine = regexp.MustCompile(`(?m)^FAIL\t(\S+)`)
)

// crashed returns the packages that failed because the race detector crashed, if nothing else
// failed.
func crashed(text string) (packages []string) {
	if !crash.MatchString(text) || !inBubble.MatchString(text) || elseFailed.MatchString(text) {
		return nil
	}
	for _, line := range failedLine.FindAllStringSubmatch(text, -1) {
		packages = append(packages, line[1])
	}
	return packages
}
