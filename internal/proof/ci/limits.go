package main

import (
	"fmt"
	"slices"
)

// A kind is what a limit bounds.
type kind string

const (
	methods  kind = "methods"         // of a type; those of tests too
	length   kind = "lines"           // of a function
	fileSize kind = "lines of a file" // of Go
	surface  kind = "exported names"  // of a package: types, functions, constants and variables
	words    kind = "words"           // of a page
	pageSize kind = "lines of a page"
)

// A thing is something of which a kind is counted.
type thing struct {
	kind kind
	name string // such as internal/engine.Engine, internal/engine_test.fleet for a type of tests, or docs/design.md
}

// A limit is the largest count that a thing may have. A limit without a name holds for all things of its kind that have
// no limit of their own.
type limit struct {
	thing
	most int
}

// limits are all limits of size, each with some slack. CONTRIBUTING.md says how to raise one.
var limits = []limit{
	{thing{methods, ""}, 45},
	{thing{methods, "internal/engine.Engine"}, 37}, // a rule belongs into a part of the engine: the spine sees all of them
	{thing{length, ""}, 70},
	{thing{fileSize, ""}, 700},
	{thing{surface, "checkpoint"}, 21},
	{thing{surface, "rebalance"}, 26},
	{thing{surface, "shardlease"}, 45},
	{thing{surface, "shardlease/event"}, 48}, // without slack, as that of inspect: the first release should have fewer
	{thing{surface, "shardlease/inspect"}, 84},
	{thing{surface, "shardlease/lease"}, 101},
	{thing{surface, "shardlease/storetest"}, 10},
	{thing{words, "docs/design.md"}, 2250},
	{thing{words, "docs/planning.md"}, 1900},
	{thing{words, "docs/reliability.md"}, 975},
	{thing{pageSize, "README.md"}, 110},
}

// exceeded returns what is beyond its limit, and which limits are for nothing that exists.
func exceeded(counts map[thing]int, limits []limit) (faults []string) {
	most := map[thing]int{}
	for _, l := range limits {
		most[l.thing] = l.most
		if l.name != "" && counts[l.thing] == 0 {
			faults = append(faults, fmt.Sprintf("%s: there is a limit of its %s, and it has none", l.name, l.kind))
		}
	}
	for of, n := range counts {
		bound, own := most[of]
		if !own {
			bound, own = most[thing{kind: of.kind}]
		}
		if own && n > bound {
			faults = append(faults, fmt.Sprintf("%s: %d %s, at most %d are allowed", of.name, n, of.kind, bound))
		}
	}
	slices.Sort(faults)
	return faults
}
