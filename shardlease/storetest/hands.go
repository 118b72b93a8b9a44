package storetest

import (
	"fmt"
	"sync"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func claimRacingACommit(b *bench) {
	held := b.held("a")
	commit, errCommit := protocol.Commit(held, hold(held), mark("200"), b.stamp())
	claim, errClaim := protocol.Recover(held, worker("b"), b.stamp())

	b.put(commit, errCommit)
	first := b.put(claim, errClaim)
	equal(b, "the start after the commit", first.Checkpoint.Mark, mark("200"))
	equal(b, "the generation of the accepted checkpoint", first.Checkpoint.Generation, held.Generation)

	commit, errCommit = protocol.Commit(first, hold(first), mark("300"), b.stamp())
	second := b.put(protocol.Recover(first, worker("c"), b.stamp()))
	equal(b, "the start before the commit", second.Checkpoint.Mark, mark("200"))
	b.refuse(commit, errCommit)
}

// transferIsNotStarved: however much an owner commits after a transfer has read the row, the
// transfer is stored at the first attempt.
func transferIsNotStarved(b *bench) {
	transfers := b.transfers()
	transfers["take"] = func(r lease.Row) (lease.Write, error) { return protocol.Take(r, worker("b"), b.stamp()) }
	for name, transfer := range transfers {
		b.store = b.open(b.T)
		r := b.held("a")
		if name == "take" {
			r = b.put(protocol.Offer(r, hold(r), worker("b").Incarnation, mark("101"), b.stamp()))
		}
		w, err := transfer(r)
		for i := range 20 {
			r = b.put(protocol.Commit(r, hold(r), mark(fmt.Sprint(200+i)), b.stamp()))
		}
		got := b.put(w, err)
		equal(b, name+" starts from", got.Checkpoint, r.Checkpoint)
		equal(b, name+" is stored as returned", b.row(), got)
	}
}

// quarantineRacingACommit: a worker quarantines a shard because its owners have failed too often. It has read the row
// before the last commit of the dead owner was stored, which ends the count. An operator's quarantine is stored anyway.
func quarantineRacingACommit(b *bench) {
	seen := b.held("a")
	command := protocol.Command{Seen: seen.Generation, By: "b"}
	byWorker, errWorker := protocol.Quarantine(seen, command, lease.ReasonExpired, b.stamp())
	byOperator, errOperator := protocol.Quarantine(seen, command, lease.ReasonForced, b.stamp())
	committed := b.put(protocol.Commit(seen, hold(seen), mark("200"), b.stamp()))
	equal(b, "the verdict on the worker's", protocol.Decide("b-1", byWorker, b.refuse(byWorker, errWorker)), protocol.Again)
	equal(b, "the checkpoint of the operator's", b.put(byOperator, errOperator).Checkpoint, committed.Checkpoint)

	b.store = b.open(b.T)
	seen = b.held("a")
	w, err := protocol.Quarantine(seen, protocol.Command{Seen: seen.Generation, By: "b"}, lease.ReasonExpired, b.stamp())
	if r := b.put(w, err); !r.Quarantined || r.Attempts() != 1 || r.Checkpoint != seen.Checkpoint {
		b.Errorf("the row is %v after %d attempts", r, r.Attempts())
	}
	equal(b, "the row as stored", b.row(), w.Next.(lease.Row))
}

func transferCountsUp(b *bench) {
	seen := b.held("a")
	committed := b.put(protocol.Commit(seen, hold(seen), mark("200"), b.stamp()))
	got := b.put(protocol.Seize(seen, worker("b"), b.stamp()))
	equal(b, "the counter", got.Counter, committed.Counter+1)
	equal(b, "the generation", got.Generation, seen.Generation+1)
	equal(b, "the reason", got.Last.Reason, lease.ReasonDrainTimeout)
}

func withdrawnOfferIsNotTaken(b *bench) {
	held := b.held("a")
	offered := b.put(protocol.Offer(held, hold(held), worker("b").Incarnation, checkpoint.Mark{}, b.stamp()))
	take, err := protocol.Take(offered, worker("b"), b.stamp())
	withdrawn := b.put(protocol.Withdraw(offered, hold(offered), b.stamp()))
	now := b.refuse(take, err)
	equal(b, "the verdict", protocol.Decide(worker("b").Incarnation, take, now), protocol.Again)
	b.put(protocol.Offer(withdrawn, hold(held), worker("c").Incarnation, checkpoint.Mark{}, b.stamp()))
	b.refuse(take, err)
	equal(b, "the owner", b.row().Owner, worker("a"))
}

// offerMadeSinceIsNotLost: a store refuses a holder's write that was made from a row without the
// stored offer. That row may be the one before the offer, or one with the same counter that was
// never stored.
func offerMadeSinceIsNotLost(b *bench) {
	for _, write := range holdersWrites() {
		b.store = b.open(b.T)
		before := b.held("a")
		never, err := protocol.Progress(before, hold(before), b.stamp())
		if err != nil {
			b.Fatal(err)
		}
		offered := b.put(protocol.Offer(before, hold(before), worker("b").Incarnation, checkpoint.Mark{}, b.stamp()))
		for _, from := range []lease.Row{before, never.Next.(lease.Row)} {
			b.refuse(write.make(from, hold(from), b.stamp()))
		}
		equal(b, "the row after a late "+write.name, b.row(), offered)
	}
}

// offerMadeSinceEnds: a store accepts a transfer from a row that was read before the owner made an
// offer, or before it offered the shard to another worker, and the offer ends. A store that only
// writes the attributes that the transfer changes would keep the offer, and then the row could not
// be read.
func offerMadeSinceEnds(b *bench) {
	for name, transfer := range b.transfers() {
		for _, earlier := range []bool{false, true} {
			b.store = b.open(b.T)
			seen := b.held("a")
			if earlier {
				seen = b.put(protocol.Offer(seen, hold(seen), worker("x").Incarnation, mark("101"), b.stamp()))
			}
			w, err := transfer(seen)
			b.put(protocol.Offer(seen, hold(seen), worker("y").Incarnation, mark("102"), b.stamp()))
			got := b.put(w, err)
			equal(b, name+": the offer", got.OfferedTo, "")
			equal(b, name+": the past", got.Past, w.Next.(lease.Row).Past)
			equal(b, name+" is stored as returned", b.row(), got)
		}
	}
}

// transfers returns the transitions by which others change a row that somebody holds.
func (b *bench) transfers() map[string]func(lease.Row) (lease.Write, error) {
	return map[string]func(lease.Row) (lease.Write, error){
		"recover": func(r lease.Row) (lease.Write, error) { return protocol.Recover(r, worker("b"), b.stamp()) },
		"seize":   func(r lease.Row) (lease.Write, error) { return protocol.Seize(r, worker("b"), b.stamp()) },
		"force-release": func(r lease.Row) (lease.Write, error) {
			return protocol.ForceRelease(r, protocol.Command{Seen: r.Generation, By: "op"}, b.stamp())
		},
		"reassign": func(r lease.Row) (lease.Write, error) {
			return protocol.Reassign(r, protocol.Command{Seen: r.Generation, By: "op"}, reservation(), b.stamp())
		},
		"quarantine": func(r lease.Row) (lease.Write, error) {
			return protocol.Quarantine(r, protocol.Command{Seen: r.Generation, By: "op"}, lease.ReasonForced, b.stamp())
		},
		"adopt": func(r lease.Row) (lease.Write, error) { return protocol.Adopt(r, "op", b.stamp()) },
	}
}

func yieldAndTake(b *bench) {
	a := b.held("a")
	yielded := b.put(protocol.Yield(a, hold(a), worker("b"), protocol.End{Reason: lease.ReasonHandoff, Mark: mark("200")}, b.stamp()))
	equal(b, "the successor", yielded.Owner, worker("b"))
	equal(b, "its start", yielded.Checkpoint.Mark, mark("200"))
	equal(b, "its generation", yielded.Generation, a.Generation+1)
	b.staleHandle(a)

	offered := b.put(protocol.Offer(yielded, hold(yielded), worker("c").Incarnation, mark("300"), b.stamp()))
	equal(b, "an offer keeps the generation", offered.Generation, yielded.Generation)
	late := b.put(protocol.Commit(offered, hold(yielded), mark("400"), b.stamp()))
	equal(b, "the offer after a commit", late.OfferedTo, worker("c").Incarnation)
	taken := b.put(protocol.Take(offered, worker("c"), b.stamp()))
	equal(b, "a take starts from the latest commit", taken.Checkpoint.Mark, mark("400"))
	equal(b, "the offer after a take", taken.OfferedTo, "")
	b.staleHandle(yielded)
	equal(b, "the reason", taken.Last.Reason, lease.ReasonHandoff)
}

func oneOfManyClaimsWins(b *bench) {
	free := b.free()
	const n = 16
	var claims [n]lease.Write
	for i := range claims {
		w, err := protocol.Claim(free, worker(fmt.Sprint("w", i)), b.stamp())
		if err != nil {
			b.Fatal(err)
		}
		claims[i] = w
	}
	var rows [n]lease.Record
	var errs [n]error
	var all sync.WaitGroup
	for i := range claims {
		all.Go(func() { rows[i], errs[i] = b.store.Write(b.Context(), claims[i]) })
	}
	all.Wait()
	winners := 0
	for i := range claims {
		me := worker(fmt.Sprint("w", i))
		switch verdict, now := protocol.Settle(me.Incarnation, claims[i], rows[i], errs[i]); verdict {
		case protocol.Stored:
			winners++
			equal(b, "the winner's row", now, lease.Record(b.row()))
		case protocol.Overtaken:
		default:
			b.Errorf("claim %d: %v, %v", i, verdict, errs[i])
		}
	}
	equal(b, "winners", winners, 1)
}

// everyLifeOfARow goes through the transitions that the other tests do not use, and checks the row
// after each.
func everyLifeOfARow(b *bench) {
	operator := func(r lease.Row) protocol.Command {
		return protocol.Command{Seen: r.Generation, By: "operator", Note: "by hand"}
	}
	r := b.held("a")
	step := func(name string, next lease.Row, reason lease.Reason) {
		b.Helper()
		if next.Generation <= r.Generation || next.Last.Reason != reason || next.Last.From != r.Owner.Name {
			b.Errorf("%s changed %[3]v to %[2]v", name, next, r)
		}
		equal(b, name+" as stored", b.row(), next)
		r = next
	}
	step("failure", b.put(protocol.Release(r, hold(r), protocol.End{Reason: lease.ReasonFailed, Note: "panic"}, b.stamp())), lease.ReasonFailed)
	equal(b, "attempts after a failure with an accepted checkpoint", r.Attempts(), 1)
	step("claim", b.put(protocol.Claim(r, worker("b"), b.stamp())), lease.ReasonFailed)
	step("second failure", b.put(protocol.Recover(r, worker("c"), b.stamp())), lease.ReasonExpired)
	equal(b, "attempts after an expiry", r.Attempts(), 2)
	step("quarantine", b.put(protocol.Quarantine(r, operator(r), lease.ReasonExpired, b.stamp())), lease.ReasonExpired)
	equal(b, "attempts in quarantine", r.Attempts(), 3)
	if _, err := protocol.Claim(r, worker("d"), b.stamp()); err == nil || !r.Quarantined {
		b.Error("a quarantined shard can be claimed")
	}
	step("rewind", b.put(protocol.Rewind(r, operator(r), mark("5"), b.stamp())), lease.ReasonForced)
	equal(b, "position", r.Checkpoint.Mark, mark("5"))
	equal(b, "a rewind keeps the quarantine", r.Quarantined, true)
	step("unquarantine", b.put(protocol.Unquarantine(r, operator(r), b.stamp())), lease.ReasonForced)
	equal(b, "attempts after", r.Attempts(), 0)
	step("claim after unquarantine", b.put(protocol.Claim(r, worker("d"), b.stamp())), lease.ReasonForced)
	step("own row claimed again", b.put(protocol.Claim(r, worker("d"), b.stamp())), lease.ReasonReleased)
	step("adoption", b.put(protocol.Adopt(r, "operator", b.stamp())), lease.ReasonAdopted)
	step("claim after adoption", b.put(protocol.Claim(r, worker("e"), b.stamp())), lease.ReasonAdopted)
	step("finish", b.put(protocol.Finish(r, hold(r), mark("6"), b.stamp())), lease.ReasonFinished)
	step("removal", b.put(protocol.Remove(r, protocol.Command{Seen: r.Generation, By: "source"}, b.stamp())), lease.ReasonRemoved)
}
