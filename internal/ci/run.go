package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A step is a check or a test that must pass. It writes its output to out.
type step struct {
	name string
	do   func(out io.Writer) error
}

// perform runs the steps until one fails, and prints how long each took.
func perform(out io.Writer, steps []step) error {
	began := time.Now()
	var took strings.Builder
	for _, s := range steps {
		start := time.Now()
		fmt.Fprintf(out, "\n== %s (after %.0f s)\n", s.name, start.Sub(began).Seconds())
		err := s.do(out)
		fmt.Fprintf(&took, "%6.0f s  %s\n", time.Since(start).Seconds(), s.name)
		if err != nil {
			fmt.Fprintf(out, "\n%sfailed\n", took.String())
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fmt.Fprintf(out, "\n%s%6.0f s  all passed\n", took.String(), time.Since(began).Seconds())
	return nil
}

// together returns a step that performs others at the same time: each leaves one of two cores idle. It prints their
// output one after the other.
func together(steps ...step) step {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return step{strings.Join(names, " | "), func(out io.Writer) error {
		texts, errs := make([]strings.Builder, len(steps)), make([]error, len(steps))
		var all sync.WaitGroup
		for i, s := range steps {
			all.Go(func() { errs[i] = s.do(&texts[i]) })
		}
		all.Wait()
		for i, s := range steps {
			fmt.Fprintf(out, "-- %s\n%s", s.name, &texts[i])
		}
		return errors.Join(errs...)
	}}
}

// A command is a program with its arguments.
type command struct {
	dir  string // the folder to run it in; empty: the current one
	own  bool   // without the workspace, which raises versions, and hides what a go.mod does not require
	args []string
	show *regexp.Regexp // the lines to print at the end; nil: all, as they arrive
	last int            // print only the last of these lines, at most so many; 0: all
}

// inModule returns a command that runs in one module, without the workspace.
func inModule(dir string, args ...string) command { return command{dir: dir, own: true, args: args} }

// run runs the command and returns its output. If the command fails, run prints all of the
// output.
func (c command) run(out io.Writer) (string, error) {
	var all strings.Builder
	cmd := c.begin(out)
	cmd.Stdout = &all
	if c.show == nil {
		cmd.Stdout = io.MultiWriter(&all, out)
	}
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	switch text := all.String(); {
	case err != nil:
		err = fmt.Errorf("%s: %w", c, err)
		if c.show != nil {
			fmt.Fprint(out, text)
		}
	case c.show != nil:
		fmt.Fprint(out, c.shown(text))
	}
	return all.String(), err
}

// shown returns the lines to print.
func (c command) shown(text string) string {
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(text)), func(line string) bool { return !c.show.MatchString(line) })
	if c.last > 0 {
		lines = lines[max(0, len(lines)-c.last):]
	}
	return strings.Join(lines, "")
}

// output returns the standard output of the command. Its standard error is written to out.
func (c command) output(out io.Writer) (string, error) {
	cmd := c.begin(out)
	cmd.Stderr = out
	text, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", c, err)
	}
	return string(text), err
}

// silent runs the command, and returns an error if it has any output.
func (c command) silent(out io.Writer) error {
	text, err := c.output(out)
	fmt.Fprint(out, text)
	if err == nil && text != "" {
		err = fmt.Errorf("%s: there should be no output", c)
	}
	return err
}

// begin prints the command, and returns the process to start.
func (c command) begin(out io.Writer) *exec.Cmd {
	fmt.Fprintln(out, "$", c)
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Dir = c.dir
	if c.own {
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	return cmd
}

func (c command) String() string {
	name := strings.Join(c.args, " ")
	if c.own {
		name = "GOWORK=off " + name
	}
	if c.dir != "" && c.dir != "." {
		name = "(cd " + c.dir + " && " + name + ")"
	}
	return name
}

// long runs go test for one suite. It returns an error if tests were skipped, or if no test
// has the given name.
func long(out io.Writer, c command) error {
	text, err := c.run(out)
	if err == nil {
		err = skipped(text)
	}
	return err
}

var notRun = regexp.MustCompile(`(?m)^ *--- SKIP.*|^testing: warning: no tests to run|\[no test files\]`)

// skipped reports tests that did not run, in the output of go test -v.
func skipped(text string) error {
	if found := notRun.FindAllString(text, -1); found != nil {
		return fmt.Errorf("tests did not run: %s", strings.Join(found, "; "))
	}
	return nil
}

// race runs tests with the race detector. Sometimes the detector itself crashes when a
// timer of a fake clock fires (compare go.dev/issue/78156): once or twice in a hundred runs
// of internal/story. A package in which only that happened is tested once more.
func race(out io.Writer, dir string, args ...string) error {
	test := func(args []string) (string, error) {
		return inModule(dir, append([]string{"go", "test", "-race"}, args...)...).run(out)
	}
	text, err := test(args)
	if packages := crashed(text); err != nil && packages != nil {
		fmt.Fprintln(out, "the race detector crashed: testing these packages again")
		_, err = test(packages)
	}
	return err
}

var (
	crash      = regexp.MustCompile(`(?m)^SIGSEGV`)
	inBubble   = regexp.MustCompile(`(?m)^goroutine 0 .*synctest bubble`)
	elseFailed = regexp.MustCompile(`(?m)^ *--- FAIL|DATA RACE|^panic:|^fatal error|^goleak`)
	failedLine = regexp.MustCompile(`(?m)^FAIL\t(\S+)`)
)

// crashed returns the packages that failed because the race detector crashed, if nothing else
// failed.
func crashed(text string) (packages []string) {
	if !crash.MatchString(text) || !inBubble.MatchString(text) || elseFailed.MatchString(text) {
		return nil
	}
	for _, line := range failedLine.FindAllStringSubmatch(text, -1) {
		packages = append(packages, line[1])
	}
	return packages
}

// modules returns the folders of the modules below root, the root first.
func modules(root string) (dirs []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.Name() == "go.mod":
			dir, err := filepath.Rel(root, filepath.Dir(path))
			dirs = append(dirs, filepath.ToSlash(dir))
			return err
		}
		return nil
	})
	slices.Sort(dirs)
	return dirs, err
}
