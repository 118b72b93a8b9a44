package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/proof/storm"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A scene is one kind of write, with the rows that it needs.
type scene struct {
	name  string
	me    string // the name of the writer; empty: an operator
	write func(b *bench) (lease.Write, error)
}

func scenes() []scene {
	command := func(r lease.Row) protocol.Command { return protocol.Command{Seen: r.Generation, By: "op"} }
	list := []scene{
		{"begin", "a", func(b *bench) (lease.Write, error) { return protocol.Begin(group, shard, nil, "a", b.stamp()) }},
		{"begin held", "a", func(b *bench) (lease.Write, error) {
			return protocol.BeginHeld(group, shard, worker("a"), b.stamp())
		}},
		{"discard", "a", func(b *bench) (lease.Write, error) {
			r := b.named("a")
			return protocol.Discard(r, hold(r), protocol.End{Reason: lease.ReasonReleased}, b.stamp())
		}},
		{"reserve", "a", func(b *bench) (lease.Write, error) {
			r := b.named("a")
			return protocol.Reserve(r, hold(r), reservation(), "op", protocol.End{Reason: lease.ReasonDrainTimeout}, b.stamp())
		}},
		{"revive held", "a", func(b *bench) (lease.Write, error) {
			return protocol.ReviveHeld(b.discarded("b"), worker("a"), b.stamp())
		}},
		{"claim", "a", func(b *bench) (lease.Write, error) { return protocol.Claim(b.free(), worker("a"), b.stamp()) }},
		{"recover", "b", func(b *bench) (lease.Write, error) { return protocol.Recover(b.held("a"), worker("b"), b.stamp()) }},
		{"seize", "b", func(b *bench) (lease.Write, error) { return protocol.Seize(b.held("a"), worker("b"), b.stamp()) }},
		{"take", "b", func(b *bench) (lease.Write, error) { return protocol.Take(b.offered(), worker("b"), b.stamp()) }},
		{"withdraw", "a", func(b *bench) (lease.Write, error) {
			r := b.offered()
			return protocol.Withdraw(r, hold(r), b.stamp())
		}},
		{"force-release", "", func(b *bench) (lease.Write, error) {
			r := b.held("a")
			return protocol.ForceRelease(r, command(r), b.stamp())
		}},
		{"reassign", "", func(b *bench) (lease.Write, error) {
			r := b.held("a")
			return protocol.Reassign(r, command(r), reservation(), b.stamp())
		}},
		{"claim of a reserved row", "b", func(b *bench) (lease.Write, error) {
			r := b.held("a")
			return protocol.Claim(b.put(protocol.Reassign(r, command(r), reservation(), b.stamp())), worker("b"), b.stamp())
		}},
		{"quarantine", "", func(b *bench) (lease.Write, error) {
			r := b.held("a")
			return protocol.Quarantine(r, command(r), lease.ReasonForced, b.stamp())
		}},
		{"unquarantine", "", func(b *bench) (lease.Write, error) {
			r := b.free()
			r = b.put(protocol.Quarantine(r, command(r), lease.ReasonFailed, b.stamp()))
			return protocol.Unquarantine(r, command(r), b.stamp())
		}},
		{"rewind", "", func(b *bench) (lease.Write, error) {
			r := b.free()
			return protocol.Rewind(r, command(r), mark("7"), b.stamp())
		}},
		{"rewind of a held row", "", func(b *bench) (lease.Write, error) {
			r := b.held("a")
			return protocol.Rewind(r, command(r), mark("7"), b.stamp())
		}},
		{"conclude", "", func(b *bench) (lease.Write, error) {
			r := b.held("a")
			return protocol.Conclude(r, command(r), b.stamp())
		}},
		{"remove", "", func(b *bench) (lease.Write, error) {
			r := b.free()
			return protocol.Remove(r, command(r), b.stamp())
		}},
		{"revive", "", func(b *bench) (lease.Write, error) {
			r := b.free()
			return protocol.Revive(b.put(protocol.Remove(r, command(r), b.stamp())), nil, "source", b.stamp())
		}},
		{"adopt", "", func(b *bench) (lease.Write, error) { return protocol.Adopt(b.held("a"), "op", b.stamp()) }},
		{"sit", "a", func(b *bench) (lease.Write, error) { return b.sit("a") }},
		{"beat", "a", func(b *bench) (lease.Write, error) { return protocol.NextBeat(b.seat("a"), lease.Says{}, b.stamp()) }},
		{"evict", "b", func(b *bench) (lease.Write, error) { return protocol.Evict(b.seat("a")) }},
		{"evict spoilt", "b", func(b *bench) (lease.Write, error) {
			seat := b.seat("a")
			return protocol.EvictSpoilt(seat.Key(), seat.WriteID)
		}},
	}
	list = append(list, adviceScenes()...)
	for _, write := range holdersWrites() {
		list = append(list, scene{write.name, "a", func(b *bench) (lease.Write, error) {
			r := b.held("a")
			return write.make(r, hold(r), b.stamp())
		}})
	}
	return list
}

