package protocol_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestClockMustBeSet: a first generation from a clock that was never set would be below all
// generations that were issued before, and a tombstone would expire at once.
func TestClockMustBeSet(t *testing.T) {
	r := fixture.Free(t)
	held := fixture.Held(t, "a")
	gone := next(t)(protocol.Remove(r, protocol.Command{Seen: r.Generation}, stamp()))
	unset := protocol.Stamp{ID: "x", At: time.Unix(0, 0)}
	for name, err := range map[string]error{
		"begin":       errOf(protocol.Begin("g", "s", nil, "", unset)),
		"begin held":  errOf(protocol.BeginHeld("g", "s", owner("a"), unset)),
		"revive":      errOf(protocol.Revive(gone, nil, "", unset)),
		"revive held": errOf(protocol.ReviveHeld(gone, owner("a"), unset)),
		"remove":      errOf(protocol.Remove(r, protocol.Command{Seen: r.Generation}, unset)),
		"discard":     errOf(protocol.Discard(held, handle(held), protocol.End{Reason: lease.ReasonReleased}, unset)),
		"adopt":       errOf(protocol.Adopt(r, "", unset)),
		"sessions":    errOf(protocol.BeginSessions("g", owner("a"), unset)),
	} {
		if !errors.Is(err, checkpoint.ErrInvalid) || !strings.Contains(err.Error(), "clock") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNumbersAtTheirEdge(t *testing.T) {
	r := fixture.Held(t, "a")
	last := r
	last.Counter = math.MaxInt64
	end := r
	end.Generation, end.Last.Generation = math.MaxInt64, math.MaxInt64
	seat := lease.Seat{Group: "g", Incarnation: "i", WriteID: "w", Name: "n", TTL: time.Second, Beat: math.MaxInt64}
	for name, err := range map[string]error{
		"counter":    errOf(protocol.Commit(last, handle(last), at("1"), stamp())),
		"generation": errOf(protocol.Release(end, handle(end), protocol.End{Reason: lease.ReasonReleased}, stamp())),
		"adoption":   errOf(protocol.Adopt(end, "s", stamp())),
		"beat":       errOf(protocol.NextBeat(seat, lease.Says{}, stamp())),
	} {
		invalid, ok := errors.AsType[*checkpoint.InvalidError](err)
		if !ok || invalid.Limit != math.MaxInt64 {
			t.Errorf("%s: got %v, want an InvalidError naming the limit", name, err)
		}
	}
	if _, err := protocol.Commit(end, handle(end), at("1"), stamp()); err != nil {
		t.Errorf("commit under the last generation: %v", err)
	}
	w, err := protocol.Recover(r, owner("b"), stamp())
	must(t, err)
	refused, ok := errors.AsType[*lease.RefusedError](func() error { _, err := w.Apply(last); return err }())
	if !ok || protocol.Decide("b-1", w, refused.Now) != protocol.Again {
		t.Errorf("transfer of a row whose counter is at its limit: not refused with verdict Again")
	}
	if _, err := protocol.Recover(last, owner("b"), stamp()); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("the same transition on that row: got %v, want an InvalidError", err)
	}
}

func TestNamesAtTheirEdge(t *testing.T) {
	bad := map[string]string{
		"empty": "", "over-long": strings.Repeat("n", lease.MaxName+1),
		"not UTF-8": "a\xffb", "control": "a\nb", "C1 control": "a\u0085b",
	}
	free := fixture.Free(t)
	tries := map[string]func(name string) error{
		"group":  func(n string) error { return errOf(protocol.Begin(n, "s", nil, "", stamp())) },
		"shard":  func(n string) error { return errOf(protocol.Begin("g", n, nil, "", stamp())) },
		"parent": func(n string) error { return errOf(protocol.Begin("g", "s", []string{n}, "", stamp())) },
		"owner": func(n string) error {
			return errOf(protocol.Claim(free, lease.Owner{Name: n, Incarnation: "i"}, stamp()))
		},
		"incarnation": func(n string) error {
			return errOf(protocol.Claim(free, lease.Owner{Name: "a", Incarnation: lease.Incarnation(n)}, stamp()))
		},
		"worker": func(n string) error {
			return errOf(protocol.Sit(lease.Seat{Group: "g", Incarnation: "i", Name: n, TTL: time.Second}, stamp()))
		},
		"task": func(n string) error {
			return errOf(protocol.Claim(free, lease.Owner{Name: "a", Incarnation: "i", Task: n}, stamp()))
		},
		"by": func(n string) error {
			return errOf(protocol.Quarantine(free, protocol.Command{Seen: free.Generation, By: n}, lease.ReasonForced, stamp()))
		},
		"note": func(n string) error {
			return errOf(protocol.Quarantine(free, protocol.Command{Seen: free.Generation, Note: n}, lease.ReasonForced, stamp()))
		},
	}
	optional := map[string]bool{"task": true, "by": true, "note": true}
	limits := map[string]int{"note": lease.MaxNote, "incarnation": lease.MaxID}
	for field, try := range tries {
		for what, name := range bad {
			if name == "" && optional[field] || field == "note" && what == "over-long" { // TestLongNotesAreShortened
				continue
			}
			if err := try(name); !errors.Is(err, checkpoint.ErrInvalid) || len(err.Error()) > 500 {
				t.Errorf("%s, %s: got %v", field, what, err)
			}
		}
		limit := lease.MaxName
		if l, ok := limits[field]; ok {
			limit = l
		}
		if err := try(strings.Repeat("n", limit)); err != nil {
			t.Errorf("%s of %d bytes: %v", field, limit, err)
		}
		if err := try("größe 例 " + field); err != nil {
			t.Errorf("%s: %v", field, err)
		}
		if err := try(strings.Repeat("n", limit+1)); err != nil && !strings.Contains(err.Error(), fmt.Sprint(limit)) {
			t.Errorf("%s: %v does not name the limit %d", field, err, limit)
		}
	}
	if _, err := protocol.Begin("g", "s", strings.Split("abcdefghi", ""), "", stamp()); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("nine parents: %v", err)
	}
}

// TestLongNotesAreShortened: every transition shortens a note that is too long, and does not
// refuse it. A character is not cut in two.
func TestLongNotesAreShortened(t *testing.T) {
	long := strings.Repeat("é", 160) // 320 bytes
	free, held := fixture.Free(t), fixture.Held(t, "a")
	c := func(r lease.Row) protocol.Command {
		return protocol.Command{Seen: r.Generation, By: "op", Note: "x" + long}
	}
	end := protocol.End{Reason: lease.ReasonReleased, Note: "x" + long}
	handedOff := protocol.End{Reason: lease.ReasonHandoff, Note: end.Note}
	for name, w := range map[string]lease.Write{
		"quarantine":    write(t)(protocol.Quarantine(free, c(free), lease.ReasonForced, stamp())),
		"force-release": write(t)(protocol.ForceRelease(held, c(held), stamp())),
		"rewind":        write(t)(protocol.Rewind(free, c(free), checkpoint.Mark{}, stamp())),
		"conclude":      write(t)(protocol.Conclude(held, c(held), stamp())),
		"remove":        write(t)(protocol.Remove(free, c(free), stamp())),
		"release":       write(t)(protocol.Release(held, handle(held), end, stamp())),
		"yield":         write(t)(protocol.Yield(held, handle(held), owner("b"), handedOff, stamp())),
	} {
		if note := w.Next.(lease.Row).Last.Note; note != "x"+long[:254] {
			t.Errorf("%s: the row keeps the note %q", name, note)
		}
	}
}
