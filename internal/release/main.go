// Command release sets the version of the root module that nested modules require. Run it in the root of the repository:
//
//	go run ./internal/release require            the newest commit on main
//	go run ./internal/release require COMMIT     this commit, or one before it
//
// The version is the pseudo-version of the newest commit on main against which the nested module compiles. In this
// repository a replace overrules the requirement. It is made for users: the go command ignores the replace of a module
// that is not the main module.
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
