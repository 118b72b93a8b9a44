//go:build !race

package inspect_test

// raced: the race detector makes the tests several times slower, so they measure no times.
const raced = false
