package lease

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// A Store keeps the rows of a lease table. It checks the conditions of the four operations
// and knows nothing of leases, workers or time. All other rules are in the transitions, so
// that workers, tools and tests obey the same ones.
//
// A store is safe for concurrent use, and it may be written while it is listed. A caller may
// change the records that it passed to a store or received from it. A store that keeps
// records in memory therefore stores and returns a [Clone], in refusals too. A store leaves
// stored attributes that it does not know, because a newer version wrote them.
//
// Every method first validates its arguments ([Write.Check], [Key.Validate],
// [Query.Validate]) and returns that error unchanged. A call whose context has ended does
// nothing and returns the context's error. A call returns when its context ends, also if the
// service does not answer; a worker gives up a call that does not, reports it as a fault, and
// repeats it while at most three such calls hang. Any method returns a *MalformedError for a stored
// record that cannot be read.
//
// The suite in storetest is the contract in executable form. [Write.Apply] defines what a
// write does.
type Store interface {
	// List yields the records of one kind in one group, ordered by the bytes of their
	// names. A record that exists for the whole listing is yielded exactly once.
	// Tombstones are skipped. The listing of the seats begins with the plan and the wishes
	// of the group, if there are any; see [Kind.Listed]. A query with a limit yields the
	// first records, and a caller that asks for those after the last one gets the next.
	//
	// A record that cannot be read is yielded as (nil, *MalformedError), and the listing
	// continues. Any other error ends it. The listing is then incomplete: a record that is
	// missing from it may still exist.
	List(ctx context.Context, q Query) iter.Seq2[Record, error]

	// Get reads one record consistently. The kind of the key says which type it has.
	// It returns tombstones too, and ErrNotFound if there is no record. A store may delete
	// tombstones that are older than [TombstoneAge]: the first generation of a row counts
	// seconds, so a row that is created later starts above the deleted tombstone.
	Get(ctx context.Context, k Key) (Record, error)

	// Write makes one conditional write and returns the record that resulted, or nil after
	// a deletion. There are three outcomes:
	//
	//   - stored: no error.
	//   - refused: a *RefusedError with the present record. The attempt that was answered
	//     wrote nothing. The record shows the writer whether an earlier attempt was stored.
	//   - unknown: any other error. The write may have been stored, or may be stored later.
	//     A caller that needs to know the outcome sends the same Write again. Only a
	//     *QueuedError means that this call has sent nothing.
	//
	// A store may send a Write more than once by itself. If an earlier attempt was not
	// answered, it sets [RefusedError.Retried].
	Write(ctx context.Context, w Write) (Record, error)

	// Verify reports whether the table is the one that the group has always used. A
	// worker calls it before it claims anything. An error that is [ErrWentBack] means that
	// the table was restored or replaced: nothing may be claimed until an operator adopts
	// it. A store that cannot know returns nil, as does one whose table cannot be restored.
	//
	// Verify is a method of Store and not an interface of its own, so that a store that
	// wraps another cannot lose it unnoticed.
	Verify(ctx context.Context, group string) error
}

// A Query selects the records to list.
type Query struct {
	Group string
	Kind  Kind
	// Eventually allows a listing that lags behind, at half the price, for purposes where
	// nothing is decided by it. The default is a consistent listing: it contains
	// everything that was stored before it began.
	Eventually bool

	After string // only records whose names are above this one; empty: all
	Limit int    // how many records to list at most; 0: all
}

// Validate reports a query that no store can answer.
func (q Query) Validate() error {
	if q.Kind < KindLease || q.Kind > KindJournal || q.Kind.Listed() != q.Kind {
		return invalid("kind", "must be lease, seat, target, ends or journal")
	}
	if q.Limit < 0 {
		return invalid("limit", "must not be negative")
	}
	return errors.Join(validName("group", q.Group), validText("after", q.After, MaxName))
}

func (q Query) String() string { return fmt.Sprintf("%vs of %s", q.Kind, q.Group) }
