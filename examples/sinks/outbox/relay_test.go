package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/tenuretest"
)

// TestReplacedRelayStops: a relay that was replaced and does not know it sends the batch that it has read, and no more,
// although nobody else has sent the rest.
func TestReplacedRelayStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t)
		fill(t, b, 4, "shard-0")
		p, k := played(t, b, 3, mishap{}, "shard-0")
		tn := tenuretest.Begin(t, shardlease.Config{Group: "relays"}, "shard-0", checkpoint.Mark{})
		successor := tn.Hold()
		successor.Generation++
		if err := b.sent(t.Context(), successor, []effect{{sequence: 0}}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, tn.Stop) // if it does not stop by itself
		if err := tn.Call(p.relay.handle); !errors.Is(err, checkpoint.ErrStale) {
			t.Errorf("the relay returned %v", err)
		}
		if n := len(k.mail.all()) + len(k.queue.all()) + len(k.stream.all()); n != 3 {
			t.Errorf("it has sent %d effects", n)
		}
	})
}

// A fleet is relays in one bubble.
type fleet struct {
	t     *testing.T
	store *memstore.Store
	mu    sync.Mutex
	seen  []event.Event
}

// enter starts a relay, and returns how to stop it.
func (f *fleet) enter(name string, r relay, raise []shardlease.Target, shards ...string) (leave func()) {
	w, err := shardlease.New(f.store, shardlease.Static(shards...), shardlease.Config{
		Group: "relays", Name: name, Handoff: rebalance.Eager, Targets: raise, MaxAttempts: 3, StallAfter: 2 * time.Minute,
		Observe: func(e event.Event) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen = append(f.seen, e)
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, r.handle) }()
	return func() {
		stop()
		if err := <-ended; err != nil {
			f.t.Errorf("%s: %v", name, err)
		}
	}
}

// of returns the events of a kind about a shard.
func (f *fleet) of(kind event.Kind, shard string) (events []event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.seen {
		if e.Kind == kind && e.Shard == shard {
			events = append(events, e)
		}
	}
	return events
}

// TestPlannedMoveSendsNothingTwice: relays join and leave while they send, and each effect is sent once and in order,
// also to a target that does not recognize repetitions.
func TestPlannedMoveSendsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, shards := opened(t), []string{"shard-0", "shard-1", "shard-2", "shard-3"}
		staged := fill(t, b, 60, shards...)
		p, k := played(t, b, 30, mishap{}, shards...) // a batch takes longer than the drain time
		f := &fleet{t: t, store: new(memstore.Store)}
		r := slowly(p.relay, time.Second)
		first := f.enter("a", r, p.raise, shards...)
		time.Sleep(30 * time.Second)
		second := f.enter("b", r, p.raise, shards...)
		time.Sleep(30 * time.Second)
		first()
		time.Sleep(10 * time.Minute)
		second()
		if v := judge(only(staged, "mail"), k.mail.all()); v != (verdict{}) {
			t.Errorf("mail: %+v", v)
		}
		moved := 0
		for _, shard := range shards {
			moved += len(f.of(event.Started, shard)) - 1
		}
		if moved < 4 {
			t.Errorf("%d shards have moved", moved)
		}
	})
}

// TestRefusedEffectIsReported: a target refuses one effect forever. The effects after it wait, because their order counts;
// each attempt is reported, and the shard is quarantined in the end. Other shards are not affected.
func TestRefusedEffectIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t)
		staged := fill(t, b, 2, "shard-0", "shard-1")
		p, k := played(t, b, 3, mishap{}, "shard-0", "shard-1")
		poison := staged[4] // the mail of the second record of shard-0
		r := through(p.relay, func(ctx context.Context, e effect, to target) error {
			if e.id == poison.id {
				return errRefused
			}
			return to.send(ctx, e)
		})
		f := &fleet{t: t, store: new(memstore.Store)}
		leave := f.enter("a", r, p.raise, "shard-0", "shard-1")
		time.Sleep(10 * time.Minute)
		leave()
		ended := f.of(event.Ended, "shard-0")
		if len(ended) < 3 || !errors.Is(ended[0].Err, errRefused) || len(f.of(event.Quarantined, "shard-0")) != 1 {
			t.Errorf("reported: %v, %v", ended, f.of(event.Quarantined, "shard-0"))
		}
		if v := judge(only(staged, "mail"), k.mail.all()); v != (verdict{lost: 1}) {
			t.Errorf("mail: %+v", v)
		}
		if v := judge(only(staged, "stream"), k.stream.all()); v != (verdict{lost: 1}) {
			t.Errorf("stream: %+v", v) // the effect after the refused one waits
		}
		if left, err := b.unsent(t.Context(), "shard-0", 10); err != nil || len(left) != 2 || left[0].id != poison.id {
			t.Errorf("left: %+v, %v", left, err)
		}
	})
}

