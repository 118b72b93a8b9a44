package protocol

import (
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Because returns a function that adds the cause of a planned move to a Take, a Seize, a Reach or a Yield:
//
//	protocol.Because(cause)(protocol.Take(row, me, stamp))
//
// If the cause has a note, it comes before the note of the holder, which stays whole. It costs no write unit, and leaves
// the row room for two earlier transfers: if there is too little room, the note of the cause is cut, down to nothing. A
// transfer without a mode is no planned move, and stays as it is.
func Because(cause lease.MoveCause) func(lease.Write, error) (lease.Write, error) {
	return func(w lease.Write, err error) (lease.Write, error) {
		next, is := w.Next.(lease.Row)
		if err != nil || !is || next.Last.Mode == 0 || cause.Why == 0 {
			return w, err
		}
		next.Last.Why = cause.Why
		next.Last.Note = beside(next, cause.Note)
		shortenError(&next)
		fit(&next, true)
		w.Next = next
		return checked(w)
	}
}

// beside returns the note of the last transfer of the row with the note of its cause in front.
func beside(next lease.Row, note string) string {
	own, between := next.Last.Note, ""
	if note == "" {
		return own
	}
	if own != "" {
		between = "; "
	}
	least := next
	least.Past = latest(next.Past, leastPast)
	least.Last.Note = note + between + own
	over := max(0, lease.Encode(grown(least)).Size()-unitSize, len(least.Last.Note)-(lease.MaxNote-attr.PackedWhy))
	if note = attr.Abridged(note, len(note)-over); note == "" {
		return own
	}
	return note + between + own
}
