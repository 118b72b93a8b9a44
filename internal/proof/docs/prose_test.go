package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// phrases are phrases that read as translated and that a program can find, each with a
// better way to say it.
var phrases = []struct {
	word   string // a part of every such phrase, in lower case: to look for it first is quicker
	find   *regexp.Regexp
	better string
}{
	{"whoever", regexp.MustCompile(`(?i)\bwhoever\b`), `name the subject: "the worker that …"`},
	{"for ever", regexp.MustCompile(`(?i)\bfor ever\b`), "forever"},
	{"in the mean", regexp.MustCompile(`(?i)\bin the mean\b`), "on average"},
	{"as a rule", regexp.MustCompile(`(?i)\bas a rule\b`), "usually"},
	{"anew", regexp.MustCompile(`(?i)\banew\b`), "again, or new"},
	{"but for", regexp.MustCompile(`(?i)\bbut for\b`), "except, or unless"},
	{"some few", regexp.MustCompile(`(?i)\bsome few\b`), "a few"},
	{"who ", regexp.MustCompile(`(?:^|[.;:] )Who (?:[^.;:?]|[.;:?]\S)*[.;](?: |$)`), `name the subject: "A worker that leaves …"`},
	{"what ", regexp.MustCompile(`(?:^|[.;:] )What (?:[^.;:?]|[.;:?]\S)*[.;](?: |$)`), `name the subject: "A worker that leaves …"`},
	{" who ", regexp.MustCompile(`\b(?:to|from|by|than|with) who \w+`), `name the object: "to the worker that …"`},
}

// ellipsis is the advice for a sentence that runs over several fields.
const ellipsis = "a whole phrase for each field"

// A finding is a phrase that the check found.
type finding struct {
	file   string
	line   int
	text   string
	better string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %.70q: better: %s", f.file, f.line, strings.Trim(f.text, ".;: "), f.better)
}

// TestPlainEnglish: documents, comments, errors and log texts are free of phrases that read as
// translated, except as far as testdata/prose.txt allows.
func TestPlainEnglish(t *testing.T) {
	found := map[string][]finding{}
	list := allowances(t)
	walk(t, func(path, content string) {
		for _, f := range findings(t, path, content) {
			if scope := list.scope(f); scope != "" {
				found[scope] = append(found[scope], f)
			}
		}
	})
	for scope, all := range found {
		most, some := list.most[scope], len(all)
		if some <= most {
			continue
		}
		t.Errorf("%s: %d phrases, at most %d are allowed", scope, some, most)
		for _, f := range all {
			t.Log(f)
		}
	}
	for scope, most := range list.most {
		if some := len(found[scope]); some < most {
			t.Logf("%s: %d phrases are left, %d are allowed: lower the number in testdata/prose.txt", scope, some, most)
		}
	}
}

// findings returns the findings in one file.
func findings(t *testing.T, path, content string) []finding {
	if strings.HasSuffix(path, ".md") {
		return inBlocks(path, markdown(content))
	}
	found, err := inGo(path, content)
	if err != nil {
		t.Error(err)
	}
	return found
}

// A block is a paragraph, a list item, a cell of a table or a string, without line ends.
type block struct {
	line int
	text string
}

func inBlocks(path string, blocks []block) []finding {
	var found []finding
	for _, b := range blocks {
		lower := strings.ToLower(b.text)
		for _, p := range phrases {
			if !strings.Contains(lower, p.word) {
				continue
			}
			for rest := b.text; ; {
				at := p.find.FindStringIndex(rest)
				if at == nil {
					break
				}
				found = append(found, finding{path, b.line, rest[at[0]:at[1]], p.better})
				rest = rest[at[0]+1:]
			}
		}
	}
	return found
}

var (
	code = regexp.MustCompile("`[^`]*`")
	item = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
)

// markdown returns the prose of a page: no headings and no code.
func markdown(page string) []block {
	var blocks []block
	fenced, open := false, false // open: the next line continues the last block
	for i, line := range strings.Split(page, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "```"):
			fenced, open = !fenced, false
		case fenced:
		case text == "" || strings.HasPrefix(text, "#"):
			open = false
		case strings.HasPrefix(text, "|"):
			for cell := range strings.SplitSeq(strings.Trim(text, "|"), "|") {
				blocks = append(blocks, block{i + 1, strings.TrimSpace(cell)})
			}
			open = false
		case open && !item.MatchString(line):
			blocks[len(blocks)-1].text += " " + text
		default:
			blocks, open = append(blocks, block{i + 1, item.ReplaceAllString(line, "")}), true
		}
	}
	for i := range blocks {
		blocks[i].text = strings.ReplaceAll(code.ReplaceAllString(blocks[i].text, "x"), "*", "")
	}
	return blocks
}

