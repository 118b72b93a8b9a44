package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// benchmarks are what the command profiles: the package and the benchmark of each.
var benchmarks = map[string][2]string{
	"commit": {"./dynamostore", "BenchmarkCommit/whole$"},
	"write":  {"./dynamostore", "BenchmarkWrite"},
	"mark":   {"./shardlease", "BenchmarkMarkOnAWorker"},
	"plan":   {"./rebalance", "BenchmarkPlan"},
}

// profile runs a benchmark, and prints which functions use the processor and make allocations, each with what it calls.
func profile(out io.Writer, what string) (err error) {
	at, ok := benchmarks[what]
	if !ok {
		return fmt.Errorf("no benchmark has the name %q", what)
	}
	dir, err := os.MkdirTemp("", "shardlease-profile-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cpu, memory, program := filepath.Join(dir, "cpu"), filepath.Join(dir, "memory"), filepath.Join(dir, "program")
	bench := func(more ...string) []string {
		return append([]string{"go", "test", at[0], "-run", "^$", "-bench", at[1], "-benchtime", "3s", "-o", program}, more...)
	}
	for _, args := range [][]string{
		bench("-cpuprofile", cpu),
		bench("-memprofile", memory, "-memprofilerate", "1"), // apart: to note each allocation costs more than the commit
		{"go", "tool", "pprof", "-top", "-cum", "-nodecount", "40", program, cpu},
		{"go", "tool", "pprof", "-sample_index=alloc_objects", "-top", "-cum", "-nodecount", "40", program, memory},
	} {
		if _, err := (command{args: args}).run(out); err != nil {
			return err
		}
	}
	return nil
}
