package rebalance

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// Nobody stands in a View or a plan where no worker does.
const Nobody = -1

// A View is what a planner sees: the shards that may be worked on and the
// workers that are there, by index. Every worker of the fleet that sees the
// same table makes the same View.
type View struct {
	Shards  []Place  // sorted by name
	Workers []Worker // sorted by incarnation
}

// A Place is one shard and where it is.
type Place struct {
	Name   string
	Weight int    // as the source gives it; Even counts shards and ignores it
	Owner  int    // index of the worker that holds it, or that it is on its way to; Nobody: free
	Tie    uint64 // Tie(Name): ties fall by it, not by name order
}

// A Worker is one member of the fleet.
type Worker struct {
	Name    string
	Tie     uint64 // Tie of its incarnation
	Limit   int    // how many shards it will hold; 0 or less: any number
	Leaving bool   // keeps what it has until others take it, and gets nothing
}

// A Planner says who should hold what. There is no leader that could ask one
// planner for everybody: each worker asks its own. So Plan is pure (no clock,
// no chance, no map order, no memory of earlier plans), and two workers with the
// same View get the same answer.
type Planner interface {
	// Plan returns, for each shard of v, the index of the worker that should
	// hold it; Nobody where there is no room: such a shard stays where it is.
	// It leaves v as it is, and nothing of v is used after it returned.
	Plan(v View) []int
	// Fingerprint names the planner and its version in at most 64 printable
	// bytes. Held shards only move while all workers advertise the same, so a
	// planner that decides anything differently needs a new one.
	Fingerprint() string
}

// Even is the built-in planner: equal counts, fewest moves. Its zero value is
// ready to use. Its plan is, of all layouts that give a leaving worker nothing
// and no worker more than its limit, one that
//
//  1. places as many shards as there is room for;
//  2. is level: who has two fewer than another is at its limit (so without
//     limits, counts differ by at most one);
//  3. leaves as many shards as possible where they are;
//  4. moves as few held shards as possible. Placing a free shard is no move.
//
// Without 3, a plan short of room could put a free shard in the place of a held
// one, which would have nowhere to go and stay as well. With it, 4 has only one
// thing left to say: where there is not room for all, free shards come before
// those of leaving workers, because nobody works on a free one. Last come
// those a worker holds above its limit. Who gets no room gets Nobody.
//
// What is still undecided falls by Tie: who holds one more than others, which
// shards an overfull worker gives up, which of them finds room and where.
//
// Plans hold still. Carry one out, wholly or in any part, and the plan for what
// that leaves is the same plan: moves may wait, fail and be retried in any
// order, and workers that look at different moments still agree.
type Even struct{}

// Fingerprint implements [Planner].
func (Even) Fingerprint() string { return "even/1" }

// Plan implements [Planner], in time linear in shards and workers. With ties that were
// chosen to slow it down it takes n log n.
func (Even) Plan(v View) []int {
	l := survey(v)
	l.divide()
	l.keep()
	l.release()
	if l.room < len(v.Shards) {
		l.turnAway()
	}
	l.deal()
	return l.plan
}