// TestSilentTargetIsReported: a target does not answer for an hour. The relay leaves the shard to others with a note, which
// is no failed attempt: nothing is quarantined, and everything is sent when the target is back.
func TestSilentTargetIsReported(t *testing.T) {
	for name, silence := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errSilence },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkSilence(t, silence) })
		})
	}
}

func checkSilence(t *testing.T, silence func(context.Context) error) {
	b := opened(t)
	staged := fill(t, b, 2, "shard-0")
	p, k := played(t, b, 3, mishap{}, "shard-0")
	var log strings.Builder
	p.relay.log = slog.New(slog.NewTextHandler(&log, nil))
	back := time.Now().Add(time.Hour)
	r := through(p.relay, func(ctx context.Context, e effect, to target) error {
		if e.target == "mail" && time.Now().Before(back) {
			return silence(ctx)
		}
		return to.send(ctx, e)
	})
	f := &fleet{t: t, store: new(memstore.Store)}
	leave := f.enter("a", r, p.raise, "shard-0")
	time.Sleep(30 * time.Minute)
	row, err := shardlease.Supervisor{Store: f.store, Group: "relays"}.Get(t.Context(), "shard-0")
	if err != nil || row.Attempts() != 0 || row.Quarantined {
		t.Errorf("the row: %+v, %v", row, err)
	}
	ended := f.of(event.Ended, "shard-0")
	if len(ended) < 5 || ended[0].Transfer.Note != "mail does not answer" {
		t.Errorf("reported: %v", ended)
	}
	if n := len(f.of(event.Started, "shard-0")); n > 35 {
		t.Errorf("%d tenures in half an hour", n)
	}
	time.Sleep(37 * time.Minute) // the longest rest, and a minute for the attempt that was under way
	leave()
	if !strings.Contains(log.String(), errNoAnswer.Error()) { // nobody writes it any more
		t.Errorf("the log: %s", log.String())
	}
	for of, got := range map[string][]effect{"mail": k.mail.all(), "queue": k.queue.all(), "stream": k.stream.all()} {
		if v := judge(only(staged, of), got); v != (verdict{}) {
			t.Errorf("%s: %+v", of, v)
		}
	}
}

// TestRestoredOutboxLosesNothing: the outbox is put back to an earlier state, and the lease table is not. The effects
// that it has then are sent again, although the checkpoint of the relay is after them, and so are those that are staged
// later.
func TestRestoredOutboxLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t)
		staged := fill(t, b, 2, "shard-0")
		p, k := played(t, b, 3, mishap{}, "shard-0")
		f := &fleet{t: t, store: new(memstore.Store)}
		leave := f.enter("a", p.relay, p.raise, "shard-0")
		time.Sleep(time.Minute)
		leave()
		for _, table := range []string{"outbox", "outbox_heads", "shardlease_fences"} {
			if _, err := b.db.ExecContext(t.Context(), "DELETE FROM "+table); err != nil {
				t.Fatal(err)
			}
		}
		again := fill(t, b, 3, "shard-0")
		defer f.enter("b", p.relay, p.raise, "shard-0")()
		time.Sleep(time.Minute)
		if v := judge(append(only(staged, "mail"), only(again, "mail")...), k.mail.all()); v.lost > 0 || v.twice != 2 {
			t.Errorf("mail: %+v", v)
		}
	})
}
