package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/examples/internal/effects"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// newSink returns a sink with tables of its own, on DynamoDB Local.
func newSink(t *testing.T) (s *effects.Sink, leases string) {
	t.Helper()
	if os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
		t.Skip("no DynamoDB Local: start this with ./run-local")
	}
	sdk, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, leases = &effects.Sink{Client: effects.Connect(sdk), Table: "effects-" + rand.Text()}, "leases-"+rand.Text()
	if err := effects.CreateTable(t.Context(), s.Client, s.Table); err != nil {
		t.Fatal(err)
	}
	o := dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}
	if err := dynamostore.CreateTable(t.Context(), s.Client, leases, o); err != nil {
		t.Fatal(err)
	}
	if s.Leases, err = dynamostore.Open(t.Context(), s.Client, leases, dynamostore.Options{Timeout: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return s, leases
}

// stored returns the effects of a key, in the order in which they were stored. The total must be their number.
func stored(t *testing.T, s *effects.Sink, group, key string) (all []string) {
	t.Helper()
	values, total, err := s.Read(t.Context(), group, key)
	if err != nil || total != len(values) {
		t.Errorf("%d effects of %s, and the total is %d: %v", len(values), key, total, err)
	}
	for _, value := range values {
		all = append(all, string(value))
	}
	return all
}

// hold lets a worker claim shards until the test ends, and returns the holds of its first tenures.
func hold(t *testing.T, s *effects.Sink, group string, shards ...string) map[string]lease.Hold {
	t.Helper()
	began := make(chan lease.Hold, 1000)
	w, err := shardlease.New(s.Leases, shardlease.Static(shards...), shardlease.Config{Group: group, Handoff: rebalance.Eager})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		err := w.Run(ctx, func(ctx context.Context, t *shardlease.Tenure) error {
			began <- t.Hold()
			select {
			case <-over:
			case <-ctx.Done():
			}
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); close(over); running.Wait() })
	holds := map[string]lease.Hold{}
	for range shards {
		h := <-began
		holds[h.Key.Name] = h
	}
	return holds
}

// TestEffectsAreKeptOnce: an effect is stored if the table does not have it, and if the hold is current, whatever else is in
// its transaction; what is known is counted.
func TestEffectsAreKeptOnce(t *testing.T) {
	s, _ := newSink(t)
	holds := hold(t, s, "orders", "shard-1", "shard-2")
	h, next := holds["shard-1"], holds["shard-2"]
	keep := func(h lease.Hold, numbers ...int) (int, error) {
		var all []effects.Effect
		for _, n := range numbers {
			all = append(all, effects.Effect{Key: fmt.Sprint("k", n%2), ID: fmt.Sprint(h.Key.Name, "/", n), Value: fmt.Append(nil, n)})
		}
		return s.Store(t.Context(), h, all)
	}
	for _, c := range []struct {
		numbers []int
		known   int
	}{{[]int{1, 2}, 0}, {[]int{1, 2}, 2}, {[]int{1, 3, 4, 2}, 2}, {nil, 0}, {[]int{5}, 0}} {
		if known, err := keep(h, c.numbers...); err != nil || known != c.known {
			t.Errorf("%v: %d known, %v; want %d", c.numbers, known, err, c.known)
		}
	}
	boss := shardlease.Supervisor{Store: s.Leases, Group: "orders", By: "test"}
	if _, err := boss.ForceRelease(t.Context(), "shard-1", h.Generation, "to fence its holder"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 7} { // an effect that is stored, and a new one
		if _, err := keep(h, n); !errors.Is(err, checkpoint.ErrStale) {
			t.Errorf("a stale write: %v", err)
		}
	}
	if known, err := keep(next, 1, 3); err != nil || known != 0 { // the ids are those of another shard
		t.Errorf("%d known, %v", known, err)
	}
	for key, want := range map[string][]string{"k1": {"1", "3", "5", "1", "3"}, "k0": {"2", "4"}, "k2": nil} {
		if got := stored(t, s, "orders", key); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", key, got, want)
		}
	}
}

// TestGroupsShareATable: each group has effects of its own, with any bytes.
func TestGroupsShareATable(t *testing.T) {
	s, _ := newSink(t)
	for _, group := range []string{"orders", "invoices", "orders/x"} {
		h := hold(t, s, group, "shard")["shard"]
		var want []string
		for n := range 9 {
			e := effects.Effect{Key: "x", ID: fmt.Sprint(n), Value: fmt.Append(nil, n, "\xff\x00")} // not valid UTF-8
			if known, err := s.Store(t.Context(), h, []effects.Effect{e}); err != nil || known != 0 {
				t.Fatal(known, err)
			}
			want = append(want, string(e.Value))
		}
		if got := stored(t, s, group, "x"); !slices.Equal(got, want) {
			t.Errorf("group %s has %q, want %q", group, got, want)
		}
	}
}

// TestFullTransaction: as many effects as may be in one call, of as many keys, and without a value.
func TestFullTransaction(t *testing.T) {
	s, _ := newSink(t)
	h := hold(t, s, "orders", "shard")["shard"]
	var all []effects.Effect
	for n := range effects.Most {
		all = append(all, effects.Effect{Key: fmt.Sprint(n), ID: "0"})
	}
	if known, err := s.Store(t.Context(), h, all); err != nil || known != 0 {
		t.Errorf("%d known, %v", known, err)
	}
	if got := stored(t, s, "orders", "48"); len(got) != 1 {
		t.Errorf("a key has %q", got)
	}
}

// TestBegin: a group begins once, and not later than the times of the records that follow.
func TestBegin(t *testing.T) {
	s, _ := newSink(t)
	now := time.Now().Truncate(time.Minute)
	for group, want := range map[string]time.Time{"orders": now, "invoices": now.Add(time.Minute)} {
		for _, at := range []time.Time{want.Add(59 * time.Second), want.Add(time.Hour)} {
			if got, err := begin(t.Context(), s, group, at); err != nil || !got.Equal(want) {
				t.Errorf("%s begins at %v, %v, want %v", group, got, err, want)
			}
		}
	}
}
