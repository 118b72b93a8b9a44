package protocol

import (
	"math"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// unitSize is what one write unit pays for: DynamoDB bills by the started
// kilobyte, and a commit should cost one.
const unitSize = 1024

// ordinary is the length of a position that a row keeps room for: Kinesis' have
// 56 digits.
const ordinary = 64

// ordinaryID is the length of an id that a row keeps room for: crypto/rand.Text's.
const ordinaryID = 26

// grown is the row as it may become within its generation by ordinary commits
// and an offer, without being asked again whether it fits.
func grown(r lease.Row) lease.Row {
	r.Counter = math.MaxInt64
	if missing := ordinary - len(r.Checkpoint.Position); missing > 0 {
		r.Checkpoint.Position += strings.Repeat("-", missing)
	}
	r.Checkpoint.Generation, r.Checkpoint.At = r.Generation, time.UnixMilli(1_999_999_999_999)
	if missing := ordinaryID - len(r.WriteID); missing > 0 {
		r.WriteID += lease.WriteID(strings.Repeat("-", missing))
	}
	if missing := ordinaryID - len(r.OfferedTo); missing > 0 && !r.Owner.IsZero() {
		r.OfferedTo += lease.Incarnation(strings.Repeat("-", missing))
	}
	return r
}

// outgrew reports whether r may be larger than old was allowed to become. The
// first write after a change of hands always may: a transfer keeps a checkpoint
// that nobody had counted in.
func outgrew(r, old lease.Row) bool {
	return old.WriteID == old.Last.WriteID ||
		r.Generation != old.Generation ||
		len(r.WriteID) > max(len(old.WriteID), ordinaryID) ||
		len(r.OfferedTo) > max(len(old.OfferedTo), ordinaryID) ||
		len(r.Checkpoint.Position) > max(len(old.Checkpoint.Position), ordinary) ||
		len(r.Checkpoint.State) > len(old.Checkpoint.State)
}

// fit forgets the oldest transfers until the row costs one write unit, or until
// there is nothing left to forget.
func fit(r *lease.Row) {
	past := r.Past
	r.Past = ""
	room := unitSize - lease.Encode(grown(*r)).Size() - len(attr.Past)
	for past != "" && len(past) > room {
		past = attr.ForgetTransfer(past)
	}
	r.Past = past
}
