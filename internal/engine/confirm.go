package engine

import (
	"slices"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// The reads of the rows of held shards for callers that want to know whether a tenure holds its shard.
//
//	asked → a read is under way → answered → (none)
//	              ↑_____________________|  calls that came meanwhile get a read of their own
//
// Called by the spines (common.go): ask with calls, got with answers, next after an answer.
//
// Nothing is written here. A read that shows another holder ends the tenure as a refused write does (shard.denied).
// While a write of the row is open, only the answer to that write ends the tenure: no read decides the outcome of a
// write.
//
// Invariant: a call is answered by a read that was sent after the call. So calls share the next read, and never the one
// that is under way.

// Confirms are the tenures for which a read is under way.
type confirms struct{ all []confirmation }

// A confirmation is the calls of one tenure.
type confirmation struct {
	tenure Tenure
	asked  uint64 // the latest call
	sent   uint64 // the latest call before the read was sent
	read   serial // the read that is under way
}

// ask takes a call.
func (c *confirms) ask(t *turn, s *shard, in Confirm) {
	at := slices.IndexFunc(c.all, func(of confirmation) bool { return of.tenure == in.Tenure })
	if at >= 0 {
		c.all[at].asked = in.Call
		return
	}
	c.all = append(c.all, confirmation{tenure: in.Tenure, asked: in.Call})
	c.all[len(c.all)-1].send(t, s)
}

func (of *confirmation) send(t *turn, s *shard) { of.sent, of.read = of.asked, t.get(s.row.copy.Key()) }

// got returns the latest call that a read answers, if the read is one of these.
func (c *confirms) got(in Got) (call Confirm, mine bool) {
	at := slices.IndexFunc(c.all, func(of confirmation) bool { return of.read == serial(in.Read) })
	if at < 0 {
		return Confirm{}, false
	}
	return Confirm{Tenure: c.all[at].tenure, Call: c.all[at].sent}, true
}

// next sends the read for the calls of the tenure that came while the last one was under way. s is its shard; nil: the
// tenure is over, and the shell has answered its calls.
func (c *confirms) next(t *turn, id Tenure, s *shard) {
	at := slices.IndexFunc(c.all, func(of confirmation) bool { return of.tenure == id })
	if of := &c.all[at]; s != nil && of.asked > of.sent {
		of.send(t, s)
		return
	}
	c.all = slices.Delete(c.all, at, at+1)
}

// confirm takes a call. Without the tenure there is nothing to do: the shell answers the calls of a tenure that is
// over.
func (c *common) confirm(in Confirm) {
	if s := c.shards.present(in.Tenure); s != nil {
		c.confirms.ask(&c.turn, s, in)
	}
}

// confirmed takes the answer to a read for callers, and reports whether it is one. A read that has failed changes
// nothing.
func (c *common) confirmed(of spine, mine *seat, in Input) bool {
	got, ok := in.(Got)
	if !ok {
		return false
	}
	call, ok := c.confirms.got(got)
	if !ok {
		return false
	}
	t := &c.turn
	if s := c.shards.present(call.Tenure); s != nil {
		out := Confirmed{Tenure: call.Tenure, Call: call.Call, Err: got.Err}
		if got.Err == nil {
			if a := s.row.copy.Holds(call.Tenure.Generation, got.Record); a.Verdict != protocol.Again {
				out.Lost, out.Open = true, s.t.unknown(&s.row)
				out.Cause, out.Err = s.t.lossOf(t, &s.row, a), a.Err()
				of.happened(s, s.denied(t, a))
				c.tend(of, mine, s)
			}
		}
		t.do(out)
	}
	c.confirms.next(t, call.Tenure, c.shards.present(call.Tenure))
	return true
}

// lossOf returns why a tenure is over, as a read shows it. A release or a finish that is stored but not answered yet is
// no loss.
func (of *tenure) lossOf(t *turn, r *row, a protocol.Answer) event.Cause {
	if _, open := r.copy.Open(); open && landed(a.Row, of.generation, r.doing) {
		return of.causeOf(r.doing)
	}
	return of.lostBy(t, a)
}

// denied takes a read that shows that this worker does not hold the shard any more. It ends the tenure as a refused
// write does, except that no checkpoint was refused. A successor that has accepted an offer leaves the handler a
// moment, which the next tend gives it.
func (s *shard) denied(t *turn, a protocol.Answer) (h happened) {
	if _, open := s.row.copy.Open(); open {
		return h
	}
	s.saw(t, a.Row)
	if a.Verdict == protocol.WentBack {
		h.restored = a.Err()
	}
	if !s.t.accepted(a) {
		s.end(t, s.t.lostBy(t, a), a.Err())
	}
	s.unsettle(t, a)
	return h
}
