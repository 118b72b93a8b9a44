package engine

import (
	"slices"
	"strings"
)

// The feed holds what the source of this worker lists: each shard with its parents and its weight, how many listings in a
// row have lacked the others, and when the source is polled next.
//
//	asking → answered → waits for Config.Poll → asking
//
// A worker whose source has failed to answer twice in a row says so on its seat. It is then the last of
// the watchers, so that in a large fleet, where only the first of them polls, another one finds new
// shards. It goes on polling until it has an answer.
//
// Called by the spine: keep in each step, sourced with each listing, silent when there is none in
// time, start and stop when this worker begins or ceases to poll regularly, only and forget after a
// listing or a new target, soon when a shard has finished or come back, doubt when a target asks about
// a shard, bar and tells when a row has outlasted the listings.
//
// Nothing is written here. A shard that the source lists gets a row when the plan places it (take.go). Sources of different
// workers may differ for a while: each worker acts on its own.
//
// A sourced shard:
//
//	listed → absent 1 → absent 2: barred from this worker → listed
//
// Invariant: only a complete listing shows that the source lacks a shard.
// Invariant: only two complete listings in a row take a shard from its worker, or bar it from one. A single one may be
// wrong.

// A feed is the source, as this worker has polled it. shards is sorted by name.
type feed struct {
	next     Instant
	polled   Instant
	asking   bool
	begun    order // the step in which the latest listing was asked for
	shown    order // the step in which the latest complete listing that was answered was asked for; 0: there was none
	earlier  order // the same of the complete listing before it
	complete int64 // how many complete listings there were
	answered bool  // there was an answer, complete or not
	fails    int32 // polls in a row that had no answer, or only an error
	doubted  order // the step in which a target last asked whether the source still lists a shard; 0: none has
	shards   []sourced
}

// A sourced is a shard that the source lists, or has listed.
type sourced struct {
	Shard
	asked  order // the step in which the latest listing was asked for that lists it
	listed bool  // by the latest listing that could show it
	absent int32 // complete listings in a row that lacked it
	told   int64 // 1 above the generation for which this worker has said that the shard is unlisted
}

// keep polls the source when it is due. A question of a target (doubt) is due until two complete listings that began
// later have answered it; while the source fails, the usual pace is enough.
func (f *feed) keep(t *turn) {
	if f.earlier < f.doubted && f.fails == 0 {
		f.soon(t)
	}
	switch {
	case f.asking:
	case t.now.Mono >= f.next:
		f.asking, f.begun, f.polled, f.next = true, t.step, t.now.Mono, Never
		t.do(Poll{})
	default:
		t.at(f.next)
	}
}

// awaited reports whether the first listing is under way, for no longer than a heartbeat.
func (f *feed) awaited(t *turn) bool {
	until := f.polled.Add(t.beat)
	if !f.asking || f.answered || f.complete > 0 || t.now.Mono >= until {
		return false
	}
	t.at(until)
	return true
}

// soon polls the source once more. Many finished shards are one more listing.
func (f *feed) soon(t *turn) { f.next = min(f.next, max(t.now.Mono, f.polled.Add(t.beat/4))) }

// doubt makes keep poll the source until two complete listings show whether it still lists the shards of this worker.
func (f *feed) doubt(t *turn) { f.doubted = t.step }

// blind reports whether the source does not answer.
func (f *feed) blind() bool { return f.fails >= 2 }

// silent notes that the source has not answered in time, which it may still do.
func (f *feed) silent() { f.fails = 2 }

// start begins to poll regularly. It forgets the listings, but not the shards that they have ceased to list.
func (f *feed) start() {
	*f = feed{asking: f.asking, fails: f.fails, doubted: f.doubted, shards: f.barred()}
}

// stop ends that: from now on only soon and doubt cause a poll. It forgets what start forgets.
func (f *feed) stop(needed func(name string) bool) {
	*f = feed{asking: f.asking, next: f.next, begun: f.begun, polled: f.polled, fails: f.fails, doubted: f.doubted, shards: f.barred()}
	f.only(needed)
}

// forget drops shards that the source lists no more and that nobody needs.
func (f *feed) forget(needed func(name string) bool) {
	f.shards = slices.DeleteFunc(f.shards, func(s sourced) bool { return s.absent >= 2 && !needed(s.Name) })
}

// barred returns the shards that the source has ceased to list. They stay barred until it lists them again.
func (f *feed) barred() []sourced {
	return slices.DeleteFunc(slices.Clone(f.shards), func(s sourced) bool { return s.absent < 2 })
}

