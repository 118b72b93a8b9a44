package rebalance

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// Nobody is the index that means no worker, in a View and in a plan.
const Nobody = -1

// A View is the input of a planner: the shards that may be processed and the running workers, by
// index.
type View struct {
	Shards  []Place  // the shards, sorted by name
	Workers []Worker // the workers, sorted by incarnation
	// Pins are the shards that must be where they are pinned: the index of a worker by the index
	// of a shard. It has no pins to workers without room for them.
	Pins map[int]int
}

// A Place is one shard and its owner.
type Place struct {
	Name   string
	Weight int    // the weight that the source states; Even counts shards and ignores it
	Owner  int    // the index of the worker to which the plan before assigns the shard; Nobody: none that lives
	Tie    uint64 // Tie(Name), which decides ties instead of the order of names
}

// A Worker is one member of the fleet.
type Worker struct {
	Name     string
	Tie      uint64            // Tie of the worker's incarnation
	Labels   map[string]string // task: Config.Task; build: Config.Build
	Limit    int               // how many shards the worker holds at most; 0 or less: any number
	Leaving  bool              // the worker keeps its shards until others take them, and gets no more
	Cordoned bool              // an operator wants the worker to keep its shards and to get no more
	Unwell   bool              // its handlers fail: it should keep its shards and get no more
}

// A Planner decides which worker should hold which shard. One worker's planner makes each plan of
// the whole fleet, and any worker may make the next one. So Plan need not be pure: it may measure,
// remember and draw lots. But a plan that moves held shards again and again never lets the fleet
// settle.
//
// A worker calls its planner once for a plan, and again with pins if held shards would move and
// may not yet; never twice at a time. If Plan takes longer than about a second, other workers may
// begin the same plan: only the first of these plans counts. After a third of the lease time Even
// plans instead.
type Planner interface {
	// Plan returns, for each shard of v, the index of the worker that should hold it. Nobody means
	// that there is no room for the shard; it then stays where it is. Plan must not change v, nor
	// use any part of it after it has returned.
	//
	// No planner can keep a shard from being processed, or break a rule of the workers. A shard that
	// no living worker has is placed in any case: if Plan returns Nobody for it, or a worker that is
	// full, it goes to a worker with room that has the fewest shards. So does a shard that Plan gives
	// to a worker that has just failed it, is leaving, or is cordoned or unwell while others are not.
	// A pinned shard goes where it is pinned. If Plan gives all shards to Nobody although one has no
	// worker that stays, and there is room, that is no plan: Even plans instead, and the fault is reported.
	Plan(v View) []int
	// Name returns the name of the planner and its version, in at most 64 printable bytes. The
	// plan has it, for people and tools. No worker compares it.
	Name() string
}

// Even is the built-in planner: equal counts, fewest moves. Its zero value is ready to use.
//
// A plan of Even gives a leaving worker no shards, and no worker more shards than its limit. A
// pinned shard is where it is pinned, whatever else holds. A cordoned or unwell worker keeps what
// it holds within its limit, and gets nothing while other workers have room. If all workers that are
// not leaving are cordoned or unwell, none counts as that. Of all such plans Even chooses the best
// by these rules. A later rule only chooses among the plans that are best by the rules before it:
//
//  1. Place as many shards as possible.
//  2. Make the counts level: a worker has two shards fewer than another only if it is at its
//     limit, or if the other keeps what it holds or is pinned. Without limits, counts differ by at
//     most one.
//  3. Leave as many shards as possible where they are.
//  4. Move as few held shards as possible. To place a free shard is not a move.
//
// If there is not enough room for all shards, some get Nobody, and a held shard that gets Nobody
// stays with its owner. Even gives the room that is left after rule 3 first to free shards,
// because nobody processes them; then to the shards of leaving workers; and last to the shards
// that a worker holds above its limit. Rule 3 comes before rule 4 because of such plans: otherwise
// a free shard could get the place of a held one, and the worker would have both.
//
// Tie decides what the rules leave open: which workers hold one shard more than others, which
// shards leave a worker that has too many, which of them find room, and where.
//
// Plans are stable: after a plan, or any part of it, is carried out, the next plan is the same.
// So moves may wait, fail and be repeated in any order, and workers that plan one after the other
// agree.
type Even struct{}

// Name implements [Planner].
func (Even) Name() string { return "even/1" }

// Plan implements [Planner]. Its time is linear in the number of shards and workers, or n log n if
// somebody has chosen names that make it slow.
func (Even) Plan(v View) []int {
	l := survey(v)
	l.divide()
	l.keep()
	l.release()
	if l.room < len(v.Shards) {
		l.selectPlaced()
	}
	l.deal()
	return l.plan
}

