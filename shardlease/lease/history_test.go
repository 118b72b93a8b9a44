package lease_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestHistoryRemembers: the earlier transfers of a row have the mode of a planned move, what a
// command did, its note with at most 64 bytes, and the task that lost the shard, also if
// that task is written like the mark for a repeated one.
func TestHistoryRemembers(t *testing.T) {
	worker := func(name, task string) lease.Owner {
		return lease.Owner{Name: name, Incarnation: lease.Incarnation("i-" + name), Task: task}
	}
	note := strings.Repeat("é", 100)
	r := next(t)(protocol.Begin("g", "s", nil, "a", stamp()))
	r = next(t)(protocol.Claim(r, worker("a", "="), stamp()))
	r = next(t)(protocol.Yield(r, handle(r), worker("b", "="), protocol.End{Reason: lease.ReasonHandoff, Mode: rebalance.Eager, Note: "not kept"}, stamp()))
	r = next(t)(protocol.Recover(r, worker("c", "nightly"), stamp()))
	r = next(t)(protocol.ForceRelease(r, protocol.Command{Seen: r.Generation, By: "ann", Note: note}, stamp()))
	if r.Last.Note != note || r.Last.Did != "released" || r.Last.Task != "nightly" {
		t.Errorf("the last transfer is %v", r.Last)
	}
	r = next(t)(protocol.Claim(r, worker("d", "nightly"), stamp()))
	r = next(t)(protocol.Seize(r, worker("e", "==x"), stamp()))
	r = next(t)(protocol.Recover(r, worker("f", ""), stamp()))
	decoded, err := lease.Decode(lease.Encode(r))
	if err != nil {
		t.Fatal(err)
	}
	if !decoded.(lease.Row).Last.At.Equal(r.Last.At) || decoded.(lease.Row).Last.Task != "==x" {
		t.Errorf("the row comes back as %v", decoded)
	}
	type told struct {
		reason lease.Reason
		task   string
		mode   rebalance.Mode
		did    string
		note   string
	}
	want := []told{
		{lease.ReasonDrainTimeout, "nightly", rebalance.Eager, "", ""},
		{lease.ReasonForced, "", 0, "", ""},
		{lease.ReasonForced, "nightly", 0, "released", note[:64]},
		{lease.ReasonExpired, "=", 0, "", ""},
		{lease.ReasonHandoff, "=", rebalance.Eager, "", ""},
		{lease.ReasonInitial, "", 0, "", ""},
		{lease.ReasonInitial, "", 0, "", ""},
	}
	var got []told
	for _, past := range r.History() {
		got = append(got, told{past.Reason, past.Task, past.Mode, past.Did, past.Note})
	}
	if !slices.Equal(got, want) {
		t.Errorf("the history is\n%v\nand should be\n%v", got, want)
	}
}

// TestALongNoteLeavesTheRowInOneUnit: where a note of 256 bytes would cost a second write unit, it is
// shortened, but not below 64 bytes.
func TestALongNoteLeavesTheRowInOneUnit(t *testing.T) {
	for name, least := range map[int]int{20: lease.MaxNote, 45: 65, 100: 64} {
		r := fullRow(t, name, 3)
		forced := next(t)(protocol.ForceRelease(r, protocol.Command{Seen: r.Generation, By: "ann", Note: strings.Repeat("n", 300)}, stamp()))
		size, kept := lease.Encode(forced).Size(), len(forced.Last.Note)
		if kept < least || name <= 45 && size > oneUnit || name == 100 && kept != least {
			t.Errorf("names of %d bytes: %d bytes, %d of the note", name, size, kept)
		}
	}
}

