package lease_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func newTarget(hold []lease.Assigned, give ...lease.Give) lease.Target {
	return lease.Target{
		Group: "g", Incarnation: "worker-1", Pages: 1, WriteID: "w", Revision: 7,
		Hold: hold, Give: give, At: time.Unix(5, 0).UTC(),
	}
}

// shards returns n assigned shards with names from the format, every step-th number.
func shards(format string, n, step int) []lease.Assigned {
	hold := make([]lease.Assigned, n)
	for i := range hold {
		hold[i].Shard = fmt.Sprintf(format, i*step)
	}
	return hold
}

// TestTargetsAreSmall: names that share a prefix cost a few bytes each.
func TestTargetsAreSmall(t *testing.T) {
	long := "tenant-00000000000000000000000000-%06d"
	if n := len(fmt.Sprintf(long, 0)); n != 40 {
		t.Fatalf("names of %d bytes", n)
	}
	for name, tc := range map[string]struct {
		hold []lease.Assigned
		most float64 // bytes for each name
	}{
		"Kinesis, neighbours":        {shards("shardId-%012d", lease.MaxPage, 1), 4},
		"Kinesis, every tenth":       {shards("shardId-%012d", lease.MaxPage, 10), 5},
		"Kinesis, every thousandth":  {shards("shardId-%012d", lease.MaxPage, 1009), 7},
		"names of 40 bytes":          {shards(long, lease.MaxPage, 1), 4},
		"names of 40 bytes, 1 in 97": {shards(long, lease.MaxPage, 97), 6},
	} {
		packed := lease.Encode(newTarget(tc.hold))[attr.Hold].([]byte)
		if per := float64(len(packed)) / lease.MaxPage; per > tc.most {
			t.Errorf("%s: %.2f bytes for each name, at most %v", name, per, tc.most)
		} else {
			t.Logf("%s: %.2f bytes for each name", name, per)
		}
	}
	give := make([]lease.Give, 100)
	for i := range give {
		give[i] = lease.Give{Shard: fmt.Sprintf("shardId-%012d", i*10), To: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
	}
	if packed := lease.Encode(newTarget(nil, give...))[attr.Give].([]byte); len(packed) > 700 {
		t.Errorf("100 hints of one successor have %d bytes", len(packed))
	}
}

func TestTargetsComeBack(t *testing.T) {
	for name, target := range map[string]lease.Target{
		"empty":    newTarget(nil),
		"plain":    newTarget(shards("s-%03d", 12, 7)),
		"parents":  newTarget([]lease.Assigned{{Shard: "c", Parents: []string{"a", "b"}}, {Shard: "ca"}, {Shard: "d", Parents: []string{"ca"}}}),
		"prefixes": newTarget([]lease.Assigned{{Shard: "a"}, {Shard: "ab"}, {Shard: "abc"}, {Shard: "b"}}),
		"runes":    newTarget([]lease.Assigned{{Shard: "größe ä"}, {Shard: "größe ö"}}, lease.Give{Shard: "ä", To: "é"}, lease.Give{Shard: "ö", To: "è"}),
		"longest":  newTarget([]lease.Assigned{{Shard: strings.Repeat("a", lease.MaxName)}, {Shard: strings.Repeat("b", lease.MaxName)}}),
	} {
		back, err := lease.Decode(lease.Encode(target))
		if err != nil || !reflect.DeepEqual(back, lease.Record(target)) {
			t.Errorf("%s: %v was read back as %v, %v", name, target, back, err)
		}
		if !reflect.DeepEqual(lease.Clone(target), lease.Record(target)) {
			t.Errorf("%s: the clone is %v", name, lease.Clone(target))
		}
	}
}

// TestTargetsThatCannotBeStored: Validate and Decode refuse what a planner never writes.
func TestTargetsThatCannotBeStored(t *testing.T) {
	many := shards("s-%06d", lease.MaxPage+1, 1)
	wide := shards("s-%06d", lease.MaxPage, 1)
	for i := range wide {
		for p := range lease.MaxParents {
			wide[i].Parents = append(wide[i].Parents, fmt.Sprintf("p-%d-%s", p, strings.Repeat("p", 250)))
		}
	}
	for name, spoil := range map[string]func(t *lease.Target){
		"no incarnation":     func(t *lease.Target) { t.Incarnation = "" },
		"a reserved name":    func(t *lease.Target) { t.Incarnation = "!plan" },
		"no write id":        func(t *lease.Target) { t.WriteID = "" },
		"no revision":        func(t *lease.Target) { t.Revision = 0 },
		"no pages":           func(t *lease.Target) { t.Pages = 0 },
		"page beyond":        func(t *lease.Target) { t.Page = 1 },
		"page below":         func(t *lease.Target) { t.Page = -1 },
		"too many pages":     func(t *lease.Target) { t.Pages = 10_001 },
		"too many names":     func(t *lease.Target) { t.Hold = many },
		"too many with give": func(t *lease.Target) { t.Hold, t.Give = many[1:], []lease.Give{{Shard: "s", To: "i"}} },
		"too many bytes":     func(t *lease.Target) { t.Hold = wide },
		"not sorted":         func(t *lease.Target) { t.Hold = []lease.Assigned{{Shard: "b"}, {Shard: "a"}} },
		"twice":              func(t *lease.Target) { t.Hold = []lease.Assigned{{Shard: "a"}, {Shard: "a"}} },
		"its own parent":     func(t *lease.Target) { t.Hold = []lease.Assigned{{Shard: "a", Parents: []string{"a"}}} },
		"no name":            func(t *lease.Target) { t.Hold = []lease.Assigned{{}} },
		"give not sorted":    func(t *lease.Target) { t.Give = []lease.Give{{Shard: "b", To: "i"}, {Shard: "a", To: "i"}} },
		"give to nobody":     func(t *lease.Target) { t.Give = []lease.Give{{Shard: "b"}} },
	} {
		target := newTarget(shards("s-%d", 2, 1))
		spoil(&target)
		if err := target.Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: Validate returns %v", name, err)
		}
		if r, err := lease.Decode(lease.Encode(target)); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("%s: Decode returns %v, %v", name, r, err)
		}
	}
	for name, key := range map[string]string{
		"no page": "i", "a short page": "i/0", "a long page": "i/00000", "a signed page": "i/+001", "no incarnation": "/0000", "reserved": "!plan/0000",
	} {
		item := lease.Encode(newTarget(nil))
		item[attr.Key] = key
		if r, err := lease.Decode(item); !errors.Is(err, lease.ErrMalformed) {
			t.Errorf("%s: Decode returns %v, %v", name, r, err)
		}
		if err := (lease.Key{Group: "g", Kind: lease.KindTarget, Name: key}).Validate(); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: the key is accepted", name)
		}
	}
}

