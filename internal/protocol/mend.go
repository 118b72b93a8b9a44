package protocol

import (
	"math"
	"time"

	"github.com/shardlease/shardlease-go/internal/generation"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// The rules by which a record is not repaired.
const (
	ErrReadable  lease.Rule = "the record can be read"
	ErrNewer     lease.Rule = "a newer version of the library has written the record"
	ErrRewritten lease.Rule = "the record has changed since it was read"
	ErrHighest   lease.Rule = "no higher numbers can be stored: repair the row by hand (docs/operations.md#unreadable)"
)

// Mend returns the row that replaces one that cannot be read; r is what could be read of that. It has no owner, and begins a
// generation above that of r and above all that can have been issued by the clock: a generation that could not be read may
// have been higher than all that could. The lost generation may have begun in this second, or on a machine whose clock
// is a little ahead, and may have grown by claims since. So the clock's own generation need not be above it. aside:
// nobody may claim the shard before an operator has looked at it. That holds for a lease with a lock delay, too.
//
// Mend is no transition, because the row before it is none: its store writes the row on a condition of its own.
func Mend(r lease.Row, c Command, aside bool, s Stamp) (lease.Row, error) {
	if r.Generation > math.MaxInt64-generation.Lost || r.Counter == math.MaxInt64 {
		return lease.Row{}, ruleOf(r, "repair", ErrHighest)
	}
	if err := generation.ValidClock(s.At); err != nil {
		return lease.Row{}, err
	}
	next := r
	begin(&next, max(r.Generation, generation.First(s.At.Add(time.Minute)))+generation.Lost, lease.Owner{}, c.transfer(lease.ReasonForced, "repaired"), s)
	aside = aside || r.Owner.LockDelay > 0 || r.Reserved.Delay > 0
	next.Quarantined = next.Quarantined || aside && !next.Finished && !next.Removed
	next.Counter, next.WriteID = r.Counter+1, s.ID
	shortenError(&next)
	fit(&next, true)
	return next, next.Validate()
}

// Mended reports whether the refusal of a repair shows that an earlier attempt was stored, whose answer was lost: the row, or
// its history, has the change of hands; or the seat can be read. Its worker may have written it since, so nothing else of a
// seat tells whose repair it was, and the seat is as it should be.
func Mended(now, next lease.Record) bool {
	switch next := next.(type) {
	case lease.Row:
		row, ok := now.(lease.Row)
		return ok && remembers(row, next.Last)
	case lease.Seat:
		_, ok := now.(lease.Seat)
		return ok
	}
	return false
}
