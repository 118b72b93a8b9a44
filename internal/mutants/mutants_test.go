package mutants

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

var run = flag.Bool("mutants", false, "apply every mutant and run the test that must fail (four minutes)")

// A mutant makes one edit of one function.
type mutant struct {
	rule string   // the rule that the mutant breaks, as in docs/design.md
	at   string   // the function: folder of the package, receiver's type, name, with dots between
	op   operator // the edit; see edit_test.go
	pkg  string   // the package of the test
	test string   // the test that must fail
}

func all() []mutant {
	return slices.Concat(rowMutants(), bucketMutants(), engineMutants(), planMutants(), ruleMutants(), healthMutants())
}

// mutated returns the file with the mutant's edit, and the path of that file.
func (m mutant) mutated(t *testing.T) (path, text string) {
	t.Helper()
	known, err := functions(folder(m.at))
	if err != nil {
		t.Fatal(err)
	}
	f, ok := known[m.at]
	if !ok {
		t.Fatalf("there is no function %s; the mutant fits in %q", m.at, candidates(m.at, m.op))
	}
	text, err = f.apply(m.op)
	if err != nil {
		t.Fatalf("%s %v; the mutant fits in %q", m.at, err, candidates(m.at, m.op))
	}
	return f.path, text
}

// TestMutantsApply checks that the mutants fit the code: each operator finds exactly one
// place, and the mutated package compiles. If a function was moved or renamed, the error
// lists the functions that the mutant fits now.
func TestMutantsApply(t *testing.T) {
	check := newChecker(t)
	for _, m := range all() {
		t.Run(m.rule, func(t *testing.T) {
			path, text := m.mutated(t)
			if err := check.file(path, text); err != nil {
				t.Errorf("%s does not compile: %v", m.at, err)
			}
		})
	}
}

func TestMutants(t *testing.T) {
	if !*run {
		t.Skip("breaks every rule once; run with: go test ./internal/mutants -mutants -v")
	}
	var killed atomic.Int32
	all := all()
	t.Run("unharmed", func(t *testing.T) { unharmed(t, all) })
	t.Run("each", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.rule, func(t *testing.T) {
				t.Parallel()
				if m.survives(t) {
					t.Errorf("%s: %s does not fail", m.rule, m.test)
				} else {
					killed.Add(1)
				}
			})
		}
	})
	t.Logf("%d/%d mutants killed", killed.Load(), len(all))
}

// survives runs the test on the mutated file, and reports whether it passes.
func (m mutant) survives(t *testing.T) bool {
	t.Helper()
	path, text := m.mutated(t)
	dir := t.TempDir()
	original, err := filepath.Abs(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	mutated := filepath.Join(dir, "mutated.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{mutated: []byte(text), filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := m.goTest("-overlay", filepath.Join(dir, "overlay.json"), "-run", runPattern(m.test), m.pkg)
	if err == nil {
		return true
	}
	failed := func(sign string) bool { return strings.Contains(out, sign) }
	// Some mutants loop forever, which is a panic of the test program, or end it in another way.
	if !slices.ContainsFunc([]string{"--- FAIL: ", "panic: ", "fatal error: "}, failed) {
		t.Fatalf("the test of the mutant does not run:\n%s", out)
	}
	return false
}

// unharmed runs the tests on the unchanged code: a test that fails anyway, or does not
// exist, would kill every mutant.
func unharmed(t *testing.T, all []mutant) {
	type one struct{ pkg, test string }
	passed := map[one]bool{}
	for _, m := range all {
		if test := (one{m.pkg, m.test}); !passed[test] {
			out, err := m.goTest("-v", "-run", runPattern(m.test), m.pkg)
			if err != nil || !strings.Contains(out, "--- PASS: "+m.test) {
				t.Fatalf("%s in %s does not pass by itself:\n%s", m.test, m.pkg, out)
			}
			passed[test] = true
		}
	}
}

func runPattern(test string) string { return "^" + strings.ReplaceAll(test, "/", "$/^") + "$" }

func (m mutant) goTest(args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"test", "-vet=off", "-timeout=30s"}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}
