package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	opens     = regexp.MustCompile("(?m)^ *(?:[-*] |\\d+\\. |```|\\||!\\[|#|<!--)") // a list item, or a block that is no paragraph
	announced = regexp.MustCompile("^(?:[-*] |\\d+\\. |```|\\||!\\[)")              // what a colon may announce
	gap       = regexp.MustCompile(`\n\s*\n`)
	links     = regexp.MustCompile(`^\[[^\n]*\)$`) // a line of links
	stopped   = regexp.MustCompile(`[.?!][)*"]*$`)
	colon     = regexp.MustCompile(`:\**$`)
	enumerate = regexp.MustCompile(`[,;](?: and| or)?$`)
	names     = regexp.MustCompile("^(?:[^.]|\\.\\S)*[`)]$") // a list of names: no full stop, and code or a link at the end
)

// TestParagraphsEnd: no paragraph and no list item of a page stops in the middle of a sentence.
func TestParagraphsEnd(t *testing.T) {
	for file, page := range documents(t) {
		if !strings.HasSuffix(file, ".md") {
			continue
		}
		for _, text := range unfinished(page) {
			t.Errorf("%s: this paragraph has no end: …%s", file, text[max(0, len(text)-80):])
		}
	}
}

// unfinished returns the paragraphs and list items of a page that do not end with a full stop, a question
// or exclamation mark, or a colon before a list, code, a table or a picture. An item may also end with a
// comma or semicolon before the next item, or be a list of names.
func unfinished(page string) []string {
	page = opens.ReplaceAllString(codeBlock.ReplaceAllString(page, "```"), "\n\n$0")
	blocks := append(gap.Split(page, -1), "")
	var found []string
	for i, text := range blocks[:len(blocks)-1] {
		text, next := strings.TrimSpace(text), strings.TrimSpace(blocks[i+1])
		isItem := item.MatchString(text)
		switch {
		case text == "" || links.MatchString(text) || opens.MatchString(text) && !isItem:
		case stopped.MatchString(text):
		case colon.MatchString(text) && announced.MatchString(next):
		case isItem && enumerate.MatchString(text) && item.MatchString(next):
		case isItem && names.MatchString(text):
		default:
			found = append(found, text)
		}
	}
	return found
}

// TestLostTextIsFound: the check finds text that stops short, and ignores text that only resembles it.
func TestLostTextIsFound(t *testing.T) {
	for page, want := range map[string]int{
		"The sink\n\nIt waits.":                                        1,
		"It waits.\nThe sink\n\nIt waits.":                             1,
		"It waits.\n\nThe sink":                                        1,
		"The sink\n```\ncode\n```\n":                                   1,
		"The sink\n- waits.":                                           1,
		"These wait:\n\nIt waits.":                                     1,
		"These wait:\n\n# A heading":                                   1,
		"It ends in `code`\n\n- It waits. And\n- it stops. See `code`": 3,
		"- a sink,\n- a worker,\n\nIt waits.":                          1,
		"It waits. \"It waits.\" (It waits.)\n\n**Who waits?**":        0,
		"These wait:\n\n- a sink,\n- a worker, or\n- the\n  store.":    0,
		"**These wait:**\n\n```\nno end\n\nhere\n```\nIt waits:\n\n| no | end |\n|---|---|\n| a | b |\n\nIt waits.": 0,
		"1. From then on:\n\n   ```\n   no end\n   ```\n2. It waits.\n![no end](a.svg)\n":                           0,
		"# No end\n\n[A](a.md) · [B](b.md)\n\n<!-- no end -->\n\n- S1: `TestA`, [`a.b`](a.md)\n":                    0,
	} {
		if got := unfinished(page); len(got) != want {
			t.Errorf("%q: %d findings, want %d: %q", page, len(got), want, got)
		}
	}
}