// Tie returns the hash of a name for [Place.Tie] and [Worker.Tie]. It will never change, because
// workers of different versions on different machines have to agree on it. It is FNV-1a with a
// finaliser: ties are compared by their high bits, which FNV hardly changes for names that differ
// at the end.
func Tie(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix is the finaliser of MurmurHash3: each bit of h changes about half of the result's bits.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// toPlace marks, in an unfinished plan, a shard that deal has to place.
const toPlace = Nobody - 1

// A layout is an unfinished plan. Its slices by worker have one element more, for the free
// shards; the share of this element is 0.
type layout struct {
	View
	plan    []int       // by shard: the worker that should hold it, Nobody or toPlace
	held    []int       // by worker: how many shards it has now
	pinned  []int       // by worker: how many of them it must keep
	share   []int       // by worker: how many shards it should have
	room    int         // how many shards can be placed
	spare   int         // how many of the shards that can be placed will not be where they are now
	salt    uint64      // a hash of all shards, so that no worker is preferred in every table
	choices []candidate // the shards among which the plan has to choose, grouped by worker
	ends    []int       // by worker: the end of its candidates in choices; -1: it has none
}

// A candidate is a shard or a worker in a choice that is decided by key.
type candidate struct {
	key   uint64
	index int
}

// survey counts the shards of each worker.
func survey(v View) *layout {
	slots := len(v.Workers) + 1
	l := &layout{
		View: v,
		plan: make([]int, len(v.Shards)),
		held: make([]int, slots), pinned: make([]int, slots), share: make([]int, slots), ends: make([]int, slots),
	}
	for i := range v.Pins {
		if l.pinnedTo(i) {
			l.pinned[l.holder(i)]++
		}
	}
	held, salt := l.held, uint64(0)
	for i := range v.Shards {
		held[l.holder(i)]++
		salt ^= v.Shards[i].Tie
	}
	l.salt = salt
	return l
}

// holder returns the index of the worker that has shard i, or that it is pinned to, or
// len(l.Workers) if the shard is free.
func (l *layout) holder(i int) int {
	owner := l.Shards[i].Owner
	if l.pinnedTo(i) {
		owner = l.Pins[i]
	}
	if uint(owner) < uint(len(l.Workers)) {
		return owner
	}
	return len(l.Workers)
}

// pinnedTo reports whether shard i is pinned to a worker.
func (l *layout) pinnedTo(i int) bool {
	if len(l.Pins) == 0 {
		return false
	}
	w, ok := l.Pins[i]
	return ok && uint(w) < uint(len(l.Workers)) && uint(i) < uint(len(l.Shards))
}

// divide sets the shares. It fills all workers up to the same level, as far as their bounds
// allow. If the shards that are left do not fill the next level, some workers get one more: first
// those that hold one more already, because each of them saves a move.
func (l *layout) divide() {
	least, most := l.bounds()
	level := sort.Search(l.room, func(h int) bool { return overflows(least, most, h+1, l.room) })
	rest := l.room
	more := make([]candidate, 0, len(most))
	for w := range most {
		l.share[w] = max(least[w], min(most[w], level))
		rest -= l.share[w]
		if least[w] <= level && level < most[w] {
			key := mix(l.Workers[w].Tie^l.salt) >> 1
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

// bounds returns how many shards each worker has at least and at most, and sets room to how many
// shards can be placed. Limits are cut to the number of shards, because users write
// math.MaxInt, and sums of it overflow.
func (l *layout) bounds() (least, most []int) {
	n := len(l.Shards)
	least, most = slices.Clone(l.pinned[:len(l.Workers)]), make([]int, len(l.Workers))
	anyFit := slices.ContainsFunc(l.Workers, func(w Worker) bool { return w.fit() })
	unfit := func(w int) bool { return anyFit && !l.Workers[w].fit() && !l.Workers[w].Leaving }
	room := 0 // without what cordoned and unwell workers get beyond what they hold
	for w := range most {
		switch worker := &l.Workers[w]; {
		case worker.Leaving:
		case worker.Limit > 0:
			most[w] = min(worker.Limit, n)
		default:
			most[w] = n
		}
		if unfit(w) {
			least[w] = max(least[w], min(l.held[w], most[w]))
			room += least[w]
		} else {
			room += min(max(least[w], most[w]), n)
		}
		most[w] = max(least[w], most[w])
		l.room += min(most[w], n-l.room)
	}
	for w := range most {
		switch {
		case unfit(w) && room >= n:
			most[w] = least[w]
		case !unfit(w) && room < n:
			least[w] = most[w] // the others get only what finds no room here
		}
	}
	return least, most
}

// fit reports whether the worker may get shards.
func (w *Worker) fit() bool { return !w.Leaving && !w.Cordoned && !w.Unwell }

// overflows reports whether workers with these bounds, filled up to level, hold more than that many
// shards.
func overflows(least, most []int, level, shards int) bool {
	for w := range most {
		if shards -= max(least[w], min(most[w], level)); shards < 0 {
			return true
		}
	}
	return false
}

// keep leaves every shard where it is, except those of workers whose share is 0. It collects the
// shards among which the plan has to choose as candidates.
func (l *layout) keep() {
	stay := make([]int, len(l.share))
	short := l.room < len(l.Shards)
	total := 0
	for w, share := range l.share {
		stay[w], l.ends[w] = w, -1
		if share == 0 {
			stay[w] = toPlace
		}
		// If all shards of a worker must go and all will find room, there is nothing to choose.
		if l.held[w] > share && (share > 0 || short) {
			l.ends[w] = total
			total += l.held[w] - l.pinned[w]
		}
	}
	l.choices = make([]candidate, total)
	plan, ends := l.plan, l.ends
	for i := range l.Shards {
		w := l.holder(i)
		plan[i] = stay[w]
		if at := ends[w]; at >= 0 && !l.pinnedTo(i) {
			l.choices[at] = candidate{l.Shards[i].Tie, i}
			ends[w]++
		}
	}
}

// release takes from each worker the shards above its share. The worker's tie is mixed into the
// keys, so that it is not always the same shards that move.
func (l *layout) release() {
	for w, share := range l.share {
		if share == 0 || l.ends[w] < 0 {
			continue
		}
		mine, excess := l.candidates(w), l.held[w]-share
		for i := range mine {
			mine[i].key = mix(mine[i].key ^ l.Workers[w].Tie)
		}
		first(mine, excess)
		for _, c := range mine[:excess] {
			l.plan[c.index] = toPlace
		}
	}
}

// candidates returns the shards of worker w, or the free ones, among which the plan has to choose.
func (l *layout) candidates(w int) []candidate {
	end := l.ends[w]
	if end < 0 {
		return nil
	}
	return l.choices[end-l.held[w]+l.pinned[w] : end]
}

// selectPlaced selects as many of the shards to place as there is room for: first free shards, then
// those of leaving workers, then those above a worker's limit. The others get Nobody.
func (l *layout) selectPlaced() {
	var free, leaving, excess []candidate
	for w, share := range l.share {
		mine := l.candidates(w)
		mine = mine[:min(len(mine), max(0, l.held[w]-share))]
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

// deal gives each shard to place to the first worker with an open place. It begins the search at
// the worker that the shard's tie picks.
//
// Invariant: deal goes through the shards in the order of the view, and ignores their owners. So
// a shard that is already where an earlier plan put it takes the place that it would be dealt,
// and all others get the same places as before.
func (l *layout) deal() {
	open := l.share[:len(l.Workers)]
	for w := range open {
		open[w] -= min(l.held[w], open[w])
	}
	next := nextOpen(open)
	for i := 0; l.spare > 0; i++ {
		if l.plan[i] != toPlace {
			continue
		}
		// The low half of the tie picks, because selectPlaced may have selected by the high half.
		pick, _ := bits.Mul64(bits.RotateLeft64(l.Shards[i].Tie, 32), uint64(len(open)))
		w := int(pick)
		for next[w] != w {
			next[w] = next[next[w]] // shortens the path for later shards
			w = next[w]
		}
		l.plan[i] = w
		l.spare--
		if open[w]--; open[w] == 0 {
			next[w] = next[(w+1)%len(next)]
		}
	}
}

// nextOpen returns, for each worker, the first worker with an open place at or after it. After
// the last worker it continues with the first.
func nextOpen(open []int) []int {
	next := make([]int, len(open))
	found := 0
	for range 2 { // in the second round, found is right from the start
		for w := len(open) - 1; w >= 0; w-- {
			if open[w] > 0 {
				found = w
			}
			next[w] = found
		}
	}
	return next
}

// first brings the n candidates with the smallest keys to the front, in any order. (It is a
// quickselect, because to sort 100,000 candidates would take longer than everything else. If the
// keys make quickselect quadratic, because somebody chose them or by chance, first sorts
// instead.)
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
		switch { // all of c[:j+1] is before c[i:], with at most the pivot between them
		case n <= j:
			c = c[:j+1]
		case n >= i:
			c, n = c[i:], n-i
		default:
			return
		}
	}
}

// before orders by key, and equal keys by index. Equal keys should happen only in tests.
func (c candidate) before(d candidate) bool {
	if c.key != d.key {
		return c.key < d.key
	}
	return c.index < d.index
}

func (c candidate) compare(d candidate) int {
	return cmp.Or(cmp.Compare(c.key, d.key), cmp.Compare(c.index, d.index))
}