// inGo returns the findings in the comments of a file and, unless it is a test, in its strings.
func inGo(path, content string) ([]finding, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	line := func(n ast.Node) int { return files.Position(n.Pos()).Line }
	var blocks []block
	for _, group := range file.Comments {
		blocks = append(blocks, comment(line(group), group.Text())...)
	}
	var found []finding
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			found = append(found, torn(path, line(n), n.Doc, n.Comment)...)
		case *ast.ValueSpec:
			found = append(found, torn(path, line(n), n.Doc, n.Comment)...)
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && !strings.HasSuffix(path, "_test.go") {
				blocks = append(blocks, block{line(n), strings.Join(strings.Fields(text), " ")})
			}
		}
		return true
	})
	return append(found, inBlocks(path, blocks)...), nil
}

// comment splits the text of a comment into paragraphs, without headings and code.
func comment(line int, text string) []block {
	var blocks []block
	open := false
	for i, words := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimSpace(words); {
		case trimmed == "" || strings.HasPrefix(words, "\t") || strings.HasPrefix(words, "# "):
			open = false
		case open && !item.MatchString(words):
			blocks[len(blocks)-1].text += " " + trimmed
		default:
			blocks, open = append(blocks, block{line + i, item.ReplaceAllString(words, "")}), true
		}
	}
	return blocks
}

// torn returns the comments of a field whose sentence begins or ends at another field.
func torn(path string, line int, comments ...*ast.CommentGroup) []finding {
	var found []finding
	for _, c := range comments {
		text := strings.TrimSpace(c.Text())
		if strings.HasPrefix(text, "…") || strings.HasSuffix(text, "…") {
			found = append(found, finding{path, line, text, ellipsis})
		}
	}
	return found
}

// allowed is the content of testdata/prose.txt.
type allowed struct {
	most   map[string]int // the allowed findings by scope: a file, or a folder with all below it
	quotes []quote
}

// A quote is a finding that is allowed because the text is right there.
type quote struct{ file, text string }

// scope returns the scope that a finding counts for: the longest one that contains its file. "" if it
// does not count.
func (a allowed) scope(f finding) string {
	if slices.ContainsFunc(a.quotes, func(q quote) bool { return q.file == f.file && strings.Contains(f.text, q.text) }) {
		return ""
	}
	for path := f.file; ; path = filepath.Dir(path) {
		if _, ok := a.most[path]; ok || path == "." {
			return path
		}
	}
}

// allowances reads testdata/prose.txt.
func allowances(t *testing.T) allowed {
	t.Helper()
	list := allowed{most: map[string]int{}}
	text, err := os.ReadFile("testdata/prose.txt")
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`^(?:(\d+)|"([^"]+)")\t+(\S+)\t+\S.*$`)
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		switch m := entry.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "#") || line == "":
		case m == nil:
			t.Errorf("testdata/prose.txt:%d: neither NUMBER, SCOPE, REASON nor \"TEXT\", FILE, REASON: %q", i+1, line)
		case m[1] != "":
			list.most[m[3]], _ = strconv.Atoi(m[1])
		default:
			list.quotes = append(list.quotes, quote{file: m[3], text: m[2]})
		}
	}
	return list
}

// TestPlainEnglishIsFound: the check finds each kind of phrase, and ignores text that only resembles one.
func TestPlainEnglishIsFound(t *testing.T) {
	for text, want := range map[string]int{
		"It waits.\nWho leaves says so.":                                1,
		"What was read stays. What was not goes.":                       2,
		"What is leased: a shard.":                                      0,
		"What runtime.Goexit ends goes.":                                1,
		"Whoever holds it":                                              1,
		"It waits for\never.":                                           1,
		"It takes 3 s in the mean.":                                     1,
		"It takes 3 s as\na rule.":                                      1,
		"All but for one.":                                              1,
		"It is made anew.":                                              1,
		"It gives the shard to who asked.":                              1,
		"| Whoever stays | What it does |":                              1,
		"- an item\n- **Who leaves** goes.":                             1,
		"Who holds it? The owner.":                                      0,
		"# What is promised\n\n## Who does what":                        0,
		"```\nfor ever\n```\nand `anew`":                                0,
		"In the meantime it records who holds the shard and what for.":  0,
		"The worker that leaves reports it, and somebody who asks sees": 0,
	} {
		if got := inBlocks("page.md", markdown(text)); len(got) != want {
			t.Errorf("%q: %d findings, want %d: %v", text, len(got), want, got)
		}
	}
	found, err := inGo("file.go", `package p

// What this is.
type T struct {
	a int // when it began, …
	b int // … and when it ended
	c int // a whole phrase
}

func f() error { return errors.New("whoever") }
`)
	if err != nil || len(found) != 4 {
		t.Errorf("%d findings in a Go file, want 4 (%v): %v", len(found), err, found)
	}
}
