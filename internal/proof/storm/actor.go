package storm

import (
	"fmt"
	"strconv"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An actor is a worker that acts at random: with its one shard it may do anything that the
// transitions allow, at any time and for no reason. It evicts healthy workers and takes shards
// that it does not need. The promises have to hold nevertheless, so they do not depend on
// sensible workers.
//
// An actor is a plain value: a copy of it is a copy of the worker.
type actor struct {
	name    string
	life    int // the number of its incarnation
	copy    protocol.Copy
	hold    lease.Hold
	tenure  bool // it holds the shard, as far as it knows
	tenures int  // how many it has started
	writes  int
}

func newActor(name string) actor {
	a := actor{name: name}
	a.reborn()
	return a
}

// reborn makes the actor forget everything and continue under another incarnation, as a worker does
// that no longer trusts its lease.
func (a *actor) reborn() {
	a.life++
	a.copy, a.hold, a.tenure = protocol.NewCopy(theRow(), a.owner().Incarnation), lease.Hold{}, false
}

func (a *actor) owner() lease.Owner {
	return lease.Owner{Name: a.name, Incarnation: lease.Incarnation(a.name + strconv.Itoa(a.life))}
}

// Truth is what an observer of the store knows, such as a Store of package internal/proof/judge.
type Truth interface {
	// Stored reports whether that write was stored, by whichever attempt.
	Stored(id lease.WriteID) bool
	// Start checks that the owner of the row may start a tenure of its generation, as the row was read.
	Start(row lease.Row) error
}

// saw records a row that was read, now or earlier.
func (a *actor) saw(r lease.Row, truth Truth) error {
	a.copy.Saw(r)
	return a.reconcile(truth)
}

// reconcile starts a tenure if the row names the actor as owner and its generation was never
// started. Where the actor can only claim again, that claim is one of its moves.
func (a *actor) reconcile(truth Truth) error {
	row := a.copy.Row()
	if a.tenure && row.Generation > a.hold.Generation {
		a.tenure = false // fenced: the actor has read a later generation
	}
	if a.copy.Reconcile(a.tenure, false) != protocol.StartIt {
		return nil
	}
	h, ok := a.copy.Start(nil) // unordered: nothing but the fence keeps positions in order
	if !ok {
		return fmt.Errorf("%s cannot start %v", a.name, row)
	}
	a.hold, a.tenure = h, true
	a.tenures++
	return truth.Start(row)
}

// A move is a write that the actor could make next, if the rules allow it.
type move struct {
	name string
	make func(s protocol.Stamp) (lease.Write, error)
}

// stamp returns the stamp of the actor's next write, for the given move. Two different writes never
// have the same id.
func (a *actor) stamp(m move) protocol.Stamp {
	return protocol.Stamp{
		ID: lease.WriteID(fmt.Sprintf("%s%d#%d %s", a.name, a.life, a.writes, m.name)),
		At: clock(),
	}
}

// moves returns the transitions that the actor may try.
func (a *actor) moves(peer lease.Owner) []move {
	type stamp = protocol.Stamp
	r, me, h, next := a.copy.Row(), a.owner(), a.hold, a.next()
	command := protocol.Command{Seen: r.Generation, By: a.name}
	if r.Generation == 0 {
		return []move{
			{"begin", func(s stamp) (lease.Write, error) { return protocol.Begin(group, shard, nil, a.name, s) }},
			{"begin-held", func(s stamp) (lease.Write, error) { return protocol.BeginHeld(group, shard, me, s) }},
		}
	}
	moves := []move{
		{"claim", func(s stamp) (lease.Write, error) { return protocol.Claim(r, me, s) }},
		{"recover", func(s stamp) (lease.Write, error) { return protocol.Recover(r, me, s) }},
		{"seize", func(s stamp) (lease.Write, error) { return protocol.Seize(r, me, s) }},
		{"take", func(s stamp) (lease.Write, error) { return protocol.Take(r, me, s) }},
		{"force-release", func(s stamp) (lease.Write, error) { return protocol.ForceRelease(r, command, s) }},
		{"quarantine", func(s stamp) (lease.Write, error) { return protocol.Quarantine(r, command, lease.ReasonForced, s) }},
		{"unquarantine", func(s stamp) (lease.Write, error) { return protocol.Unquarantine(r, command, s) }},
		{"rewind", func(s stamp) (lease.Write, error) {
			return protocol.Rewind(r, command, checkpoint.Mark{Position: "1"}, s)
		}},
		{"conclude", func(s stamp) (lease.Write, error) { return protocol.Conclude(r, command, s) }},
		{"remove", func(s stamp) (lease.Write, error) { return protocol.Remove(r, command, s) }},
		{"revive-held", func(s stamp) (lease.Write, error) { return protocol.ReviveHeld(r, me, s) }},
		{"revive", func(s stamp) (lease.Write, error) { return protocol.Revive(r, nil, a.name, s) }},
		{"adopt", func(s stamp) (lease.Write, error) { return protocol.Adopt(r, a.name, s) }},
	}
	if !a.tenure {
		return moves
	}
	return append(moves, []move{
		{"commit", func(s stamp) (lease.Write, error) { return protocol.Commit(r, h, next, s) }},
		{"progress", func(s stamp) (lease.Write, error) { return protocol.Progress(r, h, s) }},
		{"offer", func(s stamp) (lease.Write, error) { return protocol.Offer(r, h, peer.Incarnation, next, s) }},
		{"withdraw", func(s stamp) (lease.Write, error) { return protocol.Withdraw(r, h, s) }},
		{"yield", func(s stamp) (lease.Write, error) {
			return protocol.Yield(r, h, peer, protocol.End{Reason: lease.ReasonHandoff, Mark: next}, s)
		}},
		{"release", func(s stamp) (lease.Write, error) {
			return protocol.Release(r, h, protocol.End{Reason: lease.ReasonReleased, Mark: next}, s)
		}},
		{"discard", func(s stamp) (lease.Write, error) {
			return protocol.Discard(r, h, protocol.End{Reason: lease.ReasonReleased}, s)
		}},
		{"finish", func(s stamp) (lease.Write, error) { return protocol.Finish(r, h, next, s) }},
	}...)
}

// next returns a mark one record after the stored position.
func (a *actor) next() checkpoint.Mark {
	done, _ := strconv.Atoi(a.copy.Row().Checkpoint.Position)
	return checkpoint.Mark{Position: strconv.Itoa(done + 1)}
}

// answered records the store's answer, and compares it with what really happened.
func (a *actor) answered(reply lease.Record, err error, truth Truth) error {
	open, _ := a.copy.Open()
	answer := a.copy.Answer(open, reply, err)
	id, old := answer.Write.ID(), holder(answer.Write)
	stored := truth.Stored(id)
	wrong := func(why string) error {
		return fmt.Errorf("S4: %s got the verdict %v for %v: %s", a.name, answer.Verdict, answer.Write, why)
	}
	mine := answer.Row.Owner.Incarnation == a.owner().Incarnation
	switch answer.Verdict {
	case protocol.Unknown:
		return nil
	case protocol.Stored:
		if !stored && !mine {
			return wrong("the write was never stored")
		}
	case protocol.Again:
		if stored {
			return wrong("the write was stored")
		}
	case protocol.Overtaken, protocol.Gone:
		if stored && !answer.Torn {
			return wrong("the write was stored by its only attempt")
		}
		if next := answer.Write.Next.(lease.Row); stored && next.Generation == answer.Row.Generation {
			return wrong("the generation that the write began is still the present one")
		}
	default:
		return wrong("nothing of this kind happened")
	}
	if old && !mine || answer.Row.Generation > a.hold.Generation {
		a.tenure = false
	}
	return a.reconcile(truth)
}

// holder reports whether w was made by the holder of the row.
func holder(w lease.Write) bool {
	old, ok := w.Old.(lease.Row)
	return ok && w.Op == lease.OpSwap && !old.Owner.IsZero()
}
