package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/examples/kinesis/consumer"
	"github.com/shardlease/shardlease-go/examples/kinesis/internal/fakekinesis"
	"github.com/shardlease/shardlease-go/examples/kinesis/stream"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// poisoned returns a bench with 300 entries of 7 keys in one shard. The last record of entry 100
// fails: in Process with an error or a panic, or in the sink.
func poisoned(t *testing.T, where string) *bench {
	b := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(300), Closed: true})
	b.sink.once, b.attempts = true, 3
	poison := func(r stream.Record) bool { return r.Sequence == "100" && r.Index == 2 }
	process := b.c.Process
	b.c.Process = func(ctx context.Context, r stream.Record) (consumer.Effect, error) {
		switch {
		case where == "error" && poison(r):
			return consumer.Effect{}, errors.New("no order")
		case where == "panic" && poison(r):
			panic("no order")
		}
		return process(ctx, r)
	}
	if where == "sink" {
		b.sink.refuse = func(e consumer.Effect) bool { return poison(e.Record) }
	}
	return b
}

var places = []string{"error", "panic", "sink"}

// has returns the number of effects of all keys, and the missing effects of k1, the key of the
// record that fails.
func (b *bench) has() (total int, missing []string) {
	all := map[string]bool{}
	for key, effects := range b.sink.effects {
		total += len(effects)
		for _, e := range effects {
			all[key+" "+e] = true
		}
	}
	for i := range 70 {
		if number := fmt.Sprint(i); !all["k1 "+number] {
			missing = append(missing, number)
		}
	}
	return total, missing
}

// TestPoisonIsQuarantined: without a verdict a record that fails ends its tenure, and after
// MaxAttempts the shard is quarantined right before the record. The earlier records are in the
// sink. A later record of the same key has no effect, because its mark would hide the failed
// one. When each empty read was progress, the shard was tried 72 times in a minute and never
// quarantined; and a panic ended the process.
func TestPoisonIsQuarantined(t *testing.T) {
	for _, where := range places {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := poisoned(t, where)
				reads := 0
				b.server.Empty = func() bool { reads++; return reads%2 == 1 }
				b.runFor(time.Minute)
				row := b.row("a")
				if !row.Quarantined || row.Last.Reason != lease.ReasonFailed || row.Checkpoint.Position != "100/1" {
					t.Errorf("quarantined %t (%v), position %s", row.Quarantined, row.Last, row.Checkpoint.Position)
				}
				if len(b.sink.failed) != 1 || b.sink.failed[stream.Record{Sequence: "100", Index: 2}.Order()] != 3 {
					t.Errorf("failed: %v", b.sink.failed)
				}
				if effects := b.sink.effects["k1"]; len(effects) == 0 || b.sink.marks["k1"] > (stream.Record{Sequence: "100", Index: 1}).Order() {
					t.Errorf("the key is at %s, after %d effects", b.sink.marks["k1"], len(effects))
				}
				if n := b.inOrder(); n < 167 || len(b.sink.left) > 0 { // 99 entries and two records
					t.Errorf("%d effects are kept, and left out: %v", n, b.sink.left)
				}
			})
		})
	}
}

// TestPoisonBehindEmptyReads: the shard is quarantined too if a long series of empty reads, which
// every tenure repeats, precedes the record. When a minute of them was progress, 70 s of empty
// reads led to 102 failures in two hours, and to no quarantine.
func TestPoisonBehindEmptyReads(t *testing.T) {
	for _, stretch := range []time.Duration{70 * time.Second, 10 * time.Minute} {
		t.Run(stretch.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := poisoned(t, "error")
				b.stall = 2 * time.Minute
				b.handled = func() {
					begun := time.Now()
					b.server.Empty = func() bool { return time.Since(begun) < stretch }
				}
				b.runFor(4 * stretch)
				if row := b.row("a"); !row.Quarantined || row.Last.Reason != lease.ReasonFailed || row.Checkpoint.Position != "100/1" {
					t.Errorf("quarantined %t (%v), position %s", row.Quarantined, row.Last, row.Checkpoint.Position)
				}
				if n := b.sink.failed[stream.Record{Sequence: "100", Index: 2}.Order()]; n != 3 {
					t.Errorf("the record failed %d times, want 3", n)
				}
			})
		})
	}
}

