package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
)

var update = flag.Bool("update", false, "record the transcripts again")

// TestTranscripts: the engines hold the conversations in testdata.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 23 {
		t.Fatalf("%d transcripts (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			now, err := Play(string(text), virtual.New)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				err = os.WriteFile(file, []byte(now), 0o600)
			} else if d := difference(string(text), now); d != "" {
				t.Errorf("the conversation has changed (-update records it again):\n%s", d)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// difference returns where two transcripts differ first, with a few lines before it; "" if
// they are the same.
func difference(recorded, now string) string {
	if recorded == now {
		return ""
	}
	old, lines := strings.Split(recorded, "\n"), strings.Split(now, "\n")
	at := 0
	for at < min(len(old), len(lines)) && old[at] == lines[at] {
		at++
	}
	var b strings.Builder
	for _, line := range lines[max(at-5, 0):at] {
		b.WriteString("  " + line + "\n")
	}
	for _, line := range old[at:min(at+5, len(old))] {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range lines[at:min(at+5, len(lines))] {
		b.WriteString("+ " + line + "\n")
	}
	return b.String()
}

func TestDifference(t *testing.T) {
	if d := difference("a\nb\n", "a\nb\n"); d != "" {
		t.Errorf("the same texts differ: %q", d)
	}
	if d, want := difference("a\nb\n", "a\nc\nb\n"), "  a\n- b\n- \n+ c\n+ b\n+ \n"; d != want {
		t.Errorf("%q, want %q", d, want)
	}
}

// TestPlayRefuses: a script that cannot be played is an error with its line, and not a
// transcript that proves nothing.
func TestPlayRefuses(t *testing.T) {
	for script, want := range map[string]string{
		"# a story\n> dance":                                     "line 2",
		"> handler of s1 on a marks 7":                           "no such worker",
		"> start a eager\n> crash a\n> stop a":                   "no such worker",
		"> start a eager\n> handler of s1 on a marks 7":          "no such handler",
		"> run until: pigs fly":                                  "not within a minute",
		"start a eager":                                          "neither a comment nor a command",
		"> restore the table":                                    "no backup",
		"> start a eager\n> when a next commits: lose the reply": "never sent",
		"> run fast":                                             "invalid duration",
	} {
		if text, err := Play(script, virtual.New); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", script, text, err, want)
		}
	}
}

// TestPlayKeepsTheScript: comments, commands and empty lines stay, what was recorded goes.
func TestPlayKeepsTheScript(t *testing.T) {
	text, err := Play("# a story\n\n  0.000  a → table  an earlier recording\n# the end\n", virtual.New)
	if want := "# a story\n\n# the end\n"; err != nil || text != want {
		t.Errorf("%q, %v; want %q", text, err, want)
	}
}
