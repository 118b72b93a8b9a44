package transcript

import (
	"fmt"
	"strings"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The words for what a planner writes.

// verbOfPlanner returns the verb for a write of the plan, of a target or of the wishes.
func verbOfPlanner(w lease.Write) string {
	old, _ := w.Old.(lease.Plan)
	next, isPlan := w.Next.(lease.Plan)
	switch {
	case w.Key().Kind == lease.KindWishes:
		return "sets"
	case w.Op == lease.OpDelete:
		return "drops"
	case !isPlan:
		return "assigns"
	case next.Revision != old.Revision:
		return "opens"
	case next.Open != old.Open:
		return "completes"
	}
	return "ticks"
}

// planned lists what a write of the plan or of a target changes.
func (r *recorder) planned(w lease.Write) []string {
	switch next := w.Next.(type) {
	case lease.Plan:
		old, _ := w.Old.(lease.Plan)
		switch {
		case next.Revision != old.Revision:
			return []string{"revision " + r.revision(old.Revision) + " → " + r.revision(next.Revision)}
		case next.Open != old.Open:
			return []string{"revision " + r.revision(next.Revision) + ", " + r.found(next.Finding)}
		}
		return []string{fmt.Sprintf("tick %d → %d", old.Tick, next.Tick) + when(next.Late, ", a seat is late")}
	case lease.Target:
		if old, ok := w.Old.(lease.Target); ok {
			was, is := r.assigned(old), r.assigned(next)
			return []string{"plan " + r.revision(old.Revision) + " → " + r.revision(next.Revision), when(was != is, was+" → ") + is}
		}
		return []string{"plan " + r.revision(next.Revision), r.assigned(next)}
	}
	return nil
}

// plan describes the plan as it stands in the table.
func (r *recorder) plan(of lease.Plan) string {
	text := "the plan has revision " + r.revision(of.Revision)
	if of.Open {
		return text + ", open: " + r.owners[of.By.Incarnation] + " is writing its targets"
	}
	return text + ", complete: " + r.found(of.Finding)
}

// found describes what a planner has found.
func (r *recorder) found(of lease.Finding) string {
	var watchers []string
	for _, inc := range of.Watchers {
		watchers = append(watchers, r.owners[inc])
	}
	return counted(of.Members, "worker") + ", " + counted(of.Shards, "shard") + ", watched by " + strings.Join(watchers, " ") +
		when(of.Unplaced > 0, fmt.Sprintf(", no worker for %d: %s", of.Unplaced, strings.Join(of.Examples, " "))) +
		when(of.Inputs == "", ", for now: held shards stay, another plan follows")
}

// assigned lists the shards of a target, and its hints.
func (r *recorder) assigned(of lease.Target) string {
	var shards, hints []string
	for _, a := range of.Hold {
		shards = append(shards, a.Shard)
	}
	for _, g := range of.Give {
		hints = append(hints, g.Shard+" goes to "+r.owners[g.To])
	}
	return when(len(shards) == 0, "no shard") + strings.Join(shards, " ") + when(len(hints) > 0, " ("+strings.Join(hints, ", ")+")")
}

func counted(n int64, what string) string { return number(n) + " " + what + when(n != 1, "s") }
