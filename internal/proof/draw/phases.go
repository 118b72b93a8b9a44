package main

// A phase is a card in the picture of a worker's phases.
type phase struct {
	name        string
	left, width int
	does        []string // what the worker does in it, one line each
	next        []string // what begins the next phase, one line each
}

// The lines of the picture of the phases.
const (
	phaseTop  = 52
	phaseHigh = 96
	lossLine  = phaseTop + phaseHigh + 34 // the way back to no seat
)

var phaseCards = []phase{
	{"no seat", 20, 92, []string{"no tenure"}, []string{"creates"}},
	{"confirming", 168, 112, []string{"claims nothing"}, []string{"heartbeat", "is stored"}},
	{"seated", 356, 196, []string{"follows its target", "watches, if the plan names it", "on trial, if it is unwell"}, []string{"Stop"}},
	{"leaving", 598, 90, []string{"serves", "requests"}, []string{"deletes", "its seat"}},
	{"done", 746, 54, nil, nil},
}

func phases() string {
	d := draw(lossLine+62, "A worker's phases",
		"A worker without a seat creates one. It claims nothing until its first heartbeat is stored. Then it is seated: it follows its target, and if "+
			"the plan names it, it watches the seats and plans. A worker that is stopped says that it leaves, serves requests, releases what is left, and "+
			"deletes its seat. When a write of its seat is refused, the seat is missing, or trust ends, every tenure ends at once, and the worker starts "+
			"again under another incarnation; a leaving worker is done instead.")
	for i, p := range phaseCards {
		middle, right := p.left+p.width/2, p.left+p.width
		d.box("card", p.left, phaseTop, p.width, phaseHigh)
		d.centred("strong", middle, phaseTop+24, p.name)
		for n, line := range p.does {
			d.centred("soft", middle, phaseTop+46+17*n, line)
		}
		if i+1 == len(phaseCards) {
			break
		}
		to := phaseCards[i+1].left
		d.arrow(right, phaseTop+phaseHigh/2, to-2, phaseTop+phaseHigh/2)
		for n, line := range p.next {
			d.centred("soft", (right+to)/2, phaseTop+phaseHigh/2-8-17*(len(p.next)-1-n), line)
		}
	}
	lost(d)
	return d.end()
}

// lost draws what follows from the loss of a seat.
func lost(d *drawing) {
	centre := func(i int) int { return phaseCards[i].left + phaseCards[i].width/2 }
	bottom := phaseTop + phaseHigh
	for _, i := range []int{1, 2} {
		d.line("lost", centre(i), bottom, centre(i), lossLine)
	}
	d.line("lost", centre(0), lossLine, centre(2), lossLine)
	d.arrow(centre(0), lossLine, centre(0), bottom+2)
	d.line("lost", centre(3), bottom, centre(3), lossLine)
	d.line("lost", centre(3), lossLine, centre(4), lossLine)
	d.arrow(centre(4), lossLine, centre(4), bottom+2)
	d.text("bad", centre(0), lossLine+22, "The seat is lost: a write of it is refused, it is missing, or trust ends.",
		"Every tenure ends at once. The worker continues under another incarnation, or is done if it was leaving.")
}
