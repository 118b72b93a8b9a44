package protocol

import (
	"cmp"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Because returns a function that adds the cause of a planned move to a Take, a Seize, a Reach or a Yield:
//
//	protocol.Because(cause)(protocol.Take(row, me, stamp))
//
// The note of the transfer is that of the cause, if it has one. A transfer without a mode is no planned move, and stays as
// it is. The row may have less room for earlier transfers then.
func Because(cause lease.MoveCause) func(lease.Write, error) (lease.Write, error) {
	return func(w lease.Write, err error) (lease.Write, error) {
		next, is := w.Next.(lease.Row)
		if err != nil || !is || next.Last.Mode == 0 || cause.Why == 0 {
			return w, err
		}
		next.Last.Why = cause.Why
		next.Last.Note = attr.Shortened(cmp.Or(cause.Note, next.Last.Note), lease.MaxNote-attr.PackedWhy)
		shortenError(&next)
		fit(&next, true)
		w.Next = next
		return checked(w)
	}
}
