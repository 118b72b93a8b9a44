// Package mutants breaks the rules of the protocol on purpose, one at a time, and checks
// that the test of the rule then fails. A test that cannot fail promises nothing.
//
//	go test ./internal/proof/mutants -mutants -v
//
// Each mutant names a function and an operator: make a condition never true, drop an
// operand, delete a statement, or replace an expression or statements by others. So a
// mutant still works after its function was moved to another file, and after most renames.
// All are compiled at once, through an overlay: the working tree is never changed. A mutant is a
// copy of its function, which is called instead if SHARDLEASE_MUTANT has the mutant's number.
package mutants
