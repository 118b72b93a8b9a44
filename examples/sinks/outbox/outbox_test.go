package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/proof/zombie"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/fence"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOutbox: the late effects of a worker that was paused before it staged them are not staged, and those that are
// staged reach each target although a relay is killed.
func TestOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Error(err)
		}
		const end = "12 effects are staged; relay c is killed after it has sent the 5th and before it marks it\n" +
			"queue: 4 effects, 0 lost, 0 sent twice, in order: true\n" +
			"mail: 5 effects, 0 lost, 1 sent twice, in order: true\n" +
			"stream: 4 effects, 0 lost, 0 sent twice, in order: true\n"
		refused := regexp.MustCompile(`a wakes up, and cannot know that\n  a writes record 3: refused: .* written under generation (\d+), now at (\d+)`)
		if found := refused.FindStringSubmatch(out.String()); found == nil || found[1] == found[2] || !strings.HasSuffix(out.String(), end) {
			t.Errorf("unexpected output: %q\n%s", found, out.String())
		}
	})
}

// opened returns an empty outbox.
func opened(t testing.TB) sqlBox {
	t.Helper()
	b, err := open(t.Context(), ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	return b
}

func holdOf(shard string, generation int64) lease.Hold {
	return lease.Hold{Key: lease.Key{Group: "sinks", Kind: lease.KindLease, Name: shard}, Incarnation: "i", Generation: generation}
}

// put stages one effect, unless it is the last one that is staged.
func (b sqlBox) put(ctx context.Context, h lease.Hold, text string) error {
	for {
		at, err := b.begin(ctx, h)
		if err != nil || at.position == text {
			return err
		}
		_, err = b.stage(ctx, h, at, text, []effect{{name: "mail", target: "mail", body: text}}, nothingElse)
		if !errors.Is(err, errMoved) { // another goroutine of this owner was first
			return err
		}
	}
}

func nothingElse(context.Context, *sql.Tx) error { return nil }

// TestStagedEffectsAreFenced: whatever a stale owner does, nothing of it is staged after the takeover.
func TestStagedEffectsAreFenced(t *testing.T) {
	fencetest.Play(t, func(t *fencetest.T) fencetest.Sink {
		file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(off)"
		return stages(t, func(ctx context.Context) (sqlBox, error) { return open(ctx, file) })
	})
}

// stages returns the sink of an outbox.
func stages(t *fencetest.T, open func(context.Context) (sqlBox, error)) fencetest.Sink {
	b, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	return fencetest.Sink{
		Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
			return b.put(ctx, holdOf(f.Shard, f.Generation), string(effect))
		},
		Raise: func(ctx context.Context, f fencetest.Fence) error {
			return b.raise()[0].Raise(fence.NewContext(ctx, fence.Token{Group: "sinks"}), f.Shard, f.Generation)
		},
		Effects: func(ctx context.Context, shard string) (bodies [][]byte, _ error) {
			effects, err := b.unsent(ctx, shard, 1000)
			for _, e := range effects {
				bodies = append(bodies, []byte(e.body))
			}
			return bodies, err
		},
		Restart: func(ctx context.Context) (err error) {
			if err = b.db.Close(); err == nil {
				b, err = open(ctx)
			}
			return err
		},
		Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
	}
}

// TestLateEffectIsNotStaged: the late effect of a worker that was cut off is not staged, although its successor has staged
// none.
func TestLateEffectIsNotStaged(t *testing.T) {
	zombie.Check(t, func(t *testing.T) zombie.Sink {
		b := opened(t)
		return zombie.Sink{Raise: b.raise()[0].Raise, Write: func(ctx context.Context, text string) error {
			of, _ := fence.FromContext(ctx)
			return b.put(ctx, lease.Hold{Key: lease.Key{Group: of.Group, Name: of.Shard}, Generation: of.Generation}, text)
		}}
	})
}

// TestRepeatedRecordIsStagedOnce: an owner dies between staging and its checkpoint, also if its effects were sent since.
// Its successor begins after the record. An attempt that was stored without an answer is not stored again.
func TestRepeatedRecordIsStagedOnce(t *testing.T) {
	b, ctx := opened(t), t.Context()
	old, next := holdOf("shard-0", 7), holdOf("shard-0", 8)
	at, err := b.begin(ctx, old)
	if err != nil || at != (head{}) {
		t.Fatal(at, err)
	}
	staged, err := b.stage(ctx, old, at, "17", effectsOf(17), nothingElse)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.stage(ctx, old, at, "17", effectsOf(17), nothingElse); !errors.Is(err, errMoved) {
		t.Errorf("the second attempt: %v", err)
	}
	effects, err := b.unsent(ctx, "shard-0", 10)
	if err != nil || len(effects) != 3 || effects[2].sequence != 3 || effects[0].id != "sinks/shard-0/17/confirm%20by%20queue" || effects[0].generation != 7 {
		t.Fatalf("staged: %+v, %v", effects, err)
	}
	relay := holdOf("shard-0", 5)
	relay.Key.Group = "relays"
	if err := b.sent(ctx, relay, effects); err != nil {
		t.Fatal(err)
	}
	if at, err = b.begin(ctx, next); err != nil || at != staged || at.position != "17" {
		t.Errorf("the successor begins at %+v, %v, after %+v", at, err, staged)
	}
	if _, err := b.stage(ctx, old, staged, "18", effectsOf(18), nothingElse); !errors.Is(err, checkpoint.ErrStale) {
		t.Errorf("the late effects: %v", err)
	}
	if _, err := b.stage(ctx, next, at, "18", effectsOf(18), func(context.Context, *sql.Tx) error { return errSilence }); !errors.Is(err, errSilence) {
		t.Error(err)
	}
	if effects, err := b.unsent(ctx, "shard-0", 10); err != nil || len(effects) > 0 {
		t.Errorf("staged, although the handler's own change has failed: %+v, %v", effects, err)
	}
}

