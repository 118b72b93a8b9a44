package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

var attributeRow = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)`(?: \\*\\*K\\*\\*)? \\| (?:S|N|B|BOOL|SS) \\|")

// TestTableListsEveryAttribute: docs/table.md has a row for each attribute of internal/attr, and for no other, except for
// those that only dynamostore writes.
func TestTableListsEveryAttribute(t *testing.T) {
	rows := found(attributeRow, documents(t)["docs/table.md"])
	known := []string{"tableId", "buckets", "value"}
	for name, attribute := range fixture.Texts(t, "internal/attr") {
		if known = append(known, attribute); !slices.Contains(rows, attribute) {
			t.Errorf("docs/table.md has no row for the attribute %s (attr.%s)", attribute, name)
		}
	}
	for _, row := range rows {
		if !slices.Contains(known, row) {
			t.Errorf("docs/table.md has a row for %s, which is no attribute of internal/attr", row)
		}
	}
	if len(rows) < 60 {
		t.Errorf("found only %d rows: the test may have stopped finding them", len(rows))
	}
}

// TestTableListsEveryKind: docs/table.md lists the reasons, the kinds of news and the kinds of wish.
func TestTableListsEveryKind(t *testing.T) {
	page := documents(t)["docs/table.md"]
	row := func(begin string) string {
		_, rest, _ := strings.Cut(page, "\n"+begin)
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	reasons, _, _ := strings.Cut(row("| reason |"), "; a reader")
	got, want := found(quoted, reasons), texts(fixture.Kinds[lease.Reason](t))
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/table.md, Lease rows: the reasons are\n%v and not\n%v", want, got)
	}
	for _, kind := range fixture.Kinds[lease.NewsKind](t) {
		if !strings.Contains(row("| `news` |"), "`"+string(kind)+"`") {
			t.Errorf("docs/table.md, Seats: the row of news does not name %q", kind)
		}
	}
	for _, kind := range fixture.Kinds[lease.WishKind](t) {
		if !strings.Contains(page, "\n| `"+string(kind)+"`: ") {
			t.Errorf("docs/table.md, Wishes: there is no row for the kind %q", kind)
		}
	}
}

// TestPagesNameEveryWish: the pages that list the wishes of operators list all of them.
func TestPagesNameEveryWish(t *testing.T) {
	_, glossary, _ := strings.Cut(documents(t)["shardlease/lease/doc.go"], "  - wish: ")
	glossary, _, _ = strings.Cut(glossary, "  - ")
	texts := map[string]string{
		"docs/operations.md, Commands":          section(t, "### Commands"),
		"docs/operations.md, Steering the plan": section(t, "## Steering the plan"),
		"docs/operations.md, the warning wish":  section(t, "### `wish`"),
		"shardlease/lease/doc.go, the glossary": glossary,
	}
	for where, text := range texts {
		for _, kind := range lease.WishKinds() {
			if !strings.Contains(text, string(kind)) {
				t.Errorf("%s: it does not name the wish %q", where, kind)
			}
		}
	}
}
