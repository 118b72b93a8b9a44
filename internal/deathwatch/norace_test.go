//go:build !race

package deathwatch

const raceEnabled = false
