package handoff_test

import (
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/handoff"
	"github.com/shardlease/shardlease-go/rebalance"
)

func TestOwnerSide(t *testing.T) {
	eager := rebalance.Terms{Mode: rebalance.Eager, Drain: 20 * time.Second}
	waits := eager
	waits.AfterDrain = rebalance.Wait
	cooperative := rebalance.Terms{Mode: rebalance.Cooperative, Drain: 20 * time.Second}
	for name, tc := range map[string]struct {
		terms rebalance.Terms
		view  handoff.Giving
		want  handoff.Give
	}{
		"nobody asks":                              {eager, handoff.Giving{}, handoff.Serve},
		"eager: asked":                             {eager, handoff.Giving{Wanted: true}, handoff.Drain},
		"eager: winding down":                      {eager, handoff.Giving{Wanted: true, Draining: true, Drained: time.Second}, handoff.Serve},
		"eager: never resumes":                     {eager, handoff.Giving{Draining: true, Drained: time.Second}, handoff.Serve},
		"eager: wound down":                        {eager, handoff.Giving{Wanted: true, Draining: true, Returned: true}, handoff.Yield},
		"eager: wound down for nobody":             {eager, handoff.Giving{Draining: true, Returned: true}, handoff.LetGo},
		"eager: over time":                         {eager, handoff.Giving{Wanted: true, Draining: true, Drained: 20 * time.Second}, handoff.CutOff},
		"eager: over time, and it waits":           {waits, handoff.Giving{Wanted: true, Draining: true, Drained: time.Hour}, handoff.Serve},
		"cooperative: asked":                       {cooperative, handoff.Giving{Wanted: true}, handoff.Offer},
		"cooperative: offered":                     {cooperative, handoff.Giving{Wanted: true, Offered: true}, handoff.Serve},
		"cooperative: called off":                  {cooperative, handoff.Giving{Offered: true}, handoff.Withdraw},
		"cooperative: not taken":                   {cooperative, handoff.Giving{Wanted: true, Offered: true, OfferedFor: 40 * time.Second}, handoff.Withdraw},
		"cooperative: the handler has returned":    {cooperative, handoff.Giving{Wanted: true, Offered: true, Returned: true}, handoff.Yield},
		"cooperative: returned, and nobody's want": {cooperative, handoff.Giving{Returned: true}, handoff.LetGo},
		"a mode of a newer version":                {rebalance.Terms{Mode: 9}, handoff.Giving{Wanted: true}, handoff.Drain},
	} {
		if got := handoff.Owner(tc.terms, tc.view); got != tc.want {
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
		view  handoff.Taking
		want  handoff.Take
	}{
		"prepares first":                      {eager, handoff.Taking{}, handoff.Prepare},
		"asks when prepared":                  {eager, handoff.Taking{Prepared: true}, handoff.Ask},
		"asks unprepared at the deadline":     {cooperative, handoff.Taking{PreparingFor: 5 * time.Second}, handoff.Ask},
		"asks at once without a hook":         {plain, handoff.Taking{}, handoff.Ask},
		"waits":                               {eager, handoff.Taking{Asked: true, AskedFor: 42 * time.Second, Beat: beat}, handoff.Stay},
		"forces":                              {eager, handoff.Taking{Asked: true, AskedFor: 43 * time.Second, Beat: beat}, handoff.Seize},
		"gives the owner two beats":           {plain, handoff.Taking{Asked: true, AskedFor: 5 * time.Second, Beat: beat}, handoff.Stay},
		"waits forever for terms that say so": {waits, handoff.Taking{Asked: true, AskedFor: time.Hour, Beat: beat}, handoff.Stay},
		"is offered":                          {cooperative, handoff.Taking{Asked: true, Offered: true}, handoff.Accept},
		"is never offered":                    {cooperative, handoff.Taking{Asked: true, AskedFor: 43 * time.Second, Beat: beat}, handoff.CallOff},
	} {
		if got := handoff.Successor(tc.terms, tc.view); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestEveryPhaseEndsByItself: if the other side never does anything again, each side leaves every
// phase in the end, unless the terms say to wait.
func TestEveryPhaseEndsByItself(t *testing.T) {
	const long = 3 * rebalance.MaxDuration
	flags := []bool{false, true}
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative, 9} {
		terms := rebalance.Terms{Mode: mode, Drain: rebalance.MaxDuration, Prepare: rebalance.MaxDuration}
		for _, wanted := range flags {
			for _, draining := range flags {
				for _, offered := range flags {
					in := handoff.Giving{Wanted: wanted, Draining: draining, Drained: long, Offered: offered, OfferedFor: long}
					inMove := draining || offered || wanted
					if got := handoff.Owner(terms, in); inMove && got == handoff.Serve {
						t.Errorf("%v: an owner stays in %+v", mode, in)
					}
				}
			}
		}
		for _, asked := range flags {
			for _, offered := range flags {
				in := handoff.Taking{PreparingFor: long, Asked: asked, AskedFor: long, Offered: offered, Beat: time.Second}
				if got := handoff.Successor(terms, in); got == handoff.Stay || got == handoff.Prepare {
					t.Errorf("%v: a successor stays in %+v", mode, in)
				}
			}
		}
	}
}
