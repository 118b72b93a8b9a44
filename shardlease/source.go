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

// A Shard is one part of a stream, as its source names it.
type Shard struct {
	Name string
	// Parents are the shards this one continues. It is not worked on before all
	// of them are finished. A parent that is not listed, and has no row, counts as
	// finished.
	Parents []string
	// Weight is for a planner that wants it; the built-in one counts shards.
	Weight int
}

// A Source tells which shards there are. Every worker of a group asks its own, on
// a goroutine of its own, one call at a time.
//
// What it lists is taken for all there is: a shard that is finished and missing
// from two listings in a row is removed. A source that could not list everything
// returns an error, and may return what it has beside it.
//
// It must return soon after its context has ended: Run waits for it.
type Source interface {
	Shards(ctx context.Context) ([]Shard, error)
}

// A SourceFunc is a function that is a source.
type SourceFunc func(ctx context.Context) ([]Shard, error)

// Shards calls f.
func (f SourceFunc) Shards(ctx context.Context) ([]Shard, error) { return f(ctx) }

// Static is the source of shards that never change. [New] checks them.
func Static(names ...string) Source {
	shards := make(static, len(names))
	for i, name := range names {
		shards[i] = Shard{Name: name}
	}
	return shards
}

type static []Shard

func (s static) Shards(context.Context) ([]Shard, error) { return slices.Clone(s), nil }

// A SourceError says what is wrong with a listing: which shards, and why.
type SourceError struct {
	Shards []string // sorted; empty when there is no listing
	Rule   string
	Err    error
}

func (e *SourceError) Error() string {
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

// Unwrap gives the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// look asks the source and gives the engine what makes sense of its answer.
func look(ctx context.Context, source Source) engine.Source {
	var shards []Shard
	_, err := guard(func() (err error) {
		shards, err = source.Shards(ctx)
		return err
	})
	return listing(shards, err)
}

// listing turns a source's answer into the engine's input, without the shards that make no
// sense.
//
// Invariant: a listing with any fault is not complete. It may add shards; nothing
// is concluded from what is missing in it.
func listing(shards []Shard, err error) engine.Source {
	answered := err == nil
	if !answered {
		err = &SourceError{Rule: "cannot be listed", Err: err}
	}
	good, fault := sift(shards)
	if err == nil && len(shards) == 0 {
		fault = &SourceError{Err: ErrNoShards}
	}
	err = errors.Join(err, fault)
	return engine.Source{Shards: good, Complete: err == nil, Answered: answered, Err: err}
}

// A sieve takes a listing apart.
type sieve struct {
	shards map[string]engine.Shard
	bad    map[string]bool // listed, and no sense in it
	faults map[string][]string
	order  []string // of the rules, as they were broken first
}

// sift gives the shards of a listing that make sense, sorted, and says what is
// wrong with the others.
//
// Where a parent is set aside its descendants are too: to the engine a parent that
// is not listed is finished, and they would start before it.
func sift(listing []Shard) ([]engine.Shard, error) {
	s := sieve{shards: map[string]engine.Shard{}, bad: map[string]bool{}, faults: map[string][]string{}}
	for _, shard := range listing {
		s.add(shard)
	}
	for _, name := range s.cycles() {
		s.blame(name, "are each other's ancestors")
	}
	s.setAside()
	var errs []error
	for _, rule := range s.order {
		names := slices.Compact(slices.Sorted(slices.Values(s.faults[rule])))
		errs = append(errs, &SourceError{Shards: names, Rule: rule})
	}
	good := make([]engine.Shard, 0, len(s.shards))
	for _, name := range slices.Sorted(maps.Keys(s.shards)) {
		if !s.bad[name] {
			good = append(good, s.shards[name])
		}
	}
	return good, errors.Join(errs...)
}

// report records what is wrong with a shard.
func (s *sieve) report(name, rule string) {
	if s.faults[rule] == nil {
		s.order = append(s.order, rule)
	}
	s.faults[rule] = append(s.faults[rule], name)
}

// blame reports it, and sets the shard aside.
func (s *sieve) blame(name, rule string) {
	s.report(name, rule)
	s.bad[name] = true
}

func (s *sieve) add(shard Shard) {
	// Naming a parent twice says nothing else than naming it once.
	parents := slices.Compact(slices.Sorted(slices.Values(shard.Parents)))
	next := engine.Shard{Name: shard.Name, Parents: parents, Weight: shard.Weight}
	if rule := wrong(next); rule != "" {
		s.blame(shard.Name, rule)
	}
	const twice = "listed twice"
	before, again := s.shards[shard.Name]
	switch {
	case again && reflect.DeepEqual(before, next):
		s.report(shard.Name, twice) // the same thing said twice is clear enough to go on with
	case again:
		s.blame(shard.Name, twice+", with different parents or weights")
	}
	s.shards[shard.Name] = next
}

// wrong says what is wrong with a shard on its own.
func wrong(s engine.Shard) string {
	switch {
	case lease.Key{Kind: lease.KindLease, Group: "-", Name: s.Name}.Validate() != nil:
		return fmt.Sprintf("no name for a shard: 1 to %d bytes of printable text", lease.MaxName)
	case slices.Contains(s.Parents, s.Name):
		return "its own parent"
	case len(s.Parents) > lease.MaxParents:
		return fmt.Sprintf("more than %d parents", lease.MaxParents)
	case s.Weight < 0:
		return "negative weight"
	}
	for _, parent := range s.Parents {
		if (lease.Key{Kind: lease.KindLease, Group: "-", Name: parent}).Validate() != nil {
			return "a parent whose name no shard can have"
		}
	}
	return ""
}

// cycles are the shards that would wait for each other for ever. Whoever has no
// parent left among the others is on no cycle, nor is who has no child left; what
// remains when all of those are gone are the cycles and the ways between them.
func (s *sieve) cycles() []string {
	parents, children := s.kin()
	left := maps.Clone(parents)
	peel(left, parents, children)
	peel(left, children, parents)
	return slices.Collect(maps.Keys(left))
}

// peel takes away who has nobody of one kind left, until all others have: up and
// down are who a shard has of that kind, and who has it as one.
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

// kin gives each shard's listed parents and children. Its own parent is reported
// elsewhere, and no cycle.
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

// setAside sets aside the descendants of what is set aside.
func (s *sieve) setAside() {
	_, children := s.kin()
	next := slices.Collect(maps.Keys(s.bad))
	for len(next) > 0 {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		for _, child := range children[name] {
			if !s.bad[child] {
				s.blame(child, "descended from one of those")
				next = append(next, child)
			}
		}
	}
}
