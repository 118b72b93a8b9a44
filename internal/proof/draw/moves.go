package main

// The lanes of a move, from top to bottom: the owner, the table with its writes, the successor.
const (
	ownerLane     = 56
	tableLane     = 118
	cardLane      = 128
	successorLane = 232
	moveHeight    = 314
	firstX        = 112 // where the lanes begin; their names are left of it
	lastX         = width - 20
)

// move draws the parts that both kinds of move have in common.
func move(title, description string) *drawing {
	d := draw(moveHeight, title, description)
	d.text("soft", lastX-40, 28, "time →")
	d.text("text", 20, ownerLane+18, "owner a")
	d.box("band", 20, tableLane, lastX-20, 84)
	d.text("text", 28, tableLane+30, "lease", "table")
	d.text("text", 20, successorLane+18, "successor b")
	return d
}

// card draws one write to the table; the first line names the writer and the write.
func (d *drawing) card(x, w int, lines ...string) {
	d.box("card", x, cardLane, w, 64)
	d.text("strong", x+7, cardLane+19, lines[0])
	d.text("text", x+7, cardLane+36, lines[1:]...)
}

const (
	belowOwner = ownerLane + 26
	cardBottom = cardLane + 64
)

func eager() string {
	const request, seen, returned, polled, started = 230, 318, 440, 560, 612
	d := move("Eager: no overlap, and a gap",
		"Successor b prepares and writes a request on its seat. Owner a polls, sees the request, and its handler winds down. "+
			"When the handler has returned, a hands over in one write: checkpoint, owner b, generation 42. Successor b polls, sees the row, "+
			"and starts at that checkpoint. Between the return of a's handler and the start of b's nobody processes the shard.")
	d.bar("owner", "on", firstX, seen, ownerLane, "processes, generation 41")
	d.bar("fading", "text", seen, returned, ownerLane, "winds down")
	d.bar("gap", "bad", returned, started, ownerLane, "gap: nobody processes")
	d.bar("preparing", "text", firstX, request-20, successorLane, "prepares")
	d.line("wait", request-20, successorLane+13, started, successorLane+13)
	d.bar("successor", "on", started, lastX, successorLane, "processes from 900")
	d.card(firstX+20, 206, "1  b writes on its seat", "request: shard-7 at 41,", "terms: eager, drain 20 s")
	d.card(returned-64, 206, "2  a hands over, one write", "checkpoint 900, owner b,", "generation 42")
	d.arrow(request-20, successorLane, request-20, cardBottom+2)
	d.arrow(seen, cardLane, seen, belowOwner+2)
	d.arrow(returned, belowOwner, returned, cardLane-2)
	d.arrow(polled, cardBottom, polled, successorLane-2)
	d.text("soft", seen+8, belowOwner+22, "a polls; ctx ends")
	d.text("bad", returned+10, belowOwner+22, "one poll (120 ms) and b's start")
	d.text("soft", polled+8, cardBottom+27, "b polls")
	d.text("soft", firstX, successorLane+48,
		"Write 2 stores the handler's last mark, so b repeats nothing that a has marked.",
		"A handler that winds down for longer than the drain time is cut off (Force) or waited for (Wait).")
	return d.end()
}

func cooperative() string {
	const request, seen, offer, polled, took, ended = 180, 240, 296, 400, 470, 624
	const firstCard, cardStep, cardWidth = 82, 179, 171
	d := move("Cooperative: usually no gap, and an overlap",
		"Successor b prepares and writes a request on its seat. Owner a polls, sees the request, and stores its latest mark with an offer, "+
			"still under generation 41; it continues to process. Successor b polls, sees the offer, and takes the shard over in one write: owner b, "+
			"generation 42. The write returns the checkpoint at which b starts. Owner a finds generation 42 at its next poll or commit, and its handler ends. "+
			"Until then both process; a commit of a under generation 41 is refused.")
	d.bar("owner", "on", firstX, took, ownerLane, "processes, generation 41")
	d.bar("overlap", "both", took, ended, ownerLane, "overlap: both process")
	d.text("both", ended+8, ownerLane+18, "one poll (120 ms)")
	d.bar("preparing", "text", firstX, request, successorLane, "prepares")
	d.line("wait", request, successorLane+13, took, successorLane+13)
	d.bar("successor", "on", took, lastX, successorLane, "processes from 900, generation 42")
	d.card(firstCard, cardWidth, "1  b, on its seat", "request shard-7 at 41,", "terms: cooperative")
	d.card(firstCard+cardStep, cardWidth, "2  a offers, one write", "checkpoint 900, offer", "to b, generation 41")
	d.card(firstCard+2*cardStep, cardWidth, "3  b takes over", "owner b, generation 42", "returns checkpoint 900")
	d.card(firstCard+3*cardStep, cardWidth, "✗  a's late commit", "under generation 41:", "refused")
	d.arrow(request, successorLane, request, cardBottom+2)
	d.arrow(seen, cardLane, seen, belowOwner+2)
	d.arrow(offer, belowOwner, offer, cardLane-2)
	d.arrow(polled, cardBottom, polled, successorLane-2)
	d.arrow(took, successorLane, took, cardBottom+2)
	d.arrow(ended-36, cardLane, ended-36, belowOwner+2)
	d.arrow(ended+48, belowOwner, ended+48, cardLane-2)
	d.text("soft", seen-54, belowOwner+22, "a polls")
	d.text("soft", offer+8, belowOwner+22, "holds its commits ≤ 1 s")
	d.text("soft", polled-50, cardBottom+27, "b polls")
	d.text("soft", ended-36-110, belowOwner+22, "a polls; ctx ends")
	d.text("soft", firstX, successorLane+48,
		"Records that a processes after its offer are processed again by b.",
		"A sink that compares generations refuses a's late writes, as the table refuses a's late commit.")
	return d.end()
}
