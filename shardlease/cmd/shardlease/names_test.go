package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// nasty are names that a row can have.
func nasty() []string {
	return []string{
		"two words", `say "hi"`, "it's", "a|b", `back\slash`, "東京", "\u202eevil", "a\u200bb", "é́́́́", "null", "- a", "a: b", "#x", "? a", ".nan", "007",
		"-rf", "$(reboot)", "e\u2028f", "tag\U000e0041", strings.Repeat("k", lease.MaxName), strings.Repeat("東", lease.MaxName/3), strings.Repeat("\u0301", lease.MaxName/2),
	}
}

// TestNastyNames: whatever the names of shards, workers, tasks and reasons are, no command prints anything
// that changes a terminal, each row is one line, and programs read the names as they are.
func TestNastyNames(t *testing.T) {
	w := newWorld()
	var seed strings.Builder
	for i, name := range nasty() {
		q := strconv.Quote(name)
		fmt.Fprintf(&seed, "at -1h\nworker %s w-%d\ncreate %s\nclaim %s w-%d %s\nwish pin %s %s\n", q, i, q, q, i, q, q, q)
	}
	w.seeds(t, seed.String())
	rows := len(nasty())
	passes := func(args ...string) string {
		t.Helper()
		out, problems := w.output(t, args...)
		harmless(t, fmt.Sprint(args), out+problems)
		if w.code != 0 {
			t.Errorf("%v: exit code %d: %q, %q", args, w.code, out, problems)
		}
		return out
	}
	for _, command := range [][]string{
		{"ls"}, {"workers"}, {"history"}, {"wishes"}, {"plan", "--add", "3"}, {"events"}, {"get", nasty()[0]}, {"get", nasty()[6]}, {"history", nasty()[6]},
	} {
		for _, format := range allFormats() {
			out := passes(append(command, "-o", format)...)
			if command[0] == "ls" && format == asTable {
				sameWidth(t, out)
			}
			if n := strings.Count(out, "\n"); command[0] == "ls" && (format == asTable && n != rows+1 || format == asNames && n != rows) {
				t.Errorf("ls -o %s has %d lines for %d shards", format, n, rows)
			}
		}
	}
	for _, format := range []string{plugin, asJSON, asPrometheus} {
		out, problems := w.output(t, "check", "-o", format)
		harmless(t, "check "+format, out+problems)
		if line, rest, _ := strings.Cut(out, "\n"); format == plugin && (strings.Count(line, "|") != 1 || strings.Contains(rest, "|")) {
			t.Errorf("check has a bar too many: %s", out)
		}
	}
	for _, name := range nasty() {
		w.answer = name
		if out := passes("release", "--why", "test \u202e", "--", name); strings.Count(out, "\n") != 1 {
			t.Errorf("release %q: %q", name, out)
		}
		w.answer = name
		passes("evict", "--why", "test \u202e", "--", name)
	}
	for _, name := range nasty() {
		w.env["SHARDLEASE_GROUP"] = name
		w.seeds(t, "create shard-0")
		for _, command := range [][]string{{"pause", "--why", "test \u202e"}, {"resume"}} {
			w.answer = name
			passes(command...)
		}
	}
	for _, format := range allFormats() {
		if n := strings.Count(passes("groups", "-o", format), "\n"); format == asNames && n < rows {
			t.Errorf("groups -o %s: %d lines for %d groups", format, n, rows)
		}
	}
}

// harmless checks that a text only has lines of printable characters.
func harmless(t *testing.T, from, text string) {
	t.Helper()
	changes := func(r rune) bool { return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }
	if !utf8.ValidString(text) || strings.ContainsFunc(text, changes) {
		t.Errorf("%s prints characters that change a terminal: %q", from, text)
	}
}

// sameWidth checks that the second column begins at the same place in every line.
func sameWidth(t *testing.T, text string) {
	t.Helper()
	want := -1
	for line := range strings.Lines(text) {
		at := max(strings.LastIndex(line, "STATE"), strings.LastIndex(line, " held ")+1)
		if got := width(line[:at]); want >= 0 && got != want {
			t.Errorf("the column begins at %d and not at %d: %q", got, want, line)
		} else {
			want = got
		}
		if width(line) > 200 {
			t.Errorf("a line of %d columns: %q", width(line), line)
		}
	}
}

// TestProgramsReadNamesAsTheyAre: JSON, lines of JSON and YAML give back each name.
func TestProgramsReadNamesAsTheyAre(t *testing.T) {
	w := newWorld()
	for _, name := range nasty() {
		w.seeds(t, "create "+strconv.Quote(name))
		w.env["SHARDLEASE_GROUP"] += "x" // a group for each
	}
	w.env["SHARDLEASE_GROUP"] = "orders"
	for _, name := range nasty() {
		var document struct{ Items []struct{ Name string } }
		for format, read := range map[string]func([]byte, any) error{
			asJSON: json.Unmarshal,
			asYAML: func(text []byte, to any) error { return yaml.Unmarshal(text, to) },
			asLines: func(text []byte, to any) error {
				return json.Unmarshal(fmt.Appendf(nil, `{"items":[%s]}`, text), to)
			},
		} {
			out, _ := w.output(t, "ls", "-o", format)
			if err := read([]byte(out), &document); err != nil || len(document.Items) != 1 || document.Items[0].Name != name {
				t.Errorf("%s: %q is read as %v, %v: %s", format, name, document, err, out)
			}
		}
		w.env["SHARDLEASE_GROUP"] += "x"
	}
}

// TestUnreadableRecords: a record that cannot be read is reported, also if its name could not be
// stored; the others are listed, and the command fails. A parent does not matter to get.
func TestUnreadableRecords(t *testing.T) {
	w := newWorld()
	w.seeds(t, "create shard-0")
	w.tables.spoilt = []lease.Key{{Group: "orders", Kind: lease.KindLease, Name: "line\nend\x1b[2J\xff"}}
	for _, format := range allFormats() {
		out, problems := w.output(t, "ls", "-o", format)
		harmless(t, format, out+problems)
		if w.code != exitError || !strings.Contains(out, "shard-0") || !strings.Contains(problems, `\n`) {
			t.Errorf("%s: exit code %d: %s%s", format, w.code, out, problems)
		}
	}
	out, problems := w.output(t, "check")
	harmless(t, "check", out+problems)
	if !strings.Contains(out, "unreadable") {
		t.Errorf("check: %s", out)
	}
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "a\nb\tc": `a\nb\tc`, "\x1b[31m": `\x1b[31m`, "\u202e": `\u202e`, "\xff\uFFFD": "\\xff\uFFFD", "\u0085": `\u0085`,
		"\U000e0041": `\U000e0041`, "東京": "東京", "\x7f": `\x7f`, "e\u0301": "e\u0301",
	} {
		if got := clean(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "東京": 4, "e\u0301": 1, "ｱ": 1, "Ａ": 2, "한글": 4, "😀": 2, "…": 1} {
		if got := width(text); got != want {
			t.Errorf("%q has %d columns, want %d", text, got, want)
		}
	}
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"東京都", 5, "東京…"}, {"東京都", 4, "東…"}} {
		if got := cut(c.text, c.most); got != c.want {
			t.Errorf("%q in %d columns is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1.5s", 12 * time.Second: "12s", 119 * time.Second: "119s", 2 * time.Minute: "2m00s",
		time.Hour: "1h00m", 50 * time.Hour: "2d02h", -time.Second: "-1s",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is shown as %s, want %s", d, got, want)
		}
	}
	if got := old(inspect.Age{D: time.Second, Known: true}); got != "~1s" {
		t.Errorf("a told age is %s", got)
	}
}
