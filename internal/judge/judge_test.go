package judge

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

const (
	group = "group"
	shard = "shard-0001"
)

// A bench is a store, with short methods for writes to it.
type bench struct {
	*testing.T
	store lease.Store
	ids   int
}

func (b *bench) stamp() protocol.Stamp {
	b.ids++
	return protocol.Stamp{ID: lease.WriteID(fmt.Sprintf("write-%06d", b.ids)), At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// put makes a write that the store must accept.
func put[R lease.Record](b *bench, w lease.Write, err error) R {
	b.Helper()
	if err != nil {
		b.Fatalf("no such write: %v", err)
	}
	r, err := b.store.Write(b.Context(), w)
	if err != nil {
		b.Fatalf("not stored: %v", err)
	}
	after, _ := r.(R)
	return after
}

func (b *bench) put(w lease.Write, err error) lease.Row { b.Helper(); return put[lease.Row](b, w, err) }

func (b *bench) free() lease.Row {
	return b.put(protocol.Begin(group, shard, nil, "source", b.stamp()))
}

func worker(name string) lease.Owner {
	return lease.Owner{Name: name, Incarnation: lease.Incarnation(name + "-incarnation")}
}

func hold(r lease.Row) lease.Hold {
	return lease.Hold{Key: r.Key(), Incarnation: r.Owner.Incarnation, Generation: r.Generation, Order: checkpoint.Decimal}
}

func mark(position string) checkpoint.Mark { return checkpoint.Mark{Position: position} }

// TestJudgeObjects: the judge reports each broken promise, and nothing else.
func TestJudgeObjects(t *testing.T) {
	b := &bench{T: t, store: new(memstore.Store)}
	free := b.free()
	claimed := b.put(protocol.Claim(free, worker("a"), b.stamp()))
	held := b.put(protocol.Commit(claimed, hold(claimed), mark("100"), b.stamp()))
	history := []lease.Row{free, claimed, held}
	next := func(w lease.Write, err error) lease.Row {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		after, err := w.Apply(w.Old)
		if err != nil {
			t.Fatal(err)
		}
		return after.(lease.Row)
	}
	committed := next(protocol.Commit(held, hold(held), mark("200"), b.stamp()))
	spoilt := func(spoil func(*lease.Row)) lease.Row {
		r := committed
		spoil(&r)
		return r
	}
	for name, tc := range map[string]struct {
		after lease.Row
		want  string // the text of the error; empty: no error
	}{
		"a commit":                           {committed, ""},
		"a recovery":                         {next(protocol.Recover(held, worker("b"), b.stamp())), ""},
		"the same write again":               {held, "applied twice"},
		"an older row":                       {spoilt(func(r *lease.Row) { r.Counter = held.Counter - 1 }), "S3: the row"},
		"another owner":                      {spoilt(func(r *lease.Row) { r.Owner = worker("b") }), "S3: generation"},
		"a checkpoint of a later generation": {spoilt(func(r *lease.Row) { r.Checkpoint.Generation++ }), "was stored while"},
		"an older checkpoint":                {spoilt(func(r *lease.Row) { r.Checkpoint.Generation-- }), "stored over one of"},
		"a position further back":            {spoilt(func(r *lease.Row) { r.Checkpoint.Position = "50" }), "S2:"},
	} {
		j := NewStore(new(memstore.Store), checkpoint.Decimal)
		for _, r := range history {
			j.Saw(r.WriteID, r)
		}
		j.Saw(tc.after.WriteID, tc.after)
		switch err := j.Err(); {
		case tc.want == "" && err != nil:
			t.Errorf("%s: the judge reports %v", name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
}

// An unconditional store stores every write without a check of its condition.
type unconditional struct{ memstore.Store }

func (*unconditional) Write(_ context.Context, w lease.Write) (lease.Record, error) {
	return w.Next, nil
}

// TestJudgeAsksWhoWrote: a new checkpoint has to come from the owner of the row before the write,
// whatever the row contains after it.
func TestJudgeAsksWhoWrote(t *testing.T) {
	b := &bench{T: t, store: new(memstore.Store)}
	claimed := b.put(protocol.Claim(b.free(), worker("a"), b.stamp()))
	stolen := b.put(protocol.Recover(claimed, worker("b"), b.stamp()))
	theirs := b.put(protocol.Commit(stolen, hold(stolen), mark("100"), b.stamp()))
	late, err := protocol.Commit(claimed, hold(claimed), mark("200"), b.stamp())
	if err != nil {
		t.Fatal(err)
	}
	j := NewStore(new(unconditional), checkpoint.Decimal)
	j.Saw(theirs.WriteID, theirs)
	if _, err := j.Write(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if err := j.Err(); err == nil || !strings.Contains(err.Error(), "not made by the owner") {
		t.Errorf("got %v", err)
	}
}

// TestJudgeLetsSeatsBe: a repeated creation of a seat breaks no promise.
func TestJudgeLetsSeatsBe(t *testing.T) {
	j := NewStore(new(memstore.Store), checkpoint.Decimal)
	b := &bench{T: t, store: j}
	me := worker("a")
	creation, err := protocol.Sit(lease.Seat{Group: group, Incarnation: me.Incarnation, Name: me.Name, TTL: 10 * time.Second}, b.stamp())
	seat := put[lease.Seat](b, creation, err)
	beat, err := protocol.NextBeat(seat, lease.Says{}, b.stamp())
	seat = put[lease.Seat](b, beat, err)
	eviction, err := protocol.Evict(seat)
	put[lease.Seat](b, eviction, err)
	put[lease.Seat](b, creation, nil)
	if err := j.Err(); err != nil {
		t.Error(err)
	}
}

// TestAcceptedAsksWhoSentIt: a checkpoint has to be sent by the worker that owns the row, and no
// transfer changes it.
func TestAcceptedAsksWhoSentIt(t *testing.T) {
	b := &bench{T: t, store: new(memstore.Store)}
	claimed := b.put(protocol.Claim(b.free(), worker("a"), b.stamp()))
	commit, err := protocol.Commit(claimed, hold(claimed), mark("100"), b.stamp())
	held := b.put(commit, err)
	moved, err := protocol.Recover(held, worker("b"), b.stamp())
	if err != nil {
		t.Fatal(err)
	}
	stolen := moved.Next.(lease.Row)
	stolen.Counter, stolen.Checkpoint.Generation, stolen.Checkpoint.Position = held.Counter+1, held.Generation-1, "200"
	taken := stolen // with the mark that an operator's rewind would store
	taken.Owner, taken.Last.Reason = lease.Owner{}, lease.ReasonForced
	for name, c := range map[string]struct {
		Accepted
		want string
	}{
		"rewound while held":   {Accepted{held, taken, commit, "a"}, "S1: a checkpoint of generation"},
		"by its owner":         {Accepted{claimed, held, commit, "a"}, ""},
		"by a worker unknown":  {Accepted{claimed, held, commit, ""}, ""},
		"by another worker":    {Accepted{claimed, held, commit, "b"}, "S1: "},
		"the checkpoint stays": {Accepted{held, b.put(moved, nil), moved, "b"}, ""},
		"the checkpoint moves": {Accepted{held, stolen, moved, "b"}, "S2: transfer"},
		"the row stays":        {Accepted{held, held, commit, "a"}, "S3: the row"},
	} {
		err := c.Check(checkpoint.Decimal)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestJudgeRemembers: the judge remembers a generation's owner although the table went back, and a
// write as long as it may still arrive.
func TestJudgeRemembers(t *testing.T) {
	b := &bench{T: t, store: new(memstore.Store)}
	free := b.free()
	claims := make([]lease.Row, 2)
	for i, name := range []string{"a", "b"} {
		w, err := protocol.Claim(free, worker(name), b.stamp())
		if err != nil {
			t.Fatal(err)
		}
		claims[i] = w.Next.(lease.Row)
	}
	j := New(checkpoint.Decimal)
	for _, r := range []lease.Row{free, claims[0]} {
		if err := j.Saw(r.WriteID, r); err != nil {
			t.Fatal(err)
		}
	}
	j.Forget()
	if again := j.Clone().Saw(claims[0].WriteID, claims[0]); again == nil || !strings.Contains(again.Error(), "applied twice") {
		t.Errorf("got %v after one spell", again)
	}
	j.Forget()
	if j.Stored(claims[0].WriteID) {
		t.Error("a write is remembered after two spells")
	}
	j.Restored([]lease.Row{free})
	if err := j.Saw(claims[1].WriteID, claims[1]); err == nil || !strings.Contains(err.Error(), "S3: generation") {
		t.Errorf("got %v for a generation that two workers have owned", err)
	}
}
