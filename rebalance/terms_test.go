package rebalance_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
}

func TestTermsInAConfiguration(t *testing.T) {
	const second = time.Second
	type config struct{ Handoff rebalance.Terms }
	for _, c := range []struct {
		text  string
		want  rebalance.Terms
		again string // the text that MarshalText writes; "": the same as text
	}{
		{"eager", rebalance.Terms{Mode: rebalance.Eager}, ""},
		{"cooperative", rebalance.Terms{Mode: rebalance.Cooperative}, ""},
		{"eager 30s", rebalance.Terms{Mode: rebalance.Eager, Drain: 30 * second}, "eager 30s force default"},
		{"eager default wait", rebalance.Terms{Mode: rebalance.Eager, AfterDrain: rebalance.Wait}, "eager default wait default"},
		{"cooperative 5s wait 1s", rebalance.Terms{Mode: rebalance.Cooperative, Drain: 5 * second, AfterDrain: rebalance.Wait, Prepare: second}, ""},
		{"eager 0s force 0s", rebalance.Terms{Mode: rebalance.Eager, Drain: -1, Prepare: -1}, ""},
		{"eager default force default", rebalance.Terms{Mode: rebalance.Eager}, "eager"},
	} {
		var fromFile, back config
		if err := json.Unmarshal(fmt.Appendf(nil, `{"Handoff": %q}`, c.text), &fromFile); err != nil || fromFile.Handoff != c.want {
			t.Errorf("%q was read as %+v, %v", c.text, fromFile.Handoff, err)
		}
		var fromFlag rebalance.Terms
		set := flag.NewFlagSet("", flag.ContinueOnError)
		set.TextVar(&fromFlag, "handoff", rebalance.Terms{}, "")
		if err := set.Parse([]string{"-handoff", c.text}); err != nil || fromFlag != c.want {
			t.Errorf("the flag %q was read as %+v, %v", c.text, fromFlag, err)
		}
		text, err := json.Marshal(fromFile)
		if want := fmt.Sprintf(`{"Handoff":%q}`, cmp.Or(c.again, c.text)); err != nil || string(text) != want {
			t.Errorf("%q was written as %s, %v", c.text, text, err)
		}
		if err := json.Unmarshal(text, &back); err != nil || back != fromFile {
			t.Errorf("%s came back as %v, %v", text, back, err)
		}
	}
	if _, err := json.Marshal(config{}); !errors.Is(err, rebalance.ErrNoMode) {
		t.Errorf("the zero terms were written down: %v", err)
	}
}

// The error about a text that was refused shows the text, short and printable.
func TestRefusedTextIsShown(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, c := range []struct {
		text  string
		want  error
		shown string
	}{
		{"", rebalance.ErrNoMode, `""`},
		{"EAGER", rebalance.ErrNoMode, `"EAGER"`},
		{"eager\n", rebalance.ErrNoMode, `"eager\n"`},
		{"\x1b[2J\xff", rebalance.ErrNoMode, `"\x1b[2J\xff"`},
		{long, rebalance.ErrNoMode, `"` + long[:64] + `"`},
		{"telepathic 5s wait 1s", rebalance.ErrNoMode, `"telepathic 5s wait 1s"`},
		{"eager 5s implore 1s", rebalance.ErrTerms, `"eager 5s implore 1s"`},
		{"eager 5s wait 1s now", rebalance.ErrTerms, `"eager 5s wait 1s now"`},
		{"eager -5s", rebalance.ErrTerms, `"eager -5s"`},
		{"cooperative wait", rebalance.ErrTerms, `"cooperative wait"`},
		{"eager 25h", rebalance.ErrTerms, `"eager 25h"`},
		{"eager ", rebalance.ErrTerms, `"eager "`},
		{"eager 5", rebalance.ErrTerms, `"eager 5"`},
	} {
		before := rebalance.Terms{Mode: rebalance.Eager, Drain: 1}
		terms := before
		err := terms.UnmarshalText([]byte(c.text))
		if !errors.Is(err, c.want) || !strings.HasSuffix(err.Error(), "it is "+c.shown) || terms != before {
			t.Errorf("%.80q: %v, and then %v", c.text, err, terms)
		}
		if form := "MODE [DRAIN [force|wait [PREPARE]]]"; c.want == rebalance.ErrTerms && !strings.Contains(err.Error(), form) {
			t.Errorf("%q does not show the order of the words", err)
		}
		var mode rebalance.Mode
		if err := mode.UnmarshalText([]byte(c.text)); !errors.Is(err, rebalance.ErrNoMode) || !strings.HasSuffix(err.Error(), c.shown) {
			t.Errorf("%.80q as a mode: %v", c.text, err)
		}
	}
}

// FuzzConfiguredTerms: terms that are written, or printed, are read back as the same terms.
func FuzzConfiguredTerms(f *testing.F) {
	f.Add("eager", int64(0), int64(0), uint8(1), uint8(0))
	f.Add("eager 30s wait 0s", int64(30*time.Second), int64(-1), uint8(1), uint8(1))
	f.Add("", int64(0), int64(time.Second), uint8(2), uint8(0))
	f.Add("cooperative 1m0s wait 5s", int64(-1), int64(time.Second), uint8(2), uint8(1))
	f.Fuzz(func(t *testing.T, text string, drain, prepare int64, mode, after uint8) {
		var read, again rebalance.Terms
		if read.UnmarshalText([]byte(text)) == nil {
			written, err := read.MarshalText()
			if err != nil || again.UnmarshalText(written) != nil || again != read {
				t.Errorf("%q became %+v, then %q, then %+v, %v", text, read, written, again, err)
			}
		}
		terms := rebalance.Terms{
			Mode: rebalance.Mode(mode), Drain: time.Duration(drain), AfterDrain: rebalance.AfterDrain(after), Prepare: time.Duration(prepare),
		}
		written, err := terms.MarshalText()
		if (err == nil) != (terms.Fill(0).Validate() == nil) {
			t.Fatalf("%+v: %q, %v", terms, written, err)
		}
		terms.Drain, terms.Prepare = max(terms.Drain, -1), max(terms.Prepare, -1) // negative is negative
		if err == nil && (again.UnmarshalText(written) != nil || again != terms || terms.String() != string(written)) {
			t.Errorf("%+v became %q, then %+v; its String is %q", terms, written, again, terms)
		}
	})
}
