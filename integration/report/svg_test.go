package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/integration/internal/fleet"
)

// A drawing is an SVG picture. It has its own background, so that it is readable on any page, a second
// set of colours for dark mode, no script, and only generic fonts.
type drawing struct {
	strings.Builder
	width, height float64
}

const style = `
.g{fill:#fff;stroke:#d0d7de}.t{fill:#1f2328}.s{fill:#59636e}.x{stroke:#d0d7de}
.w0{fill:#0969da}.w1{fill:#8250df}.w2{fill:#1a7f37}.gap{fill:#cf222e}.two{fill:none;stroke:#bc4c00;stroke-width:1.5}
.l0{stroke:#0969da}.l1{stroke:#bc4c00}.b{stroke:#cf222e;stroke-dasharray:4 3}.r{fill:#cf222e}.o{fill:#bc4c00}
@media (prefers-color-scheme:dark){
.g{fill:#0d1117;stroke:#3d444d}.t{fill:#f0f6fc}.s{fill:#9198a1}.x{stroke:#3d444d}
.w0{fill:#4493f8}.w1{fill:#ab7df8}.w2{fill:#3fb950}.gap{fill:#f85149}.two{stroke:#f0883e}
.l0{stroke:#4493f8}.l1{stroke:#f0883e}.b{stroke:#f85149}.r{fill:#f85149}.o{fill:#f0883e}}
text{font:12px system-ui,sans-serif}text.r,text.o{font-size:10px}`

func newDrawing(width, height float64, title string) *drawing {
	d := &drawing{width: width, height: height}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" aria-label="%s">`, width, height, width, height, title)
	d.add(`<title>%s</title><style>%s</style>`, title, style)
	d.add(`<rect class="g" x=".5" y=".5" width="%g" height="%g" rx="6"/>`, width-1, height-1)
	return d
}

func (d *drawing) add(format string, a ...any) { fmt.Fprintf(d, format+"\n", a...) }

