package engine_test

import (
	"reflect"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
)

// A twinned engine is compared, now and then, with its clone: an engine is a value, so the clone
// does the same, and has the same hash before and after.
type twinned struct {
	virtual.Engine
	f *fleet
}

func (e twinned) Step(now engine.Moment, in engine.Input) ([]engine.Output, engine.Instant) {
	if e.f.chance.IntN(fixture.Size(100, 30)) > 0 {
		return e.Engine.Step(now, in)
	}
	twin := e.Clone()
	outs, wake := e.Engine.Step(now, in)
	e.compare(twin, now, in, outs)
	return outs, wake
}

func (e twinned) compare(twin virtual.Engine, now engine.Moment, in engine.Input, outs []engine.Output) {
	f, before := e.f, twin.Hash()
	if again := twin.Clone().Hash(); again != before {
		f.Errorf("a clone hashes to %x, the original to %x", again, before)
	}
	theirs, _ := twin.Step(now, in)
	if len(theirs) != len(outs) || len(outs) > 0 && !reflect.DeepEqual(theirs, outs) {
		f.Errorf("a clone does %v, the original %v", theirs, outs)
	}
	if twin.Hash() != e.Hash() {
		f.Error("after one step a clone hashes differently")
	}
	if len(outs) > 0 && before == twin.Hash() {
		f.Errorf("%T changed nothing, and yet there was %v to do", in, outs)
	}
}
