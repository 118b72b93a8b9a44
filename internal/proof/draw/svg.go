package main

import (
	"fmt"
	"html"
	"strings"
)

// width is the width of every picture, in pixels: that of the text of a page on GitHub, so
// that pictures are not scaled down.
const width = 820

// style defines the classes, which are named by what they show. Each has two colours, one
// for light and one for dark pages. The contrast of every text with its background is at
// least 4.5.
const style = `
.page{fill:#fff;stroke:#d0d7de}.band{fill:#f6f8fa;stroke:#d0d7de}.card{fill:#fff;stroke:#59636e}
.owner{fill:#0969da}.successor{fill:#1a7f37}.fading{fill:#ddf4ff;stroke:#0969da}.preparing{fill:#dafbe1;stroke:#1a7f37}
.gap{fill:#ffebe9;stroke:#cf222e}.overlap{fill:#fff1e5;stroke:#bc4c00}
.line{stroke:#59636e;stroke-width:1.5;fill:none}.wait{stroke:#59636e;stroke-dasharray:2 4}.lost{stroke:#cf222e;stroke-width:1.5}
.head{fill:#59636e}.strong{fill:#1f2328;font-weight:600}.text{fill:#1f2328}.soft{fill:#59636e}.on{fill:#fff}.bad{fill:#cf222e}.both{fill:#bc4c00}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117;stroke:#3d444d}.band{fill:#151b23;stroke:#3d444d}.card{fill:#0d1117;stroke:#9198a1}
.owner{fill:#1f6feb}.successor{fill:#238636}.fading{fill:#0d2846;stroke:#4493f8}.preparing{fill:#0f2d17;stroke:#3fb950}
.gap{fill:#3c1618;stroke:#f85149}.overlap{fill:#33200f;stroke:#f0883e}
.line{stroke:#9198a1}.wait{stroke:#9198a1}.lost{stroke:#f85149}
.head{fill:#9198a1}.strong{fill:#f0f6fc}.text{fill:#f0f6fc}.soft{fill:#9198a1}.bad{fill:#ff7b72}.both{fill:#f0883e}}
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif}
`

// A drawing is an SVG that is being written.
type drawing struct{ strings.Builder }

// draw begins a picture. The title and the description are for readers who cannot see it.
func draw(height int, title, description string) *drawing {
	d := new(drawing)
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title description">`, width, height)
	d.add(`<title id="title">%s</title>`, html.EscapeString(title))
	d.add(`<desc id="description">%s</desc>`, html.EscapeString(description))
	d.add(`<style>%s</style>`, style)
	d.add(`<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>`)
	d.box("page", 0, 0, width, height)
	d.text("strong", 20, 28, title)
	return d
}

func (d *drawing) add(format string, values ...any) { fmt.Fprintf(d, format+"\n", values...) }

func (d *drawing) box(class string, x, y, w, h int) {
	d.add(`<rect class="%s" x="%d.5" y="%d.5" width="%d" height="%d" rx="4"/>`, class, x, y, w-1, h-1)
}

// text writes lines one below the other; y is the baseline of the first.
func (d *drawing) text(class string, x, y int, lines ...string) {
	for i, line := range lines {
		d.add(`<text class="%s" x="%d" y="%d">%s</text>`, class, x, y+17*i, html.EscapeString(line))
	}
}

func (d *drawing) centred(class string, x, y int, line string) {
	d.add(`<text class="%s" x="%d" y="%d" text-anchor="middle">%s</text>`, class, x, y, html.EscapeString(line))
}

func (d *drawing) line(class string, x1, y1, x2, y2 int) {
	d.add(`<line class="%s" x1="%d" y1="%d" x2="%d" y2="%d"/>`, class, x1, y1, x2, y2)
}

func (d *drawing) arrow(x1, y1, x2, y2 int) {
	d.add(`<line class="line" x1="%d" y1="%d" x2="%d" y2="%d" marker-end="url(#head)"/>`, x1, y1, x2, y2)
}

// bar draws a part of a lane with words in it.
func (d *drawing) bar(class, words string, x1, x2, y int, label string) {
	d.box(class, x1, y, x2-x1, 26)
	d.centred(words, (x1+x2)/2, y+18, label)
}

func (d *drawing) end() string { return d.String() + "</svg>\n" }