// TestSplitAndJoin: a target of any length is split into pages that can be stored, and joined
// again.
func TestSplitAndJoin(t *testing.T) {
	wide := shards("s-%06d", 700, 1)
	for i := range wide {
		for p := range lease.MaxParents {
			wide[i].Parents = append(wide[i].Parents, fmt.Sprintf("p-%d-%s", p, strings.Repeat("p", 250)))
		}
	}
	for name, tc := range map[string]struct {
		target lease.Target
		pages  int
	}{
		"none":         {newTarget(nil), 1},
		"one page":     {newTarget(shards("s-%06d", 300, 1)), 1},
		"two pages":    {newTarget(shards("s-%06d", 300, 1), lease.Give{Shard: "x", To: "i"}), 2},
		"many":         {newTarget(shards("s-%06d", 30_000, 1)), 100},
		"many bytes":   {newTarget(wide), 6},
		"only to give": {newTarget(nil, lease.Give{Shard: "x", To: "i"}), 1},
	} {
		pages := tc.target.Split()
		if len(pages) != tc.pages {
			t.Errorf("%s: %d pages", name, len(pages))
		}
		for _, page := range pages {
			if err := page.Validate(); err != nil {
				t.Errorf("%s: %v: %v", name, page, err)
			}
			if size := lease.Encode(page).Size(); size > 300<<10 {
				t.Errorf("%s: %v has %d bytes", name, page, size)
			}
		}
		want := tc.target
		want.Pages = int64(len(pages))
		if whole, ok := lease.JoinPages(pages); !ok || !reflect.DeepEqual(whole, want) {
			t.Errorf("%s: joined to %v, %t", name, whole, ok)
		}
	}
}

// TestMixedPagesAreNotActedOn: pages that do not belong together, because a planner is writing
// them, make no target.
func TestMixedPagesAreNotActedOn(t *testing.T) {
	pages := newTarget(shards("s-%06d", 700, 1)).Split()
	if len(pages) != 3 {
		t.Fatalf("%d pages", len(pages))
	}
	for name, spoil := range map[string]func(pages []lease.Target) []lease.Target{
		"no page":           func([]lease.Target) []lease.Target { return nil },
		"a page is missing": func(pages []lease.Target) []lease.Target { return pages[:2] },
		"the first page":    func(pages []lease.Target) []lease.Target { return pages[1:] },
		"twice the same":    func(pages []lease.Target) []lease.Target { pages[2] = pages[1]; return pages },
		"an older page":     func(pages []lease.Target) []lease.Target { pages[1].Revision--; return pages },
		"a newer page":      func(pages []lease.Target) []lease.Target { pages[2].Revision++; return pages },
		"another count":     func(pages []lease.Target) []lease.Target { pages[2].Pages++; return pages },
		"another worker":    func(pages []lease.Target) []lease.Target { pages[2].Incarnation = "b"; return pages },
		"names twice":       func(pages []lease.Target) []lease.Target { pages[2].Hold = pages[1].Hold; return pages },
	} {
		if whole, ok := lease.JoinPages(spoil(slices.Clone(pages))); ok || whole.Revision != 0 {
			t.Errorf("%s: joined to %v", name, whole)
		}
	}
	left := newTarget(shards("s-%06d", 1, 1)).Split()
	left = append(left, pages[1:]...)
	if whole, ok := lease.JoinPages(left); !ok || len(whole.Hold) != 1 {
		t.Errorf("with pages of an earlier target: %v, %t", whole, ok)
	}
}

