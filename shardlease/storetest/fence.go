package storetest

import (
	"errors"
	"fmt"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A holdersWrite is a write of a worker that believes to hold the shard.
type holdersWrite struct {
	name string
	make func(r lease.Row, h lease.Hold, s protocol.Stamp) (lease.Write, error)
}

func holdersWrites() []holdersWrite {
	return []holdersWrite{
		{"commit", func(r lease.Row, h lease.Hold, s protocol.Stamp) (lease.Write, error) {
			return protocol.Commit(r, h, mark("200"), s)
		}},
		{"progress", func(r lease.Row, h lease.Hold, s protocol.Stamp) (lease.Write, error) {
			return protocol.Progress(r, h, s)
		}},
		{"offer", func(r lease.Row, h lease.Hold, s protocol.Stamp) (lease.Write, error) {
			return protocol.Offer(r, h, worker("x").Incarnation, mark("200"), s)
		}},
		{"finish", func(r lease.Row, h lease.Hold, s protocol.Stamp) (lease.Write, error) {
			return protocol.Finish(r, h, mark("200"), s)
		}},
		{"release", func(r lease.Row, h lease.Hold, s protocol.Stamp) (lease.Write, error) {
			return protocol.Release(r, h, protocol.End{Reason: lease.ReasonReleased, Mark: mark("200")}, s)
		}},
		{"yield", func(r lease.Row, h lease.Hold, s protocol.Stamp) (lease.Write, error) {
			return protocol.Yield(r, h, worker("x"), protocol.End{Reason: lease.ReasonHandoff, Mark: mark("200")}, s)
		}},
	}
}

// staleHandle checks that every write of the holder of old is refused after a change of hands: by
// the table if it is made from the remembered row, and by the rules if it is made from the present
// row.
func (b *bench) staleHandle(old lease.Row) {
	b.Helper()
	for _, write := range holdersWrites() {
		w, err := write.make(old, hold(old), b.stamp())
		now := b.refuse(w, err)
		if verdict := protocol.Decide(old.Owner.Incarnation, w, now); verdict != protocol.Overtaken && verdict != protocol.Gone {
			b.Errorf("%s: the refusal has the verdict %v", write.name, verdict)
		}
		_, err = write.make(b.row(), hold(old), b.stamp())
		stale, ok := errors.AsType[*checkpoint.StaleError](err)
		if !ok {
			b.Errorf("%s from the present row: got %v, want a StaleError", write.name, err)
		} else if stale.Mine != old.Generation || stale.Observed != b.row().Generation {
			b.Errorf("%s: %v does not contain both generations", write.name, stale)
		}
	}
}

func staleGenerationIsRefused(b *bench) {
	old := b.held("a")
	b.put(protocol.Recover(old, worker("b"), b.stamp()))
	b.staleHandle(old)
	equal(b, "the owner", b.row().Owner, worker("b"))
	equal(b, "the position", b.row().Checkpoint.Mark, mark("100"))
}

func sameWorkerAcquiringAgain(b *bench) {
	old := b.held("a")
	b.put(protocol.Release(old, hold(old), protocol.End{Reason: lease.ReasonReleased}, b.stamp()))
	again := b.put(protocol.Claim(b.row(), worker("a"), b.stamp()))
	if again.Generation <= old.Generation {
		b.Errorf("generation %d after %d", again.Generation, old.Generation)
	}
	b.staleHandle(old)
	b.put(protocol.Commit(again, hold(again), mark("101"), b.stamp()))
}

func finishedShardStaysFinished(b *bench) {
	old := b.held("a")
	b.put(protocol.Finish(old, hold(old), mark("150"), b.stamp()))
	b.staleHandle(old)
	if r := b.row(); !r.Finished || r.Generation <= old.Generation || r.Checkpoint.Mark != mark("150") {
		b.Errorf("finished row is %v", r)
	}
	for _, claim := range []func(lease.Row) (lease.Write, error){
		func(r lease.Row) (lease.Write, error) { return protocol.Claim(r, worker("b"), b.stamp()) },
		func(r lease.Row) (lease.Write, error) {
			return protocol.Quarantine(r, protocol.Command{Seen: r.Generation, By: "b"}, lease.ReasonFailed, b.stamp())
		},
	} {
		if _, err := claim(b.row()); !errors.Is(err, protocol.ErrFinished) {
			b.Errorf("got %v, want ErrFinished", err)
		}
	}
}

func recreatedShardRefusesEarlierGenerations(b *bench) {
	old := b.held("a")
	claim, err := protocol.Recover(old, worker("late"), b.stamp())
	creation, errCreation := protocol.Begin(group, shard, nil, "late", b.stamp())
	b.put(protocol.Release(old, hold(old), protocol.End{Reason: lease.ReasonReleased}, b.stamp()))
	tombstone := b.put(protocol.Remove(b.row(), protocol.Command{Seen: b.row().Generation, By: "source"}, b.stamp()))
	equal(b, "rows listed beside a tombstone", len(b.list(lease.KindLease)), 0)

	everything := func() {
		b.staleHandle(old)
		b.refuse(claim, err)
		if now := b.refuse(creation, errCreation); now == nil {
			b.Error("a creation was refused without a row")
		}
	}
	everything()
	revived := b.put(protocol.Revive(tombstone, []string{"parent"}, "source", b.stamp()))
	if revived.Generation <= tombstone.Generation || !revived.Checkpoint.IsZero() || revived.Removed {
		b.Errorf("revived row is %v", revived)
	}
	everything()
	b.put(protocol.Claim(revived, worker("b"), b.stamp()))
	everything()
	b.refuse(protocol.Revive(tombstone, nil, "source", b.stamp()))
}

// leaseByName: a lease by name is created, discarded and revived in one write each. Nothing is
// created over its tombstone, and late writes of earlier holders are refused under every later
// generation.
func leaseByName(b *bench) {
	creation, errCreation := protocol.BeginHeld(group, shard, worker("late"), b.stamp())
	old := b.named("a")
	equal(b, "the lock delay as stored", b.row().Owner, old.Owner)
	discard, errDiscard := protocol.Discard(old, hold(old), protocol.End{Reason: lease.ReasonReleased}, b.stamp())
	tombstone := b.put(protocol.Discard(old, hold(old), protocol.End{Reason: lease.ReasonReleased}, b.stamp()))
	if !tombstone.Removed || tombstone.Generation <= old.Generation || tombstone.Owner.LockDelay != 0 {
		b.Errorf("discarded row is %v", tombstone)
	}
	equal(b, "rows listed beside a tombstone", len(b.list(lease.KindLease)), 0)

	everything := func() {
		b.staleHandle(old)
		b.refuse(discard, errDiscard)
		b.refuse(creation, errCreation)
	}
	everything()
	revival, errRevival := protocol.ReviveHeld(tombstone, worker("late"), b.stamp())
	revived := b.put(protocol.ReviveHeld(tombstone, worker("b"), b.stamp()))
	if revived.Owner != worker("b") || revived.Generation <= tombstone.Generation || revived.Removed {
		b.Errorf("revived row is %v", revived)
	}
	everything()
	b.refuse(revival, errRevival)
	equal(b, "rows listed", len(b.list(lease.KindLease)), 1)
}

func outdatedCommandIsRefused(b *bench) {
	seen := b.held("a")
	command := protocol.Command{Seen: seen.Generation, By: "operator", Note: "run 7 is dead"}
	late, err := protocol.ForceRelease(seen, command, b.stamp())
	b.put(protocol.Recover(seen, worker("b"), b.stamp()))
	b.refuse(late, err)
	r := b.row()
	for name, give := range map[string]func() (lease.Write, error){
		"force-release": func() (lease.Write, error) { return protocol.ForceRelease(r, command, b.stamp()) },
		"reassign":      func() (lease.Write, error) { return protocol.Reassign(r, command, reservation(), b.stamp()) },
		"quarantine":    func() (lease.Write, error) { return protocol.Quarantine(r, command, lease.ReasonForced, b.stamp()) },
		"unquarantine":  func() (lease.Write, error) { return protocol.Unquarantine(r, command, b.stamp()) },
		"rewind":        func() (lease.Write, error) { return protocol.Rewind(r, command, mark("1"), b.stamp()) },
		"conclude":      func() (lease.Write, error) { return protocol.Conclude(r, command, b.stamp()) },
		"remove":        func() (lease.Write, error) { return protocol.Remove(r, command, b.stamp()) },
	} {
		if _, err := give(); !errors.Is(err, lease.ErrOutdated) {
			b.Errorf("%s: got %v, want ErrOutdated", name, err)
		}
	}
	forced := b.put(protocol.ForceRelease(r, protocol.Command{Seen: r.Generation, By: "operator", Note: "run 7 is dead"}, b.stamp()))
	if !forced.Owner.IsZero() || forced.Last.Reason != lease.ReasonForced || forced.Last.Note != "run 7 is dead" || forced.Last.From != "b" {
		b.Errorf("forced row is %v", forced)
	}
}

// reservationEnds: a release stores a reservation, with the lock delay of the owner, and the next change of hands
// removes it. No store refuses a claim because of it. A late copy of the command does not bring it back.
func reservationEnds(b *bench) {
	for name, next := range map[string]func(lease.Row, protocol.Command) (lease.Write, error){
		"claim by another": func(r lease.Row, _ protocol.Command) (lease.Write, error) {
			return protocol.Claim(r, worker("b"), b.stamp())
		},
		"quarantine": func(r lease.Row, c protocol.Command) (lease.Write, error) {
			return protocol.Quarantine(r, c, lease.ReasonForced, b.stamp())
		},
		"rewind": func(r lease.Row, c protocol.Command) (lease.Write, error) {
			return protocol.Rewind(r, c, mark("1"), b.stamp())
		},
		"force-release": func(r lease.Row, c protocol.Command) (lease.Write, error) {
			return protocol.ForceRelease(r, c, b.stamp())
		},
		"remove": func(r lease.Row, c protocol.Command) (lease.Write, error) { return protocol.Remove(r, c, b.stamp()) },
	} {
		b.store = b.open(b.T)
		held, want := b.named("a"), reservation()
		want.Delay = held.Owner.LockDelay
		command, err := protocol.Reassign(held, protocol.Command{Seen: held.Generation, By: "op"}, reservation(), b.stamp())
		reserved := b.put(command, err)
		equal(b, "the reservation", b.row().Reserved, want)
		b.staleHandle(held)
		w, err := next(reserved, protocol.Command{Seen: reserved.Generation, By: "op", NoDelay: true})
		equal(b, "the reservation after a "+name, b.put(w, err).Reserved, lease.Reservation{})
		b.refuse(command, nil)
		equal(b, "the reservation as stored after a "+name, b.row().Reserved, lease.Reservation{})
	}
}

// lateTwinOfAnEarlierWrite: the bytes of every commit arrive again after every later commit, and
// change nothing. The positions go back and forth and are not ordered, so the copies are refused
// only because every write has its own id.
func lateTwinOfAnEarlierWrite(b *bench) {
	r := b.held("a")
	unordered := hold(r)
	unordered.Order = nil
	var sent []lease.Write
	for i := range 6 {
		w, err := protocol.Commit(r, unordered, mark(fmt.Sprint(200+i%2)), b.stamp())
		r = b.put(w, err)
		for _, twin := range sent {
			b.refuse(twin, nil)
		}
		sent = append(sent, w)
	}
	latest := sent[len(sent)-1]
	now := b.refuse(latest, nil)
	equal(b, "the verdict on the repeated latest commit", protocol.Decide(r.Owner.Incarnation, latest, now), protocol.Stored)
}

// swapFromAnExpectedRow: a worker takes a shard and then writes from the row that it expected,
// instead of the row in the answer. That must not undo what was committed in between.
func swapFromAnExpectedRow(b *bench) {
	seen := b.held("a")
	w, err := protocol.Recover(seen, worker("b"), b.stamp())
	b.put(protocol.Commit(seen, hold(seen), mark("200"), b.stamp()))
	b.put(w, err)
	expected := w.Next.(lease.Row)
	b.refuse(protocol.Progress(expected, hold(expected), b.stamp()))
	equal(b, "the position", b.row().Checkpoint.Mark, mark("200"))
}
