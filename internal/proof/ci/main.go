// Command ci runs the checks and tests that must pass. Run it in the root of the
// repository:
//
//	go run ./internal/proof/ci fast                    what must pass for a pull request
//	go run ./internal/proof/ci full                    what must pass on main: proof, source and servers, one after the other
//	go run ./internal/proof/ci proof|source|servers    one part of full; servers needs root, on a Debian machine with Go, Node and Java
//	go run ./internal/proof/ci nightly                 the long runs: some hours
//	go run ./internal/proof/ci measure                 what is beyond a limit of size; the sizes of all folders
//	go run ./internal/proof/ci profile commit          where the time and the allocations of a commit go; or of write, mark or plan
//
// CONTRIBUTING.md has the minutes of each. The command exits with code 1 after the first step that fails. A suite that
// skips its tests fails. The results at the end name what was not checked because there is no network.
//
// It is a Go program and not a Makefile, because it evaluates the output of the tests:
// whether they were skipped, and whether the race detector itself crashed.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := ci(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ci(args []string) error {
	plans := map[string]func(modules []string) []step{
		"fast": fast, "full": full, "proof": proof, "source": source, "servers": servers, "nightly": nightly,
	}
	switch write := len(args) == 2 && args[1] == "-write"; {
	case len(args) > 0 && args[0] == "measure" && (len(args) == 1 || write):
		return measure(os.Stdout, ".", write)
	case len(args) == 2 && args[0] == "profile":
		return profile(os.Stdout, args[1])
	case len(args) != 1 || plans[args[0]] == nil:
		return fmt.Errorf("usage: go run ./internal/proof/ci fast|full|proof|source|servers|nightly, go run ./internal/proof/ci measure [-write], or go run ./internal/proof/ci profile commit|write|mark|plan")
	}
	if err := os.Setenv("CI", "true"); err != nil { // tests that need the history of main then fail without it
		return err
	}
	modules, err := modules(".")
	if err != nil {
		return err
	}
	return perform(os.Stdout, plans[args[0]](modules))
}
