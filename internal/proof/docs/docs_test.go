// Package docs checks the documentation against the code, and its English.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const root = "../../.."

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w+`)
	subtest  = regexp.MustCompile(`\bTest\w+/(\w+)`)
	relative = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestNamedTestsExist: every test that the documentation names exists.
func TestNamedTestsExist(t *testing.T) {
	code, named := read(t, ".go"), map[string]bool{}
	for file, text := range documents(t) {
		names := testName.FindAllString(text, -1)
		for _, sub := range subtest.FindAllStringSubmatch(text, -1) {
			names = append(names, sub[1])
		}
		for _, name := range names {
			if named[name] {
				continue
			}
			named[name] = true
			if !strings.Contains(code, "func "+name+"(") && !strings.Contains(code, `{"`+name+`", `) {
				t.Errorf("%s names %s, but there is no such test", file, name)
			}
		}
	}
	if len(named) < 20 {
		t.Errorf("found only %d names of tests: the test may have stopped finding them", len(named))
	}
}

// TestLinksLead: the target of every relative link in the documentation exists.
func TestLinksLead(t *testing.T) {
	for file, text := range documents(t) {
		if !strings.HasSuffix(file, ".md") {
			continue
		}
		for _, link := range relative.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(file), link[1])); err != nil {
				t.Errorf("%s: there is no %s", file, link[1])
			}
		}
	}
}

// TestReadmeShowsWhatRuns: the program in the README is a part of the example.
func TestReadmeShowsWhatRuns(t *testing.T) {
	_, after, _ := strings.Cut(documents(t)["README.md"], "```go\n")
	program, _, _ := strings.Cut(after, "```")
	code, err := os.ReadFile(filepath.Join(root, "examples/consumer/main.go"))
	if err != nil || program == "" || !strings.Contains(string(code), program) {
		t.Errorf("examples/consumer does not contain the README's program (%v):\n%s", err, program)
	}
}

// TestSinksShowsWhatIsCompiled: each piece of Go in docs/sinks.md is a part of an example.
func TestSinksShowsWhatIsCompiled(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"shardlease/fencehttp/example*_test.go", "shardlease/fencetest/example*_test.go", "shardlease/fencesql/*_test.go", "shardlease/example_targets_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file is %s (%v)", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	pieces := strings.Split(documents(t)["docs/sinks.md"], "```go\n")[1:]
	if len(pieces) < 5 {
		t.Errorf("found only %d pieces: the test may have stopped finding them", len(pieces))
	}
	for _, piece := range pieces {
		piece, _, _ = strings.Cut(piece, "```")
		if !strings.Contains(code.String(), piece) {
			t.Errorf("no example contains:\n%s", piece)
		}
	}
}

// TestCostsAreThoseMeasured: the cost table of docs/costs.md is that of
// docs/measurements.md, and the bound in the README is above the cost of the fleet that it
// names.
func TestCostsAreThoseMeasured(t *testing.T) {
	table := regexp.MustCompile(`(?m)^\| shards × workers \|(.*\n\|)*.*\n`)
	all := documents(t)
	measured := table.FindString(all["docs/measurements.md"])
	if measured == "" || table.FindString(all["docs/costs.md"]) != measured {
		t.Errorf("the table of docs/costs.md differs from that of docs/measurements.md:\n%s", measured)
	}
	cost := regexp.MustCompile(`\| 64 × 4 \| idle \|.*\$([0-9.]+) \|`).FindStringSubmatch(measured)
	bound := regexp.MustCompile(`idle fleet of 64 shards on 4 workers costs less than \$([0-9.]+) a\s+month`).FindStringSubmatch(all["README.md"])
	if cost == nil || bound == nil || number(t, cost[1]) >= number(t, bound[1]) {
		t.Errorf("the README's bound %q is not above the measured cost %q", bound, cost)
	}
}

