package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	systemRow = regexp.MustCompile(`(?m)^\| (?:[^|]* )?\[[^]|]+\]\(#([a-z-]+)\)[^|]* \| ([^|]+) \| ([^|]+) \|$`)
	program   = regexp.MustCompile(`(?ms)^func Example_(\w+)\(\) \{$.*?^\}$`)
	outputs   = regexp.MustCompile(`(?m)^\t// (?:Unordered output|Output):`)
)

// systems are the sections of docs/leases.md and the programs in them.
var systems = map[string]string{
	"chubby": "chubby", "zookeeper": "zookeeper", "etcd": "etcd", "consul": "consul", "dynamodb-lock-client": "dynamodbLockClient",
	"sqs": "sqs", "kubernetes": "kubernetes", "cron-guard": "cron", "volume-attachment": "volume",
}

// TestNineSystemsHaveProgramsThatRun: docs/leases.md has a row for each of the nine systems. The row leads to
// a section with a link to a source and the whole text of an Example of at most 30 lines, which go test runs.
func TestNineSystemsHaveProgramsThatRun(t *testing.T) {
	page := documents(t)["docs/leases.md"]
	code, err := os.ReadFile(filepath.Join(root, "shardlease/example_systems_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for _, p := range program.FindAllStringSubmatch(string(code), -1) {
		programs[p[1]] = p[0]
		if lines := strings.Count(p[0], "\n") + 1; lines > 30 {
			t.Errorf("Example_%s has %d lines, more than 30", p[1], lines)
		}
		if !outputs.MatchString(p[0]) {
			t.Errorf("Example_%s has no output to compare, so go test does not run it", p[1])
		}
	}
	rows := map[string]bool{}
	for _, row := range systemRow.FindAllStringSubmatch(page, -1) {
		rows[row[1]] = true
	}
	if len(programs) != len(systems) || len(rows) != len(systems) {
		t.Errorf("%d programs and %d rows, want %d of each", len(programs), len(rows), len(systems))
	}
	for anchor, name := range systems {
		text := sectionOf(page, anchor)
		if !rows[anchor] || programs[name] == "" || !strings.Contains(text, "```go\n"+programs[name]+"\n```\n") {
			t.Errorf("docs/leases.md has no row for %s, or no section with the text of Example_%s", anchor, name)
		}
		if prose, _, _ := strings.Cut(text, "```go"); !strings.Contains(prose, "](https://") {
			t.Errorf("the section of %s cites no source", anchor)
		}
	}
}

// sectionOf returns the part of a page from the heading of an anchor to the next heading.
func sectionOf(page, anchor string) string {
	at := heading.FindAllStringSubmatchIndex(page, -1)
	for i, h := range at {
		end := len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		if slug(page[h[2]:h[3]]) == anchor {
			return page[h[1]:end]
		}
	}
	return ""
}
