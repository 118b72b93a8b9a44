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
// A store is safe for concurrent use; it may be written while it is listed. What
// goes in and what comes out is the caller's to change: a store that keeps
// records in memory keeps and hands out a [Clone], in refusals too. What a store
// does not know of a record, because a newer version wrote it, it leaves there.
//
// Every method checks what it is asked for first ([Write.Check], [Key.Validate],
// [Query.Validate]) and reports that as it is; and a call whose context has
// ended does nothing and returns the context's error. A record that is stored
// and cannot be read is a *MalformedError, from any method.
//
// The suite in storetest is the contract in executable form; [Write.Apply] is its
// semantics.
type Store interface {
	// List yields the records of one kind in one group, each that is there
	// throughout exactly once, in the order of the bytes of their names.
	// Tombstones are skipped.
	//
	// A record that cannot be read is yielded as (nil, *MalformedError), and
	// the listing goes on. Any other error ends it, and what was listed
	// until then is a part: nothing can be concluded from what is absent.
	List(ctx context.Context, q Query) iter.Seq2[Record, error]

	// Get reads one record, consistently: a Row or a Seat, as the kind of the
	// key says; a tombstone is one. ErrNotFound: there is none. Tombstones may be swept when they are older than
	// [TombstoneAge]: a row that is made later starts above them, because
	// first generations count seconds.
	Get(ctx context.Context, k Key) (Record, error)

	// Write makes one conditional write and returns the record that
	// resulted; nil after a deletion. There are three outcomes:
	//
	//   - stored: no error.
	//   - refused: a *RefusedError with the record as it stands. Nothing was
	//     written, at least by the sending that was answered; the record tells
	//     the writer whether an earlier sending was.
	//   - unknown: any other error. The write may have been stored, or may
	//     still be. A caller that needs to know sends the same Write again. Only a
	//     *QueuedError says that this call has sent nothing.
	//
	// A store may send a Write more than once by itself. It says so in
	// [RefusedError.Retried] where an earlier sending went unanswered.
	Write(ctx context.Context, w Write) (Record, error)

	// Verify reports whether the table is the one that the group has always used. A
	// worker calls it before it claims anything. An error that is [ErrWentBack] means that
	// the table was restored or replaced: nothing may be claimed until an operator adopts
	// it. A store that cannot know returns nil, as does one whose table cannot be restored.
	//
	// It is a method of every store, and not an interface of its own, so that a store that
	// wraps another cannot lose it unnoticed.
	Verify(ctx context.Context, group string) error
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
