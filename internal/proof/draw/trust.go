package main

// The lanes of the trust window.
const (
	workerLane   = 96
	seatLane     = 168
	observerLane = 252
)

// at returns the position on the time axis of a moment, in hundredths of the lease time.
func at(hundredths int) int { return 124 + hundredths*52/10 }

func trust() string {
	const sent, stored, answered, sighted = 0, 4, 9, 14
	const trusted, evicted, claimed = 90, sighted + 100, sighted + 106
	d := draw(358, "The trust window: the worker stops before another can replace it",
		"Worker a sends heartbeat 7 and gets its confirmation; later heartbeats do not arrive. Worker a trusts its lease from the first sending of "+
			"heartbeat 7 for T less a tenth, and then ends every tenure by its own timer. Observer b sees heartbeat 7 a little after it was stored, and "+
			"sees it stand still for a whole T on its own monotonic clock. Only then b deletes the seat, on the condition that heartbeat 7 still stands, "+
			"and claims the shards under new generations.")
	d.text("text", 20, workerLane+18, "worker a")
	d.text("text", 20, seatLane+18, "a's seat")
	d.text("text", 20, observerLane+18, "observer b")
	d.span(at(sent), at(trusted), workerLane-14, "T − T/10, from the first sending of the last confirmed heartbeat")
	d.bar("owner", "on", at(sent), at(trusted), workerLane, "a trusts its lease")
	d.bar("gap", "bad", at(trusted), at(claimed), workerLane, "no owner")
	d.box("band", at(stored), seatLane, at(evicted)-at(stored), 26)
	d.centred("text", at(56), seatLane+18, "heartbeat 7 stands still")
	d.text("bad", at(evicted)+8, seatLane+18, "deleted")
	d.arrow(at(sent), workerLane+26, at(stored), seatLane-2)
	d.arrow(at(stored), seatLane, at(answered), workerLane+28)
	d.text("soft", at(answered)+6, workerLane+48, "confirmed")
	for _, beat := range []int{33, 66} {
		d.line("lost", at(beat), workerLane+26, at(beat)+10, workerLane+44)
		d.text("bad", at(beat)+8, workerLane+56, "✗ not stored")
	}
	d.arrow(at(sighted), seatLane+26, at(sighted), observerLane-2)
	d.text("soft", at(sighted)+8, observerLane-20, "b's first sight of heartbeat 7")
	d.bar("preparing", "text", at(sighted), at(evicted), observerLane, "stood still for T, on b's own monotonic clock")
	d.arrow(at(evicted), observerLane, at(evicted), seatLane+28)
	d.text("soft", at(evicted)-230, observerLane-20, "b evicts, if heartbeat 7 still stands")
	d.box("successor", at(evicted), observerLane, lastX-at(evicted), 26)
	d.centred("on", (at(evicted)+lastX)/2, observerLane+18, "claims")
	d.text("soft", at(sent), observerLane+54,
		"The observer's T begins after the worker's, so a has stopped before b evicts.",
		"The tenth is for clocks that run at different rates.",
		"If a is paused instead, it cannot stop; it ends its tenures when it wakes, and the table refuses its writes.")
	return d.end()
}

// span draws a time span with its length above.
func (d *drawing) span(x1, x2, y int, label string) {
	d.line("line", x1, y, x2, y)
	d.line("line", x1, y-4, x1, y+4)
	d.line("line", x2, y-4, x2, y+4)
	d.centred("text", (x1+x2)/2, y-8, label)
}
