package inspect_test

import (
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/inspect"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// kinds returns the kinds and subjects of changes.
func kinds(all []inspect.Change) (texts []string) {
	for _, c := range all {
		texts = append(texts, string(c.Kind)+" "+c.Subject)
	}
	return texts
}

// TestDiffRecoversMissedTransfers: three changes of hands between two looks are all reported, in order.
func TestDiffRecoversMissedTransfers(t *testing.T) {
	of := settled(t)
	before := of.look()
	for _, to := range []string{"b", "a", "b"} {
		of.pass(time.Second)
		of.move("shard-0", to)
	}
	after := of.look()
	changes := inspect.Diff(before, after)
	var by []string
	for i, c := range changes {
		if c.Kind != inspect.ChangeTransfer || c.Subject != "shard-0" || c.Transfer.Generation != before.Shard("shard-0").Row.Generation+int64(i)+1 {
			t.Errorf("%+v", c)
		}
		by = append(by, c.Transfer.By)
	}
	if !slices.Equal(by, []string{"b", "a", "b"}) {
		t.Errorf("transfers by %v", by)
	}
	if again := inspect.Diff(after, after); again != nil {
		t.Errorf("nothing has changed: %v", again)
	}
	if back := inspect.Diff(after, before); back != nil {
		t.Errorf("an older row is no change: %v", back)
	}
}

// TestDiffKeepsGenerationsInOrder: the clock of one worker is behind.
func TestDiffKeepsGenerationsInOrder(t *testing.T) {
	of := settled(t)
	before := of.look()
	of.move("shard-0", "b")
	of.now = of.now.Add(-time.Minute)
	of.move("shard-0", "a")
	of.now = of.now.Add(2 * time.Minute)
	changes := inspect.Diff(before, of.look())
	if len(changes) != 2 || changes[0].Transfer.Generation > changes[1].Transfer.Generation {
		t.Errorf("%v", kinds(changes))
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(of *table)
		want []string
	}{
		{"nothing", func(of *table) {}, nil},
		{"a row has vanished", func(of *table) { delete(of.rows, "shard-0") }, []string{"missing shard-0"}},
		{"a row cannot be read", func(of *table) { of.bad = append(of.bad, key(lease.KindLease, "shard-0")) }, []string{"unreadable shard-0"}},
		{"a seat is gone", func(of *table) { delete(of.seats, "b") }, []string{"left b"}},
		{"a seat cannot be read", func(of *table) { of.bad = append(of.bad, key(lease.KindSeat, "b-1")) }, []string{"unreadable b-1"}},
		{"a worker joins", func(of *table) { of.seat("c") }, []string{"joined c"}},
		{"a worker leaves", func(of *table) { of.seats["b"].Leaving = true }, []string{"leaving b"}},
		{"a worker is unwell", func(of *table) { of.seats["b"].Health.Unwell = "it fails" }, []string{"unwell b"}},
		{"a request", func(of *table) { of.want("b", "shard-0", "eager") }, []string{"move-began shard-0"}},
		{"a new shard that was claimed", func(of *table) { of.begin(of.row("shard-4"), lease.ReasonInitial, "b", "") },
			[]string{"new shard-4", "transfer shard-4", "transfer shard-4"}},
		{"a shard that was removed is listed again", func(of *table) {
			row := of.row("shard-4")
			of.begin(row, lease.ReasonInitial, "a", "")
			of.begin(row, lease.ReasonRemoved, "", "a")
			of.begin(row, lease.ReasonInitial, "", "a")
		}, []string{"new shard-4", "transfer shard-4"}},
		{"another plan", func(of *table) { of.plan.Revision++ }, []string{"plan "}},
		{"the plan cannot be read", func(of *table) { of.bad = append(of.bad, of.plan.Key()) }, []string{"unreadable !plan"}},
		{"a wish", func(of *table) {
			of.wishes = []lease.Wish{{Kind: lease.WishDrain, Subject: "a", By: "op", Why: "test"}}
		}, []string{"wish a"}},
		{"an older row of a listing that lags behind", func(of *table) {
			row := of.rows["shard-0"]
			row.Counter--
			of.want("b", "shard-0", "eager")
		}, nil},
		{"a command makes workers look at its row", func(of *table) {
			of.wishes = []lease.Wish{{Kind: "look", Subject: "shard-0", By: "op"}}
		}, nil},
		{"restored", func(of *table) { of.verify = lease.ErrWentBack }, []string{"restored "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := settled(t)
			before := of.look()
			c.make(of)
			if got := kinds(inspect.Diff(before, of.look())); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestJoinedWhenTheSeatWasTaken: a worker has joined when it took its seat, so that what followed is listed after it. A time
// that cannot be is that of a wrong clock.
func TestJoinedWhenTheSeatWasTaken(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Minute, -time.Minute} {
		of := settled(t)
		before := of.look()
		of.pass(time.Second)
		seat, want := of.seat("c"), of.now
		seat.Since = seat.Since.Add(ahead)
		of.pass(time.Second)
		if ahead != 0 {
			want = of.now
		}
		if got := inspect.Diff(before, of.look()); len(got) != 1 || !got[0].At.Equal(want) {
			t.Errorf("ahead %v: %+v, want %v", ahead, got, want)
		}
	}
}

// TestDiffSaysWhatCannotBeRead: the text of the change has the error.
func TestDiffSaysWhatCannotBeRead(t *testing.T) {
	of := settled(t)
	before := of.look()
	of.bad = []lease.Key{key(lease.KindLease, "shard-0")}
	want := (&lease.MalformedError{Key: of.bad[0], Cause: checkpoint.ErrInvalid}).Error()
	if got := inspect.Diff(before, of.look()); len(got) != 1 || got[0].Text != want {
		t.Errorf("%+v, want %q", got, want)
	}
}

// TestDiffOfEnds: what begins in one look ends in the next.
func TestDiffOfEnds(t *testing.T) {
	of := settled(t)
	of.want("b", "shard-0", "eager")
	of.seats["b"].Health.Unwell = "it fails"
	of.bad = []lease.Key{key(lease.KindLease, "shard-1")}
	of.wishes = []lease.Wish{{Kind: lease.WishPause, By: "op", Why: "test"}}
	of.verify = lease.ErrWentBack
	before := of.look()
	of.seats["b"].Wants, of.seats["b"].Health.Unwell, of.bad, of.wishes, of.verify = nil, "", nil, nil, nil
	want := []string{"move-ended shard-0", "well b", "lifted ", "readable shard-1", "adopted "}
	if got := kinds(inspect.Diff(before, of.look())); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDiffOfPart: a look at one shard says nothing about the others.
func TestDiffOfPart(t *testing.T) {
	of := settled(t)
	whole := of.look()
	part, err := inspect.LookAt(t.Context(), of, group, "shard-0", inspect.Options{Now: of.clock})
	must(t, err)
	if got := slices.Concat(inspect.Diff(whole, part), inspect.Diff(part, whole)); got != nil {
		t.Errorf("%v", kinds(got))
	}
}
