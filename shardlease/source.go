package shardlease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Shard is one part of a stream, as the source lists it.
type Shard struct {
	Name string
	// Parents are the shards that this one continues. Its handler starts when all of them
	// are finished. A parent that is not listed counts as finished: at once if it has no lease
	// row, otherwise when its handler has wound down ([Config.KeepUnlisted]).
	Parents []string
	// Weight is the load of the shard, for a planner that uses it; rebalance.Even ignores it
	// and counts shards.
	Weight int
}

// A Source lists the shards of a stream. A worker calls its own source, on a goroutine of its
// own, one call at a time; above eight workers usually only one of them does ([Config.PollEvery]).
//
// A listing without an error must be complete: of the shards that are missing from two listings
// in a row, finished ones are removed, and the handlers of the others wind down. If a source
// cannot list all shards, it must return an error; with the error it may return those that it
// could list.
//
// Shards must return soon after its context has ended, because Run waits for it.
type Source interface {
	Shards(ctx context.Context) ([]Shard, error)
}

// A SourceFunc is a function that implements [Source].
type SourceFunc func(ctx context.Context) ([]Shard, error)

// Shards calls f.
func (f SourceFunc) Shards(ctx context.Context) ([]Shard, error) { return f(ctx) }

// Static returns a source whose shards never change. [New] checks them.
func Static(names ...string) Source {
	shards := make(static, len(names))
	for i, name := range names {
		shards[i] = Shard{Name: name}
	}
	return shards
}

type static []Shard

func (s static) Shards(context.Context) ([]Shard, error) { return slices.Clone(s), nil }

// A SourceError describes a fault of a listing: which shards it concerns, and the rule that
// they break.
type SourceError struct {
	Shards []string // the names of the shards, sorted; empty if there is no listing
	Rule   string
	Err    error
}

