package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

var (
	codeHeading = regexp.MustCompile("(?m)^### `([a-z-]+)`$")
	codeRow     = regexp.MustCompile("(?m)^\\| \\[`([a-z-]+)`\\]\\(#([a-z-]+)\\) \\| (?:error|warn|info)\\b")
	commandRow  = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	typed       = regexp.MustCompile("(?m)(?:^ *|`)shardlease ((?:(?:table|kcl) )?[a-z-]+)")
)

// TestEveryWarningHasASection: docs/operations.md has a section and a row for each code of package
// inspect, and for no other. The section explains the code, and names a command.
func TestEveryWarningHasASection(t *testing.T) {
	page := section(t, "## Warnings")
	codes := texts(inspect.Codes())
	var rows, sections []string
	for _, row := range codeRow.FindAllStringSubmatch(page, -1) {
		rows = append(rows, row[1])
		if row[1] != row[2] {
			t.Errorf("the row of %s leads to #%s", row[1], row[2])
		}
	}
	at := codeHeading.FindAllStringSubmatchIndex(page, -1)
	for i, heading := range at {
		code, end := page[heading[2]:heading[3]], len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		sections = append(sections, code)
		for _, part := range []string{"**It means**", "**Look**", "**Do**", "\nshardlease "} {
			if !strings.Contains(page[heading[1]:end], part) {
				t.Errorf("the section of %s has no %q", code, part)
			}
		}
	}
	if !slices.Equal(rows, codes) || !slices.Equal(sections, codes) || len(codes) < 20 {
		t.Errorf("codes\t%v\nrows\t%v\nsections\t%v", codes, rows, sections)
	}
}

// TestEveryChangeKindHasARow: docs/operations.md has a row for each kind of change that package inspect
// finds and the command events prints, and for no other.
func TestEveryChangeKindHasARow(t *testing.T) {
	kinds := texts(fixture.Kinds[inspect.ChangeKind](t))
	rows := found(regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|"), section(t, "### Lines of events"))
	slices.Sort(kinds)
	slices.Sort(rows)
	if !slices.Equal(rows, kinds) {
		t.Errorf("kinds\t%v\nrows\t%v", kinds, rows)
	}
}

// TestPageTypesKnownCommands: docs/operations.md describes every command that it tells an operator
// to type in its table of commands. A test of the command compares that table with the command.
func TestPageTypesKnownCommands(t *testing.T) {
	known := map[string]bool{}
	for _, row := range commandRow.FindAllStringSubmatch(section(t, "### Commands"), -1) {
		for _, name := range regexp.MustCompile("`((?:(?:table|kcl) )?[a-z-]+)").FindAllStringSubmatch(row[1], -1) {
			known[name[1]] = true
		}
	}
	commands := found(typed, documents(t)["docs/operations.md"])
	for _, command := range commands {
		if !known[command] {
			t.Errorf("docs/operations.md tells an operator to type shardlease %s, which is not in its table of commands", command)
		}
	}
	if len(commands) < 50 || len(known) < 25 {
		t.Errorf("found only %d typed and %d known commands: the test may have stopped finding them", len(commands), len(known))
	}
}

// found returns what the group of an expression matches in a text.
func found(expression *regexp.Regexp, text string) (list []string) {
	for _, match := range expression.FindAllStringSubmatch(text, -1) {
		list = append(list, match[1])
	}
	return list
}

func texts[T ~string](kinds []T) (list []string) {
	for _, kind := range kinds {
		list = append(list, string(kind))
	}
	return list
}

// section returns the part of docs/operations.md from a heading to the next one of the same level
// or above.
func section(t *testing.T, title string) string {
	t.Helper()
	level, _, _ := strings.Cut(title, " ")
	_, rest, found := strings.Cut(documents(t)["docs/operations.md"], "\n"+title+"\n")
	if !found {
		t.Fatalf("docs/operations.md has no section %q", title)
	}
	if end := regexp.MustCompile(`(?m)^#{1,` + string('0'+rune(len(level))) + `} `).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}
