package integration

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestMovingTableIsRefused, in both directions and whatever it is that moves; and so is a
// group that runs, and a table that is something else.
func TestMovingTableIsRefused(t *testing.T) {
	begin := func(t *testing.T, s shardlease.Supervisor) {
		t.Helper()
		must[lease.Row](t, s.Store)(lease.Begin(s.Group, "s", nil, "a", stamp()))
	}
	for name, tc := range map[string]struct {
		move func(n int) kclItem // what is put after the table was read for the first time
		seat bool
		keys []string
		want error
	}{
		"a counter":           {move: func(n int) kclItem { return kcl3("s", "17", 0).with(kclItem{"leaseCounter": 1208 + n}) }, want: kcl.ErrMoving},
		"another lease":       {move: func(n int) kclItem { return kcl3(fmt.Sprint("z", n), "TRIM_HORIZON", 0) }, want: kcl.ErrMoving},
		"a worker's figures":  {move: func(n int) kclItem { return kclItem{"leaseKey": "w", "entityType": "WORKER_METRIC_STATS", "lut": n} }, want: kcl.ErrMoving},
		"a worker of ours":    {seat: true, want: kcl.ErrRunning},
		"a table of our own":  {keys: []string{"leaseGroup", "leaseKey"}, want: kcl.ErrSchema},
		"nothing, as is well": {},
	} {
		t.Run(name, func(t *testing.T) {
			moves, n := tc.move, 0
			f := newFaulty(func(string, []byte) fault { return fault{} })
			table := newKCL(t, newClient(t, f.over), kcl3("s", "17", 0))
			if tc.keys != nil {
				table.Name = makeTable(t, tc.keys...)
			}
			f.done = func(action string, _ []byte) {
				if action == "Scan" && moves != nil {
					n++
					putKCL(t, table.Name, moves(n))
					moves = nil
				}
			}
			s := onMemory()
			if tc.seat {
				must[lease.Seat](t, s.Store)(seat("a").Sit(stamp()))
			}
			if _, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{}); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("import: got %v, want %v", err, tc.want)
			}
			if rows := standing(t, s); tc.want != nil && len(rows) > 0 {
				t.Errorf("it was imported all the same: %v", rows)
			}
			if tc.want != nil {
				begin(t, s)
			}
			moves = tc.move
			before := f.calls["UpdateItem"]
			if _, err := kcl.Export(t.Context(), s, table, kcl.ExportOptions{}); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("export: got %v, want %v", err, tc.want)
			}
			if wrote := f.calls["UpdateItem"] > before; wrote != (tc.want == nil) {
				t.Errorf("export wrote: %t", wrote)
			}
		})
	}
}

// TestExportStandsOnWhatItSaw: a lease that moves when the table has stood still, and a
// group that is started while it was watched.
func TestExportStandsOnWhatItSaw(t *testing.T) {
	for want, scan := range map[error]int{kcl.ErrRunning: 1, kcl.ErrMoving: 2} {
		f := newFaulty(func(string, []byte) fault { return fault{} })
		table := newKCL(t, newClient(t, f.over), kcl3("s", "17", 0))
		s := onMemory()
		row := must[lease.Row](t, s.Store)(lease.Begin("orders", "s", nil, "a", stamp()))
		must[lease.Row](t, s.Store)(row.Rewind(lease.Command{Seen: row.Generation, By: "a"}, checkpoint.Mark{Position: "16"}, stamp()))
		moved := kcl3("s", "18", 0).with(kclItem{"leaseCounter": 1208})
		f.done = func(action string, _ []byte) {
			if action != "Scan" || f.calls["Scan"] != scan {
				return
			}
			if want == kcl.ErrMoving {
				putKCL(t, table.Name, moved)
			} else {
				must[lease.Seat](t, s.Store)(seat("a").Sit(stamp()))
			}
		}
		if _, err := kcl.Export(t.Context(), s, table, kcl.ExportOptions{}); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if now := contents(t, table.Name)["s"]; want == kcl.ErrMoving && !reflect.DeepEqual(now, moved.item()) || f.calls["UpdateItem"] > 0 && want == kcl.ErrRunning {
			t.Errorf("%v, and the lease is %s", want, text(now))
		}
	}
}

// seat is a seat in the group.
func seat(name string) lease.Seat {
	return lease.Seat{Group: "orders", Incarnation: lease.Incarnation(name), Name: name, TTL: 10 * time.Second}
}

