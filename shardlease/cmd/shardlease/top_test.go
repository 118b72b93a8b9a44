package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A viewer is a person in front of top, without a terminal.
type viewer struct {
	*world
	model model
}

func newViewer() *viewer {
	w := newWorld()
	return &viewer{w, newModel(place{"leases", "orders"}, palette{bare: true}, w.clock)}
}

// send gives the model a message.
func (v *viewer) send(msg tea.Msg) {
	m, _ := v.model.Update(msg)
	v.model = m.(model)
}

// look gives the model a look at the group.
func (v *viewer) look(t testing.TB) {
	t.Helper()
	s, err := inspect.Look(t.Context(), v.tables.link("leases"), v.env["SHARDLEASE_GROUP"], inspect.Options{Now: func() time.Time { return v.clock }, Ends: -1})
	v.send(look{s, err, v.clock})
}

// press presses keys.
func (v *viewer) press(keys ...string) {
	for _, name := range keys {
		v.send(key(name))
	}
}

// key returns the message of a key.
func key(name string) tea.KeyPressMsg {
	codes := map[string]rune{
		"up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown,
		"home": tea.KeyHome, "end": tea.KeyEnd, "enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace, "tab": tea.KeyTab,
	}
	if code, special := codes[name]; special {
		return tea.KeyPressMsg{Code: code}
	}
	if last, ctrl := strings.CutPrefix(name, "ctrl+"); ctrl {
		return tea.KeyPressMsg{Code: rune(last[0]), Mod: tea.ModCtrl}
	}
	if name == "space" {
		name = " "
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

// screen returns the lines of the screen.
func (v *viewer) screen() []string { return strings.Split(v.model.View().Content, "\n") }

// TestScreens runs the transcripts in testdata/top. Besides the commands of testscript they have:
//
//	seed FILE        makes the transitions in a file; see seeder
//	look             a look at the group ends
//	later DURATION   the clock goes on
//	fault reads|none
//	spoil SHARD      the row of a shard cannot be read
//	size W H         the terminal has another size
//	press KEY…       a person presses keys
//	type TEXT        a person types a text
//	screen           prints the screen
func TestScreens(t *testing.T) {
	testscript.RunT(shim{t}, testscript.Params{
		Dir: "testdata/top", UpdateScripts: os.Getenv("UPDATE_TRANSCRIPTS") != "", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Values["on"], env.Values["t"] = newViewer(), env.T().(shim).T
			return nil
		},
		Cmds: map[string]func(*script, bool, []string){
			"seed": on(func(ts *script, v *viewer, args []string) { ts.Check(v.seed(ts.ReadFile(args[0]))) }),
			"look": on(func(ts *script, v *viewer, _ []string) { v.look(ts.Value("t").(*testing.T)) }),
			"later": on(func(ts *script, v *viewer, args []string) {
				v.clock = v.clock.Add(length(ts, args[0]))
				v.send(clock(v.clock))
			}),
			"fault": on(func(_ *script, v *viewer, args []string) { v.tables.fault = args[0] }),
			"spoil": on(func(_ *script, v *viewer, args []string) {
				v.tables.spoil(lease.Key{Group: "orders", Kind: lease.KindLease, Name: args[0]}, true)
			}),
			"size": on(func(ts *script, v *viewer, args []string) {
				width, err := strconv.Atoi(args[0])
				ts.Check(err)
				height, err := strconv.Atoi(args[1])
				ts.Check(err)
				v.send(tea.WindowSizeMsg{Width: width, Height: height})
			}),
			"press": on(func(_ *script, v *viewer, args []string) { v.press(args...) }),
			"type":  on(func(_ *script, v *viewer, args []string) { v.press(strings.Split(args[0], "")...) }),
			"screen": on(func(ts *script, v *viewer, _ []string) {
				for _, line := range v.screen() {
					fmt.Fprintln(ts.Stdout(), strings.TrimRight(line, " "))
				}
			}),
		},
	})
}

// fits checks that a screen has the size of the terminal, and nothing that changes a terminal. Both ways in which
// terminals measure a text must agree.
func (v *viewer) fits(t *testing.T, after string) {
	t.Helper()
	lines := v.screen()
	if len(lines) > v.model.height {
		t.Errorf("%s: %d lines on a screen of %d", after, len(lines), v.model.height)
	}
	for _, line := range lines {
		harmless(t, after, line)
		if n := width(line); n > v.model.width || n != lipgloss.Width(line) {
			t.Errorf("%s: a line of %d or %d columns on a screen of %d: %q", after, n, lipgloss.Width(line), v.model.width, line)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// allKeys returns every key that does something.
func allKeys() []string {
	return []string{
		"1", "2", "3", "4", "tab", "left", "right", "up", "down", "j", "k", "pgup", "pgdown", "home", "end", "g", "G", "enter", "esc", "/", "s", "r", "space", "p", "?",
		"backspace", "ctrl+u", "ctrl+b", "ctrl+f", "a", "東", "\u0301",
	}
}

// TestScreensFit: whatever the names are, and whatever a person presses at whatever size, no line is wider than the
// terminal, and nothing changes it.
func TestScreensFit(t *testing.T) {
	v := newViewer()
	var seed strings.Builder
	for i, name := range nasty() {
		q := strconv.Quote(name)
		fmt.Fprintf(&seed, "at -1h\nworker %s w-%d task=%s\ncreate %s\nclaim %s w-%d %s\nfail %s %s\nclaim %s w-%d %s\nwish pin %s %s\n", q, i, strconv.Itoa(i), q, q, i, q, q, q, q, i, q, q, q)
	}
	v.seeds(t, seed.String())
	v.model.at = place{nasty()[6], strings.Repeat("東", 80)}
	chance := rand.New(rand.NewPCG(1, 2))
	v.look(t)
	for i := range 1500 {
		name := allKeys()[chance.IntN(len(allKeys()))]
		v.press(name)
		if i%50 == 0 {
			v.send(tea.PasteMsg{Content: nasty()[chance.IntN(len(nasty()))] + "\x1b[2J\n"})
			v.send(tea.WindowSizeMsg{Width: 40 + chance.IntN(100), Height: 4 + chance.IntN(40)})
			v.tables.fault = []string{"reads", "none"}[chance.IntN(2)]
			v.clock = v.clock.Add(time.Second)
			v.look(t)
		}
		v.fits(t, fmt.Sprintf("step %d, key %s", i, name))
	}
}

// TestTopShowsNoPositions: no view, row or key shows the position or the state of a checkpoint.
func TestTopShowsNoPositions(t *testing.T) {
	v := newViewer()
	v.seeds(t, fleet)
	v.look(t)
	v.seeds(t, "at 0s\ncommit held canary-20 canary-21\nrelease held\n")
	v.clock = v.clock.Add(2 * time.Second)
	v.send(tea.WindowSizeMsg{Width: 400, Height: 60})
	v.look(t)
	seen := 0
	for _, view := range []string{"1", "2", "3", "4"} {
		v.press(view)
		for range 20 {
			for _, name := range []string{"enter", "esc", "down"} {
				v.press(name)
				if text := v.model.View().Content; strings.Contains(text, "canary") {
					t.Fatalf("view %s shows a position:\n%s", view, text)
				} else if strings.Contains(text, "checkpoint") {
					seen++
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d screens were about a checkpoint: the test may have stopped finding them", seen)
	}
}

// TestLargeTop: with 10,000 shards a screen costs as much as with 100, because only the rows that are on it are computed.
func TestLargeTop(t *testing.T) {
	work := func(shards int) (screen float64) {
		v := newViewer()
		v.seeds(t, heldBy1(shards))
		v.look(t)
		v.press("end")
		if at := v.model.lists[shardsView].cursor; at != shards-1 {
			t.Fatalf("the cursor is at %d", at)
		}
		return testing.AllocsPerRun(20, func() {
			v.press("up")
			v.model.View()
		})
	}
	if few, many := work(100), work(10_000); many > 1.2*few {
		t.Errorf("a key and its screen take %.0f allocations with 10,000 shards, and %.0f with 100", many, few)
	}
}

// TestEveryStateHasItsWord: without colours the screen has the same words.
func TestEveryStateHasItsWord(t *testing.T) {
	for _, state := range inspect.States() {
		colored, gray := palette{color: true}.paint(stateTone(state), string(state)), palette{}.paint(stateTone(state), string(state))
		for _, text := range []string{colored, gray} {
			if !strings.Contains(text, string(state)) {
				t.Errorf("%s is shown as %q", state, text)
			}
		}
		if strings.Contains(gray, "[3") || !strings.Contains(colored, "\x1b[") {
			t.Errorf("%s is shown as %q, and without colours as %q", state, colored, gray)
		}
	}
}

// TestHelpListsTheKeys: the help and docs/operations.md have all keys.
func TestHelpListsTheKeys(t *testing.T) {
	_, text, _ := strings.Cut(page(t, "operations.md"), "\n### top\n")
	text, _, _ = strings.Cut(text, "\n### ")
	for _, b := range bindings() {
		for name := range strings.FieldsSeq(b.key) {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/operations.md does not describe the key %s", name)
			}
		}
	}
}

// TestTopNeedsATerminal: without one, the usage error names the commands for scripts.
func TestTopNeedsATerminal(t *testing.T) {
	w := newWorld()
	for _, args := range [][]string{{"top"}, {"top", "--rows-every", "1s"}} {
		out, problems := w.output(t, args...)
		if w.code != exitUsage || out != "" {
			t.Errorf("%v: exit code %d: %s", args, w.code, out)
		}
		for _, name := range []string{"shardlease ls", "shardlease check", "shardlease events --follow"} {
			if len(args) == 1 && !strings.Contains(problems, name) {
				t.Errorf("the error does not name %s: %s", name, problems)
			}
		}
	}
}