func (d *drawing) text(class string, x, y float64, anchor, format string, a ...any) {
	d.add(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, fmt.Sprintf(format, a...))
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.add(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

func (d *drawing) box(class string, x, y, w, h float64) {
	d.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, x, y, max(w, 0.5), h)
}

func (d *drawing) end() string { return d.String() + "</svg>\n" }

// The height of a lane in a timeline, and the distance of the scale from the edges.
const (
	laneHigh = 20.0
	left     = 60.0
	right    = 20.0
)

// timelinesPicture shows the eager fleet above and the cooperative one below, on one scale.
func (r *report) timelinesPicture() string {
	d := newDrawing(820, 366, "An eager fleet and a cooperative one: a worker joins, another leaves")
	span := max(r.modes[0].to.Sub(r.modes[0].from), r.modes[1].to.Sub(r.modes[1].from))
	y := 24.0
	for i, title := range []string{"eager: between two workers nobody processes", "cooperative: for a moment both do"} {
		d.text("t", left, y, "start", "%s", title)
		d.timeline(r.modes[i], span, y+8)
		y += 24 + 6*laneHigh
	}
	d.scale(span, y-16)
	x := left
	for i, worker := range []string{"worker a", "worker b", "worker c"} {
		d.box(fmt.Sprint("w", i), x, y+21, 12, 10)
		d.text("s", x+17, y+30, "start", "%s", worker)
		x += 90
	}
	d.box("gap", x, y+21, 12, 10)
	d.text("s", x+17, y+30, "start", "gap: nobody")
	d.box("two", x+110, y+21, 12, 10)
	d.text("s", x+127, y+30, "start", "overlap: both")
	d.text("s", d.width-right, y+30, "end", "lease time 1 s; c joins, then a leaves")
	return d.end()
}

// timeline draws one scene, with a lane for each shard.
func (d *drawing) timeline(f modeFigures, span time.Duration, top float64) {
	at := func(t time.Time) float64 {
		return left + (d.width-left-right)*min(1, max(0, t.Sub(f.from).Seconds()/span.Seconds()))
	}
	byShard := map[string][]fleet.Call{}
	var shards []string
	for _, s := range f.calls {
		if s.To.IsZero() {
			s.To = f.to // it still ran
		}
		if s.To.Before(f.from) {
			continue
		}
		if byShard[s.Shard] == nil {
			shards = append(shards, s.Shard)
		}
		byShard[s.Shard] = append(byShard[s.Shard], s)
	}
	slices.Sort(shards)
	for i, shard := range shards {
		y := top + float64(i)*laneHigh
		d.text("s", left-8, y+13, "end", "shard %d", i)
		for n, s := range byShard[shard] {
			lane := float64(n % 2) // a successor is drawn lower, so that both are visible
			d.box(fmt.Sprint("w", s.Worker[0]-'a'), at(s.From), y+2+lane*7, at(s.To)-at(s.From), 8)
		}
		for n, s := range byShard[shard][1:] {
			d.between(at, byShard[shard][n], s, y)
		}
	}
}

// between marks the gap or overlap between two calls of a shard.
func (d *drawing) between(at func(time.Time) float64, one, two fleet.Call, y float64) {
	if gap := two.From.Sub(one.To); gap > 0 {
		d.box("gap", at(one.To), y+2, at(two.From)-at(one.To), 15)
		d.text("r", at(one.To)-4, y+19, "end", "%s", mark(gap))
		return
	}
	d.box("two", at(two.From), y+0.5, at(one.To)-at(two.From), 18)
	d.text("o", at(one.To)+4, y+8, "start", "%s", mark(one.To.Sub(two.From)))
}

func mark(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }

// scale draws a time axis below.
func (d *drawing) scale(span time.Duration, y float64) {
	d.line("x", left, y, d.width-right, y)
	for t := time.Duration(0); t <= span; t += 500 * time.Millisecond {
		x := left + (d.width-left-right)*t.Seconds()/span.Seconds()
		d.line("x", x, y, x, y+4)
		d.text("s", x, y+16, "middle", "%.1f s", t.Seconds())
	}
}

// A panel is a distribution: the share of the trials that took no longer than a time.
type panel struct {
	title, bound string
	limit        time.Duration
	curves       []lot
}

func (r *report) crashPicture() string {
	panels := make([]panel, 0, 2)
	for _, f := range []crashFigures{r.fastCrash, r.slowCrash} {
		panels = append(panels, panel{
			title: fmt.Sprintf("crash, T = %v: until all is processed again", f.ttl),
			bound: "T + h + 0.5 s", limit: f.ttl + f.ttl/3 + 500*time.Millisecond, curves: []lot{f.recovery},
		})
	}
	return distributions("How long a crash takes to recover", panels)
}

func (r *report) movesPicture() string {
	return distributions("Gap and overlap of planned moves", []panel{
		{title: "eager: gap of a move", bound: "bound", limit: 300 * time.Millisecond, curves: []lot{r.modes[0].gaps}},
		{title: "cooperative: overlap of a move", bound: "bound", limit: 300 * time.Millisecond, curves: []lot{r.modes[1].overlaps}},
	})
}

// distributions draws panels side by side.
func distributions(title string, panels []panel) string {
	d := newDrawing(820, 230, title)
	wide := d.width / float64(len(panels))
	for i, p := range panels {
		d.panel(p, float64(i)*wide, wide)
	}
	return d.end()
}

func (d *drawing) panel(p panel, x, wide float64) {
	const top, bottom = 40.0, 186.0
	from, to := x+48, x+wide-24
	most := p.limit
	for _, c := range p.curves {
		most = max(most, c.max())
	}
	most += most / 10
	at := func(t time.Duration) float64 { return from + (to-from)*t.Seconds()/most.Seconds() }
	d.text("t", from, 24, "start", "%s", p.title)
	for i := range 5 {
		y := bottom - (bottom-top)*float64(i)/4
		d.line("x", from, y, to, y)
		d.text("s", from-6, y+4, "end", "%d %%", 25*i)
		t := most * time.Duration(i) / 5
		d.text("s", at(t), bottom+16, "middle", "%s", short(t.Round(time.Millisecond)))
	}
	d.line("b", at(p.limit), top-4, at(p.limit), bottom)
	d.text("r", at(p.limit)-4, bottom+32, "end", "%s %s", p.bound, short(p.limit))
	for i, c := range p.curves {
		d.curve(fmt.Sprint("l", i), c, at, top, bottom)
	}
}

// curve draws a step at every trial.
func (d *drawing) curve(class string, c lot, at func(time.Duration) float64, top, bottom float64) {
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", at(0), bottom)
	sorted := slices.SortedFunc(slices.Values(c), cmp.Compare[time.Duration])
	for i, t := range sorted {
		fmt.Fprintf(&path, "H%.1fV%.1f", at(t), bottom-(bottom-top)*float64(i+1)/float64(len(sorted)))
	}
	d.add(`<path class="%s" d="%s" fill="none" stroke-width="2"/>`, class, path.String())
}
