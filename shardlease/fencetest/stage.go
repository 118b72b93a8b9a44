package fencetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// callTime ends the context of a call that does not return.
	callTime = time.Minute
	// retries is how often a writer repeats an effect that failed while another writer wrote: a
	// sink may refuse one of two concurrent transactions.
	retries = 20
)

// A counter numbers the shards of all scenarios.
type counter struct{ atomic.Int64 }

// A stage is the sink of one scenario, and the highest generation that it has accepted.
type stage struct {
	t     *T
	sink  Sink
	names *counter
	// highest is the highest generation that the sink has accepted for any shard.
	highest int64
	pauses  []int // the points of the last rehearsal that are calls of T.Pause
	stopped int   // at how many points a writer was stopped
	paused  int   // how many of them are calls of T.Pause
}

// A shard is the shard of one trial of a scenario. Each trial has a shard of its own, so that the
// fence of one trial does not affect another.
type shard struct {
	*stage
	name string
	last int64 // the latest generation that was granted

	mu   sync.Mutex
	sent map[string]Fence // the fence under which each effect was first sent
}

func (s *stage) shard() *shard {
	return &shard{stage: s, name: fmt.Sprintf("shard-%d", s.names.Add(1)), last: 6, sent: map[string]Fence{}}
}

// grant makes a worker the owner.
func (s *shard) grant(owner string) (Fence, error) {
	if s.sink.Grant == nil {
		s.last++
		return Fence{Shard: s.name, Owner: owner, Generation: s.last}, nil
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), callTime)
	defer cancel()
	f, err := s.sink.Grant(ctx, s.name, owner)
	if err != nil {
		return f, fmt.Errorf("function Grant: %w", err)
	}
	if f.Shard != s.name || f.Generation <= s.last {
		return f, fmt.Errorf("function Grant returned the fence %+v for %s after generation %d: generations must grow", f, s.name, s.last)
	}
	s.last = f.Generation
	return f, nil
}

// effect returns an effect that differs from all others.
func (s *shard) effect(f Fence) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	effect := fmt.Sprintf("%s, generation %d, effect %d", s.name, f.Generation, len(s.sent)+1)
	s.sent[effect] = f
	return effect
}

// send applies an effect. If g is not nil, it may stop the writer.
func (s *shard) send(f Fence, effect string, g *gate) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), callTime)
	defer cancel()
	if g != nil {
		ctx = g.over(ctx)
	}
	return s.sink.Apply(ctx, f, []byte(effect))
}

// effects returns what readers see.
func (s *shard) effects() ([]string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), callTime)
	defer cancel()
	list, err := s.sink.Effects(ctx, s.name)
	if err != nil {
		return nil, fmt.Errorf("function Effects: %w", err)
	}
	var effects []string
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, effect := range list {
		if _, ok := s.sent[string(effect)]; !ok {
			return nil, fmt.Errorf("function Effects returned %q for %s, which no writer has sent there", effect, s.name)
		}
		effects = append(effects, string(effect))
	}
	return effects, nil
}

// accepts sends an effect that the sink must accept, and checks that readers see it.
func (s *shard) accepts(f Fence) error {
	effect := s.effect(f)
	if err := s.send(f, effect, nil); err != nil {
		return s.wronglyRefused(effect, err)
	}
	effects, err := s.effects()
	if err != nil {
		return err
	}
	if len(effects) == 0 || effects[len(effects)-1] != effect {
		return fmt.Errorf("the sink reported success for the effect %q, and readers see %q", effect, effects)
	}
	s.highest = max(s.highest, f.Generation)
	return nil
}

// wronglyRefused explains why an effect of the present owner was refused.
func (s *shard) wronglyRefused(effect string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, equal, back, written := s.sent[effect], false, false, false
	for other, before := range s.sent {
		if other != effect {
			written = true
			equal = equal || before == f
			back = back || before.Owner == f.Owner && before.Generation < f.Generation
		}
	}
	why := "a shard that was never written accepts every generation"
	switch {
	case equal:
		why = "it has accepted this generation before. A writer writes more than once: refuse lower generations only"
	case back:
		why = fmt.Sprintf("writer %s owned the shard before, and has a higher generation now: compare the generation, not the name", f.Owner)
	case written:
		why = "the generation is higher than all before, so the writer is the successor"
	case s.highest > f.Generation:
		why = fmt.Sprintf("it has accepted generation %d for another shard. Generations of different shards are not related: "+
			"keep one fence for each shard, not one for all", s.highest)
	}
	return errRefused(f, why, err)
}