// FuzzPackedNames: whatever the packed attributes contain, a target is read that has exactly this
// form, or a MalformedError is returned. Reading never allocates more than the names may have.
func FuzzPackedNames(f *testing.F) {
	item := lease.Encode(newTarget([]lease.Assigned{{Shard: "b"}, {Shard: "ba", Parents: []string{"a", "c"}}, {Shard: "c"}}, lease.Give{Shard: "a", To: "i"}, lease.Give{Shard: "b", To: "i"}))
	f.Add(item[attr.Hold].([]byte), item[attr.Give].([]byte))
	f.Add([]byte{0, 2, 'a', 0, 2, 'b'}, []byte(nil))
	f.Add([]byte{0x80, 0, 2, 'a'}, []byte{0, 0, 0, 0})
	f.Add([]byte{0, 3, 'a', 9}, []byte{1, 2, 3})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, []byte{0, 2, 'a', 0, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, hold, give []byte) {
		item := lease.Encode(newTarget(nil))
		item[attr.Hold], item[attr.Give] = hold, give
		r, err := lease.Decode(item)
		if err != nil {
			if r != nil || !errors.Is(err, lease.ErrMalformed) {
				t.Fatalf("got %v, %v", r, err)
			}
			return
		}
		again := lease.Encode(r)
		if got, _ := again[attr.Hold].([]byte); string(got) != string(hold) {
			t.Fatalf("hold %q became %q", hold, got)
		}
		if got, _ := again[attr.Give].([]byte); string(got) != string(give) {
			t.Fatalf("give %q became %q", give, got)
		}
	})
}

// TestPackedNamesHaveOneForm: names that are packed in another way than this version would are
// refused.
func TestPackedNamesHaveOneForm(t *testing.T) {
	example := newTarget([]lease.Assigned{{Shard: "a"}, {Shard: "ab"}, {Shard: "b", Parents: []string{"a"}}}) // as in docs/table.md
	if packed := fmt.Sprintf("% x", lease.Encode(example)[attr.Hold]); packed != "00 02 61 01 02 62 00 03 62 01 00 02 61" {
		t.Errorf("packed as %s", packed)
	}
	good := []byte{0, 2, 'a', 1, 2, 'b'} // a, ab
	for name, data := range map[string][]byte{
		"good":                  good,
		"a prefix is repeated":  {0, 2, 'a', 0, 4, 'a', 'b'},
		"a long number":         {0x80, 0, 2, 'a'},
		"parents that are none": {0, 3, 'a', 0},
		"a marked parent":       {0, 3, 'b', 1, 0, 3, 'a'},
		"cut off":               good[:5],
		"bytes too many":        append(slices.Clone(good), 0),
		"a prefix of nothing":   {1, 2, 'a'},
	} {
		item := lease.Encode(newTarget(nil))
		item[attr.Hold] = data
		if r, err := lease.Decode(item); (err == nil) != (name == "good") {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	for name, data := range map[string][]byte{
		"good":                    {0, 2, 'a', 0, 2, 'i', 0, 2, 'b', 1, 0}, // a to i, b to i
		"a successor is repeated": {0, 2, 'a', 0, 2, 'i', 0, 2, 'b', 0, 2, 'i'},
		"no successor":            {0, 2, 'a'},
	} {
		item := lease.Encode(newTarget(nil))
		item[attr.Give] = data
		if r, err := lease.Decode(item); (err == nil) != (name == "good") {
			t.Errorf("to give, %s: %v, %v", name, r, err)
		}
	}
}

// TestUnpackingIsBounded: long names from few bytes end at the length of a page.
func TestUnpackingIsBounded(t *testing.T) {
	data := append([]byte{0, 0xfe, 3}, strings.Repeat("a", lease.MaxName)...)
	for range 100_000 {
		data = append(data, 0xff, 1, 0) // the name before, again
	}
	item := lease.Encode(newTarget(nil))
	item[attr.Hold] = data
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := lease.Decode(item)
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, lease.ErrMalformed) || bytes > 1<<20 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
}

// TestRandomNamesComeBack: sorted random names with shared prefixes survive.
func TestRandomNamesComeBack(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	name := func(n int) string {
		var s strings.Builder
		for range 1 + chance.IntN(n) {
			s.WriteByte("ab"[chance.IntN(2)])
		}
		return s.String()
	}
	for range 500 {
		names := map[string]bool{}
		for range chance.IntN(40) {
			names[name(6)] = true
		}
		target := newTarget(nil)
		for n := range names {
			target.Hold = append(target.Hold, lease.Assigned{Shard: n})
		}
		slices.SortFunc(target.Hold, func(a, b lease.Assigned) int { return strings.Compare(a.Shard, b.Shard) })
		if back, err := lease.Decode(lease.Encode(target)); err != nil || !reflect.DeepEqual(back, lease.Record(target)) {
			t.Fatalf("%v became %v, %v", target.Hold, back, err)
		}
	}
}
