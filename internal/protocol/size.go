package protocol

import (
	"math"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// unitSize is the size that one write unit pays for. DynamoDB bills a unit for each started
// kilobyte, and a commit should cost one unit.
const unitSize = 1024

// ordinary is the length of a position for which a row keeps room: Kinesis' positions have 56
// digits.
const ordinary = 64

// ordinaryID is the length of an id for which a row keeps room: that of crypto/rand.Text.
const ordinaryID = 26

// grown returns the row with the largest size that ordinary commits and an offer can give it within
// its generation before fit is called again.
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

// outgrew reports whether r may be larger than the room that was made for old. After the first write
// that follows a change of hands, a row always may be: the transfer may have kept a checkpoint for
// which no room was made.
func outgrew(r, old lease.Row) bool {
	return old.WriteID == old.Last.WriteID ||
		r.Generation != old.Generation ||
		len(r.WriteID) > max(len(old.WriteID), ordinaryID) ||
		len(r.OfferedTo) > max(len(old.OfferedTo), ordinaryID) ||
		len(r.Checkpoint.Position) > max(len(old.Checkpoint.Position), ordinary) ||
		len(r.Checkpoint.State) > len(old.Checkpoint.State)
}

// leastPast is how many past transfers the error of a failed tenure leaves room for.
const leastPast = 2

// latest returns the first n of the packed transfers.
func latest(past string, n int) string {
	end := 0
	for range n {
		at := strings.IndexByte(past[end:], '\n')
		if at < 0 {
			return past
		}
		end += at + 1
	}
	return past[:end-1]
}

// shortenError shortens the error of a failed tenure, down to nothing, until there is room for the latest two past transfers. A
// holder's write within its generation changes no error: it may drop transfers if the checkpoint grows.
func shortenError(r *lease.Row) {
	least, f := *r, &r.Failures
	least.Past = latest(r.Past, leastPast)
	if f.Error == "" {
		return
	}
	if over := lease.Encode(grown(least)).Size() - unitSize; over > 0 {
		f.Error = attr.Shortened(f.Error, max(0, len(f.Error)-over))
	}
	if f.Error == "" {
		f.ErrorOf = 0
	}
}

// fit makes the row cost one write unit, if that is possible. It drops the oldest transfers. It also
// shortens the note of the transfer that this write makes, but not below what the history keeps of a
// note.
func fit(r *lease.Row, transfer bool) {
	past := r.Past
	r.Past = ""
	room := unitSize - lease.Encode(grown(*r)).Size() - len(attr.Past)
	if transfer && room+len(attr.Past) < 0 {
		r.Last.Note = attr.Shortened(r.Last.Note, max(len(r.Last.Note)+room+len(attr.Past), attr.MaxPastNote))
	}
	for past != "" && len(past) > room {
		past = attr.ForgetTransfer(past)
	}
	r.Past = past
}
