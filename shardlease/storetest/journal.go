package storetest

import (
	"errors"
	"time"

	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// journalIsInOrder: the entries of a journal are listed by time, from any time on, whatever the order in which they were
// written. An entry is stored once, and never changes.
func journalIsInOrder(b *bench) {
	var acts []lease.Record
	begin := b.stamp().At
	for i, did := range []string{"release", "drain", "lift drain"} {
		at := protocol.Stamp{ID: b.stamp().ID, At: begin.Add(time.Duration(i) * 1500 * time.Millisecond)}
		w, err := protocol.Enter(group, lease.Act{Did: did, Subject: "a", To: "b", By: "op", Why: "why", Generation: 7, Rows: int64(i), Until: at.At.Add(time.Hour)}, at)
		if err != nil {
			b.Fatal(err)
		}
		acts = append(acts, w.Next)
	}
	for _, i := range []int{2, 0, 1} {
		w := lease.Write{Op: lease.OpCreate, Next: acts[i]}
		b.must(w)
		if protocol.Decide("", w, b.refuse(w, nil)) != protocol.Stored {
			b.Errorf("an entry that is written again is not recognized: %v", w)
		}
	}
	equal(b, "the journal", b.list(lease.KindJournal), acts)
	var later []lease.Record
	for r, err := range b.store.List(b.Context(), lease.ActsSince(group, begin.Add(time.Second), begin)) {
		if err != nil {
			b.Fatal(err)
		}
		later = append(later, r)
	}
	equal(b, "the later part of the journal", later, acts[1:])
	other := acts[0].(lease.Act)
	other.Why, other.WriteID = "another", "another"
	for _, w := range []lease.Write{
		{Op: lease.OpSwap, Old: acts[0], Next: other}, {Op: lease.OpDelete, Old: acts[0]}, {Op: lease.OpTransfer, Old: acts[0], Next: other},
	} {
		if _, err := b.store.Write(b.Context(), w); !errors.Is(err, lease.ErrBadWrite) {
			b.Errorf("%v: got %v, want ErrBadWrite", w, err)
		}
	}
	equal(b, "the journal", b.list(lease.KindJournal), acts)
}

// must makes a write that the store must accept.
func (b *bench) must(w lease.Write) {
	b.Helper()
	if _, err := b.store.Write(b.Context(), w); err != nil {
		b.Fatalf("%v: %v", w, err)
	}
}
