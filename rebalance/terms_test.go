package rebalance_test

import (
	"encoding/json"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

func TestZeroModeTeachesTheChoice(t *testing.T) {
	var none rebalance.Mode
	_, marshal := none.MarshalText()
	for _, err := range []error{none.Validate(), marshal, none.UnmarshalText([]byte("")), none.UnmarshalText([]byte("EAGER"))} {
		if !errors.Is(err, rebalance.ErrNoMode) {
			t.Fatalf("got %v, want ErrNoMode", err)
		}
		for _, word := range []string{"eager", "no overlap", "cooperative", "no gap"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not mention %q", err, word)
			}
		}
	}
}

func TestModeTextForms(t *testing.T) {
	for _, mode := range []rebalance.Mode{rebalance.Eager, rebalance.Cooperative} {
		text, err := json.Marshal(map[string]rebalance.Mode{"handoff": mode})
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]rebalance.Mode
		if err := json.Unmarshal(text, &back); err != nil || back["handoff"] != mode {
			t.Errorf("%s came back as %v, %v", text, back, err)
		}
		var fromFlag rebalance.Mode
		set := flag.NewFlagSet("", flag.ContinueOnError)
		set.TextVar(&fromFlag, "handoff", rebalance.Eager, "")
		if err := set.Parse([]string{"-handoff", mode.String()}); err != nil || fromFlag != mode {
			t.Errorf("flag gave %v, %v", fromFlag, err)
		}
	}
}

func TestTermsOfANewerVersionAreServedAsEager(t *testing.T) {
	got, err := rebalance.ParseTerms("telepathic 20s implore 0s")
	want := rebalance.Terms{Mode: rebalance.Eager, Drain: 20 * time.Second, AfterDrain: rebalance.Force}
	if err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestTermsLimits(t *testing.T) {
	for name, terms := range map[string]rebalance.Terms{
		"no mode":            {},
		"negative drain":     {Mode: rebalance.Eager, Drain: -1},
		"drain over a day":   {Mode: rebalance.Eager, Drain: rebalance.MaxDuration + 1},
		"negative prepare":   {Mode: rebalance.Eager, Prepare: -1},
		"unknown afterDrain": {Mode: rebalance.Eager, AfterDrain: 9},
	} {
		if terms.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, text := range []string{"", "eager", "eager 20s force", "eager x force 0s", "eager 20s force 25h", " 20s force 0s"} {
		if _, err := rebalance.ParseTerms(text); !errors.Is(err, rebalance.ErrTerms) {
			t.Errorf("ParseTerms(%q): %v", text, err)
		}
	}
}

func FuzzTerms(f *testing.F) {
	f.Add("eager 20s force 0s")
	f.Add("cooperative 1m0s wait 5s")
	f.Fuzz(func(t *testing.T, text string) {
		terms, err := rebalance.ParseTerms(text)
		if err != nil {
			return
		}
		if again, err := rebalance.ParseTerms(terms.String()); err != nil || again != terms {
			t.Errorf("%q became %v, then %v, %v", text, terms, again, err)
		}
	})
}

func TestTermsInAConfiguration(t *testing.T) {
	type config struct{ Handoff rebalance.Terms }
	want := config{rebalance.Terms{Mode: rebalance.Cooperative, Drain: 5 * time.Second, AfterDrain: rebalance.Wait, Prepare: time.Second}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got config
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("%s came back as %v, %v", text, got, err)
	}
	for text, want := range map[string]error{
		`{"Handoff": "telepathic 5s wait 1s"}`: rebalance.ErrNoMode,
		`{"Handoff": "eager 5s implore 1s"}`:   rebalance.ErrTerms,
		`{"Handoff": "eager"}`:                 rebalance.ErrTerms,
	} {
		if err := json.Unmarshal([]byte(text), &got); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	if _, err := json.Marshal(config{}); err == nil {
		t.Error("the zero terms were written down")
	}
}