func (e *SourceError) Error() string {
	if e == nil {
		return "<nil>"
	}
	text := "source"
	if len(e.Shards) > 0 {
		const most = 5
		names := make([]string, min(len(e.Shards), most))
		for i := range names {
			names[i] = fmt.Sprintf("%.64q", e.Shards[i])
		}
		text += ": " + strings.Join(names, ", ")
		if more := len(e.Shards) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	if e.Rule != "" {
		text += ": " + e.Rule
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// listSource calls the source and returns the shards that are valid, as the input of the
// engine. With empty, a listing without shards is valid.
func listSource(ctx context.Context, source Source, empty bool) engine.Source {
	var shards []Shard
	_, err := guard(func() (err error) {
		shards, err = source.Shards(ctx)
		return err
	})
	return listing(shards, err, empty)
}

// listing turns the answer of a source into the input of the engine, without the shards
// that are not valid.
//
// Invariant: a listing with any fault is not complete. It may add shards, but a shard that is
// missing from it is not treated as gone.
func listing(shards []Shard, err error, empty bool) engine.Source {
	answered := err == nil
	if !answered {
		err = &SourceError{Rule: "cannot be listed", Err: err}
	}
	good, fault := sift(shards)
	if err == nil && len(shards) == 0 && !empty {
		fault = &SourceError{Err: ErrNoShards}
	}
	err = errors.Join(err, fault)
	return engine.Source{Shards: good, Complete: err == nil, Answered: answered, Err: err}
}

// A sieve separates the valid shards of a listing from the others.
type sieve struct {
	shards   map[string]engine.Shard
	rejected map[string]bool // the listed shards that are not valid
	faults   map[string][]string
	order    []string // the broken rules, in the order in which they were found
}

// sift returns the valid shards of a listing, sorted, and an error that describes the
// others.
//
// The descendants of a rejected shard are rejected too: the engine treats a parent that is
// not listed as finished, so they would start before it.
func sift(listing []Shard) ([]engine.Shard, error) {
	s := sieve{shards: map[string]engine.Shard{}, rejected: map[string]bool{}, faults: map[string][]string{}}
	for _, shard := range listing {
		s.add(shard)
	}
	for _, name := range s.cycles() {
		s.reject(name, "are each other's ancestors")
	}
	s.rejectDescendants()
	var errs []error
	for _, rule := range s.order {
		names := slices.Compact(slices.Sorted(slices.Values(s.faults[rule])))
		errs = append(errs, &SourceError{Shards: names, Rule: rule})
	}
	good := make([]engine.Shard, 0, len(s.shards))
	for _, name := range slices.Sorted(maps.Keys(s.shards)) {
		if !s.rejected[name] {
			good = append(good, s.shards[name])
		}
	}
	return good, errors.Join(errs...)
}

// report records that a shard breaks a rule.
func (s *sieve) report(name, rule string) {
	if s.faults[rule] == nil {
		s.order = append(s.order, rule)
	}
	s.faults[rule] = append(s.faults[rule], name)
}

// reject records that a shard breaks a rule, and removes the shard from the listing.
func (s *sieve) reject(name, rule string) {
	s.report(name, rule)
	s.rejected[name] = true
}

func (s *sieve) add(shard Shard) {
	// A parent that is named twice counts once.
	parents := slices.Compact(slices.Sorted(slices.Values(shard.Parents)))
	next := engine.Shard{Name: shard.Name, Parents: parents, Weight: shard.Weight}
	if rule := brokenRule(next); rule != "" {
		s.reject(shard.Name, rule)
	}
	const twice = "listed twice"
	before, again := s.shards[shard.Name]
	switch {
	case again && reflect.DeepEqual(before, next):
		s.report(shard.Name, twice) // a fault, but the shard is used: both entries are equal
	case again:
		s.reject(shard.Name, twice+", with different parents or weights")
	}
	s.shards[shard.Name] = next
}

// brokenRule returns the rule that a shard breaks by itself; "": none.
func brokenRule(s engine.Shard) string {
	switch {
	case lease.Key{Kind: lease.KindLease, Group: "-", Name: s.Name}.Validate() != nil:
		return fmt.Sprintf("not a valid name: 1 to %d bytes of printable text are allowed", lease.MaxName)
	case slices.Contains(s.Parents, s.Name):
		return "is its own parent"
	case len(s.Parents) > lease.MaxParents:
		return fmt.Sprintf("has more than %d parents", lease.MaxParents)
	case s.Weight < 0:
		return "has a negative weight"
	}
	for _, parent := range s.Parents {
		if (lease.Key{Kind: lease.KindLease, Group: "-", Name: parent}).Validate() != nil {
			return "has a parent whose name is not valid"
		}
	}
	return ""
}

// cycles returns the shards that would wait for each other forever. A shard is on no cycle
// if none of its parents or none of its children remains. Repeated removal of such shards
// leaves the cycles and the paths between them.
func (s *sieve) cycles() []string {
	parents, children := s.kin()
	left := maps.Clone(parents)
	peel(left, parents, children)
	peel(left, children, parents)
	return slices.Collect(maps.Keys(left))
}

// peel removes from left, repeatedly, every shard without remaining parents, if up maps
// shards to parents and down maps them to children. With up and down exchanged it removes
// those without remaining children.
func peel(left, up, down map[string][]string) {
	count := make(map[string]int, len(left))
	var free []string
	for name := range left {
		for _, other := range up[name] {
			if _, there := left[other]; there {
				count[name]++
			}
		}
		if count[name] == 0 {
			free = append(free, name)
		}
	}
	for len(free) > 0 {
		name := free[len(free)-1]
		free = free[:len(free)-1]
		delete(left, name)
		for _, other := range down[name] {
			if count[other]--; count[other] == 0 {
				free = append(free, other)
			}
		}
	}
}

// kin returns the listed parents and children of each shard. It omits a shard that is its
// own parent, which is reported elsewhere and is no cycle.
func (s *sieve) kin() (parents, children map[string][]string) {
	parents, children = make(map[string][]string, len(s.shards)), map[string][]string{}
	for name, shard := range s.shards {
		parents[name] = nil
		for _, parent := range shard.Parents {
			if _, listed := s.shards[parent]; listed && parent != name {
				parents[name] = append(parents[name], parent)
				children[parent] = append(children[parent], name)
			}
		}
	}
	return parents, children
}

// rejectDescendants rejects the descendants of rejected shards.
func (s *sieve) rejectDescendants() {
	_, children := s.kin()
	next := slices.Collect(maps.Keys(s.rejected))
	for len(next) > 0 {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		for _, child := range children[name] {
			if !s.rejected[child] {
				s.reject(child, "descend from a shard that is not valid")
				next = append(next, child)
			}
		}
	}
}
