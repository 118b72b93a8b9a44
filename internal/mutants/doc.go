// Package mutants breaks the rules of the protocol one at a time, on purpose, and
// checks that the test which guards the rule notices. A test that cannot fail
// promises nothing.
//
//	go test ./internal/mutants -mutants -v
//
// Each mutant names a function and an operator: make a condition never true, drop an operand,
// delete a statement, or replace an expression or statements by others. So moving a function to
// another file breaks no mutant, and neither do most renames. The mutated file is compiled
// through an overlay: the working tree is never touched.
package mutants
