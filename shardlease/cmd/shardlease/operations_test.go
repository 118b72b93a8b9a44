package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page reads a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPageListsTheCommands: the table of commands in docs/operations.md has every command, and no other.
func TestPageListsTheCommands(t *testing.T) {
	_, table, _ := strings.Cut(page(t, "operations.md"), "\n### Commands\n")
	table, _, _ = strings.Cut(table, "\n### ")
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z -]*[a-z])").FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, name[1])
		}
	}
	commands := []string{"completion"} // cobra adds it to every program
	for _, c := range leaves(new(program).root()) {
		commands = append(commands, strings.TrimPrefix(c.CommandPath(), "shardlease "))
	}
	slices.Sort(listed)
	slices.Sort(commands)
	if !slices.Equal(listed, commands) || len(commands) < 25 {
		t.Errorf("docs/operations.md lists\n%v, and the commands are\n%v", listed, commands)
	}
}

// TestPagesTypeValidCommands: every command line in the blocks of the guides names a command, has flags
// and arguments that it accepts, and has a reason if it needs one.
func TestPagesTypeValidCommands(t *testing.T) {
	for name, least := range map[string]int{"operations.md": 60, "from-kcl.md": 3, "metrics.md": 1} {
		lines := regexp.MustCompile(`(?m)^ *(shardlease .*)$`).FindAllStringSubmatch(blocks(page(t, name)), -1)
		for _, line := range lines {
			args, err := words(line[1])
			if err == nil {
				err = parses(args[1:])
			}
			if err != nil {
				t.Errorf("docs/%s: %s: %v", name, line[1], err)
			}
		}
		if len(lines) < least {
			t.Errorf("docs/%s has only %d command lines: the test may have stopped finding them", name, len(lines))
		}
	}
}

// parses checks a command line without executing it.
func parses(args []string) error {
	c, rest, err := new(program).root().Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if why := c.Flags().Lookup("why"); why != nil && strings.HasSuffix(why.Usage, "required") && !why.Changed {
		return usage("needs --why")
	}
	if c.HasSubCommands() {
		return usage("is no command")
	}
	return c.ValidateArgs(c.Flags().Args())
}

// blocks returns the blocks of code of a page.
func blocks(page string) string {
	var code strings.Builder
	fenced := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if fenced {
			code.WriteString(line)
		}
	}
	return code.String()
}
