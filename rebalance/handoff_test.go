package rebalance_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

var (
	_ rebalance.Handoff = rebalance.Eager
	_ rebalance.Handoff = rebalance.Terms{}
	_ rebalance.Handoff = rebalance.HandoffFunc(nil)
)

func TestOwnerSide(t *testing.T) {
	eager := rebalance.Terms{Mode: rebalance.Eager, Drain: 20 * time.Second}
	waits := eager
	waits.AfterDrain = rebalance.Wait
	cooperative := rebalance.Terms{Mode: rebalance.Cooperative, Drain: 20 * time.Second}
	for name, tc := range map[string]struct {
		terms rebalance.Terms
		view  rebalance.Giving
		want  rebalance.Give
	}{
		"nobody asks":                              {eager, rebalance.Giving{}, rebalance.Serve},
		"eager: asked":                             {eager, rebalance.Giving{Wanted: true}, rebalance.Drain},
		"eager: winding down":                      {eager, rebalance.Giving{Wanted: true, Draining: true, Drained: time.Second}, rebalance.Serve},
		"eager: never resumes":                     {eager, rebalance.Giving{Draining: true, Drained: time.Second}, rebalance.Serve},
		"eager: wound down":                        {eager, rebalance.Giving{Wanted: true, Draining: true, Returned: true}, rebalance.Yield},
		"eager: wound down for nobody":             {eager, rebalance.Giving{Draining: true, Returned: true}, rebalance.LetGo},
		"eager: over time":                         {eager, rebalance.Giving{Wanted: true, Draining: true, Drained: 20 * time.Second}, rebalance.CutOff},
		"eager: over time, and it waits":           {waits, rebalance.Giving{Wanted: true, Draining: true, Drained: time.Hour}, rebalance.Serve},
		"cooperative: asked":                       {cooperative, rebalance.Giving{Wanted: true}, rebalance.Offer},
		"cooperative: offered":                     {cooperative, rebalance.Giving{Wanted: true, Offered: true}, rebalance.Serve},
		"cooperative: called off":                  {cooperative, rebalance.Giving{Offered: true}, rebalance.Withdraw},
		"cooperative: not taken":                   {cooperative, rebalance.Giving{Wanted: true, Offered: true, OfferedFor: 40 * time.Second}, rebalance.Withdraw},
		"cooperative: the handler has returned":    {cooperative, rebalance.Giving{Wanted: true, Offered: true, Returned: true}, rebalance.Yield},
		"cooperative: returned, and nobody's want": {cooperative, rebalance.Giving{Returned: true}, rebalance.LetGo},
		"a mode of a newer version":                {rebalance.Terms{Mode: 9}, rebalance.Giving{Wanted: true}, rebalance.Drain},
	} {
		if got := tc.terms.Give(tc.view); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestSuccessorSide(t *testing.T) {
	const beat = 3 * time.Second
	eager := rebalance.Terms{Mode: rebalance.Eager, Drain: 20 * time.Second, Prepare: 5 * time.Second}
	waits := eager
	waits.AfterDrain = rebalance.Wait
	cooperative := eager
	cooperative.Mode = rebalance.Cooperative
	plain := rebalance.Terms{Mode: rebalance.Eager}
	for name, tc := range map[string]struct {
		terms rebalance.Terms
		view  rebalance.Taking
		want  rebalance.Take
	}{
		"prepares first":                  {eager, rebalance.Taking{Planned: true}, rebalance.Prepare},
		"asks when prepared":              {eager, rebalance.Taking{Planned: true, Prepared: true}, rebalance.Ask},
		"asks unprepared at the deadline": {cooperative, rebalance.Taking{Planned: true, PreparingFor: 5 * time.Second}, rebalance.Ask},
		"asks at once without a hook":     {plain, rebalance.Taking{Planned: true}, rebalance.Ask},
		"planned elsewhere":               {eager, rebalance.Taking{}, rebalance.CallOff},
		"planned elsewhere, offered":      {cooperative, rebalance.Taking{Asked: true, Offered: true}, rebalance.CallOff},
		"waits":                           {eager, rebalance.Taking{Planned: true, Asked: true, AskedFor: 42 * time.Second, Beat: beat}, rebalance.Stay},
		"forces":                          {eager, rebalance.Taking{Planned: true, Asked: true, AskedFor: 43 * time.Second, Beat: beat}, rebalance.Seize},
		"gives the owner two beats":       {plain, rebalance.Taking{Planned: true, Asked: true, AskedFor: 5 * time.Second, Beat: beat}, rebalance.Stay},
		"waits for ever if it said so":    {waits, rebalance.Taking{Planned: true, Asked: true, AskedFor: time.Hour, Beat: beat}, rebalance.Stay},
		"is offered":                      {cooperative, rebalance.Taking{Planned: true, Asked: true, Offered: true}, rebalance.Accept},
		"is never offered":                {cooperative, rebalance.Taking{Planned: true, Asked: true, AskedFor: 43 * time.Second, Beat: beat}, rebalance.CallOff},
	} {
		if got := tc.terms.Take(tc.view); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestEveryPhaseEndsByItself: if nothing more is ever heard of the other side,
// each side does something in the end, whatever phase it is in, unless it was
// told to wait.
func TestEveryPhaseEndsByItself(t *testing.T) {
	const long = 3 * rebalance.MaxDuration
	flags := []bool{false, true}
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative, 9} {
		terms := rebalance.Terms{Mode: mode, Drain: rebalance.MaxDuration, Prepare: rebalance.MaxDuration}
		for _, wanted := range flags {
			for _, draining := range flags {
				for _, offered := range flags {
					in := rebalance.Giving{Wanted: wanted, Draining: draining, Drained: long, Offered: offered, OfferedFor: long}
					inMove := draining || offered || wanted
					if got := terms.Give(in); inMove && got == rebalance.Serve {
						t.Errorf("%v: an owner stays in %+v", mode, in)
					}
				}
			}
		}
		for _, asked := range flags {
			for _, offered := range flags {
				in := rebalance.Taking{Planned: true, PreparingFor: long, Asked: asked, AskedFor: long, Offered: offered, Beat: time.Second}
				if got := terms.Take(in); got == rebalance.Stay || got == rebalance.Prepare {
					t.Errorf("%v: a successor stays in %+v", mode, in)
				}
			}
		}
	}
}

func TestTermsFill(t *testing.T) {
	const drain = 20 * time.Second
	for _, tc := range []struct{ given, want rebalance.Terms }{
		{rebalance.Eager.Terms("s", rebalance.Balance), rebalance.Terms{Mode: rebalance.Eager, Drain: drain}},
		{rebalance.Terms{Mode: rebalance.Cooperative, Drain: time.Second}, rebalance.Terms{Mode: rebalance.Cooperative, Drain: time.Second}},
		{rebalance.Terms{Mode: rebalance.Eager, Drain: -1, Prepare: -1}, rebalance.Terms{Mode: rebalance.Eager}},
	} {
		if got := tc.given.Fill(drain); got != tc.want {
			t.Errorf("%v filled is %v, want %v", tc.given, got, tc.want)
		}
	}
}
