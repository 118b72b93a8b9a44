package kcl

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestMovingTableIsRefused: Import and Export refuse a table in which any item changes, a group
// that runs, and a table that is no lease table of the KCL.
func TestMovingTableIsRefused(t *testing.T) {
	begin := func(t *testing.T, s shardlease.Supervisor) {
		t.Helper()
		fixture.Must[lease.Row](t, s.Store)(protocol.Begin(s.Group, "s", nil, "a", fixture.Stamp()))
	}
	for name, tc := range map[string]struct {
		move     func(n int) kclItem // the item that is put after the first scan of the table
		seat     bool
		sessions bool // the group is one of sessions
		keys     []string
		want     error
	}{
		"a counter":           {move: func(n int) kclItem { return kcl3("s", "17", 0).with(kclItem{"leaseCounter": 1208 + n}) }, want: kcl.ErrMoving},
		"another lease":       {move: func(n int) kclItem { return kcl3(fmt.Sprint("z", n), "TRIM_HORIZON", 0) }, want: kcl.ErrMoving},
		"a worker's figures":  {move: func(n int) kclItem { return kclItem{"leaseKey": "w", "entityType": "WORKER_METRIC_STATS", "lut": n} }, want: kcl.ErrMoving},
		"a worker of ours":    {seat: true, want: kcl.ErrRunning},
		"a group of sessions": {sessions: true, want: lease.ErrSessions},
		"a table of our own":  {keys: []string{"leaseGroup", "leaseKey"}, want: kcl.ErrSchema},
		"nothing, as is well": {},
	} {
		t.Run(name, func(t *testing.T) {
			moves, n := tc.move, 0
			f := network.NewFaulty(func(string, []byte) network.Fault { return network.Fault{} })
			table := newKCL(t, local.Client(t, f.Over), kcl3("s", "17", 0))
			if tc.keys != nil {
				table.Name = local.OtherTable(t, tc.keys...)
			}
			f.Done = func(action string, _ []byte) {
				if action == "Scan" && moves != nil {
					n++
					putKCL(t, table.Name, moves(n))
					moves = nil
				}
			}
			s := onMemory()
			if tc.seat {
				fixture.Must[lease.Seat](t, s.Store)(protocol.Sit(seat("a"), fixture.Stamp()))
			}
			if tc.sessions {
				fixture.Must[lease.Plan](t, s.Store)(protocol.BeginSessions(s.Group, seat("a").Owner(), fixture.Stamp()))
			}
			if _, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{}); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("import: got %v, want %v", err, tc.want)
			}
			if rows := standing(t, s); tc.want != nil && len(rows) > 0 {
				t.Errorf("the import created rows: %v", rows)
			}
			if tc.want != nil {
				begin(t, s)
			}
			moves = tc.move
			before := f.Calls["UpdateItem"]
			if _, err := kcl.Export(t.Context(), s, table, kcl.ExportOptions{}); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("export: got %v, want %v", err, tc.want)
			}
			if wrote := f.Calls["UpdateItem"] > before; wrote != (tc.want == nil) {
				t.Errorf("export wrote: %t", wrote)
			}
		})
	}
}

// TestExportStandsOnWhatItSaw: Export refuses if a lease changes after the second scan, or if the
// group is started while the table is watched.
func TestExportStandsOnWhatItSaw(t *testing.T) {
	for want, scan := range map[error]int{kcl.ErrRunning: 1, kcl.ErrMoving: 2} {
		f := network.NewFaulty(func(string, []byte) network.Fault { return network.Fault{} })
		table := newKCL(t, local.Client(t, f.Over), kcl3("s", "17", 0))
		s := onMemory()
		row := fixture.Must[lease.Row](t, s.Store)(protocol.Begin("orders", "s", nil, "a", fixture.Stamp()))
		fixture.Must[lease.Row](t, s.Store)(protocol.Rewind(row, protocol.Command{Seen: row.Generation, By: "a"}, checkpoint.Mark{Position: "16"}, fixture.Stamp()))
		moved := kcl3("s", "18", 0).with(kclItem{"leaseCounter": 1208})
		f.Done = func(action string, _ []byte) {
			if action != "Scan" || f.Calls["Scan"] != scan {
				return
			}
			if want == kcl.ErrMoving {
				putKCL(t, table.Name, moved)
			} else {
				fixture.Must[lease.Seat](t, s.Store)(protocol.Sit(seat("a"), fixture.Stamp()))
			}
		}
		if _, err := kcl.Export(t.Context(), s, table, kcl.ExportOptions{}); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if now := contents(t, table.Name)["s"]; want == kcl.ErrMoving && !reflect.DeepEqual(now, moved.item()) || f.Calls["UpdateItem"] > 0 && want == kcl.ErrRunning {
			t.Errorf("%v, and the lease is %s", want, text(now))
		}
	}
}

