package judge

import (
	"fmt"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// Revision returns the highest revision of a plan or a target after an accepted write of it; last was the highest before.
// It returns an error if the write replaces the plan or the target by an earlier one, or by another one of the same
// revision: no worker does.
func Revision(w lease.Write, last int64) (highest int64, err error) {
	revision, before := int64(0), int64(0)
	switch next := w.Next.(type) {
	case lease.Plan:
		old, _ := w.Old.(lease.Plan)
		revision, before = next.Revision, old.Revision
	case lease.Target:
		revision = next.Revision
	}
	if revision < last || revision == last && revision != before {
		err = fmt.Errorf("revision %d of %v was written after revision %d", revision, w.Key(), last)
	}
	return max(last, revision), err
}
