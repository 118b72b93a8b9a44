package lease_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// caused returns a target in which some shards move: the plan gives a few away, and has a cause of each kind.
func caused() lease.Target {
	of := newTarget(shards("s-%03d", 12, 1), lease.Give{Shard: "g-1", To: "b"}, lease.Give{Shard: "g-2", To: "b"})
	of.Because(lease.MoveCause{Why: rebalance.Balance, Shards: []string{"g-1", "s-001"}})
	of.Because(lease.MoveCause{Why: rebalance.Drained, Note: "by ann: disk is slow", Shards: []string{"s-003", "s-004", "s-005"}})
	of.Because(lease.MoveCause{Why: rebalance.Drained, Note: "by bob", Shards: []string{"s-006"}})
	return of.Split()[0]
}

// TestCausesComeBack: a page has the cause of each of its moves, in a few bytes. A target that was split and joined has the
// same causes.
func TestCausesComeBack(t *testing.T) {
	of := caused()
	stored := lease.Encode(of)
	const want = "7\t-a-3bc5-a\nb\nd\tby ann: disk is slow\nd\tby bob"
	if stored[attr.Causes] != want {
		t.Errorf("the page stores %q, want %q", stored[attr.Causes], want)
	}
	if back, err := lease.Decode(stored); err != nil || !reflect.DeepEqual(back, lease.Record(of)) {
		t.Errorf("read back as %v, %v", back, err)
	}
	for shard, want := range map[string]lease.MoveCause{
		"s-000": {}, "unknown": {}, "s-001": {Why: rebalance.Balance}, "g-1": {Why: rebalance.Balance}, "g-2": {},
		"s-004": {Why: rebalance.Drained, Note: "by ann: disk is slow"}, "s-006": {Why: rebalance.Drained, Note: "by bob"},
	} {
		if got := of.CauseOf(shard); !reflect.DeepEqual(got, want) {
			t.Errorf("%s moves because of %+v, want %+v", shard, got, want)
		}
	}
	large := newTarget(shards("s-%06d", 3*lease.MaxPage/2, 1), lease.Give{Shard: "g", To: "b"})
	for i, a := range append(slices.Clone(large.Hold), lease.Assigned{Shard: "g"}) {
		if i%7 < 3 {
			large.Because(lease.MoveCause{Why: rebalance.Why(1 + i%7), Note: strings.Repeat("n", i%7), Shards: []string{a.Shard}})
		}
	}
	pages := large.Split()
	for i, page := range pages {
		record, err := lease.Decode(lease.Encode(page))
		if err != nil {
			t.Fatal(err)
		}
		pages[i] = record.(lease.Target)
	}
	whole, ok := lease.JoinPages(pages)
	for _, a := range large.Hold {
		if got, want := whole.CauseOf(a.Shard), large.CauseOf(a.Shard); !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s moves because of %+v in the joined target, want %+v", a.Shard, got, want)
		}
	}
}

// TestEveryCauseIsStored: each cause has a letter of its own.
func TestEveryCauseIsStored(t *testing.T) {
	letters := map[string]bool{}
	for _, why := range fixture.Kinds[rebalance.Why](t) {
		of := newTarget(shards("s-%03d", 1, 1))
		of.Because(lease.MoveCause{Why: why, Shards: []string{"s-000"}})
		back, err := lease.Decode(lease.Encode(of))
		if err != nil || back.(lease.Target).CauseOf("s-000").Why != why {
			t.Errorf("%v comes back as %v, %v", why, back, err)
		}
		_, letter, _ := strings.Cut(lease.Encode(of)[attr.Causes].(string), "\n")
		if len(letter) != 1 || letters[letter] || why.String() == "unknown" {
			t.Errorf("%v has the letter %q", why, letter)
		}
		letters[letter] = true
	}
}