// TestExportToKCL: a fleet that goes back finds what it has left, but for the positions.
func TestExportToKCL(t *testing.T) {
	leases, shards := resharded()
	table := newKCL(t, newClient(t, nil), leases...)
	s := onMemory()
	if _, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{Shards: shards}); err != nil {
		t.Fatal(err)
	}
	consume(t, s, shards, 3)
	before := contents(t, table.Name)
	for again := range 2 {
		if _, err := kcl.Export(t.Context(), s, table, kcl.ExportOptions{}); err != nil {
			t.Fatal(err)
		}
		after := contents(t, table.Name)
		for _, want := range []kclItem{
			leases[0], // as it was: nobody owns it
			leases[1].with(kclItem{
				"leaseOwner": nil, "checkpointOwner": nil, "pendingCheckpoint": nil, "pendingCheckpointSubSequenceNumber": nil,
				"leaseCounter": 1208, "ownerSwitchesSinceCheckpoint": 0, "checkpoint": leases[1]["checkpoint"].(string) + "0",
			}),
			leases[2].with(kclItem{"leaseOwner": nil, "leaseCounter": 1208, "ownerSwitchesSinceCheckpoint": 0, "checkpoint": "0"}),
			leases[3], leases[4],
			fresh("shard-0", "SHARD_END"), fresh("shard-1", "SHARD_END").with(kclItem{"parentShardId": []string{"shard-gone"}}),
			fresh("shard-gone", "SHARD_END"), fresh("shard-7", "0"),
		} {
			key := want["leaseKey"].(string)
			if !reflect.DeepEqual(after[key], want.item()) {
				t.Errorf("after %d exports: lease %s is %v", again+1, key, text(after[key]))
			}
			delete(after, key)
		}
		if len(after) > 0 {
			t.Errorf("more leases than there should be: %v", after)
		}
	}
	if len(before) != len(leases) {
		t.Errorf("the worker has written to the table of the KCL: %v", before)
	}
	back, err := table.Leases(t.Context())
	if err != nil || len(back) != 7 {
		t.Errorf("%d leases, %v", len(back), err)
	}
	fresh := onMemory()
	if _, err := kcl.Import(t.Context(), table, fresh, kcl.ImportOptions{Shards: shards}); err != nil || !maps.Equal(standing(t, fresh), standing(t, s)) {
		t.Errorf("there and back again: %v, %v", standing(t, fresh), err)
	}
}

// fresh is a lease that the KCL did not have.
func fresh(shard, sequence string) kclItem {
	return kclItem{"leaseKey": shard, "leaseCounter": 0, "ownerSwitchesSinceCheckpoint": 0, "checkpoint": sequence, "checkpointSubSequenceNumber": 0}
}

func text(item map[string]types.AttributeValue) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(item)) {
		switch v := item[name].(type) {
		case *types.AttributeValueMemberS:
			all = append(all, name+" "+v.Value)
		case *types.AttributeValueMemberN:
			all = append(all, name+" "+v.Value)
		case *types.AttributeValueMemberSS:
			all = append(all, fmt.Sprint(name, v.Value))
		}
	}
	return strings.Join(all, ", ")
}

// TestExportMakesCheckpoints: of positions that are no numbers only where it is told how,
// and into the leases of the stream that was chosen.
func TestExportMakesCheckpoints(t *testing.T) {
	table := newKCL(t, newClient(t, nil), multi("1:a:7", "s", "17"), multi("1:b:7", "s", "17"))
	table.Stream = "1:a:7"
	s := onMemory()
	for shard, m := range map[string]checkpoint.Mark{"s": {Position: "18", State: "3"}, "new": {Position: "19", State: "4"}} {
		row := must[lease.Row](t, s.Store)(lease.Begin("orders", shard, nil, "a", stamp()))
		must[lease.Row](t, s.Store)(row.Rewind(lease.Command{Seen: row.Generation, By: "a"}, m, stamp()))
	}
	told := kcl.ExportOptions{Checkpoint: func(m checkpoint.Mark) (string, int64, error) { return m.Position, int64(m.State[0] - '0'), nil }}
	wrong := kcl.ExportOptions{Checkpoint: func(m checkpoint.Mark) (string, int64, error) { return "after " + m.Position, 0, nil }}
	before := contents(t, table.Name)
	if _, err := kcl.Export(t.Context(), s, table, wrong); !errors.Is(err, kcl.ErrPosition) || strings.Contains(err.Error(), "18") || !reflect.DeepEqual(contents(t, table.Name), before) {
		t.Error(err)
	}
	if _, err := kcl.Export(t.Context(), s, table, told); err != nil {
		t.Error(err)
	}
	other := table
	other.Stream = "1:b:7"
	for _, tc := range []struct {
		table     kcl.Table
		sequences []string
	}{{table, []string{"new 19/4", "s 18/3"}}, {other, []string{"s 17/0"}}} {
		leases, err := tc.table.Leases(t.Context())
		var got []string
		for _, l := range leases {
			got = append(got, fmt.Sprintf("%s %s/%d", l.Shard, l.Sequence, l.Sub))
		}
		if err != nil || !slices.Equal(got, tc.sequences) {
			t.Errorf("stream %s has %v (%v)", tc.table.Stream, got, err)
		}
	}
	if key := "1:a:7:new"; contents(t, table.Name)[key] == nil {
		t.Errorf("no lease %s", key)
	}
}
