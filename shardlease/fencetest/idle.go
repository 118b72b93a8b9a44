package fencetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// idleSuccessor: the successor of a writer starts, and has nothing to write. The sink learns its generation only if somebody
// raises the fence. The shard is one that was written before, and then one that was not.
func (s *stage) idleSuccessor() error {
	if s.sink.FirstEffect {
		s.t.Log("fencetest: not played: an idle successor (Sink.FirstEffect is set): until the successor's first effect, late effects are accepted")
		return nil
	}
	for _, writes := range []bool{true, false} {
		if err := s.idles(writes); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) idles(writes bool) error {
	sh := s.shard()
	old, err := sh.grant("a")
	if err == nil && writes {
		err = sh.accepts(old)
	}
	if err != nil {
		return err
	}
	next, err := sh.grant("b")
	if err != nil {
		return err
	}
	// The second raise stands for one that is repeated, because the first was not answered.
	for range 2 {
		if err := sh.raises(next); err != nil {
			return err
		}
	}
	fate, err := sh.late(old)
	switch {
	case err != nil:
		return err
	case fate == accepted:
		return errIdle(writes, s.sink.Raise != nil, old, next)
	case fate == silent:
		return errSilent(old.Generation, next.Generation)
	}
	if s.sink.Raise != nil {
		if err := sh.raise(old, nil); err == nil {
			return fmt.Errorf("function Raise reported success for generation %d after %d: it must return an error, and not lower the fence",
				old.Generation, next.Generation)
		}
		if err := sh.refuses(old, next.Generation, "a late Raise has lowered the fence"); err != nil {
			return err
		}
	}
	return sh.accepts(next)
}

// errIdle tells the story of an idle successor.
func errIdle(writes, raised bool, old, next Fence) error {
	var story strings.Builder
	fmt.Fprintf(&story, "the sink accepted an effect of generation %d after generation %d had begun:\n", old.Generation, next.Generation)
	if writes {
		fmt.Fprintf(&story, "  %s writes under generation %d\n", old.Owner, old.Generation)
	}
	fmt.Fprintf(&story, "  %s is paused\n  %s takes the shard over, generation %d\n", old.Owner, next.Owner, next.Generation)
	if raised {
		fmt.Fprintf(&story, "  Sink.Raise raises the fence to %d, and reports success\n", next.Generation)
	}
	fmt.Fprintf(&story, "  %s starts, and has nothing to write\n  %s wakes up, and writes under generation %d: accepted\n", next.Owner, old.Owner, old.Generation)
	if raised {
		return fmt.Errorf("%sSink.Raise has to raise the fence that Apply compares with", &story)
	}
	return fmt.Errorf("%sThe sink learns generation %d only with %s's first effect. Raise its fence at each takeover: list it in shardlease.Config.Targets, "+
		"and set Sink.Raise. If the sink cannot do that, set Sink.FirstEffect, and write down that late effects count until then",
		&story, next.Generation, next.Owner)
}

// raise raises the fence, if the sink can. If g is not nil, it may stop the call.
func (s *shard) raise(f Fence, g *gate) error {
	if s.sink.Raise == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), callTime)
	defer cancel()
	if g != nil {
		ctx = g.over(ctx)
	}
	return s.sink.Raise(ctx, f)
}

// raises raises the fence of the present owner, which readers must not notice.
func (s *shard) raises(f Fence) error {
	before, err := s.effects()
	if err == nil {
		err = s.raise(f, nil)
	}
	if err != nil {
		return fmt.Errorf("function Raise: %w", err)
	}
	after, err := s.effects()
	if err == nil && !slices.Equal(before, after) {
		err = fmt.Errorf("readers saw %q before Raise, and %q after it: it must change nothing but the fence", before, after)
	}
	return err
}