// TestCausesOfAnotherBuild: an earlier version of the library that writes a page leaves its causes as they are, so they are of
// another revision, and void. Causes that cannot be read are ignored, and so is a cause that only a newer version knows: the
// page can be read in any case.
func TestCausesOfAnotherBuild(t *testing.T) {
	of := caused()
	for name, text := range map[string]any{
		"of another revision": "8\ta\nb", "no revision": "a\nb", "no runs": "7", "too many names": "7\t15a\nb", "no letter": "7\t3\nb",
		"a number too large": "7\t99999999999999999999a\nb", "no names": "7\t0a\nb", "a cause that is not there": "7\tb\nb",
		"a newer cause": "7\ta\nt", "a note that is no text": "7\tab\nb\nb\tx\x01",
		"a word": "7\ta\nbalance", "nothing": "",
	} {
		stored := lease.Encode(of)
		stored[attr.Causes] = text
		back, err := lease.Decode(stored)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := back.(lease.Target); len(got.Causes) > 0 {
			t.Errorf("%s: the causes are %+v", name, got.Causes)
		} else if !reflect.DeepEqual(got.Hold, of.Hold) || !reflect.DeepEqual(got.Give, of.Give) {
			t.Errorf("%s: the page is %v", name, got)
		}
	}
	stored := lease.Encode(of)
	stored[attr.Causes] = strings.ReplaceAll(stored[attr.Causes].(string), "\nd\tby ann", "\nt\tby ann")
	back, err := lease.Decode(stored)
	if got := back.(lease.Target); err != nil || got.CauseOf("s-004").Why != 0 || got.CauseOf("s-006").Why != rebalance.Drained {
		t.Errorf("beside a cause that only a newer version knows, the others are %+v, %v", got.Causes, err)
	}
}

// TestCausesThatCannotBeStored: no shard has two causes, and all that a cause says can be stored.
func TestCausesThatCannotBeStored(t *testing.T) {
	for name, causes := range map[string][]lease.MoveCause{
		"no cause":           {{Shards: []string{"s-000"}}},
		"no shards":          {{Why: rebalance.Balance}},
		"two causes":         {{Why: rebalance.Balance, Shards: []string{"s-000"}}, {Why: rebalance.Drained, Shards: []string{"s-000"}}},
		"not sorted":         {{Why: rebalance.Balance, Shards: []string{"s-001", "s-000"}}},
		"the same shard":     {{Why: rebalance.Balance, Shards: []string{"s-000", "s-000"}}},
		"causes out of turn": {{Why: rebalance.Drained, Shards: []string{"s-000"}}, {Why: rebalance.Balance, Shards: []string{"s-001"}}},
		"a note with lines":  {{Why: rebalance.Drained, Note: "a\nb", Shards: []string{"s-000"}}},
		"a long note":        {{Why: rebalance.Drained, Note: strings.Repeat("n", attr.MaxPastNote+1), Shards: []string{"s-000"}}},
		"an unknown cause":   {{Why: 200, Shards: []string{"s-000"}}},
	} {
		of := newTarget(shards("s-%03d", 2, 1))
		of.Causes = causes
		if of.Validate() == nil {
			t.Errorf("%s: %+v can be stored", name, causes)
		}
	}
}

// moved returns a row that a worker has handed over in a planned move with this cause and note.
func moved(t *testing.T, cause lease.MoveCause) lease.Row {
	r := next(t)(protocol.Begin("g", "s", nil, "a", stamp()))
	r = next(t)(protocol.Claim(r, owner("a"), stamp()))
	return next(t)(protocol.Because(cause)(protocol.Yield(r, handle(r), owner("b"), protocol.End{Reason: lease.ReasonHandoff, Mode: rebalance.Eager}, stamp())))
}

// TestTransferKnowsItsCause: the transfer of a planned move has its cause, and by whom and why an operator has caused it. The
// history keeps the letter of each cause, and 64 bytes of an operator's note.
func TestTransferKnowsItsCause(t *testing.T) {
	note := "by ann: " + strings.Repeat("é", 100)
	for _, why := range fixture.Kinds[rebalance.Why](t) {
		r := moved(t, lease.MoveCause{Why: why, Note: note})
		steered := slices.Contains([]rebalance.Why{rebalance.Drained, rebalance.Pinned, rebalance.Ordered}, why)
		for _, after := range []string{"", note[:64]} {
			record, err := lease.Decode(lease.Encode(r))
			if err != nil {
				t.Fatal(err)
			}
			got := record.(lease.Row).Last
			if want := note; after != "" {
				if got, want = record.(lease.Row).History()[0], ""; steered {
					want = after
				}
				if got.Why != why || got.Note != want {
					t.Errorf("%v: the history has %v", why, got)
				}
			} else if got.Why != why || got.Note != want || !strings.HasPrefix(got.String(), "handoff: eager, "+why.String()+" from \"a\"") {
				t.Errorf("%v: the transfer is %v", why, got)
			}
			r = next(t)(protocol.Recover(r, owner("c"+r.Owner.Name), stamp()))
		}
	}
}

