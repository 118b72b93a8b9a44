package transcript

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// verb returns the verb for a write of a worker. It depends only on the records that the write compares
// and stores, not on the engine. Scripts name a write by the first word.
func verb(w lease.Write, worker string) string {
	if kind := w.Key().Kind; kind != lease.KindSeat && kind != lease.KindLease {
		return verbOfPlanner(w)
	}
	if old, ok := w.Old.(lease.Seat); ok && w.Op == lease.OpDelete {
		return map[bool]string{true: "gives up", false: "evicts"}[old.Name == worker]
	}
	next, isRow := w.Next.(lease.Row)
	old, _ := w.Old.(lease.Row)
	switch {
	case w.Op == lease.OpCreate:
		return map[bool]string{true: "creates", false: "takes"}[isRow]
	case !isRow:
		return "renews"
	case next.Generation == old.Generation:
		return verbOfHolder(old, next)
	case next.Last.Reason == lease.ReasonAdopted && next.Owner.IsZero():
		return "adopts"
	case next.Quarantined:
		return "quarantines"
	case next.Finished:
		return "finishes"
	case next.Owner.IsZero():
		return "releases"
	case w.Op == lease.OpSwap:
		return "hands over"
	case next.Accepts(old):
		return "takes over"
	case protocol.EndingOf(next.Last.Reason) == protocol.Moved:
		return "seizes"
	}
	return "claims"
}

// verbOfHolder returns the verb for a write that keeps the generation.
func verbOfHolder(old, next lease.Row) string {
	switch {
	case next.OfferedTo != old.OfferedTo && next.OfferedTo != "":
		return "offers"
	case next.Checkpoint.Mark != old.Checkpoint.Mark:
		return "commits"
	case next.OfferedTo != old.OfferedTo:
		return "withdraws the offer of"
	}
	return "notes the progress of"
}

// send describes what a worker sends to the table.
func (r *recorder) send(worker string, w lease.Write) string {
	if r.writes[w.ID()] != "" {
		return "sends " + r.write(w.ID()) + " again"
	}
	switch next := w.Next.(type) {
	case lease.Seat:
		if w.Op == lease.OpCreate {
			r.seats[worker]++
			r.owners[next.Incarnation] = fmt.Sprintf("%s#%d", worker, r.seats[worker])
		}
	case lease.Row:
		if w.Op == lease.OpCreate {
			r.firsts = append(r.firsts, next.Generation)
		}
	}
	return r.sentence(worker, w)
}

// sentence describes a write: its verb, kind and id, and what it changes. The kind decides the
// condition, as testdata/01-claim.txt explains.
func (r *recorder) sentence(worker string, w lease.Write) string {
	text := verb(w, worker) + " " + r.name(w.Key())
	switch w.Op {
	case lease.OpDelete:
		if seat, ok := w.Old.(lease.Seat); ok {
			return fmt.Sprintf("%s (delete if still heartbeat %d)", text, seat.Beat)
		}
		return fmt.Sprintf("%s (delete if still %s)", text, r.write(w.Old.Written()))
	case lease.OpSwap:
		text += fmt.Sprintf(" (swap %s if still %s): ", r.write(w.ID()), r.write(w.Old.Written()))
	default:
		text += fmt.Sprintf(" (%v %s): ", w.Op, r.write(w.ID()))
	}
	return text + strings.Join(r.changes(w), ", ")
}

