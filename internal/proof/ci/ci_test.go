package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFirstFailureEndsIt(t *testing.T) { synctest.Test(t, testFirstFailureEndsIt) }

func testFirstFailureEndsIt(t *testing.T) {
	var done []string
	does := func(name string, err error) step {
		return step{name, func(io.Writer) error {
			done = append(done, name)
			time.Sleep(time.Duration(len(done)) * time.Second)
			return err
		}}
	}
	wrong := errors.New("wrong")
	var out strings.Builder
	err := perform(&out, []step{does("a", nil), does("b", wrong), does("c", nil)})
	if !errors.Is(err, wrong) || !slices.Equal(done, []string{"a", "b"}) {
		t.Errorf("%v after %v", err, done)
	}
	if !strings.HasSuffix(out.String(), "\n     2 s  b\n     1 s  a\n     3 s  all\nfailed: b\n") {
		t.Errorf("the output does not have the time of each step, the slowest first:\n%s", &out)
	}
	out.Reset()
	if err := perform(&out, slices.Repeat([]step{does("c", nil)}, 11)); err != nil || strings.Count(out.String(), " s  c\n") != 10 {
		t.Errorf("%v; the output does not end with ten steps:\n%s", err, &out)
	}
	out.Reset()
	err = perform(&out, []step{does("a", unchecked("no network")), does("b", nil)})
	if err != nil || !strings.HasSuffix(out.String(), " s  all\na: not checked: no network\n") {
		t.Errorf("%v; the output does not end with what was not checked:\n%s", err, &out)
	}
	if err := ci([]string{"quick"}); err == nil {
		t.Error("an unknown plan is accepted")
	}
}

// TestBeside: all steps run, also after a failure, and their outputs do not mix.
func TestBeside(t *testing.T) { synctest.Test(t, testBeside) }

func testBeside(t *testing.T) {
	begun := make(chan struct{})
	wrong := errors.New("wrong")
	a := step{"a", func(out io.Writer) error { <-begun; _, _ = io.WriteString(out, "1\n2\n"); return nil }}
	b := step{"b", func(out io.Writer) error { _, _ = io.WriteString(out, "3\n"); close(begun); return wrong }}
	var out strings.Builder
	err := beside("both", a, b).do(&out)
	if !errors.Is(err, wrong) || !strings.HasPrefix(err.Error(), "b: ") {
		t.Errorf("error %v", err)
	}
	for _, text := range []string{"-- a: 0 s\n1\n2\n", "-- b: 0 s\n3\n"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("no %q in the output:\n%s", text, &out)
		}
	}
}

// TestNamesOfRealTime: each test that realTime names exists.
func TestNamesOfRealTime(t *testing.T) {
	var sources strings.Builder
	for _, pkg := range []string{onDynamoDB, inWorkers} {
		files, err := filepath.Glob("../../../" + pkg + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(src)
		}
	}
	for name := range strings.SplitSeq(strings.Trim(realTime, "^()$"), "|") {
		if !strings.Contains(sources.String(), "func "+name+"(t *testing.T)") {
			t.Errorf("there is no test %s", name)
		}
	}
}

func TestSkippedSuitesFail(t *testing.T) {
	for _, c := range []struct {
		text string
		ran  bool
	}{
		{"=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\nok  \tp\t0.1s\n", true},
		{"=== RUN   TestA\n    a_test.go:3: no Docker\n--- SKIP: TestA (0.00s)\nPASS\nok  \tp\t0.1s\n", false},
		{"--- PASS: TestA (0.00s)\n    --- SKIP: TestA/b (0.00s)\nPASS\n", false},
		{"testing: warning: no tests to run\nPASS\nok  \tp\t0.1s [no tests to run]\n", false},
		{"?   \tp\t[no test files]\n", false},
		{"?   \tp\t[no test files]\n=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\nok  \tq\t0.1s\n", true},
	} {
		if err := skipped(c.text); (err == nil) != c.ran {
			t.Errorf("%v:\n%s", err, c.text)
		}
	}
}

