// Command release prepares what the users of this repository's modules get. Run it in the root of the repository:
//
//	go run ./internal/release require            the newest commit on main
//	go run ./internal/release require COMMIT     this commit, or one before it
//
// It writes into the go.mod of each nested module which version of the root module it requires: the pseudo-version of
// the newest commit on main against which the module compiles. In this repository a replace overrules the requirement.
// For users it holds, because the go command ignores the replace of a module that is not the main module.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := release(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func release(args []string) error {
	if len(args) == 0 || args[0] != "require" || len(args) > 2 {
		return errors.New("usage: go run ./internal/release require [COMMIT]")
	}
	r := repository{"."}
	from, err := r.published()
	if len(args) == 2 {
		from, err = r.git("rev-parse", "--verify", args[1]+"^{commit}")
	}
	if err != nil {
		return err
	}
	return require(os.Stdout, r, from)
}
