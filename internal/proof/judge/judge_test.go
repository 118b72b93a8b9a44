package judge

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// TestJudgeObjects: the judge reports each broken promise, and nothing else.
func TestJudgeObjects(t *testing.T) {
	next, free := fixture.Next(t), fixture.Free(t)
	claimed := next(protocol.Claim(free, fixture.Worker("a"), fixture.Stamp()))
	held := next(protocol.Commit(claimed, fixture.Hold(claimed), fixture.At("100"), fixture.Stamp()))
	history := []lease.Row{free, claimed, held}
	committed := next(protocol.Commit(held, fixture.Hold(held), fixture.At("200"), fixture.Stamp()))
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
		"a recovery":                         {next(protocol.Recover(held, fixture.Worker("b"), fixture.Stamp())), ""},
		"the same write again":               {held, "applied twice"},
		"an older row":                       {spoilt(func(r *lease.Row) { r.Counter = held.Counter - 1 }), "S3: the row"},
		"another owner":                      {spoilt(func(r *lease.Row) { r.Owner = fixture.Worker("b") }), "S3: generation"},
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
	next, claimed := fixture.Next(t), fixture.Held(t, "a")
	stolen := next(protocol.Recover(claimed, fixture.Worker("b"), fixture.Stamp()))
	theirs := next(protocol.Commit(stolen, fixture.Hold(stolen), fixture.At("100"), fixture.Stamp()))
	late, err := protocol.Commit(claimed, fixture.Hold(claimed), fixture.At("200"), fixture.Stamp())
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
	write, me := fixture.Must[lease.Seat](t, j), fixture.Worker("a")
	creation, err := protocol.Sit(lease.Seat{Group: "orders", Incarnation: me.Incarnation, Name: me.Name, TTL: 10 * time.Second}, fixture.Stamp())
	seat := write(protocol.NextBeat(write(creation, err), lease.Says{}, fixture.Stamp()))
	write(protocol.Evict(seat))
	write(creation, nil)
	if err := j.Err(); err != nil {
		t.Error(err)
	}
}

// TestAcceptedAsksWhoSentIt: a write under a generation has to be sent by the worker that owns the row, no transfer changes
// the checkpoint, and the counter shows every write.
func TestAcceptedAsksWhoSentIt(t *testing.T) {
	next, claimed := fixture.Next(t), fixture.Held(t, "a")
	commit := fixture.Write(t)(protocol.Commit(claimed, fixture.Hold(claimed), fixture.At("100"), fixture.Stamp()))
	held := next(commit, nil)
	moved := fixture.Write(t)(protocol.Recover(held, fixture.Worker("b"), fixture.Stamp()))
	stolen := moved.Next.(lease.Row)
	stolen.Counter, stolen.Checkpoint.Generation, stolen.Checkpoint.Position = held.Counter+1, held.Generation-1, "200"
	taken := stolen // with the reason of an operator's command that is no rewind
	taken.Owner, taken.Last.Reason = lease.Owner{}, lease.ReasonForced
	rewind := fixture.Write(t)(protocol.Rewind(held, protocol.Command{Seen: held.Generation}, fixture.At("1"), fixture.Stamp()))
	offer := fixture.Write(t)(protocol.Offer(held, fixture.Hold(held), fixture.Worker("b").Incarnation, checkpoint.Mark{}, fixture.Stamp()))
	offered := next(offer, nil)
	twice := offered
	twice.Counter++
	for name, c := range map[string]struct {
		Accepted
		want string
	}{
		"offered by its owner": {Accepted{held, offered, offer, "a"}, ""},
		"offered by another":   {Accepted{held, offered, offer, "b"}, "S1: "},
		"applied twice":        {Accepted{held, twice, offer, "a"}, "S3: a write between"},
		"taken by a command":   {Accepted{held, taken, commit, "a"}, "S1: a checkpoint of generation"},
		"rewound while held":   {Accepted{held, next(rewind, nil), rewind, "op"}, ""},
		"by its owner":         {Accepted{claimed, held, commit, "a"}, ""},
		"by a worker unknown":  {Accepted{claimed, held, commit, ""}, ""},
		"by another worker":    {Accepted{claimed, held, commit, "b"}, "S1: "},
		"the checkpoint stays": {Accepted{held, next(moved, nil), moved, "b"}, ""},
		"the checkpoint moves": {Accepted{held, stolen, moved, "b"}, "S2: claim"},
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
	next, free := fixture.Next(t), fixture.Free(t)
	claims := make([]lease.Row, 2)
	for i, name := range []string{"a", "b"} {
		claims[i] = next(protocol.Claim(free, fixture.Worker(name), fixture.Stamp()))
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
