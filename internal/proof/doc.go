// Package proof is empty. The packages below it prove the library, and no program of a user links them:
//
//	sim, explore, storm, scale   worlds: real engines in simulated weather and in every interleaving, writers of a table in
//	                             every order, and large fleets against the limits of a table
//	virtual, judge, fixture      what these worlds and the tests share: hosts of engines, the checks of promises, data
//	transcript, story            conversations of real engines, recorded; the story that the demo tells
//	mutants                      breaks each rule once, and looks which test fails
//	board                        alerts and a dashboard for the metrics of a fleet, which draw writes to docs/deploy
//	imports, docs, draw, ci      what checks the source and the pages, draws the pictures, and runs all of it
//
// What is shipped is in the folders beside it: engine and protocol first.
package proof
