package main

import (
	"cmp"
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

// unchecked is the error of a step that could not check anything, because this machine has no network. It says why. Such a
// step does not fail, but the results at the end name it.
type unchecked string

func (u unchecked) Error() string { return "not checked: " + string(u) }

// perform runs the steps until one fails. It prints how long each took, and at the end the ten slowest, and what was not
// checked.
func perform(out io.Writer, steps []step) error {
	type took struct {
		name string
		time time.Duration
	}
	began := time.Now()
	var all []took
	var missed []string
	summary := func() {
		slices.SortStableFunc(all, func(a, b took) int { return cmp.Compare(b.time, a.time) })
		fmt.Fprintln(out)
		for _, s := range append(all[:min(10, len(all))], took{"all", time.Since(began)}) {
			fmt.Fprintf(out, "%6.0f s  %s\n", s.time.Seconds(), s.name)
		}
		for _, line := range missed {
			fmt.Fprintln(out, line)
		}
	}
	for _, s := range steps {
		start := time.Now()
		fmt.Fprintf(out, "\n== %s (after %.0f s)\n", s.name, start.Sub(began).Seconds())
		err := s.do(out)
		all = append(all, took{s.name, time.Since(start)})
		if why, is := err.(unchecked); is {
			missed, err = append(missed, fmt.Sprintf("%s: %v", s.name, why)), nil
			fmt.Fprintln(out, why)
		}
		fmt.Fprintf(out, "-- %.0f s\n", time.Since(start).Seconds())
		if err != nil {
			summary()
			fmt.Fprintf(out, "failed: %s\n", s.name)
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	summary()
	return nil
}

// beside returns a step that runs steps at the same time, because their tests mostly wait. None of them may have bounds in
// real time. It prints the output of each when that step has ended.
func beside(name string, steps ...step) step {
	return step{name, func(out io.Writer) error {
		var all sync.WaitGroup
		var mu sync.Mutex
		results := make([]error, len(steps))
		for i, s := range steps {
			all.Go(func() {
				var text strings.Builder
				start := time.Now()
				results[i] = s.do(&text)
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(out, "-- %s: %.0f s\n%s", s.name, time.Since(start).Seconds(), &text)
				if results[i] != nil {
					results[i] = fmt.Errorf("%s: %w", s.name, results[i])
				}
			})
		}
		all.Wait()
		return errors.Join(results...)
	}}
}

// A command is a program with its arguments.
type command struct {
	dir  string // the folder to run it in; empty: the current one
	own  bool   // without the workspace, which raises versions, and hides what a go.mod does not require
	long bool   // with SHARDLEASE_LONG=1: tests have their full size
	args []string
	show *regexp.Regexp // the lines to print at the end; nil: all, as they arrive
	last int            // how many of these lines to print at most, the last ones; 0: all
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
	cmd.Env = append(os.Environ(), c.variables()...)
	return cmd
}

// variables returns what the command adds to the environment.
func (c command) variables() (all []string) {
	if c.own {
		all = append(all, "GOWORK=off")
	}
	if c.long {
		all = append(all, "SHARDLEASE_LONG=1")
	}
	return all
}

func (c command) String() string {
	name := strings.Join(append(c.variables(), c.args...), " ")
	if c.dir != "" && c.dir != "." {
		name = "(cd " + c.dir + " && " + name + ")"
	}
	return name
}

// suite runs go test for one suite. It returns an error if tests were skipped, or if no test
// has the given name.
func suite(out io.Writer, c command) error {
	text, err := c.run(out)
	if err == nil {
		err = skipped(text)
	}
	return err
}

var (
	notRun = regexp.MustCompile(`(?m)^ *--- SKIP.*|^testing: warning: no tests to run`)
	ran    = regexp.MustCompile(`(?m)^ok `)
)

// skipped reports tests that did not run, in the output of go test -v. Some packages of a suite may have no tests.
func skipped(text string) error {
	if found := notRun.FindAllString(text, -1); found != nil {
		return fmt.Errorf("tests did not run: %s", strings.Join(found, "; "))
	}
	if !ran.MatchString(text) {
		return errors.New("no tests did run")
	}
	return nil
}

// packagesOf returns the packages of a module for which keep is true, as patterns such as ./checkpoint.
func packagesOf(out io.Writer, dir string, keep func(name string) bool) (names []string, err error) {
	list, err := inModule(dir, "go", "list", "-f", "{{.ImportPath}} {{.Module.Path}}", "./...").output(out)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		pkg, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name := "." + strings.TrimPrefix(pkg, module); keep(name) {
			names = append(names, name)
		}
	}
	return names, nil
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