// TestRepeatsAfterACrashOfTheRaceDetector: the packages in which the race detector crashed
// are tested once more, if nothing else failed.
func TestRepeatsAfterACrashOfTheRaceDetector(t *testing.T) {
	const crash = "SIGSEGV: segmentation violation\n\ngoroutine 0 gp=0x1 m=3 [idle, synctest bubble 7]:\nFAIL\tm/a\t1.2s\nok  \tm/b\t0.1s\n"
	for _, c := range []struct {
		what, text string
		again      []string
	}{
		{"a crash", crash, []string{"m/a"}},
		{"two of them", crash + "FAIL\tm/c\t1.2s\nFAIL\n", []string{"m/a", "m/c"}},
		{"a segmentation fault of a goroutine", strings.Replace(crash, "goroutine 0", "goroutine 9", 1), nil},
		{"a test that failed besides", crash + "--- FAIL: TestB (0.01s)\n", nil},
		{"a subtest that failed besides", crash + "    --- FAIL: TestB/c (0.01s)\n", nil},
		{"a data race besides", crash + "WARNING: DATA RACE\n", nil},
		{"a panic besides", crash + "panic: deadlock\n", nil},
		{"a fatal error besides", crash + "fatal error: all goroutines are asleep\n", nil},
		{"a leak besides", crash + "goleak: Errors on successful test run\n", nil},
		{"a failure alone", "--- FAIL: TestA (0.01s)\nFAIL\tm/a\t1.2s\n", nil},
	} {
		if again := crashed(c.text); !slices.Equal(again, c.again) {
			t.Errorf("%s: %v is repeated", c.what, again)
		}
	}
}

// TestOnlyTheEndOfItsTimeRepeatsAFuzzTest: whatever else a fuzz test reports fails at once.
func TestOnlyTheEndOfItsTimeRepeatsAFuzzTest(t *testing.T) {
	const end = "fuzz: elapsed: 10s, execs: 645313 (61254/sec)\n--- FAIL: FuzzA (10.05s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
	for _, c := range []struct {
		what, text string
		repeats    bool
	}{
		{"the end of its time", end, true},
		{"another test", strings.ReplaceAll(end, "FuzzA", "FuzzB"), false},
		{"an input that fails", strings.Replace(end, "    context", "    --- FAIL: FuzzA (0.00s)\n        a_test.go:9: context", 1), false},
		{"an input that was written", strings.Replace(end, "\nFAIL\n", "\n\n    Failing input written to testdata/fuzz/FuzzA/1\nFAIL\n", 1), false},
		{"a success", "PASS\nok  \tm/a\t10.1s\n", false},
	} {
		if outOfTime("FuzzA", c.text) != c.repeats {
			t.Errorf("%s: repeated: %v", c.what, !c.repeats)
		}
	}
}

func TestTargets(t *testing.T) {
	got, err := targets(io.Discard, "../../../checkpoint")
	if want := []target{{root + "/checkpoint", "FuzzDecimal"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestCalmPackages: no calm package starts a goroutine for the race detector to watch, and neither do its tests and the
// packages that it imports.
func TestCalmPackages(t *testing.T) {
	tested := map[string]bool{}
	args := []string{"list", "-deps", "-test", "-f", "{{if not .Standard}}{{.Dir}}{{end}}"}
	for _, name := range calm {
		dir, err := filepath.Abs("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		tested[dir] = true
		args = append(args, root+"/"+name)
	}
	list, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(list))
	for dir := range tested {
		if !slices.Contains(dirs, dir) {
			t.Errorf("there is no package in %s", dir)
		}
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		beginsNothing(t, dir, tested[dir])
	}
}

// beginsNothing checks that the code in a folder, or also its tests, begins no goroutine.
func beginsNothing(t *testing.T, dir string, tests bool) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(files), err)
	}
	for _, file := range files {
		if !tests && strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		what, err := begins(src)
		if what != "" || err != nil {
			t.Errorf("%s has %s (%v), so its package is not calm: test it with the race detector", file, what, err)
		}
	}
}

