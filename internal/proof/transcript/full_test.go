package transcript

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A reader is an engine, and notes the seats that it writes.
type reader struct {
	virtual.Engine
	seats *[]any
}

func (r reader) Step(now engine.Moment, in engine.Input) ([]engine.Output, engine.Instant) {
	out, wake := r.Engine.Step(now, in)
	for _, o := range out {
		if send, ok := o.(engine.Send); ok {
			if seat, ok := send.Write.Next.(lease.Seat); ok {
				*r.seats = append(*r.seats, seat)
			}
		}
	}
	return out, wake
}

func (r reader) Clone() virtual.Engine { return reader{r.Engine.Clone(), r.seats} }

// TestEnginesWriteEveryFieldOfASeat: in some conversation, an engine writes each field of a seat.
func TestEnginesWriteEveryFieldOfASeat(t *testing.T) {
	elsewhere := map[string]string{ // tests of the engine
		"lease.Health.Silent": "TestSilentHandlers", "lease.Health.SilentSince": "TestSilentHandlersAreNamed",
		"lease.Health.NoSource": "TestBlindWatchers", "lease.Says.Waits": "TestWaitStandsOnTheSeat", "lease.Says.WaitsLeft": "TestManyWaits",
		"lease.Wait.Lease": "TestWaitStandsOnTheSeat", "lease.Wait.Task": "TestWaitStandsOnTheSeat", "lease.Wait.Since": "TestWaitStandsOnTheSeat",
		"lease.Says.NewsLeft": "TestManyParentsFinishAtOnce", "lease.Says.Raised": "TestRaiseAgain of shardlease",
		"rebalance.Terms.AfterDrain": "TestDrainDeadline", "rebalance.Terms.Prepare": "TestEagerMove",
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var seats []any
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = Play(string(text), func(c engine.Config, now engine.Moment) virtual.Engine {
				c.Task, c.Build, c.Strategy, c.Address, c.MaxShards, c.Backoff = "run", "v1", "custom", "10.0.0.7:7946", 100, 1500*time.Millisecond
				return reader{virtual.New(c, now), &seats}
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, field := range fixture.Unset(seats...) {
		if elsewhere[field] == "" {
			t.Errorf("no engine writes %s in any conversation: see Engine.says and seat.create, or name a test of the engine that covers it", field)
		}
	}
}