var errSilence = errors.New("no answer")

// TestEffectsAreBounded: a record stages no more than fits into a transaction, and a relay reads no more than its batch.
func TestEffectsAreBounded(t *testing.T) {
	b, h := opened(t), holdOf("shard-0", 7)
	many := make([]effect, mostEffects+1)
	for i := range many {
		many[i].name = strconv.Itoa(i)
	}
	half := strings.Repeat("x", mostBytes/2+1)
	for name, tc := range map[string]struct {
		effects []effect
		want    error
	}{
		"too many":      {many, errTooLarge},
		"too large":     {[]effect{{name: "a", body: half}, {name: "b", body: half}}, errTooLarge},
		"the same name": {[]effect{{name: "a"}, {name: "a"}}, errSameName},
		"as much fits":  {many[1:], nil},
	} {
		at, err := b.begin(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.stage(t.Context(), h, at, name, tc.effects, nothingElse); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	if effects, err := b.unsent(t.Context(), "shard-0", 7); err != nil || len(effects) != 7 || effects[6].sequence != 7 {
		t.Errorf("%d effects, %v", len(effects), err)
	}
}

// fill stages the effects of some records of each shard, and returns them.
func fill(t testing.TB, b sqlBox, records int, shards ...string) (staged []effect) {
	t.Helper()
	for _, shard := range shards {
		h := holdOf(shard, 1)
		at, err := b.begin(t.Context(), h)
		for record := range records {
			if err == nil {
				at, err = b.stage(t.Context(), h, at, strconv.Itoa(record+1), effectsOf(record+1), nothingElse)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		effects, err := b.unsent(t.Context(), shard, 3*records)
		if err != nil || len(effects) != 3*records {
			t.Fatal(len(effects), err)
		}
		staged = append(staged, effects...)
	}
	return staged
}

// played returns a play with a relay of this batch, and its targets. Nothing in it waits for a network.
func played(t testing.TB, b sqlBox, batch int, m mishap, shards ...string) (*play, targets) {
	k := newTargets(5 * time.Minute)
	return &play{
		store: new(memstore.Store), shards: shards, ttl: 10 * time.Second, raise: b.raise(), mishap: m,
		relay: relay{box: b, targets: k.all(), batch: batch, idle: 20 * time.Second, patience: time.Minute, log: slog.New(slog.DiscardHandler)},
	}, k
}

// TestReplacedRelay: a relay is killed or paused at each point of its work. Nothing is lost, and each target gets its
// effects in order. The mailer sends what was sent and not marked twice: never more than a batch. The queue leaves out
// repetitions for as long as it remembers ids, and the stream always.
func TestReplacedRelay(t *testing.T) {
	for _, paused := range []time.Duration{0, time.Minute, 10 * time.Minute} {
		for _, batch := range []int{1, 3} {
			for _, step := range steps {
				for nth := 1; nth <= fixture.Size(2, 4); nth++ {
					name := fmt.Sprintf("paused for %v, batch %d, %s %d", paused, batch, step, nth)
					t.Run(name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { checkReplaced(t, batch, mishap{step, nth, paused}) })
					})
				}
			}
		}
	}
}

func checkReplaced(t *testing.T, batch int, m mishap) {
	b := opened(t)
	staged := fill(t, b, 4, "shard-0")
	p, k := played(t, b, batch, m, "shard-0")
	if err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	mail, queue, stream := judge(only(staged, "mail"), k.mail.all()), judge(only(staged, "queue"), k.queue.all()), judge(only(staged, "stream"), k.stream.all())
	// Which effects of the batch were sent by both relays: those that a killed relay has sent and not marked, and, once it has
	// read the batch, all of a paused relay.
	both := staged[:0]
	switch first := (m.nth - 1) / batch * batch; m.step {
	case "read", "marking":
		both = staged[(m.nth-1)*batch : m.nth*batch]
		if m.step == "read" && m.paused == 0 {
			both = nil
		}
	case "sending", "sent":
		both = staged[first : first+batch]
		if m.paused == 0 {
			both = staged[first : m.nth-1]
		}
		if m.paused == 0 && m.step == "sent" {
			both = staged[first:m.nth]
		}
	}
	if want := (verdict{twice: len(only(both, "mail"))}); mail != want {
		t.Errorf("mail: %+v, want %+v", mail, want)
	}
	remembered := len(only(both, "queue"))
	if m.paused < 5*time.Minute {
		remembered = 0
	}
	if queue.lost > 0 || queue.disorder || queue.twice > remembered {
		t.Errorf("queue: %+v, at most %d repetitions are late", queue, remembered)
	}
	if stream != (verdict{}) {
		t.Errorf("stream: %+v", stream)
	}
}

// TestQueueForgets: a relay that is paused for longer than the queue remembers ids sends an effect again.
func TestQueueForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t)
		staged := fill(t, b, 1, "shard-0")
		p, k := played(t, b, 1, mishap{"sending", 1, time.Hour}, "shard-0")
		if err := p.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v := judge(only(staged, "queue"), k.queue.all()); v != (verdict{twice: 1}) {
			t.Errorf("queue: %+v", v)
		}
	})
}