func (b *bench) offered() lease.Row {
	r := b.held("a")
	return b.put(protocol.Offer(r, hold(r), worker("b").Incarnation, mark("101"), b.stamp()))
}

// everyWriteUnderEveryFate: whatever the network does to a write, a writer that repeats it until
// it is answered learns the true outcome. A copy that arrives later changes nothing, neither
// before nor after another write.
func everyWriteUnderEveryFate(b *bench) {
	for _, s := range scenes() {
		var me lease.Incarnation
		if s.me != "" {
			me = worker(s.me).Incarnation
		}
		for fate := range storm.Fates {
			b.store = b.open(b.T)
			w, err := s.write(b)
			if err != nil {
				b.Fatalf("%s: %v", s.name, err)
			}
			where := fmt.Sprintf("%s, %v", s.name, fate)
			net := storm.NewNetwork(b.store, 0, storm.Rates{})
			before := b.look(w.Key())
			b.untilSettled(where, me, net, w, fate)
			after := b.look(w.Key())
			if after != nil && before != nil && after.Written() == before.Written() {
				b.Errorf("%s: the write has the verdict Stored, but it is not stored", where)
			}
			for len(net.Held()) > 0 {
				if err := net.Arrive(b.Context(), 0); err != nil {
					b.Fatalf("%s: %v", where, err)
				}
				equal(b, where+": after the late arrival", b.look(w.Key()), after)
			}
		}
		b.store = b.open(b.T)
		b.overtaken(s.name, me, s.write)
	}
}

// untilSettled sends w with its fate, and then again, as its writer would.
func (b *bench) untilSettled(where string, me lease.Incarnation, net *storm.Network, w lease.Write, fate storm.Fate) {
	b.Helper()
	reply, err := net.Suffer(b.Context(), w, fate)
	verdict, _ := protocol.Settle(me, w, reply, err)
	want := protocol.Unknown
	if fate == storm.Delivered || fate == storm.Twin {
		want = protocol.Stored
	}
	equal(b, where+": the first verdict", verdict, want)
	if verdict == protocol.Unknown {
		reply, err = net.Suffer(b.Context(), w, storm.Delivered)
		verdict, _ = protocol.Settle(me, w, reply, err)
		equal(b, where+": the verdict on the same bytes", verdict, protocol.Stored)
	}
}

// overtaken checks a write that arrives after another worker's write.
func (b *bench) overtaken(where string, me lease.Incarnation, write func(b *bench) (lease.Write, error)) {
	b.Helper()
	w, err := write(b)
	if err != nil {
		b.Fatalf("%s: %v", where, err)
	}
	if !b.overtake(w.Key()) {
		return
	}
	now := b.refuse(w, nil)
	if verdict := protocol.Decide(me, w, now); w.Op != lease.OpDelete && (verdict == protocol.Stored || verdict == protocol.Unknown) {
		b.Errorf("%s: the write was overtaken, but its verdict is %v", where, verdict)
	}
}

// overtake makes another worker's write first.
func (b *bench) overtake(k lease.Key) bool {
	b.Helper()
	switch now := b.look(k).(type) {
	case lease.Row:
		b.put(protocol.Adopt(now, "another", b.stamp()))
	case lease.Seat:
		b.putSeat(protocol.Evict(now))
	default:
		switch k.Kind {
		case lease.KindSeat:
			return false // a creation that arrives before any other write is not late
		case lease.KindLease:
			b.free()
		default:
			b.overtakeAdvice(k)
		}
	}
	return true
}

