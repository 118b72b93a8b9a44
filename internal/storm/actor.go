package storm

import (
	"fmt"
	"strconv"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An actor is a worker with no judgement: of everything the transitions allow it
// with one shard it may do anything, at any time, for no reason. It evicts the
// healthy and takes what it does not need. The promises have to hold all the
// same, so they do not rest on workers being sensible.
//
// An actor is a plain value: copying it copies the worker.
type actor struct {
	name   string
	life   int // which incarnation it is
	copy   protocol.Copy
	hold   lease.Hold
	tenure bool
	writes int
}

func newActor(name string) actor {
	a := actor{name: name}
	a.reborn()
	return a
}

// reborn is what a worker does that no longer trusts itself: everything it knew
// is void, and it goes on under another incarnation.
func (a *actor) reborn() {
	a.life++
	a.copy, a.hold, a.tenure = protocol.NewCopy(theRow(), a.owner().Incarnation), lease.Hold{}, false
}

func (a *actor) owner() lease.Owner {
	return lease.Owner{Name: a.name, Incarnation: lease.Incarnation(a.name + strconv.Itoa(a.life))}
}

// Truth is what really happened to the writes, as only somebody outside knows. A
// [Judge] does.
type Truth interface {
	// Stored reports whether that write took effect, at whichever sending.
	Stored(id lease.WriteID) bool
}

// truth adds a ledger of tenures.
type truth interface {
	Truth
	started(r lease.Row) error
}

// A ledger holds S3 where it matters: one generation is one tenure.
type ledger map[int64]lease.Incarnation

func (l ledger) started(r lease.Row) error {
	if who, ok := l[r.Generation]; ok {
		return fmt.Errorf("S3: generation %d was started by %s, and now by %s", r.Generation, who, r.Owner.Incarnation)
	}
	l[r.Generation] = r.Owner.Incarnation
	return nil
}

// saw takes in a row that was read, at whatever time.
func (a *actor) saw(r lease.Row, t truth) error {
	a.copy.Saw(r)
	return a.reconcile(t)
}

// reconcile starts what is the actor's and was never started. What it may only
// claim again is among its moves.
func (a *actor) reconcile(t truth) error {
	row := a.copy.Row()
	if a.tenure && row.Generation > a.hold.Generation {
		a.tenure = false // fenced, by what it saw itself
	}
	if a.copy.Reconcile(a.tenure, false) != protocol.StartIt {
		return nil
	}
	h, ok := a.copy.Start(nil) // unordered: nothing but the fence keeps positions in order
	if !ok {
		return fmt.Errorf("%s cannot start %v", a.name, row)
	}
	a.hold, a.tenure = h, true
	return t.started(row)
}

// A move is a write the actor could make next, if the rules allow it.
type move struct {
	name string
	make func(s protocol.Stamp) (lease.Write, error)
}

// stamp is that of the actor's next write, if it is that move: no two different
// writes ever share an id.
func (a *actor) stamp(m move) protocol.Stamp {
	return protocol.Stamp{
		ID: lease.WriteID(fmt.Sprintf("%s%d#%d %s", a.name, a.life, a.writes, m.name)),
		At: clock(),
	}
}

// moves lists the transitions.
func (a *actor) moves(peer lease.Owner) []move {
	type stamp = protocol.Stamp
	r, me, h, next := a.copy.Row(), a.owner(), a.hold, a.next()
	command := protocol.Command{Seen: r.Generation, By: a.name}
	if r.Generation == 0 {
		return []move{{"begin", func(s stamp) (lease.Write, error) { return protocol.Begin(group, shard, nil, a.name, s) }}}
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
		{"remove", func(s stamp) (lease.Write, error) { return protocol.Remove(r, command, s) }},
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
		{"finish", func(s stamp) (lease.Write, error) { return protocol.Finish(r, h, next, s) }},
	}...)
}

// next is one record further than what is stored.
func (a *actor) next() checkpoint.Mark {
	done, _ := strconv.Atoi(a.copy.Row().Checkpoint.Position)
	return checkpoint.Mark{Position: strconv.Itoa(done + 1)}
}

// answered takes in what the store said, and holds it against what happened.
func (a *actor) answered(reply lease.Record, err error, t truth) error {
	open, _ := a.copy.Open()
	answer := a.copy.Answer(open, reply, err)
	id, old := answer.Write.ID(), holder(answer.Write)
	stored := t.Stored(id)
	lie := func(why string) error {
		return fmt.Errorf("S4: %s was told %v of %v: %s", a.name, answer.Verdict, answer.Write, why)
	}
	mine := answer.Row.Owner.Incarnation == a.owner().Incarnation
	switch answer.Verdict {
	case protocol.Unknown:
		return nil
	case protocol.Stored:
		if !stored && !mine {
			return lie("it was never stored")
		}
	case protocol.Again:
		if stored {
			return lie("it was stored")
		}
	case protocol.Overtaken, protocol.Gone:
		if stored && !answer.Torn {
			return lie("it was stored, and nothing else had been sent")
		}
		if next := answer.Write.Next.(lease.Row); stored && next.Generation == answer.Row.Generation {
			return lie("the generation it began still stands")
		}
	default:
		return lie("nothing of that kind happened")
	}
	if old && !mine || answer.Row.Generation > a.hold.Generation {
		a.tenure = false
	}
	return a.reconcile(t)
}

// holder reports whether w was made by the holder of the row.
func holder(w lease.Write) bool {
	old, ok := w.Old.(lease.Row)
	return ok && w.Op == lease.OpSwap && !old.Owner.IsZero()
}
