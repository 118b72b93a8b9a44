package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// fleet has shards in most states, whose checkpoints are canaries.
const fleet = `at -1h
worker host-1 a-1 task=run-17
worker host-2 b-1
create held
create moving
create free
create resting
create set-aside
create finished
at -50m
claim held a-1 host-1
claim moving a-1 host-1
claim resting b-1 host-2
claim finished b-1 host-2
claim set-aside b-1 host-2
claim free b-1 host-2
at -10m
commit held canary-1 canary-2
commit moving canary-3 canary-4
commit resting canary-5 canary-6
commit finished canary-7 canary-8
commit set-aside canary-9 canary-10
commit free canary-11
release free
finish finished
quarantine set-aside
plan a-1
at -4s
wants b-1 moving
at -2s
beat a-1
beat b-1
fail resting "broken pipe"
`

// invocations returns a command line for each command that works on this fleet, except those that need
// AWS or a terminal, serve until they are interrupted, or tell the story.
func invocations() map[string][]string {
	yes := []string{"--why", "test", "--yes"}
	return map[string][]string{
		"groups": {}, "ls": {}, "workers": {}, "get": {"held"}, "history": {}, "plan": {"--add", "1"}, "events": {"--since", "2h"}, "check": {}, "wishes": {}, "journal": {},

		"move": {"--why", "test", "--to", "host-2", "held"}, "release": {"--why", "test", "held"}, "reassign": {"--why", "test", "--to", "host-2", "held"}, "release-task": append(yes, "run-17"), "evict": append(yes, "host-2"),
		"quarantine": {"--why", "test", "free"}, "unquarantine": {"--why", "test", "set-aside"},
		"rewind": {"--why", "test", "--to", "typed-12", "--mark-state", "typed-13", "held"}, "remove": {"--why", "test", "finished"}, "finish": {"--why", "test", "held"}, "repair": {"--why", "test", "broken"},
		"cordon": append(yes, "host-1"), "drain": append(yes, "host-1"), "pause": yes, "raise": yes, "resume": {"--yes"}, "pin": append(yes, "held", "host-2"), "lift": {"--yes", "pause"},
		"create": {}, "verify": {}, "adopt": {"--yes"},
	}
}

// leaves returns the commands that do something.
func leaves(c *cobra.Command) (list []*cobra.Command) {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	for _, below := range c.Commands() {
		list = append(list, leaves(below)...)
	}
	return list
}

