package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	anchored = regexp.MustCompile(`\]\(([^)#:]*)#([^)]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noSlug   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestAnchorsLead: every link to a section of a page has a heading of that page as its
// target.
func TestAnchorsLead(t *testing.T) {
	all, found := documents(t), 0
	known := map[string]map[string]bool{} // the anchors of a page
	for file, text := range all {
		for _, link := range anchored.FindAllStringSubmatch(text, -1) {
			page := file
			if link[1] != "" {
				page = filepath.Join(filepath.Dir(file), link[1])
			}
			found++
			if known[page] == nil {
				known[page] = slugs(all[page])
			}
			if !known[page][link[2]] {
				t.Errorf("%s: %s has no heading for #%s", file, page, link[2])
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d links to sections: the test may have stopped finding them", found)
	}
}

// slugs returns the anchors that GitHub generates for the headings of a page.
func slugs(page string) map[string]bool {
	slugs := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(page, -1) {
		slugs[slug(h[1])] = true
	}
	return slugs
}

// slug returns the anchor of a heading.
func slug(heading string) string {
	return strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}