// TestIdleShardForgetsFailures: catching up counts as progress, so failures ten minutes apart do
// not add up, and the shard does not count as stalled.
func TestIdleShardForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, fakekinesis.Shard{Name: "a", Records: numbered(30)})
		b.attempts, b.stall = 3, 2*time.Minute
		tenures, due := 0, time.Now()
		b.handled = func() { tenures++; due = time.Now().Add(10 * time.Minute) }
		b.server.Fail = func(op string) fakekinesis.Fault {
			if op == "GetRecords" && tenures <= 6 && !time.Now().Before(due) {
				return fakekinesis.Fault{Status: 400, Code: "AccessDeniedException"}
			}
			return fakekinesis.Fault{}
		}
		b.run()
		time.Sleep(100 * time.Minute)
		row := b.row("a")
		b.end()
		if row.Quarantined || row.Attempts() != 0 || tenures != 7 {
			t.Errorf("quarantined %t, %d attempts counted, %d tenures; want 0 and 7", row.Quarantined, row.Attempts(), tenures)
		}
	})
}

// TestVerdicts: only the record for which the hook decides is left out, stored and counted; all
// other records of its batch and key have their effects, and the shard is finished.
func TestVerdicts(t *testing.T) {
	for _, where := range places {
		for _, verdict := range []consumer.Verdict{consumer.Skip, consumer.DeadLetter} {
			t.Run(fmt.Sprint(where, " ", verdict), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := poisoned(t, where)
					b.c.Poison = consumer.After(2, verdict)
					b.runFor(time.Minute)
					total, missing := b.has()
					if row := b.row("a"); !row.Finished || row.Quarantined || total != 499 || len(missing) != 1 {
						t.Fatalf("finished %t; %d effects, want 499; missing %v", row.Finished, total, missing)
					}
					data := ""
					if verdict == consumer.DeadLetter {
						data = missing[0]
					}
					want := fmt.Sprintf("%s 100/2 %q: %s", verdict, data, map[string]string{
						"error": "no order", "panic": "panic: no order", "sink": "the sink refuses the effect: it is too large"}[where])
					if !slices.Equal(b.sink.left, []string{want}) {
						t.Errorf("left out: %q, want %q", b.sink.left, want)
					}
					var metrics strings.Builder
					b.c.Lags.WriteMetrics(&metrics)
					if !strings.Contains(metrics.String(), "consumer_failures_total 2\n") || !strings.Contains(metrics.String(), "consumer_skipped_records_total 1\n") {
						t.Error(metrics.String())
					}
				})
			})
		}
	}
}

// TestHookFails: if the hook returns an error, no record is left out.
func TestHookFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := poisoned(t, "error")
		b.c.Poison = func(context.Context, consumer.Failure) (consumer.Verdict, error) {
			return consumer.Skip, errors.New("the queue does not answer")
		}
		b.runFor(time.Minute)
		if row := b.row("a"); !row.Quarantined || len(b.sink.left) > 0 {
			t.Errorf("quarantined %t; left out: %v", row.Quarantined, b.sink.left)
		}
	})
}

// TestLongWayToTheNextRecord: after a failure, empty reads are no stall.
func TestLongWayToTheNextRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := poisoned(t, "")
		b.attempts, b.stall = 5, 2*time.Minute
		b.first = errors.New("once")
		begun := time.Now()
		b.server.Empty = func() bool { return time.Since(begun) < 30*time.Minute }
		b.runFor(31 * time.Minute)
		if row := b.row("a"); !row.Finished || row.Quarantined {
			t.Errorf("finished %t, quarantined %t, history %v", row.Finished, row.Quarantined, row.History())
		}
	})
}

func TestVerdictTexts(t *testing.T) {
	for _, v := range []consumer.Verdict{consumer.Stop, consumer.Skip, consumer.DeadLetter} {
		var again consumer.Verdict
		text, _ := v.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != v {
			t.Errorf("%s is parsed as %s, %v", text, again, err)
		}
	}
	if new(consumer.Verdict).UnmarshalText([]byte("ignore")) == nil || consumer.Verdict(7).String() != "Verdict(7)" {
		t.Error("an unknown verdict is accepted")
	}
}