// endedContextAnswersNothing: a call whose context has ended does nothing and returns the context's
// error.
func endedContextAnswersNothing(b *bench) {
	r := b.held("a")
	ctx, cancel := context.WithCancelCause(b.Context())
	cancel(errors.New("a cause of the caller"))
	w, err := protocol.Commit(r, hold(r), mark("200"), b.stamp())
	if err != nil {
		b.Fatal(err)
	}
	_, err = b.store.Write(ctx, w)
	if !errors.Is(err, context.Canceled) {
		b.Errorf("Write: got %v, want the context's error", err)
	}
	if verdict, _ := protocol.Settle(r.Owner.Incarnation, w, nil, err); verdict != protocol.Unknown {
		b.Errorf("a write without an answer has the verdict %v", verdict)
	}
	equal(b, "the row", b.row(), r)
	if _, err := b.store.Get(ctx, r.Key()); !errors.Is(err, context.Canceled) {
		b.Errorf("Get: got %v, want the context's error", err)
	}
	if err := b.store.Verify(ctx, group); !errors.Is(err, context.Canceled) {
		b.Errorf("Verify: got %v, want the context's error", err)
	}
	for _, err := range b.store.List(ctx, lease.Query{Group: group, Kind: lease.KindLease}) {
		if !errors.Is(err, context.Canceled) {
			b.Errorf("List: got %v, want the context's error", err)
		}
	}
}

