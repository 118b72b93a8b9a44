package protocol_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const secret = "card 4111 was refused"

func by(name string) lease.Owner {
	return lease.Owner{Name: name, Incarnation: lease.Incarnation(name + "-1")}
}

// claimed returns a row that a worker holds.
func claimed(t *testing.T, name string, r lease.Row) lease.Row {
	t.Helper()
	return fixture.Next(t)(protocol.Claim(r, by(name), fixture.Stamp()))
}

func fresh(t *testing.T) lease.Row {
	t.Helper()
	return fixture.Next(t)(protocol.Begin(fixture.Key.Group, fixture.Key.Name, nil, "source", fixture.Stamp()))
}

// failedWith returns the row after its holder has failed with that error.
func failedWith(t *testing.T, r lease.Row, text string, excused bool) lease.Row {
	t.Helper()
	return fixture.Next(t)(protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonFailed, Note: text, Excused: excused}, fixture.Stamp()))
}

// TestLastErrorLastsAsTheCountDoes: the error of a failed tenure stays in the row through claims, deaths, releases and failures
// without a text, also if the failure is not counted against the shard. Progress makes it void, and the next change of hands
// removes it. A commit in the tenure that failed does not.
func TestLastErrorLastsAsTheCountDoes(t *testing.T) {
	a := claimed(t, "a", fresh(t))
	failed := failedWith(t, a, secret, false)
	b := claimed(t, "b", failed)
	for name, r := range map[string]lease.Row{
		"failed":   failed,
		"excused":  failedWith(t, a, secret, true),
		"claimed":  b,
		"died":     fixture.Next(t)(protocol.Recover(b, by("c"), fixture.Stamp())),
		"again":    failedWith(t, b, "", false),
		"released": fixture.Next(t)(protocol.Release(b, fixture.Hold(b), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp())),
		"marked":   fixture.Next(t)(protocol.Release(a, fixture.Hold(a), protocol.End{Reason: lease.ReasonFailed, Note: secret, Mark: fixture.At("7")}, fixture.Stamp())),
		"quarantined": fixture.Next(t)(protocol.Quarantine(failed, protocol.Command{Seen: failed.Generation, By: "b", Note: "too many attempts"},
			lease.ReasonFailed, fixture.Stamp())),
	} {
		if text, of := r.LastError(); text != secret || of != a.Generation {
			t.Errorf("%s: the last error is %q of generation %d, want %d", name, text, of, a.Generation)
		}
	}
	if text, _ := failedWith(t, b, "another", false).LastError(); text != "another" {
		t.Errorf("after the second failure it is %q", text)
	}
	committed := fixture.Next(t)(protocol.Commit(b, fixture.Hold(b), fixture.At("8"), fixture.Stamp()))
	progressed := fixture.Next(t)(protocol.Progress(b, fixture.Hold(b), fixture.Stamp()))
	for name, r := range map[string]lease.Row{"committed": committed, "progressed": progressed} {
		if text, _ := r.LastError(); text != "" || r.Attempts() != 0 {
			t.Errorf("%s: the last error is %q after %d attempts", name, text, r.Attempts())
		}
		given := fixture.Next(t)(protocol.Release(r, fixture.Hold(r), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
		if f := given.Failures; f.Error != "" || f.ErrorOf != 0 {
			t.Errorf("%s, and then given up: the row keeps %+v", name, f)
		}
	}
	freed := fixture.Next(t)(protocol.Quarantine(failed, protocol.Command{Seen: failed.Generation, By: "op"}, lease.ReasonForced, fixture.Stamp()))
	freed = fixture.Next(t)(protocol.Unquarantine(freed, protocol.Command{Seen: freed.Generation, By: "op"}, fixture.Stamp()))
	if freed.Failures != (lease.Failures{}) {
		t.Errorf("freed, the row keeps %+v", freed.Failures)
	}
}

// TestErrorStaysInTheRow: neither the text of a row nor its fields in a log have the error of a tenure, and no transfer does,
// which the logs of other workers print. Noted adds it for people, to the transfer that ended that tenure alone.
func TestErrorStaysInTheRow(t *testing.T) {
	a := claimed(t, "a", fresh(t))
	failed := failedWith(t, a, secret, false)
	for _, r := range []lease.Row{failed, claimed(t, "b", failed), failedWith(t, a, secret, true)} {
		for _, text := range []string{r.String(), fmt.Sprintf("%v %+v %#v %s", r, r, r, r), fmt.Sprint(r.LogValue()), fmt.Sprint(slog.Any("row", r)), r.Last.String(), r.Past} {
			if strings.Contains(text, "4111") {
				t.Errorf("the error is in %s", text)
			}
		}
		noted := 0
		for _, transfer := range append(r.History(), r.Last) {
			if r.Noted(transfer).Note == secret {
				noted++
			}
		}
		if noted != 1 {
			t.Errorf("%d transfers of %v are noted", noted, r)
		}
	}
}

// TestErrorLeavesRoomForTransfers: a row that is nearly full has a shorter error, or none, and the two latest past transfers, or
// as many as it would have without an error. With room for all, the error is whole. Each row costs one write unit.
func TestErrorLeavesRoomForTransfers(t *testing.T) {
	for _, state := range []int{0, 200, 260, 300, 350, 400, 450} {
		r, plain := fresh(t), fresh(t)
		for i := range 6 {
			next := func(r lease.Row, text string) lease.Row {
				r = claimed(t, strings.Repeat("w", 40)+fmt.Sprint(i), r)
				r = fixture.Next(t)(protocol.Commit(r, fixture.Hold(r), checkpoint.Mark{Position: strings.Repeat("7", 56), State: strings.Repeat("s", state)}, fixture.Stamp()))
				return failedWith(t, r, text, false)
			}
			r, plain = next(r, strings.Repeat("é", 80)), next(plain, "")
			size, past, text := lease.Encode(r).Size(), len(r.History()), r.Failures.Error
			if size > 1024 {
				t.Errorf("a state of %d bytes, failure %d: %d bytes", state, i, size)
			}
			if past < min(2, len(plain.History())) || state == 0 && len(text) != 160 {
				t.Errorf("a state of %d bytes, failure %d: %d past transfers, and an error of %d bytes", state, i, past, len(text))
			}
			if (text == "") != (r.Failures.ErrorOf == 0) {
				t.Errorf("the error %q of generation %d", text, r.Failures.ErrorOf)
			}
		}
	}
}

// TestOldBuildCountsBesideAnError: a worker of an older version claims a row with an error, fails, and leaves the attribute as it
// is. The error stays until progress makes it void. A text that cannot be read, or that is of no earlier generation, is ignored.
func TestOldBuildCountsBesideAnError(t *testing.T) {
	a := claimed(t, "a", fresh(t))
	failed := failedWith(t, a, secret, false)
	kept := lease.Encode(failed)[attr.LastError]
	if kept != fmt.Sprintf("%d %s", a.Generation, secret) {
		t.Errorf("it is stored as %v", kept)
	}
	old := func(r lease.Row) lease.Row { // the row as an older version has it, and after its write with the attribute that stayed
		t.Helper()
		r.Failures.Error, r.Failures.ErrorOf = "", 0
		return r
	}
	with := func(r lease.Row, value string) lease.Row {
		t.Helper()
		item := lease.Encode(r)
		item[attr.LastError] = value
		read, err := lease.Decode(item)
		if err != nil {
			t.Fatal(err)
		}
		return read.(lease.Row)
	}
	b := claimed(t, "b", old(failed))
	again := with(failedWith(t, b, "", false), kept.(string))
	if text, of := again.LastError(); text != secret || of != a.Generation || again.Attempts() != 2 {
		t.Errorf("after a failure under an older build: %q of generation %d, %d attempts", text, of, again.Attempts())
	}
	committed := with(fixture.Next(t)(protocol.Commit(b, fixture.Hold(b), fixture.At("8"), fixture.Stamp())), kept.(string))
	if text, _ := committed.LastError(); text != "" {
		t.Errorf("after a commit under an older build: %q", text)
	}
	for _, bad := range []string{"text", "0 text", "-1 text", fmt.Sprint(failed.Generation, " text"), fmt.Sprint(a.Generation, " "), fmt.Sprint(a.Generation, " a\nb"), "9999999999999999999 text"} {
		if r := with(failed, bad); r.Failures.Error != "" || r.Failures.ErrorOf != 0 {
			t.Errorf("%q is read as %+v", bad, r.Failures)
		}
	}
}