// TestTimesAreThoseMeasured: the times of moves in docs/handoff.md and of crashes in docs/lease-time.md are those of
// docs/measurements.md.
func TestTimesAreThoseMeasured(t *testing.T) {
	all := documents(t)
	for row, says := range map[string]struct{ file, as string }{
		"eager: gap of a move":           {"docs/handoff.md", "gap $2 on average, $3 at most"},
		"cooperative: overlap of a move": {"docs/handoff.md", "overlap $2 on average, $3 at most"},
		"T = 10s":                        {"docs/lease-time.md", "$2 on average and $3 at most ($1 crashes, T = 10 s)"},
		"T = 1s":                         {"docs/lease-time.md", "$2 on average and $3 at most ($1 crashes, T = 1 s)"},
	} {
		cells := regexp.MustCompile(`(?m)^\| ` + row + ` \| (\d+) \| ([^|]+) \| [^|]+ \| [^|]+ \| ([^|]+) \|`)
		measured := cells.FindStringSubmatchIndex(all["docs/measurements.md"])
		if measured == nil {
			t.Errorf("docs/measurements.md has no row %q", row)
			continue
		}
		want := string(cells.ExpandString(nil, says.as, all["docs/measurements.md"], measured))
		if !strings.Contains(strings.Join(strings.Fields(all[says.file]), " "), want) {
			t.Errorf("%s does not say %q", says.file, want)
		}
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestGuidesShowWhatRuns: every Go program in the guides is a part of the code, where it is
// compiled and run.
func TestGuidesShowWhatRuns(t *testing.T) {
	code, shown := read(t, ".go"), 0
	for file, text := range documents(t) {
		if filepath.Dir(file) != "docs" {
			continue
		}
		blocks := strings.Split(text, "```go\n")
		for _, block := range blocks[1:] {
			program, _, _ := strings.Cut(block, "```")
			shown++
			if !strings.Contains(code, program) {
				t.Errorf("%s contains a program that no Go file contains:\n%s", file, program)
			}
		}
	}
	if shown < 3 {
		t.Errorf("found only %d programs: the test may have stopped finding them", shown)
	}
}

// TestGuidesShowRealConversations: every line of a conversation in the guides stands in one
// recorded transcript, in the same order.
func TestGuidesShowRealConversations(t *testing.T) {
	shown := 0
	for file, text := range documents(t) {
		blocks := strings.Split(text, "```transcript\n")
		for _, block := range blocks[1:] {
			talk, _, _ := strings.Cut(block, "```")
			shown++
			if !recorded(t, talk) {
				t.Errorf("%s contains a conversation that no transcript contains:\n%s", file, talk)
			}
		}
	}
	if shown < 2 {
		t.Errorf("found only %d conversations: the test may have stopped finding them", shown)
	}
}

// recorded reports whether one transcript contains all lines of talk in their order.
func recorded(t *testing.T, talk string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "internal/proof/transcript/testdata/*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts (%v)", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		rest, found := string(text), err == nil
		for line := range strings.Lines(talk) {
			var ok bool
			_, rest, ok = strings.Cut(rest, line)
			found = found && ok
		}
		if found {
			return true
		}
	}
	return false
}

// TestReadmeNamesNoTest: the pages to which the README links name tests.
func TestReadmeNamesNoTest(t *testing.T) {
	if name := testName.FindString(documents(t)["README.md"]); name != "" {
		t.Errorf("README.md names %s", name)
	}
}

// documents returns the Markdown files and the package comments, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	walk(t, func(path, text string) {
		if strings.HasSuffix(path, ".md") || filepath.Base(path) == "doc.go" {
			texts[path] = text
		}
	})
	return texts
}

func read(t *testing.T, suffix string) string {
	t.Helper()
	var all strings.Builder
	walk(t, func(path, text string) {
		if strings.HasSuffix(path, suffix) {
			all.WriteString(text)
		}
	})
	return all.String()
}

// walk visits all documents and all Go files of the repository.
func walk(t *testing.T, visit func(path, text string)) {
	t.Helper()
	all, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		visit(f.path, f.text)
	}
}

type file struct{ path, text string }

// tree reads the files that walk visits, once for all tests.
var tree = sync.OnceValues(func() (all []file, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".md") && !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		relative, _ := filepath.Rel(root, path)
		all = append(all, file{relative, string(text)})
		return err
	})
	return all, err
})
