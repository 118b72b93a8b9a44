//go:build race

package deathwatch

const raceEnabled = true // the race detector needs memory of its own for each goroutine
