package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// TestGuardedValues: a register in DynamoDB is a register like any other.
func TestGuardedValues(t *testing.T) {
	client := newClient(t, nil)
	storetest.RunRegister(t, func(t *testing.T) storetest.Register { return open(t, client, newTable(t)).Register("group") })
}

// TestLateValueIsRefused: what a sending that went unanswered has brought is taken for
// its own; and one that arrives when its holder has written again, or another has,
// changes nothing.
func TestLateValueIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		fault fault
		next  int64 // the generation under which the next value is written; 0: none is
	}{
		"reply lost":                       {fault: fault{dropReply: true}},
		"late, after the holder's next":    {fault: fault{hold: true}, next: 7},
		"late, after the successor's":      {fault: fault{hold: true}, next: 8},
		"twin, after the holder's next":    {fault: fault{twin: true}, next: 7},
		"twin, after the successor's next": {fault: fault{twin: true}, next: 8},
	} {
		t.Run(name, func(t *testing.T) {
			faults := 0
			f := newFaulty(func(action string, _ []byte) fault {
				if action != "PutItem" || faults == 0 {
					return fault{}
				}
				faults--
				return tc.fault
			})
			r := open(t, newClient(t, f.over), newTable(t)).Register("group")
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
			for f.pending() > 0 {
				if err := f.release(0); err != nil {
					t.Fatal(err)
				}
			}
			if now, err := r.Get(t.Context(), "shard"); err != nil || now != want {
				t.Errorf("there is %+v (%v), want %+v", now, err, want)
			}
		})
	}
}

// TestOvertakenValueSaysSo: a write whose reply was lost, and that others have
// overtaken before it was sent again, may have been there for a while.
func TestOvertakenValueSaysSo(t *testing.T) {
	for _, generation := range []int64{7, 8} {
		table, faults := newTable(t), 0
		other := open(t, newClient(t, nil), table).Register("group")
		f := newFaulty(func(action string, _ []byte) fault {
			if action != "PutItem" || faults == 0 {
				return fault{}
			}
			faults--
			return fault{dropReply: true}
		})
		r := open(t, newClient(t, f.over), table).Register("group")
		f.done = func(action string, _ []byte) {
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
			t.Errorf("there is %+v (%v)", now, err)
		}
	}
}
