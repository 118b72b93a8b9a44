package lease

import (
	"strconv"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
)

// Size is what DynamoDB counts an item as: names and values in bytes; a number
// as a byte for every two significant digits and one more, and one for a minus;
// a boolean as one; three bytes for a set and one for each of its elements.
func (item Item) Size() int {
	size := 0
	for name, value := range item {
		size += len(name) + sizeOf(value)
	}
	return size
}

func sizeOf(value any) int {
	switch v := value.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	case []string:
		size := 3
		for _, element := range v {
			size += len(element) + 1
		}
		return size
	case int64:
		digits := strings.TrimRight(strings.TrimPrefix(strconv.FormatInt(v, 10), "-"), "0")
		size := (len(digits)+1)/2 + 1
		if v < 0 {
			size++
		}
		return size
	}
	return 1
}

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
func (r Row) grown() Row {
	r.Counter = maxInt64
	if missing := ordinary - len(r.Checkpoint.Position); missing > 0 {
		r.Checkpoint.Position += strings.Repeat("-", missing)
	}
	r.Checkpoint.Generation, r.Checkpoint.At = r.Generation, time.UnixMilli(1_999_999_999_999)
	if missing := ordinaryID - len(r.WriteID); missing > 0 {
		r.WriteID += WriteID(strings.Repeat("-", missing))
	}
	if missing := ordinaryID - len(r.OfferedTo); missing > 0 && !r.Owner.IsZero() {
		r.OfferedTo += Incarnation(strings.Repeat("-", missing))
	}
	return r
}

// outgrew reports whether r may be larger than old was allowed to become. The
// first write after a change of hands always may: a transfer keeps a checkpoint
// that nobody had counted in.
func (r Row) outgrew(old Row) bool {
	return old.WriteID == old.Last.WriteID ||
		r.Generation != old.Generation ||
		len(r.WriteID) > max(len(old.WriteID), ordinaryID) ||
		len(r.OfferedTo) > max(len(old.OfferedTo), ordinaryID) ||
		len(r.Checkpoint.Position) > max(len(old.Checkpoint.Position), ordinary) ||
		len(r.Checkpoint.State) > len(old.Checkpoint.State)
}

// fit forgets the oldest transfers until the row costs one write unit, or until
// there is nothing left to forget.
func (r *Row) fit() {
	past := r.Past
	r.Past = ""
	room := unitSize - Encode(r.grown()).Size() - len(attr.Past)
	for past != "" && len(past) > room {
		past = attr.ForgetTransfer(past)
	}
	r.Past = past
}