// TestNoPositions: no command prints the position or the state of a checkpoint in any format, unless
// --positions is set; also not in what it writes, and not if it fails.
func TestNoPositions(t *testing.T) {
	given := invocations()
	found := 0
	for _, c := range leaves((&program{}).root()) {
		args, known := given[c.Name()]
		if !known {
			if c.Parent().Name() != "kcl" && c.Name() != "demo" && c.Name() != "top" && c.Name() != "exporter" { // TestExporter checks its page
				t.Errorf("there is no invocation of %s", c.CommandPath())
			}
			continue
		}
		path := strings.Fields(c.CommandPath())[1:]
		forms := [][]string{nil}
		if f := c.Flags().Lookup("output"); f != nil {
			for _, name := range f.Value.(*format).may {
				forms = append(forms, []string{"-o", name})
			}
		}
		for _, form := range forms {
			w := newWorld()
			seed := fleet
			if c.Name() != "move" { // it is refused during a pause
				seed += "wish pause\n"
			}
			w.seeds(t, seed)
			if c.Name() == "repair" {
				w.seeds(t, "create broken\n")
				w.tables.spoil(lease.Key{Group: "orders", Kind: lease.KindLease, Name: "broken"}, true)
			}
			if c.Name() == "resume" || len(args) > 0 {
				w.answer = args[len(args)-1]
			}
			line := append(append(append([]string{}, path...), form...), args...)
			out, problems := w.output(t, line...)
			if w.code != 0 && c.Name() != "check" {
				t.Errorf("%v: exit code %d: %s", line, w.code, problems)
			}
			if strings.Contains(out+problems, "canary") {
				t.Errorf("%v prints a position: %s%s", line, out, problems)
			}
			if c.Flags().Lookup("positions") == nil || form == nil || form[1] == asNames {
				continue
			}
			if out, _ = w.output(t, append(line, "--positions")...); strings.Contains(out, "canary") {
				found++
			} else if form[1] != asWide {
				t.Errorf("%v --positions prints none: %s", line, out)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d listings have positions: the test may have stopped finding them", found)
	}
}

// TestEveryCommandIsDocumented: each command says what it does, and has an example that begins with it.
// Each that only looks has -o, and each that changes something has --yes.
func TestEveryCommandIsDocumented(t *testing.T) {
	root := (&program{}).root()
	all := append(leaves(root), root)
	for _, c := range all {
		if c.Short == "" || c.Long == "" || !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: the help is not complete", c.CommandPath())
		}
		for line := range strings.Lines(c.Long) {
			if width(line) > 121 {
				t.Errorf("%s: a line of %d columns: %s", c.CommandPath(), width(line), line)
			}
		}
	}
	if len(all) < 25 {
		t.Errorf("found only %d commands", len(all))
	}
}

// heldBy1 seeds a worker that holds so many shards.
func heldBy1(shards int) string {
	var all strings.Builder
	all.WriteString("at -1h\nworker host-1 a-1\n")
	for i := range shards {
		fmt.Fprintf(&all, "create shard-%d\nclaim shard-%d a-1 host-1\n", i, i)
	}
	return all.String()
}

// TestLargeGroup: 10,000 shards are listed, and in long runs, which have the machine for themselves, within a second. The
// quickest of three counts.
func TestLargeGroup(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // Go's default, as in the program
	w := newWorld()
	w.seeds(t, heldBy1(10_000))
	for _, format := range []string{asTable, asJSON, asLines, asNames} {
		quickest := time.Hour
		for range fixture.Size(1, 3) {
			began := time.Now()
			out, _ := w.output(t, "ls", "-o", format)
			quickest = min(quickest, time.Since(began))
			if lines := strings.Count(out, "\n"); w.code != 0 || lines < 10_000 {
				t.Fatalf("ls -o %s: %d lines, exit code %d", format, lines, w.code)
			}
		}
		if t.Logf("%s: %v", format, quickest); quickest > time.Second && fixture.Long() {
			t.Errorf("ls -o %s took %v", format, quickest)
		}
	}
}

// TestCompletionWaitsTwoSeconds: a table that does not answer keeps the shell for two seconds.
func TestCompletionWaitsTwoSeconds(t *testing.T) {
	w := newWorld()
	w.seeds(t, "create shard-0")
	w.tables.slow = time.Hour
	out, _ := w.output(t, "__complete", "get", "")
	if waited := w.clock.Sub(now()); waited != 2*time.Second || strings.Contains(out, "shard") {
		t.Errorf("waited for %v: %s", waited, out)
	}
}

// TestBrokenPipe: an output that cannot be written is an error.
func TestBrokenPipe(t *testing.T) {
	w := newWorld()
	w.seeds(t, fleet)
	for _, format := range allFormats() {
		if w.run(t, broken{}, io.Discard, "ls", "-o", format); w.code != exitError {
			t.Errorf("ls -o %s: exit code %d", format, w.code)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestCensus: the groups of a table are told by the partitions of its records.
func TestCensus(t *testing.T) {
	c := census{}
	for _, key := range [][2]string{
		{"orders/lease", "shard-0"}, {"orders/table", "identity"}, {"orders/seat", "!plan"}, {"orders/seat", "a-1"}, {"orders/target", "a-1/0000"},
		{"big/lease/0", "a"}, {"big/lease/17", "b"}, {"a/b/lease", "c"}, {"new\nline/table", "identity"}, {"other", "x"}, {"/lease", "x"},
	} {
		c.add(key[0], key[1])
	}
	if got, want := fmt.Sprint(c.sorted()), "[{a/b 1 0} {big 2 0} {new\nline 0 0} {orders 1 1}]"; got != want {
		t.Errorf("groups: %s, want %s", got, want)
	}
}

// TestStatesAreKnown: the help of --state lists all states.
func TestStatesAreKnown(t *testing.T) {
	if n := len(strings.Split(stateNames(), ", ")); n != len(inspect.States()) {
		t.Errorf("%d states", n)
	}
}
