package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// fuzz returns a step that runs every fuzz test of the modules, for the duration each.
func fuzz(each string, modules []string) step {
	return step{"fuzzing, " + each + " each", func(out io.Writer) error {
		found := 0
		for _, dir := range modules {
			all, err := targets(out, dir)
			if err != nil {
				return err
			}
			for _, t := range all {
				found++
				if err := t.fuzz(out, dir, each); err != nil {
					return err
				}
			}
		}
		if found == 0 {
			return errors.New("no fuzz test found")
		}
		return nil
	}}
}

// A target is a fuzz test.
type target struct{ pkg, name string }

// fuzz runs the target for the duration each. The fuzzing of Go before 1.27 can report the end
// of that time as a failure of its own (go.dev/issue/75804). A run that ends so has found
// nothing and proves nothing, so fuzz repeats it, at most twice.
func (t target) fuzz(out io.Writer, dir, each string) error {
	for attempt := 1; ; attempt++ {
		run := inModule(dir, "go", "test", "-run", "xxx", "-fuzz", "^"+t.name+"$", "-fuzztime", each, t.pkg)
		text, err := run.run(out)
		if err == nil || attempt == 3 || !outOfTime(t.name, text) {
			return err
		}
		fmt.Fprintln(out, "repeated: the run ended by Go's own deadline, go.dev/issue/75804")
	}
}

// outOfTime reports whether the only thing that the output of a fuzz test complains about is
// the end of its time.
func outOfTime(name, text string) bool {
	_, failure, failed := strings.Cut(text, "--- FAIL: "+name+" (")
	_, failure, _ = strings.Cut(failure, "\n")
	return failed && strings.HasPrefix(failure, "    context deadline exceeded\nFAIL\n")
}

var fuzzTest = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// targets returns the fuzz tests of a module. It searches the source, because go test -list links the tests of
// every package.
func targets(out io.Writer, dir string) (found []target, err error) {
	list, err := inModule(dir, "go", "list", "-f", "{{.ImportPath}} {{.Dir}}", "./...").output(out)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		pkg, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, name := range fuzzTest.FindAllSubmatch(src, -1) {
				found = append(found, target{pkg, string(name[1])})
			}
		}
	}
	return found, nil
}
