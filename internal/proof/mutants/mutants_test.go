package mutants

import (
	"flag"
	"slices"
	"strings"
	"sync"
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
	return slices.Concat(rowMutants(), bucketMutants(), readerMutants(), dynamoMutants(), answerMutants(), inspectMutants(), engineMutants(), planMutants(), ruleMutants(), healthMutants(), commandMutants(), fenceMutants(), proofMutants(), streamMutants(), consumerMutants(), fanOutMutants(), kinesisTestMutants(), confirmMutants())
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
	h := hunt{programs: build(t, all), all: all}
	for i := range all {
		h.alive = append(h.alive, i)
	}
	if !h.round(t, "", false) || !h.round(t, " at full size", true) {
		return
	}
	t.Logf("%d/%d mutants killed", h.killed, len(all))
}

// A hunt runs the tests of all mutants. Most mutants die by the sample of their test, which takes a fraction of the time;
// the others must die at full size.
type hunt struct {
	programs
	all   []mutant
	alive []int // the indices of the mutants to run

	mu       sync.Mutex
	took     map[single]time.Duration // how long each test takes with unharmed code
	survived []int
	killed   int
}

// round runs the mutants that are alive, if their tests pass with unharmed code.
func (h *hunt) round(t *testing.T, name string, long bool) bool {
	h.took, h.survived = map[single]time.Duration{}, nil
	if !t.Run("unharmed"+name, func(t *testing.T) { h.unharmed(t, long) }) {
		return false
	}
	t.Run("each"+name, func(t *testing.T) {
		for _, i := range h.alive {
			t.Run(h.all[i].rule, func(t *testing.T) {
				t.Parallel()
				h.run(t, i, long)
			})
		}
	})
	h.alive = h.survived
	return true
}

// run runs the tests of one mutant.
func (h *hunt) run(t *testing.T, i int, long bool) {
	m := h.all[i]
	out, err := h.programs.run(m.pkg, m.test, i+1, long, m.limit(h.took))
	h.mu.Lock()
	defer h.mu.Unlock()
	failed := func(sign string) bool { return strings.Contains(out, sign) }
	switch {
	case err == nil && long:
		t.Errorf("%s: %s does not fail", m.rule, m.test)
	case err == nil:
		h.survived = append(h.survived, i)
	// Some mutants loop forever, which is a panic of the test program, or end it in another way.
	case !slices.ContainsFunc([]string{"--- FAIL: ", "panic: ", "fatal error: "}, failed):
		t.Errorf("the test of the mutant does not run: %v\n%s", err, out)
	default:
		h.killed++
	}
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

// unharmed runs the test of each mutant that is alive on the unharmed code: a test that fails anyway, or does not exist,
// would kill every mutant. It notes how long each test takes. A sample may leave out a test.
func (h *hunt) unharmed(t *testing.T, long bool) {
	begun := map[single]bool{}
	for _, i := range h.alive {
		for _, s := range h.all[i].singles() {
			if begun[s] {
				continue
			}
			begun[s] = true
			t.Run(s.test, func(t *testing.T) {
				t.Parallel()
				from := time.Now()
				out, err := h.programs.run(s.pkg, s.test, 0, long, 3*time.Minute)
				if err != nil || long && !strings.Contains(out, "--- PASS: "+s.test) {
					t.Errorf("%s in %s does not pass by itself: %v\n%s", s.test, s.pkg, err, out)
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				h.took[s] = time.Since(from)
			})
		}
	}
}
