package fencetest

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// succession: a writer writes twice, its successor writes twice, and then the first worker owns the
// shard again and writes twice.
func (s *stage) succession() error {
	sh := s.shard()
	for _, owner := range []string{"a", "b", "a"} {
		f, err := sh.grant(owner)
		if err != nil {
			return err
		}
		for range 2 {
			if err := sh.accepts(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// lateWriters sends two late effects of a worker that was replaced: one while another worker owns the
// shard, and one while the same worker owns it again. The effects that the sink accepts show whether
// it compares generations, names or nothing.
func (s *stage) lateWriters() error {
	replaced, again := s.shard(), s.shard()
	of, err := replaced.succeed("a", "b")
	if err != nil {
		return err
	}
	others, err := replaced.late(of[0])
	if err != nil {
		return err
	}
	if of, err = again.succeed("a", "b", "a"); err != nil {
		return err
	}
	own, err := again.late(of[0])
	if err != nil {
		return err
	}
	mine, next, last := of[0].Generation, of[1].Generation, of[2].Generation
	switch {
	case others == accepted && own == accepted:
		return errAccepted(mine, next, "it does not compare the generation. If the last write wins, by its arrival or by a clock, "+
			"the writer that wakes up last wins: its write is the latest, and it is stale")
	case others == accepted:
		return errAccepted(mine, next, "it refused that generation after another one of the same writer. "+
			"Keep the fence for each shard, not for each worker: the successor has to raise it for all")
	case own == accepted:
		return errAccepted(mine, last, "it refused that generation while another worker owned the shard. "+
			"Compare the generation, not the name of the owner: a worker that comes back has the same name")
	case others == silent || own == silent:
		return errSilent(mine, next)
	}
	return nil
}

// twoShards: the fence of one shard does not affect another shard.
func (s *stage) twoShards() error {
	one, other := s.shard(), s.shard()
	ofOne, err := one.succeed("a", "b")
	if err != nil {
		return err
	}
	ofOther, err := other.succeed("a", "b")
	if err != nil {
		return err
	}
	const why = "it has accepted effects of another shard since. Keep the fence of each shard"
	if err := one.refuses(ofOne[0], ofOne[1].Generation, why); err != nil {
		return err
	}
	if err := other.refuses(ofOther[0], ofOther[1].Generation, why); err != nil {
		return err
	}
	return one.accepts(ofOne[1])
}

// numbers: generations are 64-bit numbers. Real ones are large, such as 3559528142471169.
func (s *stage) numbers() error {
	if s.sink.Grant != nil {
		return nil // Play does not choose the generations
	}
	for _, tc := range []struct {
		generation int64 // the successor has one more
		why        string
	}{
		{9, "compare numbers, not text: as text, 9 is after 10"},
		{math.MaxInt32, "store the generation in 64 bits"},
		{1 << 53, "do not store the generation as a floating-point number, as JSON in many languages does"},
		{math.MaxInt64 - 1, "store the generation in 64 bits"},
	} {
		sh := s.shard()
		sh.last = tc.generation - 1
		of, err := sh.succeed("a", "b")
		if err == nil {
			err = sh.refuses(of[0], of[1].Generation, "the two are the same to it")
		}
		if err != nil {
			return fmt.Errorf("generations %d and %d (%s): %w", tc.generation, tc.generation+1, tc.why, err)
		}
	}
	return nil
}

// repeats: a writer sends an effect again because it got no answer. If the writer was replaced since,
// readers must not see the effect again. The sink may report success, because it has already applied
// the effect.
func (s *stage) repeats() error {
	sh := s.shard()
	of, err := sh.succeed("a")
	if err != nil {
		return err
	}
	effect := sh.effect(of[0])
	for _, attempt := range []string{"the first time", "the second time"} {
		if err := sh.send(of[0], effect, nil); err != nil {
			return fmt.Errorf("the sink refused an effect of the present owner, sent %s: %w", attempt, err)
		}
	}
	next, err := sh.succeed("b")
	if err != nil {
		return err
	}
	before, err := sh.effects()
	if err != nil {
		return err
	}
	reply := sh.send(of[0], effect, nil)
	after, err := sh.effects()
	if err == nil && !slices.Equal(before, after) {
		err = errAccepted(of[0].Generation, next[0].Generation, "the effect was applied before, and a late repetition of it applied it again. "+
			"Compare the generation of repetitions too")
	}
	if err == nil {
		if err = sh.send(next[0], effect, nil); err != nil {
			err = fmt.Errorf("the sink refused the successor, which repeats an effect of its predecessor after the last checkpoint: %w "+
				"(the late repetition returned %v)", err, reply)
		}
	}
	return err
}

// restart: the fence is as durable as the effects.
func (s *stage) restart() error {
	if s.sink.Restart == nil {
		s.t.Log("fencetest: not played: a restart of the sink (Sink.Restart is nil)")
		return nil
	}
	sh := s.shard()
	of, err := sh.succeed("a", "b")
	if err != nil {
		return err
	}
	if err := s.restartNow(); err != nil {
		return err
	}
	const why = "the sink was restarted in between, and its fence was lost. Store the fence where the effects are stored"
	if err := sh.refuses(of[0], of[1].Generation, why); err != nil {
		return err
	}
	if err := sh.accepts(of[1]); err != nil {
		return err
	}
	_, err = sh.succeed("c")
	return err
}

func (s *stage) restartNow() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), callTime)
	defer cancel()
	if err := s.sink.Restart(ctx); err != nil {
		return fmt.Errorf("function Restart: %w", err)
	}
	return nil
}
