package fencetest

import (
	"fmt"
	"time"
)

// once checks that readers see an effect exactly once.
func (s *shard) once(effect, what string) error {
	effects, err := s.effects()
	if err != nil {
		return err
	}
	n := 0
	for _, e := range effects {
		if e == effect {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("readers see the effect %q %d times, want once: %s", effect, n, what)
	}
	return nil
}

// sentAgain: a writer sends an effect again because it got no answer, its successor sends the effect
// again after the last checkpoint, and then the first writer wakes up and sends it once more.
func (s *stage) sentAgain() error {
	sh := s.shard()
	var fences []Fence
	for _, owner := range []string{"a", "b"} {
		f, err := sh.grant(owner)
		if err != nil {
			return err
		}
		fences = append(fences, f)
	}
	first, second := sh.effect(fences[0]), sh.effect(fences[0])
	for _, send := range []struct {
		fence  Fence
		effect string
		late   bool // a sink that has a fence too may refuse it
		what   string
	}{
		{fences[0], first, false, "its writer has sent it once"},
		{fences[0], first, false, "its writer has repeated it. Recognize an effect by an id, and store the id with the effect"},
		{fences[0], second, false, "it is the second effect, and another one than the first"},
		{fences[1], first, false, "the successor has repeated it. The id must not contain what differs between writers: no generation, no name"},
		{fences[0], first, true, "its writer has repeated it after the successor wrote"},
	} {
		if err := sh.send(send.fence, send.effect, nil); err != nil && !send.late {
			return fmt.Errorf("the sink refused the effect %q; %s (the error is: %w)", send.effect, send.what, err)
		}
		if err := sh.once(send.effect, send.what); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) sentAgainAfterRestart() error {
	if s.sink.Restart == nil {
		s.t.Log("fencetest: not played: a restart of the sink (Sink.Restart is nil)")
		return nil
	}
	sh := s.shard()
	of, err := sh.grant("a")
	if err != nil {
		return err
	}
	effect := sh.effect(of)
	if err := sh.send(of, effect, nil); err != nil {
		return err
	}
	if err := s.restartNow(); err != nil {
		return err
	}
	if err := sh.send(of, effect, nil); err != nil {
		return fmt.Errorf("the sink refused an effect that its writer repeats after a restart: %w", err)
	}
	return sh.once(effect, "the sink was restarted in between, and has forgotten the id. Store the id with the effect")
}

// sentAgainWhilePaused stops a writer at each point that it reaches, while its successor sends the
// same effect.
func (s *stage) sentAgainWhilePaused() error {
	points, took, err := s.rehearse(plot{})
	if err != nil {
		return err
	}
	for _, at := range s.selection(points) {
		if err := s.repeatBeside(at, took); err != nil {
			return fmt.Errorf("its writer was stopped at point %d of %d: %w", at, points, err)
		}
	}
	return s.stops("a sink that looks for the id first and writes afterwards may go unnoticed")
}

func (s *stage) repeatBeside(at int, took time.Duration) error {
	w, err := s.pair(plot{})
	if err != nil {
		return err
	}
	g := newGate(at)
	defer g.open()
	stopped, reached, err := w.start(g)
	if err != nil || !reached {
		return err
	}
	next, err := w.grant("b")
	if err != nil {
		g.open()
		<-stopped
		return err
	}
	other, returned, errNext := w.beside(next, w.oldEffect, took)
	g.open()
	<-stopped
	if !returned {
		errNext = <-other
	}
	if err := w.insist(next, w.oldEffect, errNext); err != nil {
		return err
	}
	return w.once(w.oldEffect, "its successor has sent it meanwhile. Look for the id and write in one atomic step")
}

func (s *stage) sentByCrowd() error {
	return s.rounds(func(round int) error {
		sh := s.shard()
		effect := ""
		attempts, err := sh.attempts(func(f Fence) string {
			if effect == "" {
				effect = sh.effect(f)
			}
			return effect
		})
		if err != nil {
			return err
		}
		together(sh, round, attempts)
		last := attempts[len(attempts)-1]
		if err := sh.insist(last.fence, effect, last.err); err != nil {
			return err
		}
		return sh.once(effect, "many sent it at once. Look for the id and write in one atomic step")
	})
}