// Tie hashes a name for [Place.Tie] and [Worker.Tie]. Workers of different
// versions on different machines have to agree on it, so it will not change:
// FNV-1a, and a finaliser because ties are compared by their high bits, which
// FNV hardly touches for names that differ at the end.
func Tie(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix is the finaliser of MurmurHash3: each bit of h changes half the result.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// homeless stands in an unfinished plan for a shard that deal has to place.
const homeless = Nobody - 1

// A layout is a plan in the making. Its slices by worker end with one element
// more, for the street: the place of free shards, whose share is none.
type layout struct {
	View
	plan   []int
	held   []int  // by worker: shards it has now
	share  []int  // by worker: shards it should have
	room   int    // how many shards can be placed
	spare  int    // how many of those will not be where they are now
	lot    uint64 // from all shard ties, so that no worker is lucky in every table
	giving []candidate
	given  []int // by worker: end of its candidates in giving; -1: has none
}

// A candidate is a shard or a worker up for a choice that falls by key.
type candidate struct {
	key   uint64
	index int
}

// survey counts who has what.
func survey(v View) *layout {
	seats := len(v.Workers) + 1
	l := &layout{
		View: v,
		plan: make([]int, len(v.Shards)),
		held: make([]int, seats), share: make([]int, seats), given: make([]int, seats),
	}
	held, lot := l.held, uint64(0)
	for i := range v.Shards {
		held[l.seat(i)]++
		lot ^= v.Shards[i].Tie
	}
	l.lot = lot
	return l
}

// seat is the index of the worker that has shard i, or of the street.
func (l *layout) seat(i int) int {
	if owner := l.Shards[i].Owner; uint(owner) < uint(len(l.Workers)) {
		return owner
	}
	return len(l.Workers)
}

// divide sets the shares: the limits are vessels, the shards water, and what is
// left below the next full level goes out as one more each, first to those who
// have that one already, because each of them saves a move.
func (l *layout) divide() {
	limits := l.limits()
	level := sort.Search(l.room, func(h int) bool { return overflows(limits, h+1, l.room) })
	rest := l.room
	more := make([]candidate, 0, len(limits))
	for w, limit := range limits {
		l.share[w] = min(limit, level)
		rest -= l.share[w]
		if limit > level {
			key := mix(l.Workers[w].Tie^l.lot) >> 1
			if l.held[w] <= level {
				key |= 1 << 63
			}
			more = append(more, candidate{key, w})
		}
	}
	first(more, rest)
	for _, c := range more[:rest] {
		l.share[c.index]++
	}
	l.spare = l.room
	for w, share := range l.share {
		l.spare -= min(l.held[w], share)
	}
}

// limits gives each worker's limit and sets room to what they add up to, but no
// more than there are shards: users write math.MaxInt, and sums of it overflow.
func (l *layout) limits() []int {
	n := len(l.Shards)
	limits := make([]int, len(l.Workers))
	for w := range limits {
		switch worker := &l.Workers[w]; {
		case worker.Leaving:
			limits[w] = 0
		case worker.Limit > 0:
			limits[w] = worker.Limit
		default:
			limits[w] = n
		}
		l.room += min(limits[w], n-l.room)
	}
	return limits
}

// overflows reports whether vessels filled up to level hold more than water.
func overflows(vessels []int, level, water int) bool {
	for _, v := range vessels {
		if water -= min(v, level); water < 0 {
			return true
		}
	}
	return false
}

// keep leaves every shard where it is, but for those whose worker's share is
// nothing, and gathers as candidates those that need a choice.
func (l *layout) keep() {
	stay := make([]int, len(l.share))
	short := l.room < len(l.Shards)
	total := 0
	for w, share := range l.share {
		stay[w], l.given[w] = w, -1
		if share == 0 {
			stay[w] = homeless
		}
		// When all must go and all will find room, there is nothing to choose.
		if l.held[w] > share && (share > 0 || short) {
			l.given[w] = total
			total += l.held[w]
		}
	}
	l.giving = make([]candidate, total)
	plan, given := l.plan, l.given
	for i := range l.Shards {
		w := l.seat(i)
		plan[i] = stay[w]
		if at := given[w]; at >= 0 {
			l.giving[at] = candidate{l.Shards[i].Tie, i}
			given[w]++
		}
	}
}

// release takes from each overfull worker what it has above its share. Its own
// tie is mixed in: the same shards should not travel at every change.
func (l *layout) release() {
	for w, share := range l.share {
		if share == 0 || l.given[w] < 0 {
			continue
		}
		mine := l.candidates(w)
		for i := range mine {
			mine[i].key = mix(mine[i].key ^ l.Workers[w].Tie)
		}
		first(mine, len(mine)-share)
		for _, c := range mine[:len(mine)-share] {
			l.plan[c.index] = homeless
		}
	}
}

// candidates are the shards that worker w, or the street, has to choose from.
func (l *layout) candidates(w int) []candidate {
	end := l.given[w]
	if end < 0 {
		return nil
	}
	return l.giving[end-l.held[w] : end]
}

// turnAway leaves homeless only as many as there is room for: free shards
// first, then those of leaving workers, then what is above somebody's limit.
func (l *layout) turnAway() {
	var free, leaving, excess []candidate
	for w, share := range l.share {
		mine := l.candidates(w)
		mine = mine[:max(0, len(mine)-share)]
		switch {
		case w == len(l.Workers):
			free = mine
		case l.Workers[w].Leaving:
			leaving = append(leaving, mine...)
		default:
			excess = append(excess, mine...)
		}
	}
	spare := l.spare
	for _, class := range [][]candidate{free, leaving, excess} {
		in := min(spare, len(class))
		first(class, in)
		for _, c := range class[in:] {
			l.plan[c.index] = Nobody
		}
		spare -= in
	}
}

// deal gives each homeless shard to the first worker with an open place, from
// one that its tie picks.
//
// Invariant: it takes them in the order of the view, and never looks at where
// they come from. So a shard that already is where an earlier plan put it takes
// up the place that it would be dealt, and all others get theirs as before.
func (l *layout) deal() {
	open := l.share[:len(l.Workers)]
	for w := range open {
		open[w] -= min(l.held[w], open[w])
	}
	next := nextOpen(open)
	for i := 0; l.spare > 0; i++ {
		if l.plan[i] != homeless {
			continue
		}
		// The low half picks: by the high half, turnAway may have chosen.
		pick, _ := bits.Mul64(bits.RotateLeft64(l.Shards[i].Tie, 32), uint64(len(open)))
		w := int(pick)
		for next[w] != w {
			next[w] = next[next[w]] // halves the way for those who come later
			w = next[w]
		}
		l.plan[i] = w
		l.spare--
		if open[w]--; open[w] == 0 {
			next[w] = next[(w+1)%len(next)]
		}
	}
}

// nextOpen gives for each worker the first one from it on, round the end, that
// has an open place.
func nextOpen(open []int) []int {
	next := make([]int, len(open))
	found := 0
	for range 2 { // the second time round, found is right from the start
		for w := len(open) - 1; w >= 0; w-- {
			if open[w] > 0 {
				found = w
			}
			next[w] = found
		}
	}
	return next
}

// first brings the n candidates with the smallest keys to the front, in any
// order. (Quickselect: a sort of 100,000 would take longer than all the rest. Where the
// keys would make quickselect quadratic, by somebody's choice or by chance, first sorts them.)
func first(c []candidate, n int) {
	for budget := 8 * len(c); 0 < n && n < len(c); budget -= len(c) {
		if budget < len(c) {
			slices.SortFunc(c, candidate.compare)
			return
		}
		pivot := c[len(c)/2]
		i, j := 0, len(c)-1
		for i <= j {
			for c[i].before(pivot) {
				i++
			}
			for pivot.before(c[j]) {
				j--
			}
			if i <= j {
				c[i], c[j] = c[j], c[i]
				i, j = i+1, j-1
			}
		}
		switch { // c[:j+1] comes before c[i:]; between them stands at most the pivot
		case n <= j:
			c = c[:j+1]
		case n >= i:
			c, n = c[i:], n-i
		default:
			return
		}
	}
}

// before orders by key. Equal keys, which only a planner's own test should see,
// fall by index.
func (c candidate) before(d candidate) bool {
	if c.key != d.key {
		return c.key < d.key
	}
	return c.index < d.index
}

func (c candidate) compare(d candidate) int {
	return cmp.Or(cmp.Compare(c.key, d.key), cmp.Compare(c.index, d.index))
}