// TestBytesOfACause: docs/table.md says how many bytes a cause has in a page and in a row.
func TestBytesOfACause(t *testing.T) {
	page := newTarget(shards("shardId-%012d", lease.MaxPage, 1))
	page.Revision = 3559528142471170
	before := lease.Encode(page).Size()
	page.Because(lease.MoveCause{Why: rebalance.Balance, Shards: []string{"shardId-000000000057"}})
	if n := lease.Encode(page).Size() - before; n != 23+len("57-a")+len("\nb") {
		t.Errorf("one move has %d bytes in a page", n)
	}
	for _, a := range page.Hold {
		page.Because(lease.MoveCause{Why: rebalance.Balance, Shards: []string{a.Shard}})
	}
	if n := lease.Encode(page).Size() - before; n != 23+len("300a")+len("\nb") {
		t.Errorf("300 moves have %d bytes in a page", n)
	}
	size := func(r lease.Row) int { return lease.Encode(r).Size() }
	with, without := moved(t, lease.MoveCause{Why: rebalance.Balance}), moved(t, lease.MoveCause{})
	if n := size(with) - size(without); n != len("\t\t=b") {
		t.Errorf("a cause has %d bytes in a row", n)
	}
	later := func(r lease.Row) lease.Row { return next(t)(protocol.Recover(r, owner("c"), stamp())) }
	if n := size(later(with)) - size(later(without)); n != len("\t\t=b") {
		t.Errorf("a cause has %d bytes in the history", n)
	}
}

// TestCauseInTheNote: the packed form of each note is read back, also of one that looks like a cause. No packed note is
// longer than an earlier version of the library reads.
func TestCauseInTheNote(t *testing.T) {
	for _, note := range []string{"", "=", "==", "=d", "=d x", "d", "by ann", "= x", strings.Repeat("=", 300), strings.Repeat("n", 300)} {
		for _, why := range []rebalance.Why{0, rebalance.Drained} {
			r := moved(t, lease.MoveCause{})
			r = next(t)(protocol.Because(lease.MoveCause{Why: why})(protocol.Yield(r, handle(r), owner("c"),
				protocol.End{Reason: lease.ReasonHandoff, Mode: rebalance.Eager, Note: note}, stamp())))
			stored := lease.Encode(r)
			back, err := lease.Decode(stored)
			if err != nil {
				t.Fatalf("%q: %v", note, err)
			}
			want := note[:min(len(note), lease.MaxNote-attr.PackedWhy)]
			if got := back.(lease.Row).Last; got.Why != why || got.Note != want {
				t.Errorf("%v %q comes back as %v %q", why, note, got.Why, got.Note)
			}
			fields := strings.Split(stored[attr.Last].(string), "\t")
			if len(fields) > 7 && len(fields[7]) > lease.MaxNote {
				t.Errorf("%v %q is stored as %d bytes", why, note, len(fields[7]))
			}
		}
	}
}

// TestCauseBesideAnEarlierBuild: an earlier version of the library prints the packed cause as the note. It drops that when
// the shard changes hands again, and leaves it where it is until then. Its own moves have no cause.
func TestCauseBesideAnEarlierBuild(t *testing.T) {
	r := moved(t, lease.MoveCause{Why: rebalance.Drained, Note: "by ann: disk is slow"})
	fields := strings.Split(lease.Encode(r)[attr.Last].(string), "\t")
	if len(fields) != 8 || fields[5] != "eager" || fields[7] != "=d by ann: disk is slow" {
		t.Fatalf("the transfer is stored as %q", fields)
	}
	old := r // as an earlier version reads it
	old.Last.Why, old.Last.Note = 0, fields[7]
	past := attr.AddTransfer("", attr.Transfer{Back: 1, Reason: "handoff", From: "a", By: "a", At: time.Unix(9, 0), Mode: "eager"})
	later := next(t)(protocol.Recover(old, owner("c"), stamp()))
	if got := later.History()[0]; got.Why != 0 || got.Note != "" || !strings.HasPrefix(later.Past, past[:strings.Index(past, "9")]) {
		t.Errorf("after an earlier version, the history has %v", got)
	}
	if got := moved(t, lease.MoveCause{}).Last; got.Why != 0 || got.Note != "" || strings.Contains(got.String(), "unknown") {
		t.Errorf("the move of an earlier version is %v", got)
	}
}

// TestNoOtherTransferHasACause: only a planned move has one.
func TestNoOtherTransferHasACause(t *testing.T) {
	r := moved(t, lease.MoveCause{})
	w, err := protocol.Because(lease.MoveCause{Why: rebalance.Drained})(protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonReleased, Note: "=d x"}, stamp()))
	if got := next(t)(w, err).Last; got.Why != 0 || got.Note != "=d x" {
		t.Errorf("a release has the cause %v and the note %q", got.Why, got.Note)
	}
	r.Last.Why, r.Last.Mode = rebalance.Drained, 0
	if r.Validate() == nil {
		t.Error("a transfer that is no planned move can be stored with a cause")
	}
}
