package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// manual returns the part of docs/operations.md under the heading of that anchor, up to the next heading.
func manual(t *testing.T, anchor string) string {
	t.Helper()
	found := false
	var part strings.Builder
	for line := range strings.Lines(page(t, "operations.md")) {
		if title := strings.TrimLeft(line, "#"); strings.HasPrefix(line, "##") {
			found = strings.ReplaceAll(strings.Trim(strings.ToLower(title), " `\n"), " ", "-") == anchor
		}
		if found {
			part.WriteString(line)
		}
	}
	if part.Len() == 0 {
		t.Fatalf("docs/operations.md has no section %s", anchor)
	}
	return part.String()
}

var adviceLine = regexp.MustCompile("(?m)(?:^ *|`)shardlease ((?:table )?[a-z-]+)")

// advised returns the commands that the section of a warning says to type, after its look.
func advised(t *testing.T, code inspect.Code) (commands []string) {
	t.Helper()
	_, do, _ := strings.Cut(manual(t, string(code)), "**Do**")
	for _, command := range adviceLine.FindAllStringSubmatch(do, -1) {
		commands = append(commands, command[1])
	}
	return commands
}

var typedLine = regexp.MustCompile(`(?m)^ *shardlease (.*)$`)

// followLook types what the section of a warning says to look at. The shard and the worker of the incident
// take the place of those on the page.
func (s *scene) followLook(code inspect.Code, names []string) {
	s.t.Helper()
	_, look, _ := strings.Cut(manual(s.t, string(code)), "**Look**")
	look, _, _ = strings.Cut(look, "**Do**")
	in := strings.NewReplacer("shard-7", append(names, "shard-0")[0])
	lines := typedLine.FindAllStringSubmatch(blocks(look), -1)
	if len(lines) == 0 {
		s.t.Errorf("the section of %s says nothing to look at", code)
	}
	for _, line := range lines {
		args, err := words(in.Replace(line[1]))
		if err != nil {
			s.t.Fatal(err)
		}
		if out, exit := s.exec("", args...); exit != 0 && args[0] != "check" && !slices.Contains(args, "verify") && len(s.snapshot().Unreadable) == 0 {
			s.t.Errorf("%v: exit code %d: %s", args, exit, out)
		}
	}
}

var linked = regexp.MustCompile(`\]\(#([a-z-]+)\)`)

// onPage checks that the commands that were typed are in the section of a warning, or no further than two
// links from it.
func (s *scene) onPage(code inspect.Code) {
	s.t.Helper()
	text := manual(s.t, string(code))
	for range 2 {
		for _, link := range linked.FindAllStringSubmatch(text, -1) {
			text += manual(s.t, link[1])
		}
	}
	for _, command := range s.typed {
		if !strings.Contains(text, "shardlease "+command) {
			s.t.Errorf("the section of %s does not say to type %q", code, command)
		}
	}
}
