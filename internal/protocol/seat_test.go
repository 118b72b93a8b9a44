package protocol_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func TestSeats(t *testing.T) {
	seat := lease.Seat{Group: "g", Incarnation: "i", Name: "n", TTL: 3*time.Second + 1}
	w, err := protocol.Sit(seat, stamp())
	must(t, err)
	created := w.Next.(lease.Seat)
	if created.Confirmed() || created.TTL != 3*time.Second {
		t.Errorf("the new seat is %v", created)
	}
	terms := rebalance.Terms{Mode: rebalance.Eager, Drain: time.Second}
	wants := []lease.Want{{Shard: "b", Generation: 4, Terms: terms}, {Shard: "a", Generation: 3, Terms: terms}}
	w, err = protocol.NextBeat(created, lease.Says{Leaving: true, Wants: wants}, stamp())
	must(t, err)
	beaten := w.Next.(lease.Seat)
	if !beaten.Confirmed() || beaten.Beat != 1 || !beaten.Leaving || beaten.Wants[0].Shard != "a" || wants[0].Shard != "b" {
		t.Errorf("the seat after its first heartbeat is %v, with requests %v", beaten, beaten.Wants)
	}
	for name, wants := range map[string][]lease.Want{
		"twice":         {{Shard: "a", Generation: 1, Terms: terms}, {Shard: "a", Generation: 2, Terms: terms}},
		"no generation": {{Shard: "a", Terms: terms}},
		"no shard":      {{Generation: 1, Terms: terms}},
		"no mode":       {{Shard: "a", Generation: 1}},
		"too many":      make([]lease.Want, lease.MaxWants+1),
	} {
		if _, err := protocol.NextBeat(created, lease.Says{Wants: wants}, stamp()); err == nil {
			t.Errorf("requests, %s: accepted", name)
		}
	}
}

// TestSeatNamesTheOldestWaits: however many leases a session waits for and however long their names are, its seat names
// the oldest waits, at least one, within 628 bytes with both attributes, and counts the others.
func TestSeatNamesTheOldestWaits(t *testing.T) {
	w, err := protocol.Sit(lease.Seat{Group: "g", Incarnation: "i", Name: "n", TTL: time.Second}, stamp())
	must(t, err)
	created := w.Next.(lease.Seat)
	w, err = protocol.NextBeat(created, lease.Says{}, stamp())
	must(t, err)
	idle := lease.Encode(w.Next).Size()
	began := time.Date(2026, 11, 28, 9, 0, 0, 1_999_999, time.UTC)
	for name, of := range map[string]struct{ all, long, named int }{
		"none": {0, 1, 0}, "one": {1, lease.MaxName, 1}, "two with long names": {2, lease.MaxName, 1}, "short names": {11, 5, 10},
		"names of 40 bytes": {100, 40, 6}, "ten thousand": {10_000, 20, 10},
	} {
		var waits []lease.Wait
		for i := range of.all {
			waits = append(waits, lease.Wait{
				Lease: fmt.Sprintf("%0*d", of.long, i), Task: strings.Repeat("t", of.long), Since: began.Add(-time.Duration(i) * time.Second),
			})
		}
		w, err := protocol.NextBeat(created, lease.Says{Waits: waits, WaitsLeft: 3}, stamp())
		must(t, err)
		seat := w.Next.(lease.Seat)
		if len(seat.Waits) != of.named || seat.WaitsLeft != int64(3+of.all-of.named) {
			t.Errorf("%s: the seat names %d waits, and counts %d more", name, len(seat.Waits), seat.WaitsLeft)
		}
		for i, wait := range seat.Waits {
			if given := waits[of.all-1-i]; wait.Lease != given.Lease || wait.Task != given.Task || wait.Since.UnixMilli() != given.Since.UnixMilli() {
				t.Errorf("%s: wait %d is %v", name, i, wait)
			}
		}
		if more := lease.Encode(seat).Size() - idle; more > 628 {
			t.Errorf("%s: the waits have %d bytes", name, more)
		}
	}
	for name, waits := range map[string][]lease.Wait{"no lease": {{Since: began}}, "a bad task": {{Lease: "a", Task: "/"}}, "twice": {{Lease: "a"}, {Lease: "a"}}} {
		if _, err := protocol.NextBeat(created, lease.Says{Waits: waits}, stamp()); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSeatSaysWhatFits: a worker does not lose its seat because it has much to say. It says the
// first news and counts the others, and cleans the text that says why it is unwell.
func TestSeatSaysWhatFits(t *testing.T) {
	w, err := protocol.Sit(lease.Seat{Group: "g", Incarnation: "i", Name: "n", TTL: time.Second, Backoff: -time.Hour, Since: time.Unix(0, 1_999_999)}, stamp())
	must(t, err)
	created := w.Next.(lease.Seat)
	if created.Backoff != -time.Millisecond || created.Since.Nanosecond() != 1_000_000 {
		t.Errorf("backoff %v, since %v", created.Backoff, created.Since)
	}
	for given, want := range map[time.Duration]time.Duration{0: 0, lease.DefaultBackoff: 0, -1: 0, -time.Millisecond: -time.Millisecond, time.Minute + 1: time.Minute} {
		w, err := protocol.Sit(lease.Seat{Group: "g", Incarnation: "i", Name: "n", TTL: time.Second, Backoff: given}, stamp())
		if err != nil || w.Next.(lease.Seat).Backoff != want {
			t.Errorf("a backoff of %v: %v, %v", given, w.Next, err)
		}
	}
	var news []lease.News
	for i := range lease.MaxNews + 7 {
		news = append(news, lease.News{Kind: lease.NewsFinished, Shard: fmt.Sprintf("s-%03d", 999-i)})
	}
	says := lease.Says{News: news, NewsLeft: 3, Health: lease.Health{Unwell: "a\nb\xff" + strings.Repeat("ä", 300), UnwellSince: time.Unix(0, 1_999_999)}}
	w, err = protocol.NextBeat(created, says, stamp())
	must(t, err)
	next := w.Next.(lease.Seat)
	if len(next.News) != lease.MaxNews || next.NewsLeft != 10 || next.News[0].Shard != "s-900" || news[0].Shard != "s-999" {
		t.Errorf("%d news from %v, %d left", len(next.News), next.News[0], next.NewsLeft)
	}
	if h := next.Health; !strings.HasPrefix(h.Unwell, "a b?ää") || len(h.Unwell) > lease.MaxName || h.UnwellSince.Nanosecond() != 1_000_000 {
		t.Errorf("health %v", h)
	}
	for name, says := range map[string]lease.Says{
		"a negative revision": {Revision: -1}, "a negative count": {NewsLeft: -1},
		"news of no kind": {News: []lease.News{{Shard: "s"}}}, "news of two words": {News: []lease.News{{Kind: "a b", Shard: "s"}}},
		"news of no shard": {News: []lease.News{{Kind: lease.NewsFinished}}},
	} {
		if _, err := protocol.NextBeat(created, says, stamp()); !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWantIsForOneGeneration: a request for an earlier generation of a shard does not count.
func TestWantIsForOneGeneration(t *testing.T) {
	r := fixture.Held(t, "a")
	want := lease.Want{Shard: r.Shard, Generation: r.Generation}
	if !want.Stands(r) {
		t.Error("the request does not stand for the row for which it was written")
	}
	if want.Stands(next(t)(protocol.Recover(r, owner("b"), stamp()))) {
		t.Error("the request stands for a later generation")
	}
	other := r
	other.Shard = "another"
	if want.Stands(other) {
		t.Error("the request stands for another shard")
	}
}
