package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/journal"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestTooLargeIsRefused: the error names an effect that can never be stored, and no effect of its
// batch is stored.
func TestTooLargeIsRefused(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	batch := effects("a", "x", 1, 2, 3)
	batch[1].Value = make([]byte, journal.MaxEffect+1)
	err := j.Write(t.Context(), h, batch)
	if refused, ok := errors.AsType[*consumer.RefusedError](err); !ok || refused.Index != 1 {
		t.Errorf("got %v", err)
	}
	expect(t, j, "x")
	batch[1] = consumer.Effect{Record: batch[1].Record, Verdict: consumer.Skip, Reason: "too large"}
	keep(t, j, h, batch)
	expect(t, j, "x", "1", "3")
}

// TestFailuresAreOnRecord: failures of a record are counted across workers, and the verdict is
// stored with its sequence number and reason, once, and under the fence.
func TestFailuresAreOnRecord(t *testing.T) {
	j := newJournal(t)
	r, h := held(t, j, "a")
	bad := effects("a", "x\xff", 2)[0]
	failed := func(h lease.Hold, want int) {
		t.Helper()
		if n, err := j.Failed(t.Context(), h, bad.Record, "no order\xff"+strings.Repeat("x", 5000)); err != nil || n != want {
			t.Errorf("%d failures (%v), want %d", n, err, want)
		}
	}
	failed(h, 1)
	failed(h, 2)
	stale := h
	r = write(t, j)(protocol.Recover(r, fixture.Worker("b"), fixture.Stamp()))
	h.Incarnation, h.Generation = r.Owner.Incarnation, r.Generation
	if _, err := j.Failed(t.Context(), stale, bad.Record, "stale"); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("a stale failure: %v", err)
	}
	failed(h, 3)
	want := "a 2/0 \"x\\xff\" stop after 3: no order\uFFFDxx 0 bytes"
	checkFailures(t, j, want)

	letter := bad
	letter.Verdict, letter.Reason, letter.Value = consumer.DeadLetter, "no order", bytes.Repeat([]byte("\xfe"), 5000)
	if err := j.Write(t.Context(), stale, []consumer.Effect{letter}); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("a stale verdict: %v", err)
	}
	checkFailures(t, j, want)
	before, after := effects("a", "x\xff", 1)[0], effects("a", "x\xff", 3)[0]
	for range 2 {
		keep(t, j, h, []consumer.Effect{before, letter, after})
	}
	// The verdict stays, even if the record would succeed now.
	keep(t, j, h, []consumer.Effect{bad})
	expect(t, j, "x\xff", "1", "3")
	checkFailures(t, j, "a 2/0 \"x\\xff\" dead-letter after 3: no order 5000 bytes")
	failed(h, 4) // as after a crash between verdict and checkpoint
	checkFailures(t, j, "a 2/0 \"x\\xff\" dead-letter after 4: no order\uFFFDxx 5000 bytes")
	if kept, known, stale := j.Stats(); kept != 2 || known != 4 || stale != 2 {
		t.Errorf("kept %d, left out %d, stale %d", kept, known, stale)
	}
	if others, err := sharing(j, j.Stream, "others").Failures(t.Context()); err != nil || len(others) > 0 {
		t.Errorf("another group has %v, %v", others, err)
	}
}

// TestLargeDeadLetters: the data of a dead letter is stored, whatever its size.
func TestLargeDeadLetters(t *testing.T) {
	j := newJournal(t)
	_, h := held(t, j, "a")
	var all []consumer.Effect
	var want []string
	for i, size := range []int{0, 300 << 10, 300<<10 + 1, 10 << 20} {
		e := effects("a", "x", i+1)[0]
		e.Verdict, e.Reason, e.Value = consumer.DeadLetter, "large", nil
		if size > 0 {
			e.Value = bytes.Repeat([]byte{byte(i)}, size)
		}
		all = append(all, e)
		want = append(want, fmt.Sprintf("a %d/0 \"x\" dead-letter after 0: large %d bytes", i+1, size))
	}
	skipped := effects("a", "x", 9)[0]
	skipped.Verdict, skipped.Reason = consumer.Skip, "why"
	keep(t, j, h, append(all, skipped))
	checkFailures(t, j, append(want, "a 9/0 \"x\" skip after 0: why 0 bytes")...)
	failures, err := j.Failures(t.Context())
	if err != nil || !bytes.Equal(failures[3].Data, all[3].Value) {
		t.Errorf("the data has changed: %v", err)
	}
	expect(t, j, "x")
}

// checkFailures compares the result of Failures with the failures that are expected.
func checkFailures(t *testing.T, j *journal.Journal, want ...string) {
	t.Helper()
	failures, err := j.Failures(t.Context())
	var got []string
	for _, f := range failures {
		reason := strings.ReplaceAll(f.Reason, strings.Repeat("x", 1015), "xx")
		got = append(got, fmt.Sprintf("%s %s/%d %q %s after %d: %s %d bytes", f.Shard, f.Sequence, f.Index, f.Key, f.Verdict, f.Failures, reason, len(f.Data)))
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("failures:\n%.300q, %v, want\n%q", got, err, want)
	}
}
