package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// figures is the file with the last figures, a line for each folder.
const figures = "internal/proof/ci/figures.txt"

// measure prints how much each folder of a repository has, beside the last figures, and judges none of that. It returns
// an error if something is beyond a limit. It also replaces the last figures if write is set.
func measure(out io.Writer, dir string, write bool) error {
	c, err := countAll(os.DirFS(dir))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, figures)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	last, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", figures, err)
	}
	if err := compare(out, c.folders, last); err != nil {
		return err
	}
	if write {
		if err := os.WriteFile(file, []byte(format(c.folders)), 0o644); err != nil {
			return err
		}
	}
	if faults := exceeded(c.counts, limits); len(faults) > 0 {
		return fmt.Errorf("%s\nThe limits are in internal/proof/ci/limits.go, and CONTRIBUTING.md says how to raise one", strings.Join(faults, "\n"))
	}
	return nil
}

// format returns the sizes of folders as lines.
func format(folders map[string]size) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		s := folders[name]
		fmt.Fprintf(&b, "%s: code %d, comments %d, tests %d, words %d\n", name, s.code, s.comments, s.tests, s.words)
	}
	return b.String()
}

// parse returns the sizes of folders that format has written.
func parse(text string) (map[string]size, error) {
	folders := map[string]size{}
	for line := range strings.Lines(text) {
		var s size
		name, rest, _ := strings.Cut(line, ": ")
		if _, err := fmt.Sscanf(rest, "code %d, comments %d, tests %d, words %d\n", &s.code, &s.comments, &s.tests, &s.words); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		folders[name] = s
	}
	return folders, nil
}

// compare prints the sizes of folders now, each beside its last figure.
func compare(out io.Writer, now, last map[string]size) error {
	names := maps.Clone(last)
	maps.Copy(names, now)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "code\tlast\tcomments\tlast\ttests\tlast\twords\tlast\t  folder")
	row := func(name string, s, before size) {
		fmt.Fprintf(t, "%d\t%d\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t  %s\n",
			s.code, before.code, s.ratio(), before.ratio(), s.tests, before.tests, s.words, before.words, name)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row(name, now[name], last[name])
	}
	row("all", sum(now), sum(last))
	return t.Flush()
}

// ratio returns the lines of comments for each line of code.
func (s size) ratio() float64 { return float64(s.comments) / float64(max(s.code, 1)) }

func sum(folders map[string]size) (all size) {
	for _, s := range folders {
		all.code, all.comments = all.code+s.code, all.comments+s.comments
		all.tests, all.words = all.tests+s.tests, all.words+s.words
	}
	return all
}