// badInputWritesNothing: a store refuses writes that no transition makes, and stores nothing.
func badInputWritesNothing(b *bench) {
	r := b.held("a")
	good, err := protocol.Commit(r, hold(r), mark("200"), b.stamp())
	if err != nil {
		b.Fatal(err)
	}
	long := strings.Repeat("x", 5000)
	for name, spoil := range map[string]func(next *lease.Row){
		"empty write id":                func(next *lease.Row) { next.WriteID = "" },
		"the same write id":             func(next *lease.Row) { next.WriteID = r.WriteID },
		"over-long write id":            func(next *lease.Row) { next.WriteID = lease.WriteID(long) },
		"another shard":                 func(next *lease.Row) { next.Shard = "another" },
		"over-long position":            func(next *lease.Row) { next.Checkpoint.Position = long },
		"position not UTF-8":            func(next *lease.Row) { next.Checkpoint.Position = "\xff" },
		"over-long state":               func(next *lease.Row) { next.Checkpoint.State = long },
		"over-long owner":               func(next *lease.Row) { next.Owner.Name = long },
		"owner not UTF-8":               func(next *lease.Row) { next.Owner.Name = "\xff" },
		"control character":             func(next *lease.Row) { next.Owner.Task = "a\tb" },
		"over-long note":                func(next *lease.Row) { next.Last.Note = long },
		"counter unchanged":             func(next *lease.Row) { next.Counter-- },
		"counter jumps":                 func(next *lease.Row) { next.Counter++ },
		"generation goes back":          func(next *lease.Row) { next.Generation-- },
		"generation without a transfer": func(next *lease.Row) { next.Generation++ },
		"another owner":                 func(next *lease.Row) { next.Owner = worker("b") },
		"no owner":                      func(next *lease.Row) { next.Owner = lease.Owner{} },
		"finished while held":           func(next *lease.Row) { next.Finished = true },
		"finished and freed":            func(next *lease.Row) { next.Finished, next.Owner = true, lease.Owner{} },
		"older checkpoint":              func(next *lease.Row) { next.Checkpoint.Generation = next.Generation - 1 },
		"checkpoint erased":             func(next *lease.Row) { next.Checkpoint = checkpoint.Checkpoint{} },
		"parents changed":               func(next *lease.Row) { next.Parents = []string{"another"} },
		"failures changed":              func(next *lease.Row) { next.Failures.Count++ },
		"past invented":                 func(next *lease.Row) { next.Past = "garbage" },
		"last transfer rewritten":       func(next *lease.Row) { next.Last.By = "another" },
		"a transfer of another write": func(next *lease.Row) {
			next.Generation++
			next.Last.Generation++
		},
		"a task that no owner had": func(next *lease.Row) {
			next.Generation++
			next.Last.Generation, next.Last.WriteID, next.Last.From, next.Last.Task = next.Generation, next.WriteID, next.Owner.Name, "another"
			next.Past = r.Followed(next.Generation)
		},
		"a reservation of a held row": func(next *lease.Row) { next.Reserved = reservation() },
		"an offer that outlives its generation": func(next *lease.Row) {
			next.Generation++
			next.Last.Generation, next.Last.WriteID, next.OfferedTo = next.Generation, next.WriteID, "x"
		},
		"checkpoint of a later generation": func(next *lease.Row) { next.Checkpoint.Generation = next.Generation + 1 },
	} {
		next := good.Next.(lease.Row)
		spoil(&next)
		for _, op := range []lease.Op{lease.OpSwap, lease.OpTransfer, 0, 99} {
			_, err := b.store.Write(b.Context(), lease.Write{Op: op, Old: r, Next: next})
			if !errors.Is(err, lease.ErrBadWrite) && !errors.Is(err, checkpoint.ErrInvalid) {
				b.Errorf("%s, %v: got %v", name, op, err)
			}
		}
	}
	seat := newSeat("a")
	for name, spoil := range map[string]func(s *lease.Seat){
		"no name":          func(s *lease.Seat) { s.Name = "" },
		"no incarnation":   func(s *lease.Seat) { s.Incarnation = "" },
		"no lease time":    func(s *lease.Seat) { s.TTL = 0 },
		"endless":          func(s *lease.Seat) { s.TTL = 1000 * time.Hour },
		"with a heartbeat": func(s *lease.Seat) { s.Beat = 3 },
	} {
		next := seat
		next.WriteID = "id"
		spoil(&next)
		_, err := b.store.Write(b.Context(), lease.Write{Op: lease.OpCreate, Next: next})
		if !errors.Is(err, lease.ErrBadWrite) && !errors.Is(err, checkpoint.ErrInvalid) {
			b.Errorf("seat, %s: got %v", name, err)
		}
	}
	next, none := good.Next.(lease.Row), (*lease.Row)(nil)
	for name, w := range map[string]lease.Write{
		"pointers":             {Op: lease.OpSwap, Old: &r, Next: &next},
		"nil pointers":         {Op: lease.OpSwap, Old: none, Next: none},
		"a swap without Old":   {Op: lease.OpSwap, Next: next},
		"zero Write":           {},
		"a row becomes a seat": {Op: lease.OpSwap, Old: r, Next: seat},
		"created by hand":      {Op: lease.OpCreate, Next: func() lease.Row { n := r; n.Shard, n.Counter = "new", 1; return n }()},
		"deleted pointer":      {Op: lease.OpDelete, Old: &seat},
		"a row deleted unread": {Op: lease.OpDelete, Old: r, Spoilt: true},
		"a row swapped unread": {Op: lease.OpSwap, Old: r, Next: next, Spoilt: true},
	} {
		if _, err := b.store.Write(b.Context(), w); !errors.Is(err, lease.ErrBadWrite) && !errors.Is(err, checkpoint.ErrInvalid) {
			b.Errorf("%s: got %v", name, err)
		}
	}
	for _, k := range []lease.Key{{Group: group, Kind: lease.KindJournal + 1, Name: shard}, {Kind: lease.KindLease, Name: shard}, {Group: group, Kind: lease.KindSeat}} {
		if _, err := b.store.Get(b.Context(), k); !errors.Is(err, checkpoint.ErrInvalid) {
			b.Errorf("Get of %v: got %v", k, err)
		}
	}
	for _, q := range []lease.Query{{Group: group}, {Group: group, Kind: lease.KindJournal + 1}, {Kind: lease.KindLease}, {Group: group, Kind: lease.KindLease, Limit: -1}} {
		for r, err := range b.store.List(b.Context(), q) {
			if !errors.Is(err, checkpoint.ErrInvalid) {
				b.Errorf("List of %v: got %v, %v", q, r, err)
			}
		}
	}
	equal(b, "the row", b.row(), r)
	equal(b, "rows", len(b.list(lease.KindLease)), 1)
	equal(b, "seats", len(b.list(lease.KindSeat)), 0)
}
