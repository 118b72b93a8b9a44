package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/shardlease/shardlease-go/shardlease/inspect"
)

// manual returns the part of docs/operations.md under the heading of that anchor, up to the next heading.
func (s *scene) manual(anchor string) string {
	found := false
	var part strings.Builder
	for line := range strings.Lines(page(s.t, "operations.md")) {
		if title := strings.TrimLeft(line, "#"); strings.HasPrefix(line, "##") {
			found = strings.ReplaceAll(strings.Trim(strings.ToLower(title), " `\n"), " ", "-") == anchor
		}
		if found {
			part.WriteString(line)
		}
	}
	if part.Len() == 0 {
		s.t.Fatalf("docs/operations.md has no section %s", anchor)
	}
	return part.String()
}

var typedLine = regexp.MustCompile(`(?m)^ *shardlease (.*)$`)

// followLook types what the section of a warning says to look at. The shard and the worker of the incident
// take the place of those on the page.
func (s *scene) followLook(code inspect.Code, names []string) {
	s.t.Helper()
	_, look, _ := strings.Cut(s.manual(string(code)), "**Look**")
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
	text := s.manual(string(code))
	for range 2 {
		for _, link := range linked.FindAllStringSubmatch(text, -1) {
			text += s.manual(link[1])
		}
	}
	for _, command := range s.typed {
		if !strings.Contains(text, "shardlease "+command) {
			s.t.Errorf("the section of %s does not say to type %q", code, command)
		}
	}
}
