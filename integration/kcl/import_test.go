package kcl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
	"github.com/shardlease/shardlease-go/integration/internal/local"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/rebalance"
	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
	"github.com/shardlease/shardlease-go/shardlease/storetest"
)

// onMemory returns a group without rows, in memory.
func onMemory() shardlease.Supervisor {
	return shardlease.Supervisor{Store: new(memstore.Store), Group: "orders", By: "operator"}
}

// standing describes the rows of a group in short.
func standing(t *testing.T, s shardlease.Supervisor) map[string]string {
	t.Helper()
	rows, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, row := range rows {
		all[row.Shard] = row.Checkpoint.Position
		if row.Finished {
			all[row.Shard] += "finished"
		}
		if !row.Owner.IsZero() {
			all[row.Shard] += "held by " + row.Owner.Name
		}
	}
	return all
}

// TestImportFromKCL: every lease becomes a row, ancestors whose leases the KCL has deleted become
// finished rows, the KCL's table does not change, and the new fleet continues at the positions.
func TestImportFromKCL(t *testing.T) {
	client := local.Client(t, nil)
	leases, shards := resharded()
	table := newKCL(t, client, leases...)
	before := contents(t, table.Name)
	store := local.Open(t, client, local.Table(t))
	s := shardlease.Supervisor{Store: store, Group: "orders", By: "operator"}
	want := map[string]string{
		"shard-0": "finished", "shard-1": "finished", "shard-2": "finished", "shard-gone": "finished",
		"shard-3": "49590338271490256608559692538361571095921575989136588898", "shard-4": "",
	}
	for _, again := range []bool{false, true} {
		outcomes, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{Shards: shards, Pending: forget})
		if err != nil || len(outcomes) != len(want) {
			t.Fatalf("%d rows: %v", len(outcomes), err)
		}
		for _, o := range outcomes {
			if o.Made == again {
				t.Errorf("imported again %t, made %t: %v", again, o.Made, o.Row)
			}
		}
		if got := standing(t, s); !maps.Equal(got, want) {
			t.Errorf("the rows are %v", got)
		}
	}
	if !reflect.DeepEqual(contents(t, table.Name), before) {
		t.Error("the table of the KCL has changed")
	}
	begun := map[string]string{}
	starts := consume(t, s, shards, 3)
	for _, c := range starts {
		begun[c.shard] = c.from
	}
	delete(want, "shard-gone")
	if len(begun) != 3 || begun["shard-3"] != want["shard-3"] || begun["shard-4"] != "" || begun["shard-7"] != "" {
		t.Errorf("the fleet began at %v", begun)
	}
}

type begun struct{ shard, from string }