// begins returns what begins a goroutine in a file, or lets the standard library begin one.
func begins(src []byte) (what string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "a go statement"
		case *ast.SelectorExpr:
			switch n.Sel.Name {
			case "Go", "AfterFunc", "RunParallel": // of a WaitGroup, of time or context, of a benchmark
				what = n.Sel.Name
			}
		case *ast.ImportSpec:
			if slices.Contains([]string{`"testing/synctest"`, `"net/http"`, `"net/http/httptest"`}, n.Path.Value) {
				what = n.Path.Value
			}
		}
		return true
	})
	return what, nil
}

func TestBegins(t *testing.T) {
	for text, want := range map[string]string{
		"func f() { go f() }":                       "a go statement",
		"func f(w sync.WaitGroup) { w.Go(f) }":      "Go",
		"func f() { time.AfterFunc(0, f) }":         "AfterFunc",
		"func f(b *testing.B) { b.RunParallel(f) }": "RunParallel",
		`import "testing/synctest"`:                 `"testing/synctest"`,
		"func f(t *testing.T) { t.Run(goes, f) }":   "",
	} {
		if what, err := begins([]byte("package p\n" + text)); what != want || err != nil {
			t.Errorf("%s: %q, %v", text, what, err)
		}
	}
}

// TestCommand: the lines to show are printed; the output of a command that failed is
// printed in full.
func TestCommand(t *testing.T) {
	for _, c := range []struct {
		what string
		command
		printed string
		fails   bool
	}{
		{"all", command{args: []string{"echo", "a\nb"}}, "$ echo a\nb\na\nb\n", false},
		{"some", command{args: []string{"echo", "a\nb"}, show: only("b")}, "$ echo a\nb\nb\n", false},
		{"the last", command{args: []string{"printf", `a\nb\n`}, show: only("."), last: 1}, "$ printf a\\nb\\n\nb\n", false},
		{"a failure", command{args: []string{"ls", "/nothing"}, show: only("^$")}, "No such file", true},
		{"in a folder", command{dir: "/tmp", own: true, args: []string{"sh", "-c", "echo $PWD $GOWORK"}}, "\n/tmp off\n", false},
		{"in full", command{long: true, args: []string{"sh", "-c", "echo $SHARDLEASE_LONG"}}, "$ SHARDLEASE_LONG=1 sh -c echo $SHARDLEASE_LONG\n1\n", false},
	} {
		var out strings.Builder
		text, err := c.run(&out)
		if !strings.Contains(out.String(), c.printed) || (err != nil) != c.fails || text == "" {
			t.Errorf("%s: %v\n%s", c.what, err, &out)
		}
	}
	if err := (command{args: []string{"echo", "a"}}).silent(io.Discard); err == nil {
		t.Error("the output is not reported as an error")
	}
	if err := (command{args: []string{"sh", "-c", "echo a >&2"}}).silent(io.Discard); err != nil {
		t.Error(err)
	}
}

// TestBenchmarksExist: what the command profiles exists.
func TestBenchmarksExist(t *testing.T) {
	for what, at := range benchmarks {
		name, _, _ := strings.Cut(at[1], "/")
		files, err := filepath.Glob(filepath.Join("../../..", at[0], "*_test.go"))
		if err != nil || !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "func "+name+"(b *testing.B)")
		}) {
			t.Errorf("%s: %v: there is no %s in %s", what, err, name, at[0])
		}
	}
	if profile(io.Discard, "nothing") == nil {
		t.Error("a benchmark without a name")
	}
}

// TestDependabotKnowsEveryModule: dependabot.yml lists every module, and every listed
// module exists.
func TestDependabotKnowsEveryModule(t *testing.T) {
	config, err := os.ReadFile("../../../.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := modules("../../..")
	if err != nil || len(dirs) < 4 || dirs[0] != "." {
		t.Fatalf("%v %v", dirs, err)
	}
	for _, dir := range dirs {
		if !strings.Contains(string(config), "- "+path.Join("/", dir)+"\n") {
			t.Errorf("dependabot.yml does not list the module in %s", dir)
		}
	}
}
