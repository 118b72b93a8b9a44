// Package mutants breaks the rules of the protocol one at a time, on purpose, and
// checks that the test which guards the rule notices. A test that cannot fail
// promises nothing.
//
//	go test ./internal/mutants -mutants -v
//
// Each mutant is a small edit of one file, compiled through an overlay: the
// working tree is never touched.
package mutants