// consume runs a worker until n shards have begun; each commits one record.
func consume(t *testing.T, s shardlease.Supervisor, shards []shardlease.Shard, n int) []begun {
	t.Helper()
	source := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) { return shards, nil })
	w, err := shardlease.New(s.Store, source, shardlease.Config{
		Group: s.Group, Handoff: rebalance.Eager, TTL: 5 * time.Second, Order: checkpoint.Decimal,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var mu sync.Mutex
	var all []begun
	err = w.Run(ctx, func(ctx context.Context, tenure *shardlease.Tenure) error {
		from := tenure.Checkpoint().Position
		if err := tenure.Commit(tenure.Context(), from+"0"); err != nil {
			return err
		}
		mu.Lock()
		if all = append(all, begun{tenure.Shard().Name, from}); len(all) == n {
			stop()
		}
		mu.Unlock()
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestImportRefuses: an import refuses ambiguous leases before it writes anything.
func TestImportRefuses(t *testing.T) {
	const sequence = "495903382714902566085596925383615710959215759891365888"
	for name, tc := range map[string]struct {
		item    kclItem
		options kcl.ImportOptions
		stream  string
		by      string
		want    error  // nil: the lease is imported
		mark    string // the position and state of its row
	}{
		"LATEST":                     {item: kcl2("s", "LATEST", 0), want: kcl.ErrUnstarted},
		"AT_TIMESTAMP":               {item: kcl2("s", "AT_TIMESTAMP", 0), want: kcl.ErrUnstarted},
		"LATEST, with Unstarted":     {item: kcl2("s", "LATEST", 0), options: kcl.ImportOptions{Unstarted: true}, mark: "/"},
		"within an entry":            {item: kcl2("s", sequence, 7), want: kcl.ErrPacked},
		"within an entry, with Mark": {item: kcl2("s", sequence, 7), options: kcl.ImportOptions{Mark: withState}, mark: sequence + "/7"},
		"no sub-sequence number":     {item: kcl2("s", sequence, 0).with(kclItem{"checkpointSubSequenceNumber": nil}), mark: sequence + "/"},
		"several streams":            {item: multi("1:a:7", "s", sequence), want: kcl.ErrStreams},
		"one of several streams":     {item: multi("1:a:7", "s", sequence), stream: "1:a:7", mark: sequence + "/"},
		"another of several streams": {item: multi("1:b:7", "s", sequence), stream: "1:a:7"},
		"no counter":                 {item: kcl2("s", sequence, 0).with(kclItem{"leaseCounter": nil}), want: &kcl.MalformedError{Attribute: "leaseCounter"}},
		"no checkpoint":              {item: kcl2("s", sequence, 0).with(kclItem{"checkpoint": nil}), want: &kcl.MalformedError{Attribute: "checkpoint"}},
		"a checkpoint of no kind":    {item: kcl2("s", "NOW", 0), want: &kcl.MalformedError{Attribute: "checkpoint"}},
		"a sub-sequence number":      {item: kcl2("s", sequence, -1), want: &kcl.MalformedError{Attribute: "checkpointSubSequenceNumber"}},
	} {
		t.Run(name, func(t *testing.T) {
			table := newKCL(t, local.Client(t, nil), tc.item, kcl2("other", "SHARD_END", 0))
			table.Stream = tc.stream
			s := onMemory()
			_, err := kcl.Import(t.Context(), table, s, tc.options)
			malformed, ok := errors.AsType[*kcl.MalformedError](err)
			if wanted, of := tc.want.(*kcl.MalformedError); of && (!ok || malformed.Attribute != wanted.Attribute || malformed.Key != "s") {
				t.Errorf("got %v, want %v", err, tc.want)
			} else if !of && (!errors.Is(err, tc.want) || (err == nil) != (tc.want == nil)) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), sequence) {
				t.Errorf("the error contains a position: %v", err)
			}
			row, err := s.Get(t.Context(), "s")
			if made := err == nil; made != (tc.mark != "") || made && row.Checkpoint.Position+"/"+row.Checkpoint.State != tc.mark {
				t.Errorf("the row is %v, %v", row, err)
			}
			if rows := standing(t, s); tc.want != nil && len(rows) > 0 {
				t.Errorf("the rows are %v", rows)
			}
		})
	}
}

func withState(sequence string, sub int64) (checkpoint.Mark, error) {
	return checkpoint.Mark{Position: sequence, State: fmt.Sprint(sub)}, nil
}

func multi(stream, shard, sequence string) kclItem {
	return kcl3(stream+":"+shard, sequence, 0).with(kclItem{"streamName": stream, "shardId": shard})
}

// TestExistingRowsAreKept: an import changes no existing row, reports them, and creates the others.
func TestExistingRowsAreKept(t *testing.T) {
	table := newKCL(t, local.Client(t, nil), kcl3("a", "17", 0), kcl3("b", "18", 0), kcl3("c", "SHARD_END", 0), kcl3("d", "19", 0), kcl3("e", "20", 0), kcl3("f", "21", 0))
	s := onMemory()
	row := fixture.Must[lease.Row](t, s.Store)
	row(protocol.Begin("orders", "a", nil, "somebody", fixture.Stamp())) // free, and not created by an import
	b := row(protocol.Claim(row(protocol.Begin("orders", "b", nil, "somebody", fixture.Stamp())), fixture.Worker("w"), fixture.Stamp()))
	b = row(protocol.Commit(b, fixture.Hold(b), checkpoint.Mark{Position: "99"}, fixture.Stamp()))
	row(protocol.Release(b, fixture.Hold(b), protocol.End{Reason: lease.ReasonReleased}, fixture.Stamp()))
	row(protocol.Claim(row(protocol.Begin("orders", "c", nil, "somebody", fixture.Stamp())), fixture.Worker("w"), fixture.Stamp()))
	d := row(protocol.Begin("orders", "d", nil, "somebody", fixture.Stamp()))
	row(protocol.Remove(d, protocol.Command{Seen: d.Generation, By: "somebody"}, fixture.Stamp()))
	e := row(protocol.Begin("orders", "e", nil, "somebody", fixture.Stamp()))
	row(protocol.Rewind(e, protocol.Command{Seen: e.Generation, By: "somebody"}, checkpoint.Mark{Position: "20"}, fixture.Stamp())) // as an import would leave it
	before := standing(t, s)
	outcomes, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{})
	if !errors.Is(err, kcl.ErrExists) || !strings.HasSuffix(err.Error(), ": a, b, c, d") || len(outcomes) != 2 {
		t.Errorf("%d rows: %v", len(outcomes), err)
	}
	before["f"] = "21"
	if after := standing(t, s); !maps.Equal(after, before) {
		t.Errorf("the rows were %v, and are %v", before, after)
	}
}

// TestInterruptedImportIsFinished: if an import is cut off after any number of writes, even if the
// last one was stored and its reply lost, the next import completes it.
func TestInterruptedImportIsFinished(t *testing.T) {
	leases, shards := resharded()
	table := newKCL(t, local.Client(t, nil), leases...)
	whole := onMemory()
	if _, err := kcl.Import(t.Context(), table, whole, kcl.ImportOptions{Shards: shards, Pending: forget}); err != nil {
		t.Fatal(err)
	}
	want, cut := standing(t, whole), true
	for after := 0; cut; after++ {
		for _, stored := range []bool{false, true} {
			s := onMemory()
			// Supervisor repeats unanswered requests until the context ends.
			ctx, cancel := context.WithCancel(t.Context())
			through := s
			through.Store = cutAfter(s.Store, after, stored, cancel)
			_, err := kcl.Import(ctx, table, through, kcl.ImportOptions{Shards: shards, Pending: forget})
			cancel()
			if cut = err != nil; !cut {
				break
			}
			if _, err := kcl.Import(t.Context(), table, s, kcl.ImportOptions{Shards: shards, Pending: forget}); err != nil {
				t.Errorf("cut off after %d writes, and again: %v", after, err)
			}
			if got := standing(t, s); !maps.Equal(got, want) {
				t.Errorf("cut off after %d writes: %v", after, got)
			}
		}
		if after > 100 {
			t.Fatal("the import does not end")
		}
	}
}

// cutAfter returns a store that answers the given number of writes and then calls broke. If stored
// is set, the first unanswered write is stored.
func cutAfter(store lease.Store, writes int, stored bool, broke func()) lease.Store {
	link := storetest.NewLink(store)
	link.OnWrite(func(_ context.Context, _ lease.Write, send func() (lease.Record, error)) (lease.Record, error) {
		if writes--; writes >= 0 {
			return send()
		}
		if writes == -1 && stored {
			_, _ = send()
		}
		link.Cut()
		broke()
		return nil, storetest.ErrCut
	})
	return link
}
