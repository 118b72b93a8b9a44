package store

import (
	"context"
	"errors"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/shardlease/fencetest"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestGuardedValues: the register in DynamoDB passes the suite of registers.
func TestGuardedValues(t *testing.T) {
	client := local.Client(t, nil)
	storetest.RunRegister(t, func(t *testing.T) storetest.Register { return local.Open(t, client, local.Table(t)).Register("group") })
}

// TestGuardedValuesAreFenced: the value of a shard is never that of a stale writer, wherever the
// writer was stopped.
func TestGuardedValuesAreFenced(t *testing.T) {
	local.Beside(t)
	client, table := local.Client(t, nil), local.Table(t)
	fencetest.Play(t, func(*fencetest.T) fencetest.Sink {
		values := local.Open(t, client, table).Register("group")
		return fencetest.Sink{
			Apply: func(ctx context.Context, f fencetest.Fence, effect []byte) error {
				return values.Put(ctx, f.Shard, f.Generation, string(effect))
			},
			Effects: func(ctx context.Context, shard string) ([][]byte, error) {
				value, err := values.Get(ctx, shard)
				if value.Value == "" {
					return nil, err
				}
				return [][]byte{[]byte(value.Value)}, err
			},
			Raise: func(ctx context.Context, f fencetest.Fence) error { return values.Raise(ctx, f.Shard, f.Generation) },
			Restart: func(context.Context) error {
				values = local.Open(t, client, table).Register("group")
				return nil
			},
			Refusal: func(err error) bool { return errors.Is(err, checkpoint.ErrStale) },
		}
	})
}

// TestLateValueIsRefused: Put recognizes a value that an unanswered attempt of it has stored. An
// attempt that arrives after the same holder, or another one, has written again changes nothing.
func TestLateValueIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		fault network.Fault
		next  int64 // the generation under which the next value is written; 0: no next value
	}{
		"reply lost":                       {fault: network.Fault{DropReply: true}},
		"late, after the holder's next":    {fault: network.Fault{Hold: true}, next: 7},
		"late, after the successor's":      {fault: network.Fault{Hold: true}, next: 8},
		"twin, after the holder's next":    {fault: network.Fault{Twin: true}, next: 7},
		"twin, after the successor's next": {fault: network.Fault{Twin: true}, next: 8},
	} {
		t.Run(name, func(t *testing.T) {
			faults := 0
			f := network.First(&faults, "PutItem", tc.fault)
			r := local.Open(t, local.Client(t, f.Over), local.Table(t)).Register("group")
			faults = 1
			if err := r.Put(t.Context(), "shard", 7, "a"); err != nil {
				t.Fatal(err)
			}
			want := lease.Guarded{Name: "shard", Generation: 7, Value: "a"}
			if tc.next > 0 {
				want.Generation, want.Value = tc.next, "b"
				if err := r.Put(t.Context(), "shard", tc.next, "b"); err != nil {
					t.Fatal(err)
				}
			}
			for f.Pending() > 0 {
				if _, err := f.Release(0); err != nil {
					t.Fatal(err)
				}
			}
			if now, err := r.Get(t.Context(), "shard"); err != nil || now != want {
				t.Errorf("the value is %+v (%v), want %+v", now, err, want)
			}
		})
	}
}

// TestOvertakenValueSaysSo: if the reply to a write is lost, and another value is stored before the
// write is sent again, Put reports that the outcome is unknown: the value may have been stored.
func TestOvertakenValueSaysSo(t *testing.T) {
	for _, generation := range []int64{7, 8} {
		table, faults := local.Table(t), 0
		other := local.Open(t, local.Client(t, nil), table).Register("group")
		f := network.First(&faults, "PutItem", network.Fault{DropReply: true})
		r := local.Open(t, local.Client(t, f.Over), table).Register("group")
		f.Done = func(action string, _ []byte) {
			if action != "PutItem" {
				return
			}
			if err := other.Put(context.Background(), "shard", generation, "b"); err != nil {
				t.Error(err)
			}
		}
		faults = 1
		err := r.Put(t.Context(), "shard", 7, "a")
		stale, ok := errors.AsType[*checkpoint.StaleError](err)
		if err == nil || ok != (generation > 7) || ok && !stale.OutcomeUnknown {
			t.Errorf("overtaken under %d: %v", generation, err)
		}
		if now, err := other.Get(t.Context(), "shard"); err != nil || now.Value != "b" || now.Generation != generation {
			t.Errorf("the value is %+v (%v)", now, err)
		}
	}
}
