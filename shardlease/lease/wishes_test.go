package lease_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func fullWishes() lease.Wishes {
	until := time.Unix(4_000_000_000, 0).UTC()
	return lease.Wishes{Group: "g", WriteID: "w", At: time.Unix(5, 0).UTC(), List: []lease.Wish{
		{Kind: lease.WishCordon, Subject: "worker-1", By: "op", Why: "a noisy neighbour"},
		{Kind: lease.WishCordon, Subject: "worker-2", By: "op", Until: until},
		{Kind: lease.WishDrain, Subject: "worker-3", By: "op", Why: "disk"},
		{Kind: lease.WishMove, Subject: "lock", To: "host-2", By: "op", Why: "host-1 is old", Until: until, Generation: 41, Lasts: time.Minute},
		{Kind: lease.WishMove, Subject: "shard 7", To: "worker-4", By: "op"},
		{Kind: lease.WishPause, By: "op", Why: "incident 7", Until: until},
		{Kind: lease.WishPin, Subject: "shard 7", To: "worker-4", By: "op"},
		{Kind: lease.WishRaise, By: "op", Why: "restored", Number: 1795881600000},
		{Kind: "telepathy", Subject: "of a newer version", By: "op"},
	}}
}

func TestWishesComeBack(t *testing.T) {
	for _, w := range []lease.Wishes{fullWishes(), {Group: "g", WriteID: "w"}} {
		back, err := lease.Decode(lease.Encode(w))
		if err != nil || !reflect.DeepEqual(back, lease.Record(w)) {
			t.Errorf("%v was read back as %v, %v", w, back, err)
		}
		if clone := lease.Clone(w); !reflect.DeepEqual(clone, lease.Record(w)) {
			t.Errorf("the clone is %v", clone)
		}
	}
	w := fullWishes()
	lease.Clone(w).(lease.Wishes).List[0].By = "changed"
	if w.List[0].By == "changed" {
		t.Error("a clone shares memory")
	}
}

func TestWishesThatCannotBeStored(t *testing.T) {
	long := strings.Repeat("x", lease.MaxName)
	var large []lease.Wish
	for i := range 200 {
		large = append(large, lease.Wish{Kind: lease.WishPin, Subject: fmt.Sprintf("%03d", i) + long[3:], To: long, By: long, Why: long})
	}
	for name, list := range map[string][]lease.Wish{
		"no kind":           {{By: "op"}},
		"by nobody":         {{Kind: lease.WishPause}},
		"pause of a worker": {{Kind: lease.WishPause, Subject: "a", By: "op"}},
		"cordon of nobody":  {{Kind: lease.WishCordon, By: "op"}},
		"drain to another":  {{Kind: lease.WishDrain, Subject: "a", To: "b", By: "op"}},
		"pin to nobody":     {{Kind: lease.WishPin, Subject: "s", By: "op"}},
		"move to nobody":    {{Kind: lease.WishMove, Subject: "s", By: "op", Generation: 1}},
		"before the first":  {{Kind: lease.WishMove, Subject: "s", To: "a", By: "op", Generation: -1, Lasts: time.Minute}},
		"a generation":      {{Kind: lease.WishPin, Subject: "s", To: "a", By: "op", Generation: 1, Lasts: time.Minute}},
		"raise of a worker": {{Kind: lease.WishRaise, Subject: "a", By: "op", Number: 1}},
		"a number":          {{Kind: lease.WishPause, By: "op", Number: 1}},
		"before all raises": {{Kind: lease.WishRaise, By: "op", Number: -1}},
		"for a year":        {{Kind: lease.WishMove, Subject: "s", To: "a", By: "op", Generation: 1, Lasts: 365 * 24 * time.Hour}},
		"part of a moment":  {{Kind: lease.WishMove, Subject: "s", To: "a", By: "op", Generation: 1, Lasts: time.Microsecond}},
		"control character": {{Kind: lease.WishPause, By: "op", Why: "a\tb"}},
		"over-long":         {{Kind: lease.WishPause, By: "op", Why: long + "x"}},
		"twice":             {{Kind: lease.WishPause, By: "a"}, {Kind: lease.WishPause, By: "b"}},
		"unsorted":          {{Kind: lease.WishPause, By: "a"}, {Kind: lease.WishCordon, Subject: "s", By: "b"}},
		"too many":          make([]lease.Wish, lease.MaxWishes+1),
		"too large":         large,
	} {
		w := lease.Wishes{Group: "g", WriteID: "w", List: list}
		if err := w.Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: Validate returns %v", name, err)
		}
	}
}

// TestUntilIsCompared: a wish ends at its Until, and without one it stands.
func TestUntilIsCompared(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		until  time.Time
		stands bool
	}{
		"no end": {time.Time{}, true}, "later": {now.Add(time.Millisecond), true}, "now": {now, false}, "earlier": {now.Add(-time.Second), false},
	} {
		if stands := (lease.Wish{Until: tc.until}).Stands(now); stands != tc.stands {
			t.Errorf("%s: stands is %t", name, stands)
		}
	}
}

// TestAnEarlierVersionReadsMovesAndRaises: it demands six fields and a kind of up to 64 bytes. It does not know the kind, so
// such a wish has no effect there.
func TestAnEarlierVersionReadsMovesAndRaises(t *testing.T) {
	w := lease.Wishes{Group: "g", WriteID: "w", List: []lease.Wish{
		{Kind: lease.WishMove, Subject: "lock", To: "host-2", By: "op", Why: "host-1 is old", Generation: math.MaxInt64, Lasts: 24 * time.Hour},
	}}
	w.List = append(w.List, lease.Wish{Kind: lease.WishRaise, By: "op", Number: math.MaxInt64})
	want := []string{"move:9223372036854775807:86400000\tlock\thost-2\t0\top\thost-1 is old", "raise:9223372036854775807\t\t\t0\top\t"}
	if got := lease.Encode(w)[attr.Wishes]; !reflect.DeepEqual(got, want) {
		t.Errorf("stored as %q, want %q", got, want)
	}
}

func TestWishesReadInAnIncident(t *testing.T) {
	text := fullWishes().String()
	for _, want := range []string{"wishes g/!wishes", `cordon "worker-1" by "op" (a noisy neighbour)`, `pin "shard 7" to "worker-4"`, "until 2096-10-02"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

// FuzzDecodeWishes: wishes are read as they could have been written, or not at all.
func FuzzDecodeWishes(f *testing.F) {
	f.Add("pause\t\t\t0\tme\twhy", "pin\ts\tw\t1000\tme\t")
	f.Add("move:41:1000\ts\tw\t1000\tme\t", "move:041:1000\ts\tw\t0\tme\t")
	f.Add("move:41:0\ts\tw\t1000\tme\t", "move:41:-1\ts\tw\t0\tme\t")
	f.Add("raise:7\t\t\t0\tme\t", "raise:07\t\t\t0\tme\t")
	f.Add("raise:0\t\t\t0\tme\t", "raise\t\t\t0\tme\t")
	f.Add("telepathy\tx\ty\t-5\tme\t", "\t\t\t\t\t")
	f.Fuzz(func(t *testing.T, one, two string) {
		comesBackOrIsMalformed(t, lease.Item{
			attr.Group: "g/seat", attr.Key: "!wishes", attr.Version: int64(attr.Format), attr.WriteID: "w", attr.Wishes: []string{one, two},
		})
	})
}
