package fencetest

import (
	"fmt"
	"slices"
	"time"
)

const (
	lowersFence = "Raise checks first and stores after: between the two its worker was paused, and the successor raised the fence. " +
		"Compare and store in one atomic step"
	fenceLost = "Raise has reported success for the higher generation, and an effect that was applied meanwhile has lowered the fence. " +
		"Compare and store in one atomic step"
	undoesEffect = "Raise reads what readers see, and stores it again: what was applied between the two is lost. " +
		"Change nothing but the fence, or compare and store in one atomic step"
)

// pausedRaises stops a Raise at each point that it reaches, lets another worker go on, and wakes it.
func (s *stage) pausedRaises() error {
	if s.sink.Raise == nil {
		return nil
	}
	for _, p := range []plot{
		{"Raise was stopped, and its worker replaced", true, false, lowersFence},
		{"the first Raise of the shard was stopped, and its worker replaced", false, false, lowersFence},
		{"the successor's Raise was stopped, and the writer wrote", true, true, fenceLost},
		{"the successor's Raise was stopped, and the writer wrote the first effect of the shard", false, true, fenceLost},
	} {
		points, took, err := s.rehearseRaise(p)
		if err != nil {
			return err
		}
		for _, at := range s.selection(points) {
			missed, err := s.meetRaise(p, at, took)
			if err != nil {
				return fmt.Errorf("%s, at point %d of %d: %w", p.name, at, points, err)
			}
			if missed {
				break
			}
		}
	}
	if s.stopped == 0 {
		s.t.Log("fencetest: no Raise could be stopped, because it does not use its context and nothing calls T.Pause")
	}
	return nil
}

// raiser returns the pair of a plot, and the fence whose Raise is stopped.
func (s *stage) raiser(p plot) (w *pair, f Fence, err error) {
	if w, err = s.pair(p); err == nil && p.successor {
		err = w.replace()
		return w, w.successor, err
	}
	if err != nil {
		return nil, Fence{}, err
	}
	return w, w.old, nil
}

// rehearseRaise counts the points that a Raise reaches, and measures how long it takes.
func (s *stage) rehearseRaise(p plot) (points int, took time.Duration, err error) {
	w, f, err := s.raiser(p)
	if err != nil {
		return 0, 0, err
	}
	g := newGate(0)
	from := time.Now()
	if err := s.through(g, func() error { return w.raise(f, g) }); err != nil {
		return 0, 0, fmt.Errorf("function Raise: %w", err)
	}
	took = time.Since(from)
	points, s.pauses = g.points()
	return points, took, nil
}

// meetRaise stops a Raise at a point, lets the other worker go on, and wakes it. missed reports that Raise returned without
// reaching that point.
func (s *stage) meetRaise(p plot, at int, took time.Duration) (missed bool, err error) {
	w, f, err := s.raiser(p)
	if err != nil {
		return false, err
	}
	g := newGate(at)
	defer g.open()
	stopped, reached := s.stopIn(g, func() error { return w.raise(f, g) })
	if !reached {
		return true, nil
	}
	if p.successor {
		return false, w.oldWritesBeside(g, stopped, took)
	}
	return false, w.nextRaises(g, stopped, took)
}

// nextRaises: the successor raises the fence while the Raise of the worker that it replaces is stopped. That one may succeed
// or fail. It must not lower the fence.
func (p *pair) nextRaises(g *gate, stopped reply, took time.Duration) error {
	if err := p.replace(); err != nil {
		g.open()
		<-stopped
		return err
	}
	next, returned, errNext := meanwhile(took, func() error { return p.raise(p.successor, nil) })
	g.open()
	<-stopped
	if !returned {
		errNext = <-next
	}
	if err := p.insistRaise(errNext); err != nil {
		return err
	}
	return p.closed()
}

// oldWritesBeside: the replaced writer writes while the Raise of its successor is stopped. The sink may accept the effect, as
// one that came before the raise. Then the raise must not undo it.
func (p *pair) oldWritesBeside(g *gate, stopped reply, took time.Duration) error {
	p.oldEffect = p.effect(p.old)
	old, returned, errOld := p.beside(p.old, p.oldEffect, took)
	g.open()
	errNext := <-stopped
	if !returned {
		errOld = <-old
	}
	if err := p.insistRaise(errNext); err != nil {
		return err
	}
	effects, err := p.effects()
	switch applied := slices.Contains(effects, p.oldEffect); {
	case err != nil:
		return err
	case errOld == nil && !applied:
		return fmt.Errorf("the sink reported success for the effect %q, and readers see %q: %s", p.oldEffect, effects, undoesEffect)
	case errOld != nil && applied:
		return errApplied(p.old, errOld)
	}
	return p.closed()
}

// insistRaise raises the fence of the successor again if that failed beside the other worker.
func (p *pair) insistRaise(err error) error {
	for range retries {
		if err == nil {
			return nil
		}
		err = p.raise(p.successor, nil)
	}
	return fmt.Errorf("function Raise: %w", err)
}

// closed checks that the fence of the successor is raised: the writer that it replaces is refused.
func (p *pair) closed() error {
	if err := p.refuses(p.old, p.successor.Generation, p.plot.why); err != nil {
		return err
	}
	return p.accepts(p.successor)
}
