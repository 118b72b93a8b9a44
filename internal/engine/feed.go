package engine

import (
	"slices"
	"strings"
)

// A feed is what the source says.
type feed struct {
	next     Instant
	polled   Instant
	asking   bool
	begun    order // the step the latest listing was asked for in
	complete bool  // there was a complete listing
	answered bool  // there was an answer, complete or not
	wake     Instant
}

// keepPolling asks the source when it is due.
func (e *Engine) keepPolling() {
	f := &e.feed
	f.wake = Never
	switch {
	case f.asking || e.leave.on:
	case e.now.Mono >= f.next:
		f.asking, f.begun, f.polled, f.next = true, e.step, e.now.Mono, Never
		e.do(Poll{})
	default:
		f.wake = f.next
	}
}

// pollSoon is for what happens often: many finished shards are one more listing.
func (e *Engine) pollSoon() {
	e.feed.next = min(e.feed.next, max(e.now.Mono, e.feed.polled.Add(e.beat/4)))
}

// sourced takes in a listing of the source. Shards that are new are planned with
// the next plan; whoever they fall to makes their rows.
func (e *Engine) sourced(in Source) {
	f := &e.feed
	f.asking = false
	f.next = min(f.next, e.now.Mono.Add(e.jitter(e.cfg.Poll)))
	if in.Err == nil {
		e.lower(&e.faults.source)
	} else {
		e.sourceFailed(in.Err)
		if !f.complete {
			f.next = min(f.next, e.now.Mono.Add(min(e.cfg.Poll, e.beat))) // it has nothing to go by yet
		}
	}
	news := in.Complete && !f.complete
	names := make([]string, len(in.Shards))
	for i, shard := range in.Shards {
		names[i] = shard.Name
	}
	slices.Sort(names)
	e.know(slices.Compact(names))
	for _, shard := range in.Shards {
		s := e.shard(shard.Name)
		if s.outdates(f.begun) {
			continue // its row was removed because it is listed no more: this listing may be older
		}
		news = news || !s.listed
		s.named, s.listed, s.absent, s.parents, s.weight = true, true, 0, shard.Parents, shard.Weight
	}
	f.complete, f.answered = f.complete || in.Complete, f.answered || in.Answered
	for _, s := range e.shards {
		if in.Complete && !s.named && !s.outdates(f.begun) {
			s.listed = false
			s.absent = min(s.absent+1, 3) // more makes no difference
			news = news || s.absent == 2 && s.copy.Row().Finished || s.absent == 1 && s.gone > 0
		}
		s.named = false
	}
	if news {
		e.wantPlan()
	}
}

// sourceFailed reports a listing with a fault. An error with another text is another fault,
// unless the texts differ only in words with digits: many services put the id of the request
// into their errors.
func (e *Engine) sourceFailed(err error) {
	f := &e.faults.source
	if f.on && !slices.Equal(plainWords(f.err), plainWords(err)) {
		f.on = false
	}
	e.raise(f, e.now.Mono, "", err)
}

func plainWords(err error) []string {
	return slices.DeleteFunc(strings.Fields(err.Error()), func(word string) bool { return strings.ContainsAny(word, "0123456789") })
}

// outdates reports whether a listing that was asked for then may be from before the row of
// s was removed. What a step has learnt it knows when it asks.
func (s *shard) outdates(begun order) bool { return s.gone > begun }