// TestALongNoteIsNotShortenedLater: a commit that grows the row beyond one unit leaves the note as it
// is, because a holder may not change the last transfer.
func TestALongNoteIsNotShortenedLater(t *testing.T) {
	r := next(t)(protocol.Begin("g", "s", nil, "a", stamp()))
	r = next(t)(protocol.Claim(r, owner("a"), stamp()))
	r = next(t)(protocol.Yield(r, handle(r), owner("b"), protocol.End{Reason: lease.ReasonHandoff, Note: strings.Repeat("n", lease.MaxNote)}, stamp()))
	hold := lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation}
	r = next(t)(protocol.Commit(r, hold, checkpoint.Mark{Position: "1", State: strings.Repeat("s", 1000)}, stamp()))
	if len(r.Last.Note) != lease.MaxNote {
		t.Errorf("the note has %d bytes", len(r.Last.Note))
	}
}

// TestAClaimIsNotForced: the text of a claim says that the shard was claimed, and why it was free. Only the command itself
// is "forced", a recovery of a dead owner's shard is "expired", and only the creation of a row is "created": in its
// history too, which has times in whole seconds.
func TestAClaimIsNotForced(t *testing.T) {
	a, b := lease.Owner{Name: "a", Incarnation: "a-1"}, lease.Owner{Name: "b", Incarnation: "b-1"}
	var r lease.Row
	minuteLater := func() protocol.Stamp { return protocol.Stamp{ID: stamp().ID, At: stamp().At.Add(time.Minute)} }
	step := func(w lease.Write, err error) {
		t.Helper()
		r = next(t)(w, err)
	}
	command := func() protocol.Command { return protocol.Command{Seen: r.Generation, By: "ann"} }
	for _, c := range []struct {
		make func() (lease.Write, error)
		want string
	}{
		{func() (lease.Write, error) { return protocol.Begin("g", "s", nil, "a", stamp()) }, `initial: created by "a"`},
		{func() (lease.Write, error) { return protocol.Claim(r, a, stamp()) }, `claimed after initial by "a"`},
		{func() (lease.Write, error) { return protocol.ForceRelease(r, command(), stamp()) }, `forced: released from "a" by "ann"`},
		{func() (lease.Write, error) { return protocol.Claim(r, b, stamp()) }, `claimed after forced by "b"`},
		{func() (lease.Write, error) { return protocol.Recover(r, a, stamp()) }, `expired from "b" by "a"`},
		{func() (lease.Write, error) {
			return protocol.Release(r, handle(r), protocol.End{Reason: lease.ReasonReleased}, stamp())
		}, `released from "a" at`},
		{func() (lease.Write, error) { return protocol.Claim(r, b, stamp()) }, `claimed after released by "b"`},
		{func() (lease.Write, error) { return protocol.Quarantine(r, command(), lease.ReasonForced, stamp()) }, `forced: quarantined from "b" by "ann"`},
		{func() (lease.Write, error) { return protocol.Unquarantine(r, command(), stamp()) }, `forced: unquarantined by "ann"`},
		{func() (lease.Write, error) { return protocol.Remove(r, command(), stamp()) }, `removed by "ann"`},
		{func() (lease.Write, error) { return protocol.Revive(r, nil, "b", minuteLater()) }, `initial: created by "b"`},
		{func() (lease.Write, error) { return protocol.Claim(r, b, stamp()) }, `claimed after initial by "b"`},
		{func() (lease.Write, error) { return protocol.Adopt(r, "ann", stamp()) }, `adopted from "b" by "ann"`},
		{func() (lease.Write, error) { return protocol.Claim(r, b, stamp()) }, `claimed after adopted by "b"`},
	} {
		step(c.make())
		for _, last := range []lease.Transfer{r.Last, (lease.Row{Last: lease.Transfer{Generation: r.Generation + 1}, Past: r.Followed(r.Generation + 1)}).History()[0]} {
			created, claimed := strings.Contains(c.want, "created"), strings.HasPrefix(c.want, "claimed")
			if got := last.String(); !strings.HasPrefix(got, c.want) || last.Claimed() != claimed || last.Created() != created {
				t.Errorf("%s, want %s", got, c.want)
			}
		}
	}
}
