package fencetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// mostPoints is how many points of a writer are tried; of more, an even selection is. As many
	// calls of T.Pause are tried too.
	mostPoints = 32
	// Play concludes that a writer waits for the stopped writer if it has not returned after 10 times
	// the time that it needs alone. That time is kept within these limits.
	leastPatience = 20 * time.Millisecond
	mostPatience  = 2 * time.Second
)

// A plot is one way in which two writers of a shard meet.
type plot struct {
	name string
	// warm: the shard already has a fence. Many sinks treat the first write for a shard differently.
	warm bool
	// successor: Play stops the successor, and not the writer that it replaces.
	successor bool
	why       string // the mistake of a sink that accepts a stale effect in this plot
}

const (
	checksFirst = "it checks first and writes after: between the two the writer was paused, and its successor wrote. " +
		"Compare and write in one atomic step"
	commitsApart = "it commits the fence in another transaction than the effect: the writer was paused between the two, " +
		"and its successor wrote. Commit both in one transaction"
	raisesAfter = "it raises the fence after the effect: the successor was paused between the two, and the writer that it replaced " +
		"was compared with the fence of before. Raise the fence and apply the effect in one atomic step"
)

// pausedWriters stops one of two writers at each point that it reaches, lets the other writer write,
// and wakes the stopped writer.
func (s *stage) pausedWriters() error {
	for _, p := range []plot{
		{"the writer was stopped, and replaced", true, false, checksFirst},
		{"the writer was stopped in the first effect of the shard, and replaced", false, false, checksFirst},
		{"the successor was stopped, and the writer wrote", true, true, raisesAfter},
		{"the successor was stopped in the first effect of the shard, and the writer wrote", false, true, raisesAfter},
	} {
		points, took, err := s.rehearse(p)
		if err != nil {
			return err
		}
		for _, at := range s.selection(points) {
			missed, err := s.meet(p, at, took)
			if err != nil {
				return fmt.Errorf("%s, at point %d of %d: %w", p.name, at, points, s.diagnose(p, err, points, took))
			}
			if missed {
				break
			}
		}
	}
	return s.stops("a sink that compares first and writes afterwards may go unnoticed")
}

// stops reports where writers were stopped. unnoticed is what Play cannot find otherwise.
func (s *stage) stops(unnoticed string) error {
	const none = "no writer could be stopped, because Apply does not use its context and nothing calls T.Pause"
	switch {
	case s.sink.MustPause && s.stopped == 0:
		return fmt.Errorf("%s: %s. Sink.MustPause demands a call of T.Pause between the comparison and the write", none, unnoticed)
	case s.sink.MustPause && s.paused == 0:
		return fmt.Errorf("writers were stopped at %d points, none of them a call of T.Pause: %s. "+
			"Sink.MustPause demands a call of T.Pause between the comparison and the write", s.stopped, unnoticed)
	case s.stopped == 0:
		s.t.Logf("fencetest: %s: %s. Call T.Pause between the comparison and the write, and set Sink.MustPause", none, unnoticed)
	default:
		s.t.Logf("fencetest: writers were stopped at %d points, %d of them calls of T.Pause", s.stopped, s.paused)
	}
	return nil
}

