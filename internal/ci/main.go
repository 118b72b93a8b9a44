// Command ci runs the checks and tests that must pass. Run it in the root of the
// repository:
//
//	go run ./internal/ci fast            what must pass for a pull request: up to six minutes
//	go run ./internal/ci full            what must pass on main: three quarters of an hour
//	go run ./internal/ci nightly         the long runs: some hours
//	go run ./internal/ci measure PKG…    the size of packages
//
// The command exits with code 1 after the first step that fails. A suite that skips its
// tests fails: the tests against DynamoDB Local need a Docker engine, or DYNAMODB_ENDPOINT,
// and the test of a full screen needs tmux. On a bare machine .ci/run first installs both, runs
// the commands of the README, and then this command.
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
	plans := map[string]func(modules []string) []step{"fast": fast, "full": full, "nightly": nightly}
	switch {
	case len(args) > 1 && args[0] == "measure":
		return measure(os.Stdout, args[1:])
	case len(args) != 1 || plans[args[0]] == nil:
		return fmt.Errorf("usage: go run ./internal/ci fast|full|nightly, or go run ./internal/ci measure PKG…")
	}
	modules, err := modules(".")
	if err != nil {
		return err
	}
	// Tests that need DynamoDB Local or tmux then fail without it, and are not skipped.
	for _, name := range []string{"SHARDLEASE_REQUIRE_DYNAMODB", "SHARDLEASE_REQUIRE_TMUX"} {
		if err := os.Setenv(name, "1"); err != nil {
			return err
		}
	}
	return perform(os.Stdout, plans[args[0]](modules))
}
