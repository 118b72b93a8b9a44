package lease

import (
	"context"
	"fmt"
	"iter"
)

// A Store keeps the rows. It is a dumb register: it knows the conditions of the
// four operations and nothing of leases, workers or time. Every rule lives in
// the transitions, once, so that workers, tools and tests pass the same fence.
//
// A store is safe for concurrent use. The suite in storetest is the contract in
// executable form; [Write.Apply] is its semantics.
type Store interface {
	// List yields the records of one kind in one group, each that is there
	// throughout exactly once, in the order of their names. Tombstones are
	// skipped.
	//
	// A record that cannot be read is yielded as (nil, *MalformedError), and
	// the listing goes on. Any other error ends it, and what was listed
	// until then is a part: nothing can be concluded from what is absent.
	List(ctx context.Context, q Query) iter.Seq2[Record, error]

	// Get reads one record, consistently; a tombstone is one. ErrNotFound:
	// there is none.
	Get(ctx context.Context, k Key) (Record, error)

	// Write makes one conditional write and returns the record that
	// resulted; nil after a deletion. There are three outcomes:
	//
	//   - stored: no error.
	//   - refused: a *RefusedError with the record as it stands. Nothing was
	//     written, at least by the sending that was answered: [Decide] tells
	//     whether an earlier sending was.
	//   - unknown: any other error, a cancelled context among them. The write
	//     may have been stored, or may still be. Whoever needs to know sends
	//     the same Write again.
	//
	// A Write that fails [Write.Check] is reported as that and never sent.
	Write(ctx context.Context, w Write) (Record, error)
}

// A Query says what to list.
type Query struct {
	Group string
	Kind  Kind
	// Eventually allows a listing that lags behind, at half the price, where
	// nothing is decided by it. The default is consistent: everything that
	// was stored before the listing began is in it.
	Eventually bool
}

// Validate reports a query that no store can answer.
func (q Query) Validate() error {
	if q.Kind != KindLease && q.Kind != KindSeat {
		return invalid("kind", "must be lease or seat")
	}
	return validName("group", q.Group)
}

func (q Query) String() string { return fmt.Sprintf("%vs of %s", q.Kind, q.Group) }