// only drops the other shards. Unless the source fails or a doubt is open, soon alone causes the next poll.
func (f *feed) only(needed func(name string) bool) {
	f.shards = slices.DeleteFunc(f.shards, func(s sourced) bool { return !needed(s.Name) })
	if !f.blind() && f.earlier >= f.doubted {
		f.next = Never
	}
}

// sourced takes a listing. One that is not complete adds shards and removes none. If a name is listed twice, the first
// one counts.
func (f *feed) sourced(t *turn, in Source) {
	f.asking = false
	f.next = min(f.next, t.now.Mono.Add(t.jitter(t.cfg.Poll)))
	if in.Err != nil && f.complete == 0 {
		f.next = min(f.next, t.now.Mono.Add(min(t.cfg.Poll, t.beat))) // there is nothing to go by yet
	}
	if f.fails = min(f.fails+1, 2); in.Err == nil {
		f.fails = 0
	}
	f.answered = f.answered || in.Answered
	if in.Complete {
		f.earlier, f.shown = f.shown, f.begun
		f.complete = min(f.complete+1, 3) // more makes no difference
	}
	listed := slices.Clone(in.Shards)
	slices.SortFunc(listed, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	next, at := make([]sourced, 0, max(len(listed), len(f.shards))), 0
	for _, shard := range listed {
		for ; at < len(f.shards) && f.shards[at].Name < shard.Name; at++ {
			next = append(next, f.shards[at].lacking(in.Complete))
		}
		if at < len(f.shards) && f.shards[at].Name == shard.Name {
			at++
		}
		if n := len(next); n == 0 || next[n-1].Name != shard.Name {
			next = append(next, sourced{Shard: shard, asked: f.begun, listed: true})
		}
	}
	for ; at < len(f.shards); at++ {
		next = append(next, f.shards[at].lacking(in.Complete))
	}
	f.shards = next
}

// lacking is a shard that the latest listing lacks. One that is not complete changes nothing.
func (s sourced) lacking(complete bool) sourced {
	if complete {
		s.listed, s.absent = false, min(s.absent+1, 3) // more makes no difference
	}
	return s
}

func (f *feed) find(name string) *sourced {
	return find(f.shards, name, func(s *sourced) string { return s.Name })
}

// relisted reports whether the source lists the shard, in a listing that was asked for in the step since
// or later. A tombstone shows that the source has omitted the shard, and the listing from which
// it was planned may be older.
func (f *feed) relisted(name string, since order) bool {
	s := f.find(name)
	return s != nil && s.listed && s.asked >= since
}

// lacks reports whether the latest complete listing lacks the shard. Unlike omits, one listing is enough: it is asked
// only about shards of targets that are torn.
func (f *feed) lacks(name string) bool {
	return f.complete > 0 && !f.lists(name)
}

// lists reports whether the latest listing that could show it has the shard.
func (f *feed) lists(name string) bool {
	s := f.find(name)
	return s != nil && s.listed
}

// bars reports whether this worker must not process the shard: two complete listings in a row have lacked it, or bar
// has barred it. In contrast to omits, a shard that the feed does not remember is not barred.
func (f *feed) bars(t *turn, name string) bool {
	s := f.find(name)
	return s != nil && s.absent >= 2 && !t.cfg.KeepUnlisted
}

// bar bars a shard that the source does not list, although it has perhaps never listed it: this worker has given the
// shard up, or its row has outlasted two complete listings.
func (f *feed) bar(name string) *sourced {
	s := know(&f.shards, name, func(s *sourced) string { return s.Name })
	if s.Name = name; !s.listed {
		s.absent = 3
	}
	return s
}

// tells reports whether this worker has to say that the shard is unlisted: once for a generation, because other
// workers may have sources that list it, and the next plan would be made for nothing.
func (f *feed) tells(name string, generation int64) bool {
	s := f.bar(name)
	if s.listed || s.told == generation+1 {
		return false
	}
	s.told = generation + 1
	return true
}

// omits reports whether two complete listings in a row have lacked the shard that were asked for after the
// step since. Older ones do not show that the source has ceased to list it: the shard may be new.
func (f *feed) omits(name string, since order) bool {
	s := f.find(name)
	return f.earlier > since && (s == nil || s.absent >= 2)
}

// weight returns the weight of the shard; 0 if the source does not list it.
func (f *feed) weight(name string) int {
	if s := f.find(name); s != nil {
		return s.Weight
	}
	return 0
}