func errRefused(f Fence, why string, err error) error {
	return fmt.Errorf("the sink refused an effect of generation %d of %s: %s (the error is: %w)", f.Generation, f.Shard, why, err)
}

// A verdict is the fate of a stale effect.
type verdict int

const (
	refused  verdict = iota // not applied, and reported
	accepted                // applied
	silent                  // not applied, although success was reported
)

// late sends a stale effect, and returns its fate. It returns an error if the sink has a fault other
// than accepting the effect.
func (s *shard) late(f Fence) (verdict, error) {
	before, err := s.effects()
	if err != nil {
		return 0, err
	}
	effect := s.effect(f)
	reply := s.send(f, effect, nil)
	after, err := s.effects()
	if err != nil {
		return 0, err
	}
	switch {
	case slices.Contains(after, effect) && reply != nil:
		return 0, errApplied(f, reply)
	case slices.Contains(after, effect):
		return accepted, nil
	case !slices.Equal(before, after):
		return 0, fmt.Errorf("readers saw %q before a late effect of generation %d, and %q after it", before, f.Generation, after)
	case reply == nil:
		return silent, nil
	case s.sink.Refusal != nil && !s.sink.Refusal(reply):
		return 0, fmt.Errorf("a stale effect of generation %d failed with an error that Refusal does not recognize: "+
			"the writer does not learn that it was replaced, and writes again (the error is: %w)", f.Generation, reply)
	}
	return refused, nil
}

func errApplied(f Fence, reply error) error {
	return fmt.Errorf("the sink refused an effect of generation %d, and applied it all the same: "+
		"it compares in another step than it writes (the error is: %w)", f.Generation, reply)
}

// refuses sends a stale effect that the sink must refuse. why names the mistake if the sink accepts
// the effect.
func (s *shard) refuses(f Fence, over int64, why string) error {
	v, err := s.late(f)
	switch {
	case err != nil:
		return err
	case v == accepted:
		return errAccepted(f.Generation, over, why)
	case v == silent:
		return errSilent(f.Generation, over)
	}
	return nil
}

func errAccepted(generation, over int64, why string) error {
	return fmt.Errorf("the sink accepted an effect of generation %d after one of generation %d: %s", generation, over, why)
}

func errSilent(generation, over int64) error {
	return fmt.Errorf("the sink reported success for an effect of generation %d after one of generation %d, and did not apply it: "+
		"a writer that gets no error goes on", generation, over)
}

// succeed lets a number of owners write one after the other, and returns their fences.
func (s *shard) succeed(owners ...string) ([]Fence, error) {
	var fences []Fence
	for _, owner := range owners {
		f, err := s.grant(owner)
		if err == nil {
			err = s.accepts(f)
		}
		if err != nil {
			return nil, err
		}
		fences = append(fences, f)
	}
	return fences, nil
}

// inOrder checks that readers see no effect of a lower generation after an effect of a higher one, and
// that they see the effect of the last owner last.
func (s *shard) inOrder(last string) error {
	effects, err := s.effects()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var high int64
	for _, effect := range effects {
		f := s.sent[effect]
		if f.Generation < high {
			return &disorder{f.Generation, high}
		}
		high = f.Generation
	}
	want := s.sent[last].Generation
	switch {
	case high < want && len(effects) == 1: // one value is kept, and the lower generation has overwritten it
		return &disorder{high, want}
	case high < want:
		return fmt.Errorf("the sink reported success for the effect %q, and readers see %q", last, effects)
	}
	return nil
}

// A disorder is the fault that an effect was applied after an effect of a higher generation.
type disorder struct{ generation, over int64 }

func (d *disorder) Error() string {
	return fmt.Sprintf("the sink accepted an effect of generation %d after one of generation %d", d.generation, d.over)
}

// explain adds the mistake to a disorder, and returns any other error unchanged.
func explain(err error, why string) error {
	if d, ok := errors.AsType[*disorder](err); ok {
		return errAccepted(d.generation, d.over, why)
	}
	return err
}
