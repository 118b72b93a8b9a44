package protocol

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file has the transition of the counts of ended tenures, and finds out which writes have ended one. The counts are
// for people: no other transition depends on them.
//
// Every end of a tenure is one accepted write, which begins a generation of a row that had an owner. The process that made
// the write counts it: the owner that released the shard, the successor that took it, the worker that recovered it from a
// dead owner, or the operator. Two changes of hands count nothing: an adoption, which ends the tenures of a table that was
// lost, and Inherit.

// Ended returns why a tenure ended with the write w, given the answer of the store; false: w ended none, or it is not known
// that w was stored. A process gets one such answer for each write that is stored: it sends a write again only while it does
// not know the outcome.
func Ended(w lease.Write, reply lease.Record, err error) (lease.Reason, bool) {
	old, held := w.Old.(lease.Row)
	next, ok := w.Next.(lease.Row)
	if !held || !ok || next.Generation == old.Generation || old.Owner.IsZero() || next.Last.Reason == lease.ReasonAdopted {
		return "", false
	}
	if next.Last.Reason == lease.ReasonExpired && next.Failures.Last != old.Generation {
		return "", false // Inherit: the owner has never started the shard
	}
	if err == nil {
		return next.Last.Reason, reply != nil
	}
	refused, _ := errors.AsType[*lease.RefusedError](err)
	if refused == nil {
		return "", false
	}
	now, _ := refused.Now.(lease.Row)
	return next.Last.Reason, remembers(now, next.Last)
}

// remembers reports whether a row shows that a write with the change of hands mine was stored: it is the last one, or in the
// history, which has no write ids.
func remembers(now lease.Row, mine lease.Transfer) bool {
	if now.Last.Generation == mine.Generation { // the workers of another write may have the same names
		return now.Last.WriteID == mine.WriteID
	}
	return slices.ContainsFunc(now.History(), func(t lease.Transfer) bool {
		return t.Generation == mine.Generation && t.Reason == mine.Reason && t.From == mine.From && t.By == mine.By &&
			t.Mode == mine.Mode && t.Did == mine.Did
	})
}

// AddEnds adds to the counts of an hour. e has the counts as they were read; without a write id there are none yet.
func AddEnds(e lease.Ends, more map[lease.Reason]int64, s Stamp) (lease.Write, error) {
	next := e
	next.WriteID, next.Recent, next.At = s.ID, e.Followed(), wall(s.At)
	if next.Counts = maps.Clone(e.Counts); next.Counts == nil {
		next.Counts = map[lease.Reason]int64{}
	}
	for reason, n := range more {
		next.Counts[reason] += n
	}
	return replacement(e, next, e.WriteID != "")
}

// HourOf returns the hour to which an end is added that is counted at that time.
func HourOf(at time.Time) time.Time { return at.UTC().Round(0).Truncate(time.Hour) }

// decideEnds is Decide for counts. The counts remember the ids of their latest writes, so they show whether an earlier
// attempt was stored, also if others have written since. If too many have, nobody knows: the verdict is Overtaken. A writer
// whose earlier attempts were all answered knows that none was stored, and counts again; any other counts no more, because
// nothing may be counted twice.
func decideEnds(w lease.Write, now lease.Record) Verdict {
	old, _ := w.Old.(lease.Ends)
	at, ok := now.(lease.Ends)
	switch {
	case now == nil:
		return Again
	case !ok:
		return Unknown
	}
	switch known, complete := at.Knows(w.ID(), old.WriteID); {
	case known:
		return Stored
	case complete:
		return Again
	}
	return Overtaken
}