// seat returns a seat in the group.
func seat(name string) lease.Seat {
	return lease.Seat{Group: "orders", Incarnation: lease.Incarnation(name), Name: name, TTL: 10 * time.Second}
}

// TestExportToKCL: after an export the KCL's table is as before the import, except for positions.
func TestExportToKCL(t *testing.T) {
	leases, shards := resharded()
	table := newKCL(t, local.Client(t, nil), leases...)
	s := onMemory()
	if _, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{Shards: shards, Pending: forget}); err != nil {
		t.Fatal(err)
	}
	consume(t, s, shards, 3)
	before := contents(t, table.Name)
	for again := range 2 {
		if _, err := kcl.Export(t.Context(), s, table, kcl.ExportOptions{Shards: asListed(shards)}); err != nil {
			t.Fatal(err)
		}
		after := contents(t, table.Name)
		for _, want := range []kclItem{
			leases[0], // unchanged: it has no owner
			leases[1].with(kclItem{
				"leaseOwner": nil, "checkpointOwner": nil, "pendingCheckpoint": nil, "pendingCheckpointSubSequenceNumber": nil,
				"leaseCounter": 1208, "ownerSwitchesSinceCheckpoint": 0, "checkpoint": leases[1]["checkpoint"].(string) + "0",
			}),
			leases[2].with(kclItem{"leaseOwner": nil, "leaseCounter": 1208, "ownerSwitchesSinceCheckpoint": 0, "checkpoint": "0"}),
			leases[3], leases[4],
			fresh("shard-0", "SHARD_END").with(kclItem{"childShardIds": []string{"shard-2"}}),
			fresh("shard-1", "SHARD_END").with(kclItem{"childShardIds": []string{"shard-2"}, "parentShardId": []string{"shard-gone"}}),
			fresh("shard-gone", "SHARD_END").with(kclItem{"childShardIds": []string{"shard-1"}, "startingHashKey": nil, "endingHashKey": nil}), // Kinesis no longer lists it
			fresh("shard-7", "0"),
		} {
			key := want["leaseKey"].(string)
			if !reflect.DeepEqual(after[key], want.item()) {
				t.Errorf("after %d exports: lease %s is %v", again+1, key, text(after[key]))
			}
			delete(after, key)
		}
		if len(after) > 0 {
			t.Errorf("unexpected leases: %v", after)
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
	if _, err := kcl.Import(t.Context(), table, fresh, kcl.ImportOptions{Shards: shards, Pending: forget}); err != nil || !maps.Equal(standing(t, fresh), standing(t, s)) {
		t.Errorf("imported again: %v, %v", standing(t, fresh), err)
	}
}

// fresh returns a lease that the KCL did not have.
func fresh(shard, sequence string) kclItem {
	from, to := rangeOf(shard)
	return kclItem{
		"leaseKey": shard, "leaseCounter": 0, "ownerSwitchesSinceCheckpoint": 0, "checkpoint": sequence, "checkpointSubSequenceNumber": 0,
		"startingHashKey": from, "endingHashKey": to, "entityType": "LEASE",
	}
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

// TestExportMakesCheckpoints: positions that are no numbers are exported only with
// ExportOptions.Checkpoint, and only into the leases of the chosen stream.
func TestExportMakesCheckpoints(t *testing.T) {
	table := newKCL(t, local.Client(t, nil), multi("1:a:7", "s", "17"), multi("1:b:7", "s", "17"))
	table.Stream = "1:a:7"
	s := onMemory()
	for shard, m := range map[string]checkpoint.Mark{"s": {Position: "18", State: "3"}, "new": {Position: "19", State: "4"}} {
		row := fixture.Must[lease.Row](t, s.Store)(protocol.Begin("orders", shard, nil, "a", fixture.Stamp()))
		fixture.Must[lease.Row](t, s.Store)(protocol.Rewind(row, protocol.Command{Seen: row.Generation, By: "a"}, m, fixture.Stamp()))
	}
	withNumbers := kcl.ExportOptions{Shards: asListed([]shardlease.Shard{{Name: "new"}}), Checkpoint: func(m checkpoint.Mark) (string, int64, error) { return m.Position, int64(m.State[0] - '0'), nil }}
	wrong := kcl.ExportOptions{Checkpoint: func(m checkpoint.Mark) (string, int64, error) { return "after " + m.Position, 0, nil }}
	before := contents(t, table.Name)
	if _, err := kcl.Export(t.Context(), s, table, wrong); !errors.Is(err, kcl.ErrPosition) || strings.Contains(err.Error(), "18") || !reflect.DeepEqual(contents(t, table.Name), before) {
		t.Error(err)
	}
	if _, err := kcl.Export(t.Context(), s, table, withNumbers); err != nil {
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

// TestWordsSurvive: a lease keeps LATEST, AT_TIMESTAMP or TRIM_HORIZON, and its prepared
// checkpoint, if the position of its row has not changed since the import. When an export used
// only the rows, LATEST and AT_TIMESTAMP became TRIM_HORIZON, and prepared checkpoints were lost.
func TestWordsSurvive(t *testing.T) {
	table := newKCL(t, local.Client(t, nil),
		kcl3("a", "LATEST", 0), kcl3("b", "AT_TIMESTAMP", 0), kcl3("c", "TRIM_HORIZON", 0),
		kcl3("d", "17", 0).with(prepared), kcl3("e", "17", 0).with(prepared), kcl3("f", "LATEST", 0), kcl3("g", "17", 0))
	before := contents(t, table.Name)
	s := onMemory()
	outcomes, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{Unstarted: true, Pending: forget})
	starts := map[string]string{}
	for _, o := range outcomes {
		starts[o.Row.Shard] = o.Start
	}
	if want := map[string]string{"a": "LATEST", "b": "AT_TIMESTAMP", "c": "TRIM_HORIZON", "d": "", "e": "", "f": "LATEST", "g": ""}; err != nil || !maps.Equal(starts, want) {
		t.Fatalf("the shards begin at %v, %v, want %v", starts, err, want)
	}
	rewind := func(shard, position string) {
		row, err := s.Get(t.Context(), shard)
		if err == nil {
			_, err = s.Rewind(t.Context(), shard, row.Generation, checkpoint.Mark{Position: position}, "moved on")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, shard := range []string{"e", "f"} {
		rewind(shard, "18")
	}
	fixture.Must[lease.Row](t, s.Store)(protocol.Begin("orders", "new", nil, "a", fixture.Stamp()))
	for word, o := range map[string]kcl.ExportOptions{"LATEST": {Unstarted: "LATEST"}, "TRIM_HORIZON": {}} {
		o.Shards = asListed([]shardlease.Shard{{Name: "new"}})
		for key, item := range before {
			putItem(t, table.Name, key, item)
		}
		putItem(t, table.Name, "new", nil)
		for range 2 {
			if _, err := kcl.Export(t.Context(), s, table, o); err != nil {
				t.Fatal(err)
			}
		}
		after := contents(t, table.Name)
		for shard, want := range map[string]kclItem{
			"a": {"checkpoint": "LATEST"}, "b": {"checkpoint": "AT_TIMESTAMP"}, "c": {"checkpoint": "TRIM_HORIZON"},
			"d": prepared.with(kclItem{"checkpoint": "17"}), "e": {"checkpoint": "18"}, "f": {"checkpoint": "18"}, "g": {"checkpoint": "17"},
			"new": fresh("new", word),
		} {
			if shard != "new" {
				want = kcl3(shard, "", 0).with(kclItem{"leaseOwner": nil, "leaseCounter": 1208, "ownerSwitchesSinceCheckpoint": 0}).with(want)
			}
			if !reflect.DeepEqual(after[shard], want.item()) {
				t.Errorf("shards without a position at %s: lease %s is %s", word, shard, text(after[shard]))
			}
		}
	}
	if _, err := kcl.Export(t.Context(), s, table, kcl.ExportOptions{Unstarted: "NOW"}); !errors.Is(err, kcl.ErrWord) {
		t.Errorf("an unknown word: %v", err)
	}
}

// TestWordsAsPositions: for a handler that reads TRIM_HORIZON, LATEST and AT_TIMESTAMP as
// positions, these words survive an export into a new table as well.
func TestWordsAsPositions(t *testing.T) {
	table := newKCL(t, local.Client(t, nil), kcl3("a", "LATEST", 0), kcl3("b", "AT_TIMESTAMP", 0), kcl3("c", "TRIM_HORIZON", 0))
	s := onMemory()
	word := func(w string) (checkpoint.Mark, error) { return checkpoint.Mark{Position: w}, nil }
	if _, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{Word: word}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "LATEST", "b": "AT_TIMESTAMP", "c": "TRIM_HORIZON"}
	if got := standing(t, s); !maps.Equal(got, want) {
		t.Errorf("the rows are %v", got)
	}
	again := newKCL(t, local.Client(t, nil))
	shards := asListed([]shardlease.Shard{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	leases, err := kcl.Export(t.Context(), s, again, kcl.ExportOptions{Shards: shards, Unstarted: "LATEST"})
	for _, l := range leases {
		if l.Sequence != want[l.Shard] || l.Sub != 0 {
			t.Errorf("%s is at %s/%d", l.Shard, l.Sequence, l.Sub)
		}
	}
	if err != nil || len(leases) != 3 {
		t.Errorf("%d leases, %v", len(leases), err)
	}
	if !reflect.DeepEqual(contents(t, again.Name)["a"], fresh("a", "LATEST").item()) {
		t.Errorf("the lease is %s", text(contents(t, again.Name)["a"]))
	}
	refuse := func(string) (checkpoint.Mark, error) { return checkpoint.Mark{}, kcl.ErrUnstarted }
	if _, err := kcl.Import(t.Context(), table, onMemory(), kcl.ImportOptions{Word: refuse, Unstarted: true}); !errors.Is(err, kcl.ErrUnstarted) {
		t.Errorf("Word returned an error, and the import returned %v", err)
	}
}

// prepared contains the attributes of a prepared checkpoint with a state.
var prepared = kclItem{"pendingCheckpoint": "19", "pendingCheckpointSubSequenceNumber": 2, "pendingCheckpointState": []byte("\xffstate")}

// TestPreparedCheckpointsAreDecided: an import refuses a prepared checkpoint with an error that
// names the lease, unless ImportOptions.Pending decides. It used to ignore prepared checkpoints.
func TestPreparedCheckpointsAreDecided(t *testing.T) {
	forward := func(l kcl.Lease) (kcl.Lease, error) {
		l.Sequence, l.Sub = l.Pending, 0
		return forget(l)
	}
	keep := func(l kcl.Lease) (kcl.Lease, error) { return l, nil }
	fail := func(l kcl.Lease) (kcl.Lease, error) {
		return l, fmt.Errorf("%s/%d %q", l.Pending, l.PendingSub, l.PendingState)
	}
	other := func(l kcl.Lease) (kcl.Lease, error) { l.Shard = "b"; return forget(l) }
	noSub := kclItem{"pendingCheckpoint": "SHARD_END", "pendingCheckpointSubSequenceNumber": nil}
	for name, tc := range map[string]struct {
		more    kclItem
		pending func(kcl.Lease) (kcl.Lease, error)
		want    string // the expected position, or a part of the error
		wrong   string // the attribute that the error names
		refused bool
	}{
		"refused":              {more: prepared, refused: true},
		"without a number":     {more: noSub, refused: true},
		"dropped":              {more: prepared, pending: forget, want: "17"},
		"carried out":          {more: prepared, pending: forward, want: "19"},
		"undecided":            {more: prepared, pending: keep, refused: true},
		"cannot be decided":    {more: prepared, pending: fail, want: `"a": 19/2 "\xffstate"`},
		"for another shard":    {more: prepared, pending: other, wrong: "pendingCheckpoint"},
		"no checkpoint":        {more: prepared.with(kclItem{"pendingCheckpoint": nil}), pending: forget, wrong: "pendingCheckpoint"},
		"an unknown word":      {more: kclItem{"pendingCheckpoint": "NOW"}, pending: forget, wrong: "pendingCheckpoint"},
		"a number that is not": {more: prepared.with(kclItem{"pendingCheckpointSubSequenceNumber": -1}), pending: forget, wrong: "pendingCheckpointSubSequenceNumber"},
		"a state that is text": {more: prepared.with(kclItem{"pendingCheckpointState": "x"}), pending: forget, wrong: "pendingCheckpointState"},
	} {
		t.Run(name, func(t *testing.T) {
			table := newKCL(t, local.Client(t, nil), kcl3("a", "17", 0).with(tc.more), kcl3("b", "18", 0))
			s := onMemory()
			_, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{Pending: tc.pending})
			pending, refused := errors.AsType[*kcl.PendingError](err)
			malformed, wrong := errors.AsType[*kcl.MalformedError](err)
			switch rows := standing(t, s); {
			case refused != tc.refused || refused && (pending.Key != "a" || pending.Table != table.Name):
				t.Errorf("refused: %v", err)
			case wrong != (tc.wrong != "") || wrong && (malformed.Key != "a" || malformed.Attribute != tc.wrong):
				t.Errorf("malformed: %v", err)
			case err != nil && (len(rows) > 0 || !strings.Contains(err.Error(), tc.want)), err == nil && rows["a"] != tc.want:
				t.Errorf("got %v, %v, want %q", rows, err, tc.want)
			}
		})
	}
}

// TestExportNeedsHashKeys: if a lease of an unfinished shard would have no hash keys that the KCL
// can read, the export writes nothing. Exports used to create leases without hash keys.
func TestExportNeedsHashKeys(t *testing.T) {
	bare := kclItem{"startingHashKey": nil, "endingHashKey": nil}
	s := onMemory()
	fixture.Must[lease.Row](t, s.Store)(protocol.Begin("orders", "a", nil, "a", fixture.Stamp()))
	fixture.Must[lease.Row](t, s.Store)(protocol.Begin("orders", "b", []string{"a"}, "a", fixture.Stamp()))
	gone := fixture.Must[lease.Row](t, s.Store)(protocol.Begin("orders", "gone", nil, "a", fixture.Stamp())) // a removed row needs no hash keys
	fixture.Must[lease.Row](t, s.Store)(protocol.Remove(gone, protocol.Command{Seen: gone.Generation, By: "a"}, fixture.Stamp()))
	const top = "340282366920938463463374607431768211455" // 128 bits
	shard := func(name, from, to string) kcl.Shard {
		return kcl.Shard{Name: name, Parents: []string{"z"}, StartingHashKey: from, EndingHashKey: to}
	}
	for name, tc := range map[string]struct {
		item   kclItem
		shards []kcl.Shard
		wrong  string // the shard that the error names
	}{
		"in the table":               {item: kcl2("b", "17", 0), shards: []kcl.Shard{shard("a", "0", top)}},
		"nowhere":                    {item: kcl2("b", "17", 0), wrong: "a"},
		"of a lease of KCL 2.2":      {item: kcl2("b", "17", 0).with(bare), shards: []kcl.Shard{shard("a", "0", "1"), shard("b", "0", top)}},
		"of a lease that is not new": {item: kcl2("b", "17", 0).with(bare), shards: []kcl.Shard{shard("a", "0", "1")}, wrong: "b"},
		"more than 128 bits":         {item: kcl2("b", "17", 0), shards: []kcl.Shard{shard("a", "0", top+"0")}, wrong: "a"},
		"no number":                  {item: kcl2("b", "17", 0), shards: []kcl.Shard{shard("a", "0x0", "9")}, wrong: "a"},
		"negative":                   {item: kcl2("b", "17", 0), shards: []kcl.Shard{shard("a", "-1", "9")}, wrong: "a"},
		"the wrong way round":        {item: kcl2("b", "17", 0), shards: []kcl.Shard{shard("a", "9", "9")}, wrong: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			table := newKCL(t, local.Client(t, nil), tc.item)
			before := contents(t, table.Name)
			_, err := kcl.Export(t.Context(), s, table, kcl.ExportOptions{Shards: tc.shards})
			wrong, ok := errors.AsType[*kcl.RangeError](err)
			if ok != (tc.wrong != "") || ok && wrong.Shard != tc.wrong || (err != nil) != ok {
				t.Errorf("got %v, want one of %q", err, tc.wrong)
			}
			leases, listErr := table.Leases(t.Context())
			if err != nil && !reflect.DeepEqual(contents(t, table.Name), before) {
				t.Error("the export changed the table")
			}
			if err == nil && (listErr != nil || len(leases) != 2 || leases[0].EndingHashKey == "" || leases[1].EndingHashKey == "" ||
				!slices.Equal(leases[0].Parents, []string{"z"}) || !slices.Equal(leases[1].Parents, []string{"a"}) || leases[0].Children != nil) {
				t.Errorf("the leases are %v, %v", leases, listErr)
			}
		})
	}
}

// putItem puts an item, or deletes the item with that key if item is nil.
func putItem(t *testing.T, table, key string, item map[string]types.AttributeValue) {
	t.Helper()
	client := local.Client(t, nil)
	var err error
	if item != nil {
		_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item})
	} else {
		_, err = client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &table, Key: kclItem{"leaseKey": key}.item()})
	}
	if err != nil {
		t.Fatal(err)
	}
}
