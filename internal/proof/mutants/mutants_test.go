package mutants

import (
	"flag"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var run = flag.Bool("mutants", false, "apply every mutant and run the test that must fail (four minutes)")

// A mutant makes one edit of one function.
type mutant struct {
	rule string   // the rule that the mutant breaks, as in docs/design.md
	at   string   // the function: folder of the package, receiver's type, name, with dots between
	op   operator // the edit; see edit_test.go
	pkg  string   // the package of the test
	test string   // the test that must fail; of several with | between them one must
}

func all() []mutant {
	return slices.Concat(rowMutants(), bucketMutants(), readerMutants(), dynamoMutants(), answerMutants(), inspectMutants(), engineMutants(), planMutants(), ruleMutants(), healthMutants(), commandMutants(), fenceMutants(), proofMutants())
}

// edit returns the function of the mutant, and the mutant's edit.
func (m mutant) edit(t *testing.T) (function, edit) {
	t.Helper()
	known, err := functions(folder(m.at))
	if err != nil {
		t.Fatal(err)
	}
	f, ok := known[m.at]
	if !ok {
		t.Fatalf("there is no function %s; the mutant fits in %q", m.at, candidates(m.at, m.op))
	}
	e, err := f.edit(m.op)
	if err != nil {
		t.Fatalf("%s %v; the mutant fits in %q", m.at, err, candidates(m.at, m.op))
	}
	return f, e
}

// TestMutantsApply checks that the mutants fit the code: each operator finds exactly one
// place, and the mutated packages compile. If a function was moved or renamed, the error
// lists the functions that the mutant fits now.
func TestMutantsApply(t *testing.T) {
	all := all()
	for _, m := range all {
		t.Run(m.rule, func(t *testing.T) { m.edit(t) })
	}
	if t.Failed() {
		return
	}
	for _, wrong := range newChecker(t).mistakes(t, mutated(t, all)) {
		if wrong.number == 0 {
			t.Error(wrong)
			continue
		}
		m := all[wrong.number-1]
		t.Errorf("%s: the mutant of %s does not compile: %v", m.rule, m.at, wrong)
	}
}

func TestMutants(t *testing.T) {
	if !*run {
		t.Skip("breaks every rule once; run with: go test ./internal/proof/mutants -mutants -v")
	}
	all := all()
	programs := build(t, all)
	took := map[single]time.Duration{}
	if !t.Run("unharmed", func(t *testing.T) { programs.unharmed(t, all, took) }) {
		return
	}
	var killed atomic.Int32
	t.Run("each", func(t *testing.T) {
		for i, m := range all {
			t.Run(m.rule, func(t *testing.T) {
				t.Parallel()
				out, err := programs.run(m.pkg, m.test, i+1, m.limit(took))
				failed := func(sign string) bool { return strings.Contains(out, sign) }
				switch {
				case err == nil:
					t.Errorf("%s: %s does not fail", m.rule, m.test)
				// Some mutants loop forever, which is a panic of the test program, or end it in another way.
				case !slices.ContainsFunc([]string{"--- FAIL: ", "panic: ", "fatal error: "}, failed):
					t.Errorf("the test of the mutant does not run: %v\n%s", err, out)
				default:
					killed.Add(1)
				}
			})
		}
	})
	t.Logf("%d/%d mutants killed", killed.Load(), len(all))
}

// A single is one test of a package.
type single struct{ pkg, test string }

func (m mutant) singles() (all []single) {
	for test := range strings.SplitSeq(m.test, "|") {
		all = append(all, single{m.pkg, test})
	}
	return all
}

// limit returns how long the tests of the mutant may take. Some mutants loop forever. The limit is far above
// what the unharmed code takes on the same machine, because the end of that time counts as a failure.
func (m mutant) limit(took map[single]time.Duration) time.Duration {
	limit := 5 * time.Second
	for _, s := range m.singles() {
		limit += 5 * took[s]
	}
	return limit
}

// unharmed runs each test on the unharmed code: a test that fails anyway, or does not exist,
// would kill every mutant. It notes how long each test takes.
func (p programs) unharmed(t *testing.T, all []mutant, took map[single]time.Duration) {
	var mu sync.Mutex
	begun := map[single]bool{}
	for _, m := range all {
		for _, s := range m.singles() {
			if begun[s] {
				continue
			}
			begun[s] = true
			t.Run(s.test, func(t *testing.T) {
				t.Parallel()
				from := time.Now()
				out, err := p.run(s.pkg, s.test, 0, 3*time.Minute)
				if err != nil || !strings.Contains(out, "--- PASS: "+s.test) {
					t.Errorf("%s in %s does not pass by itself: %v\n%s", s.test, s.pkg, err, out)
				}
				mu.Lock()
				defer mu.Unlock()
				took[s] = time.Since(from)
			})
		}
	}
}