// changes lists what a write changes.
func (r *recorder) changes(w lease.Write) (list []string) {
	add := func(name, old, next string) {
		if old != next {
			list = append(list, name+" "+old+" → "+next)
		}
	}
	switch next := w.Next.(type) {
	case lease.Seat:
		old, ok := w.Old.(lease.Seat)
		if !ok {
			return []string{fmt.Sprintf("heartbeat 0, lease time %v", next.TTL)}
		}
		add("heartbeat", number(old.Beat), number(next.Beat))
		if next.Revision == 0 {
			add("freed", number(old.Freed), number(next.Freed))
		}
		add("follows plan", r.revision(old.Revision), r.revision(next.Revision))
		list = append(list, r.says(next.Says)...)
	case lease.Row:
		old, ok := w.Old.(lease.Row)
		if !ok {
			return []string{fmt.Sprintf("generation %s, owner nobody", r.generation(next.Generation))}
		}
		add("generation", r.generation(old.Generation), r.generation(next.Generation))
		add("owner", r.owners[old.Owner.Incarnation], r.owners[next.Owner.Incarnation])
		add("offered to", r.owners[old.OfferedTo], r.owners[next.OfferedTo])
		add("position", position(old.Checkpoint), position(next.Checkpoint))
		add("failed attempts", number(old.Attempts()), number(next.Attempts()))
		if next.Generation != old.Generation {
			list = append(list, "reason "+string(next.Last.Reason))
		}
	default:
		return r.planned(w)
	}
	return list
}

// says lists what a worker publishes with its heartbeat.
func (r *recorder) says(s lease.Says) (list []string) {
	if s.Leaving {
		list = append(list, "leaving")
	}
	if s.Missing > 0 {
		list = append(list, "misses its target of plan "+r.revision(s.Missing))
	}
	for _, n := range s.News {
		list = append(list, fmt.Sprintf("reports %s %s", n.Shard, n.Kind))
	}
	for _, want := range s.Wants {
		list = append(list, fmt.Sprintf("requests %s of generation %s (%v)", want.Shard, r.generation(want.Generation), want.Terms.Mode))
	}
	return list
}

// answer describes how the table answers a write.
func (r *recorder) answer(w lease.Write, now lease.Record, err error) string {
	name := "deletion of " + r.name(w.Key())
	if w.Op != lease.OpDelete {
		name = r.write(w.ID())
	}
	refused, ok := errors.AsType[*lease.RefusedError](err)
	row, isRow := now.(lease.Row)
	switch {
	case ok && refused.Now == nil:
		return name + " refused: " + r.name(w.Key()) + " is gone"
	case ok:
		return name + " refused: now " + r.record(refused.Now)
	case err != nil:
		return "no answer to " + name
	case isRow && w.Op == lease.OpTransfer:
		return name + " stored" + at(row.Checkpoint)
	}
	return name + " stored"
}

// record describes a record as it stands in the table.
func (r *recorder) record(of lease.Record) string {
	switch of := of.(type) {
	case lease.Row:
		return fmt.Sprintf("%s has generation %s, owner %s", of.Shard, r.generation(of.Generation), r.owners[of.Owner.Incarnation]) +
			when(of.OfferedTo != "", ", offered to "+r.owners[of.OfferedTo]) + at(of.Checkpoint) +
			when(of.Attempts() > 0, ", failed attempts "+number(of.Attempts())) +
			when(of.Finished, ", finished") + when(of.Quarantined, ", quarantined") + ", written by " + r.write(of.WriteID)
	case lease.Seat:
		return strings.Join(append([]string{r.name(of.Key()) + " has heartbeat " + number(of.Beat)}, r.says(of.Says)...), ", ")
	case lease.Plan:
		return r.plan(of)
	case lease.Target:
		return fmt.Sprintf("%s is of plan %s: %s", r.name(of.Key()), r.revision(of.Revision), r.assigned(of))
	}
	return "nothing"
}

// event describes an event by its kind and the fields that are set.
func (r *recorder) event(e event.Event) string {
	var list []string
	for _, a := range e.LogValue().Group() {
		if a.Key != "event" && a.Key != "group" && a.Key != "worker" {
			list = append(list, a.Key+" "+r.shorten(a.Value.String()))
		}
	}
	return e.Kind.String() + when(len(list) > 0, ": "+strings.Join(list, ", "))
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func position(c checkpoint.Checkpoint) string { return when(c.Position == "", "none") + c.Position }

// at describes a checkpoint, if there is one.
func at(c checkpoint.Checkpoint) string { return when(c.Position != "", ", position "+c.Position) }

func reason(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func when(set bool, text string) string {
	if set {
		return text
	}
	return ""
}
