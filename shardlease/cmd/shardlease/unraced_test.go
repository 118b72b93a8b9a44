//go:build !race

package main

// raced: the race detector makes the tests several times slower, so they measure no times.
const raced = false