// selection returns at most mostPoints of the points that the last rehearsal has counted, evenly
// spread, and at most mostPoints of those that are calls of T.Pause: a test calls it where it
// matters, and a client of HTTP uses its context at dozens of other points.
func (s *stage) selection(points int) []int {
	var at []int
	for _, i := range spread(points) {
		at = append(at, i+1)
	}
	for _, i := range spread(len(s.pauses)) {
		at = append(at, s.pauses[i])
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// spread returns at most mostPoints of n indices, evenly spread.
func spread(n int) (indices []int) {
	tries := min(n, mostPoints)
	for i := range tries {
		indices = append(indices, i*(n-1)/max(tries-1, 1))
	}
	return indices
}

// A pair is a writer of a shard and its successor.
type pair struct {
	*shard
	plot       plot
	old        Fence
	successor  Fence // the writer with the higher generation
	oldEffect  string
	nextEffect string
}

func (s *stage) pair(p plot) (*pair, error) {
	sh := s.shard()
	old, err := sh.grant("a")
	if err == nil && p.warm {
		err = sh.accepts(old)
	}
	if err != nil {
		return nil, err
	}
	return &pair{shard: sh, plot: p, old: old}, nil
}

// replace grants the shard to the successor. In a plot that stops the successor, begin calls replace
// before the successor writes.
func (p *pair) replace() (err error) {
	if p.successor, err = p.grant("b"); err == nil {
		p.nextEffect = p.effect(p.successor)
	}
	return err
}

// begin prepares the writer that is stopped, and returns its effect.
func (p *pair) begin() (f Fence, effect string, err error) {
	p.oldEffect = p.effect(p.old)
	if !p.plot.successor {
		return p.old, p.oldEffect, nil
	}
	err = p.replace()
	return p.successor, p.nextEffect, err
}

// rehearse counts the points that a writer reaches, and measures how long it takes.
func (s *stage) rehearse(p plot) (points int, took time.Duration, err error) {
	writers, err := s.pair(p)
	if err != nil {
		return 0, 0, err
	}
	f, effect, err := writers.begin()
	if err != nil {
		return 0, 0, err
	}
	g := newGate(0)
	from := time.Now()
	err = s.through(g, func() error { return writers.send(f, effect, g) })
	if err != nil {
		return 0, 0, writers.wronglyRefused(effect, err)
	}
	took = time.Since(from)
	points, s.pauses = g.points()
	return points, took, nil
}

// through calls send while T.Pause leads to a gate.
func (s *stage) through(g *gate, send func() error) error {
	s.t.gates.now.Store(g)
	defer s.t.gates.now.Store(nil)
	return send()
}

// A reply is the result of a call that runs in a goroutine.
type reply chan error

// start starts the writer that is stopped. It returns when the writer is stopped, or has returned.
func (p *pair) start(g *gate) (reply, bool, error) {
	f, effect, err := p.begin()
	if err != nil {
		return nil, false, err
	}
	done, reached := p.stopIn(g, func() error { return p.send(f, effect, g) })
	return done, reached, nil
}

// stopIn makes a call that the gate stops. It returns when the call is stopped, or has returned.
func (s *stage) stopIn(g *gate, call func() error) (reply, bool) {
	done := make(reply, 1)
	s.t.gates.now.Store(g)
	go func() { done <- call() }()
	defer s.t.gates.now.Store(nil)
	select {
	case <-g.reached:
		s.stopped++
		if g.stoppedByPause() {
			s.paused++
		}
		return done, true
	case err := <-done:
		done <- err
		return done, false
	}
}

// meet stops one writer at a point, lets the other writer write, and wakes the stopped writer. missed
// reports that the writer returned without reaching that point.
func (s *stage) meet(p plot, at int, took time.Duration) (missed bool, err error) {
	w, err := s.pair(p)
	if err != nil {
		return false, err
	}
	g := newGate(at)
	defer g.open()
	stopped, reached, err := w.start(g)
	if err != nil || !reached {
		return !reached, err
	}
	if p.successor {
		return false, w.oldWrites(g, stopped, took)
	}
	return false, w.nextWrites(g, stopped, took)
}

// nextWrites: the successor writes while the writer is stopped.
func (p *pair) nextWrites(g *gate, stopped reply, took time.Duration) error {
	if err := p.replace(); err != nil {
		g.open()
		<-stopped
		return err
	}
	next, returned, errNext := p.beside(p.successor, p.nextEffect, took)
	var before []string // what readers see when the successor has written
	var err error
	if returned && errNext == nil {
		before, err = p.effects()
	}
	g.open()
	errOld := <-stopped
	if !returned {
		errNext = <-next
	}
	if err := cmp.Or(err, p.insist(p.successor, p.nextEffect, errNext), p.settled(errOld)); err != nil {
		return err
	}
	after, err := p.effects()
	if err != nil {
		return err
	}
	if before != nil && !slices.Contains(before, p.oldEffect) && slices.Contains(after, p.oldEffect) {
		return &disorder{p.old.Generation, p.successor.Generation}
	}
	// The writer does not know that it was replaced, and goes on.
	return p.refuses(p.old, p.successor.Generation, "an effect of the same writer, which was paused, has lowered the fence. Raise the fence only, and in the step of the effect")
}

// oldWrites: the replaced writer writes while its successor is stopped. The sink may accept the
// effect if it has not applied the successor's effect yet, and refuse it otherwise.
func (p *pair) oldWrites(g *gate, stopped reply, took time.Duration) error {
	old, returned, errOld := p.beside(p.old, p.oldEffect, took)
	g.open()
	errNext := <-stopped
	if !returned {
		errOld = <-old
	}
	return cmp.Or(p.insist(p.successor, p.nextEffect, errNext), p.settled(errOld))
}

// beside lets the other writer write while one is stopped.
func (p *pair) beside(f Fence, effect string, took time.Duration) (done reply, returned bool, err error) {
	return meanwhile(took, func() error { return p.send(f, effect, nil) })
}

// meanwhile makes a call while another one is stopped. returned is false if the call does not return, because it waits for
// the stopped one.
func meanwhile(took time.Duration, call func() error) (done reply, returned bool, err error) {
	done = make(reply, 1)
	go func() { done <- call() }()
	patience := time.NewTimer(min(max(10*took, leastPatience), mostPatience))
	defer patience.Stop()
	select {
	case err := <-done:
		return done, true, err
	case <-patience.C:
		return done, false, nil
	}
}

// insist sends an effect of the present owner again if it failed while another writer wrote.
func (s *shard) insist(f Fence, effect string, err error) error {
	for range retries {
		if err == nil {
			return nil
		}
		err = s.send(f, effect, nil)
	}
	return s.wronglyRefused(effect, err)
}

// settled checks what readers see when both writers have returned.
func (p *pair) settled(errOld error) error {
	effects, err := p.effects()
	if err != nil {
		return err
	}
	if errOld != nil && slices.Contains(effects, p.oldEffect) {
		return errApplied(p.old, errOld)
	}
	return p.inOrder(p.nextEffect)
}

// diagnose explains why the sink accepted a stale effect. If the fence is raised before readers see
// the effect of the same write, the sink commits the two separately.
func (s *stage) diagnose(p plot, err error, points int, took time.Duration) error {
	_, unordered := errors.AsType[*disorder](err)
	if unordered && p.warm && !p.successor && s.sink.Grant == nil && s.raisedAlone(points, took) {
		return explain(err, commitsApart)
	}
	return explain(err, p.why)
}

// raisedAlone reports whether there is a point at which a successor has raised the fence and readers
// do not see its effect.
func (s *stage) raisedAlone(points int, took time.Duration) bool {
	for _, at := range s.selection(points) {
		w, err := s.pair(plot{warm: true, successor: true})
		if err != nil {
			return false
		}
		g := newGate(at)
		stopped, reached, err := w.start(g)
		raised := false
		if err == nil && reached {
			raised = w.refusedAlone(g, took)
		}
		g.open()
		if err != nil {
			return false
		}
		<-stopped
		if raised {
			return true
		}
	}
	return false
}

// refusedAlone reports whether the writer is refused while its successor is stopped and readers do
// not see the effect of the successor.
func (p *pair) refusedAlone(g *gate, took time.Duration) bool {
	old, returned, err := p.beside(p.old, p.oldEffect, took)
	if !returned {
		g.open()
		<-old
		return false
	}
	if err == nil {
		return false
	}
	effects, err := p.effects()
	return err == nil && !slices.Contains(effects, p.nextEffect)
}
