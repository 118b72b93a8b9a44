package lease_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestRarestCausesLoseTheirNotes: a page has room for 26 causes. If it has more, the causes with the most shards keep their
// notes, and the others only say what kind of wish has moved the shard, and not whose.
func TestRarestCausesLoseTheirNotes(t *testing.T) {
	for causes, whole := range map[int]int{26: 26, 27: 20, 40: 20, 290: 20} {
		of := newTarget(shards("s-%03d", causes+2, 1))
		kind := func(i int) rebalance.Why {
			return []rebalance.Why{rebalance.Drained, rebalance.Pinned, rebalance.Ordered}[i%3]
		}
		for i := range causes {
			names := []string{fmt.Sprintf("s-%03d", i)}
			if i == causes-1 { // the last of all, by kind and name, has the most shards
				names = append(names, fmt.Sprintf("s-%03d", i+1), fmt.Sprintf("s-%03d", i+2))
			}
			of.Because(lease.MoveCause{Why: kind(i), Note: fmt.Sprintf("by %03d", i), Shards: names})
		}
		page := of.Split()[0]
		if err := page.Validate(); err != nil {
			t.Fatal(err)
		}
		record, err := lease.Decode(lease.Encode(page))
		if err != nil {
			t.Fatal(err)
		}
		noted := 0
		for i := range causes {
			got := record.(lease.Target).CauseOf(fmt.Sprintf("s-%03d", i))
			if got.Why != kind(i) || got.Note != "" && got.Note != fmt.Sprintf("by %03d", i) {
				t.Errorf("of %d causes, that of shard %d is %+v", causes, i, got)
			}
			if got.Note != "" {
				noted++
			}
		}
		if most := record.(lease.Target).CauseOf(fmt.Sprintf("s-%03d", causes+1)); noted != whole || most.Note != fmt.Sprintf("by %03d", causes-1) {
			t.Errorf("of %d causes, %d have notes; that of the most shards is %+v", causes, noted, most)
		}
	}
}

// TestLongReasonIsCut: 64 bytes of an operator's wish go along with a move, and an ellipsis says that there is more.
func TestLongReasonIsCut(t *testing.T) {
	for note, want := range map[string]string{
		"by ann: " + strings.Repeat("n", 56):  "by ann: " + strings.Repeat("n", 56),
		"by ann: " + strings.Repeat("n", 57):  "by ann: " + strings.Repeat("n", 53) + "…",
		"by ann: " + strings.Repeat("é", 100): "by ann: " + strings.Repeat("é", 26) + "…",
	} {
		of := newTarget(shards("s-%03d", 1, 1))
		of.Because(lease.MoveCause{Why: rebalance.Drained, Note: note, Shards: []string{"s-000"}})
		if got := of.CauseOf("s-000").Note; got != want || len(got) > 64 {
			t.Errorf("of %q the target has %q", note, got)
		}
	}
}

// TestReasonGivesWay: whatever a row has besides, by whom and why an operator has moved the shard costs no second write unit, and
// none of the two latest earlier transfers. It stands in front of the holder's own note, which stays whole.
func TestReasonGivesWay(t *testing.T) {
	const note = "by ann: the disk of this host is slow, see the ticket of today …"
	if len(note) > 66 {
		t.Fatal(len(note))
	}
	whole, cut, gone := 0, 0, 0
	for state := range 700 {
		for _, own := range []string{"", "too hot", strings.Repeat("o", 240), strings.Repeat("o", 300)} {
			r := next(t)(protocol.Begin("g", "s", nil, "a", stamp()))
			r = next(t)(protocol.Claim(r, owner("a"), stamp()))
			r = next(t)(protocol.Recover(r, owner("b"), stamp()))
			r = next(t)(protocol.Recover(r, owner("c"), stamp()))
			end := protocol.End{
				Reason: lease.ReasonHandoff, Mode: rebalance.Eager, Note: own, Mark: checkpoint.Mark{Position: "1", State: strings.Repeat("s", state)},
			}
			once := stamp() // the same for both: its digits count
			move := func(note string) lease.Row {
				cause := lease.MoveCause{Why: rebalance.Drained, Note: note}
				return next(t)(protocol.Because(cause)(protocol.Yield(r, handle(r), owner("d"), end, once)))
			}
			with, without := move(note), move("")
			units := func(r lease.Row) int { return (lease.Encode(r).Size() + oneUnit - 1) / oneUnit }
			if units(with) != units(without) || len(with.History()) < min(2, len(without.History())) {
				t.Errorf("a state of %d bytes: %d units instead of %d, %d earlier transfers instead of %d",
					state, units(with), units(without), len(with.History()), len(without.History()))
			}
			reason, stays := strings.CutSuffix(with.Last.Note, without.Last.Note)
			reason = strings.TrimSuffix(reason, "; ")
			if !stays || without.Last.Note == "" && own != "" || !strings.HasPrefix(note, strings.TrimSuffix(reason, "…")) || with.Last.Why != rebalance.Drained {
				t.Errorf("a state of %d bytes: the note is %q instead of %q", state, with.Last.Note, without.Last.Note)
			}
			switch reason {
			case note:
				whole++
			case "":
				gone++
			default:
				cut++
			}
		}
	}
	if whole == 0 || cut == 0 || gone == 0 {
		t.Errorf("the reason is whole in %d rows, cut in %d, and gone in %d", whole, cut, gone)
	}
}
