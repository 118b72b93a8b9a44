package explore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An operator makes and lifts wishes, deletes advice by hand, and takes the lease from a session.
type operator struct{ *state }

// deletions are what somebody may delete by hand: the plan, and each target.
func (w operator) deletions() (all []move) {
	if w.left.Deletes == 0 {
		return nil
	}
	for _, r := range w.stands {
		if key := r.Key(); key.Kind == lease.KindPlan || key.Kind == lease.KindTarget {
			all = append(all, move{key.String() + " is deleted", func(w *state) {
				w.left.Deletes--
				w.store.Delete(key)
				w.put(key, nil)
			}})
		}
	}
	return all
}

// wishes are what an operator may do: make a wish, or lift one that stands.
func (w operator) wishes() (all []move) {
	if w.left.Wishes == 0 {
		return nil
	}
	for _, wish := range w.story.Wish {
		rest := slices.DeleteFunc(w.wished(), func(old lease.Wish) bool { return old.Compare(wish) == 0 })
		list, verb := append(slices.Clip(rest), wish), "is made"
		if len(rest) < len(w.wished()) {
			list, verb = rest, "is lifted"
		}
		all = append(all, move{fmt.Sprintf("%v %s", wish, verb), func(w *state) {
			if w.left.Wishes--; wish.Kind == lease.WishRaise { // the sink was restored
				clear(w.fences)
			}
			operator{w}.rewish(operator{w}.wishID(), list)
		}})
	}
	return all
}

// wished returns the wishes that stand in the table.
func (w operator) wished() []lease.Wish {
	return slices.Clone(w.table.Wishes("g").List)
}

func (w operator) wishID() lease.WriteID {
	return lease.WriteID(fmt.Sprintf("operator-%d", w.left.Wishes))
}

// rewish writes the wishes as an operator does.
func (w operator) rewish(id lease.WriteID, list []lease.Wish) {
	write, err := protocol.SetWishes(w.table.Wishes("g"), list, protocol.Stamp{ID: id, At: virtual.Epoch()})
	if err == nil {
		_, err = w.table.Write(virtual.Sender{Name: "operator"}, write)
	}
	if err != nil {
		w.blame("wishes: %w", err)
	}
}

// commands returns what the operator may do next. The operator takes the lease from its holder, or moves it, in two
// moves: first the operator decides, later the write arrives. Between the two the holder may write, and the lease may
// change hands.
func (w operator) commands() []move {
	switch row := w.row(wantedLease); {
	case w.left.Sessions == nil:
	case w.command.Op != 0:
		return []move{{"the operator's command arrives", func(w *state) { operator{w}.arrive() }}}
	case w.left.Sessions.Commands > 0 && !row.Owner.IsZero():
		return []move{{"the operator decides to take " + wantedLease, func(w *state) {
			w.spend(func(left *Sessions) { left.Commands-- })
			operator{w}.decide(row)
		}}}
	}
	return nil
}

// decide prepares the operator's command for the row that the operator sees now.
func (w operator) decide(row lease.Row) {
	by := w.story.Sessions
	c := protocol.Command{Seen: row.Generation, By: "operator", Note: "because"}
	stamp := protocol.Stamp{ID: lease.WriteID(fmt.Sprintf("command-%d", w.left.Sessions.Commands)), At: w.wall()}
	var err error
	switch {
	case by.Move != "":
		move := lease.Wish{
			Kind: lease.WishMove, Subject: wantedLease, To: by.Move, By: c.By, Why: c.Note, Until: w.wall().Add(by.Lasts),
			Generation: row.Generation, Lasts: by.Lasts,
		}
		w.command, err = protocol.SetWishes(w.table.Wishes("g"), append(w.wished(), move), stamp)
	case by.Reassign == "":
		w.command, err = protocol.ForceRelease(row, c, stamp)
	default:
		w.command, err = protocol.Reassign(row, c, lease.Reservation{For: by.Reassign, Lasts: by.Lasts}, stamp)
	}
	if err != nil {
		w.blame("command: %w", err)
	}
}

// arrive delivers the operator's command to the table. If the table accepts the command, the operator also stores the
// wish that asks the sessions to look at the row.
func (w operator) arrive() {
	write := w.command
	w.command = lease.Write{}
	_, err := w.table.Write(virtual.Sender{Name: "operator"}, write)
	if _, refused := errors.AsType[*lease.RefusedError](err); refused {
		return
	}
	if err != nil {
		w.blame("command: %w", err)
		return
	}
	if wishes, ok := write.Next.(lease.Wishes); ok {
		at := slices.IndexFunc(wishes.List, func(of lease.Wish) bool { return of.Kind == lease.WishMove })
		w.ordered = wishes.List[at].Generation
		return
	}
	look := lease.Wish{Kind: protocol.WishLook, Subject: wantedLease, By: "operator", Until: w.wall().Add(time.Minute)}
	w.rewish("look-after-"+write.ID(), append(w.wished(), look))
}
