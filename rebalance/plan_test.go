package rebalance_test

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
	"github.com/shardlease/shardlease-go/rebalance"
)

// An outcome is what level plans are compared by.
type outcome struct{ placed, kept, moved int }

func (o outcome) beats(p outcome) bool {
	if o.placed != p.placed {
		return o.placed > p.placed
	}
	if o.kept != p.kept {
		return o.kept > p.kept
	}
	return o.moved < p.moved
}

// loads returns how many shards each worker has where nothing but pins moves, and how many of
// them are pinned to it.
func loads(v rebalance.View) (held, pinned []int) {
	held, pinned = make([]int, len(v.Workers)), make([]int, len(v.Workers))
	for i, s := range v.Shards {
		owner := s.Owner
		if pin, ok := v.Pins[i]; ok {
			pinned[pin]++
			owner = pin
		}
		if owner >= 0 && owner < len(held) {
			held[owner]++
		}
	}
	return held, pinned
}

func fit(w rebalance.Worker) bool { return !w.Leaving && !w.Cordoned && !w.Unwell }

// resting returns which workers keep what they hold and should get nothing: the cordoned and
// the unwell, unless no other worker stays.
func resting(workers []rebalance.Worker) []bool {
	rest := make([]bool, len(workers))
	for w := range workers {
		rest[w] = !fit(workers[w]) && !workers[w].Leaving && slices.ContainsFunc(workers, fit)
	}
	return rest
}

// room reports whether the worker may have more than n shards.
func room(w rebalance.Worker, n int) bool { return !w.Leaving && (w.Limit <= 0 || n < w.Limit) }

// outcomeOf returns the outcome of a plan of v, and the rule that the plan breaks, if any.
func outcomeOf(v rebalance.View, plan []int) (o outcome, fault string) {
	held, pinned := loads(v)
	rest := resting(v.Workers)
	counts := make([]int, len(v.Workers))
	for i, w := range plan {
		if pin, ok := v.Pins[i]; ok && w != pin {
			return o, "a pinned shard is elsewhere"
		}
		if w == rebalance.Nobody {
			continue
		}
		if w < 0 || w >= len(counts) {
			return o, "a worker that does not exist"
		}
		counts[w]++
		o.placed++
		if owner := v.Shards[i].Owner; owner == w {
			o.kept++
		} else if owner >= 0 && owner < len(counts) {
			o.moved++
		}
	}
	least := [2]int{math.MaxInt, math.MaxInt} // the smallest count of a worker that could take one more; of one that rests
	floor := slices.Clone(pinned)
	for w, worker := range v.Workers {
		if rest[w] {
			floor[w] = max(floor[w], held[w])
			if worker.Limit > 0 {
				floor[w] = max(pinned[w], min(floor[w], worker.Limit))
			}
		}
		switch {
		case counts[w] > pinned[w] && !room(worker, counts[w]-1):
			return o, "a worker that is leaving or above its limit gets a shard"
		case counts[w] < floor[w]:
			return o, "a worker that rests loses a shard"
		case room(worker, counts[w]) && rest[w]:
			least[1] = min(least[1], counts[w])
		case room(worker, counts[w]):
			least[0] = min(least[0], counts[w])
		}
	}
	for w := range counts {
		switch {
		case counts[w] == floor[w]:
		case rest[w] && least[0] < math.MaxInt:
			return o, "a worker that rests gets a shard"
		case rest[w] && least[1] < counts[w]-1, !rest[w] && least[0] < counts[w]-1:
			return o, "not level"
		}
	}
	return o, ""
}

// optimum tries every layout. It tries only one permutation of shards with the same owner and
// without pins, which must be next to each other, because they are equal.
func optimum(v rebalance.View) outcome {
	best := outcome{placed: -1}
	plan := make([]int, len(v.Shards))
	equal := func(i, k int) bool {
		_, one := v.Pins[i]
		_, other := v.Pins[k]
		return v.Shards[i].Owner == v.Shards[k].Owner && !one && !other
	}
	var try func(i int)
	try = func(i int) {
		if i == len(plan) {
			if o, fault := outcomeOf(v, plan); fault == "" && o.beats(best) {
				best = o
			}
			return
		}
		from := rebalance.Nobody
		if i > 0 && equal(i, i-1) {
			from = plan[i-1]
		}
		for w := from; w < len(v.Workers); w++ {
			plan[i] = w
			try(i + 1)
		}
	}
	try(0)
	return best
}

// reckon computes the optimum of views that are too large to try everything. It gives out the
// places one by one, always to a worker that has fewest, and of those to one that holds a shard
// for that place already. Workers that rest get what the others have no room for.
func reckon(v rebalance.View) outcome {
	var o outcome
	held, counts := loads(v)
	pinned, rest := slices.Clone(counts), resting(v.Workers)
	free := 0
	for i, s := range v.Shards {
		pin, ok := v.Pins[i]
		switch owned := s.Owner >= 0 && s.Owner < len(held); {
		case ok && pin == s.Owner:
			o.kept++
		case ok && owned:
			o.moved++
		case !ok && !owned:
			free++
		}
	}
	for w, worker := range v.Workers {
		for rest[w] && counts[w] < held[w] && room(worker, counts[w]) {
			counts[w]++
		}
		o.placed += counts[w]
	}
	for ; o.placed < len(v.Shards); o.placed++ {
		next := -1
		for w, worker := range v.Workers {
			if !room(worker, counts[w]) {
				continue
			}
			if next < 0 || rest[next] && !rest[w] || rest[next] == rest[w] && (counts[w] < counts[next] ||
				counts[w] == counts[next] && held[w] > counts[w] && held[next] <= counts[next]) {
				next = w
			}
		}
		if next < 0 {
			break
		}
		counts[next]++
	}
	left := o.placed - len(v.Pins)
	for w := range counts {
		kept := min(counts[w], held[w]) - pinned[w]
		o.kept += kept
		left -= kept
	}
	o.moved += max(0, left-free)
	return o
}

// checkPlan checks the plan for v against everything that Even promises, and against want.
func checkPlan(t *testing.T, v rebalance.View, want outcome) {
	t.Helper()
	before := slices.Clone(v.Shards)
	plan := rebalance.Even{}.Plan(v)
	if len(plan) != len(v.Shards) {
		t.Fatalf("%d shards, but a plan for %d", len(v.Shards), len(plan))
	}
	got, fault := outcomeOf(v, plan)
	if fault != "" || got != want {
		t.Fatalf("plan %v: %+v %s; want %+v\nof %+v", plan, got, fault, want, v)
	}
	if !slices.Equal(v.Shards, before) {
		t.Fatalf("the plan changed its view: %+v, was %+v", v.Shards, before)
	}
	if again := (rebalance.Even{}).Plan(v); !slices.Equal(again, plan) {
		t.Fatalf("plan %v, planned again %v\nof %+v", plan, again, v)
	}
	if next := (rebalance.Even{}).Plan(applied(v, plan)); !slices.Equal(next, plan) {
		t.Fatalf("plan %v, after it is carried out %v\nof %+v", plan, next, v)
	}
}

// splits yields every way to put n things into that many boxes.
func splits(n, boxes int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		split := make([]int, boxes)
		var fill func(box, left int) bool
		fill = func(box, left int) bool {
			if box == boxes-1 {
				split[box] = left
				return yield(split)
			}
			for split[box] = range left + 1 {
				if !fill(box+1, left-split[box]) {
					return false
				}
			}
			return true
		}
		fill(0, n)
	}
}

// ownersOf returns the owners of shards, with split[w] shards for worker w. The last of split are
// free.
func ownersOf(split []int) []int {
	var owners []int
	for w, n := range split {
		if w == len(split)-1 {
			w = rebalance.Nobody
		}
		owners = append(owners, slices.Repeat([]int{w}, n)...)
	}
	return owners
}

// scattered returns a view of shards with these owners, in random order.
func scattered(rng *rand.Rand, owners []int, workers []rebalance.Worker) rebalance.View {
	v := fleet(len(owners), len(workers))
	for i, at := range rng.Perm(len(owners)) {
		v.Shards[at].Owner = owners[i]
	}
	for w, worker := range workers {
		worker.Name, worker.Tie = v.Workers[w].Name, v.Workers[w].Tie
		v.Workers[w] = worker
	}
	return v
}

// inOrder returns a view of shards with these owners, in that order.
func inOrder(owners []int, workers []rebalance.Worker) rebalance.View {
	v := rebalance.View{Workers: workers, Shards: make([]rebalance.Place, len(owners))}
	for i, owner := range owners {
		v.Shards[i].Owner = owner
	}
	return v
}

func TestEvenIsOptimalInEverySmallFleet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for workers := 1; workers <= fixture.Size(4, 5); workers++ {
		unlimited := make([]rebalance.Worker, workers)
		known := map[string]outcome{} // by counts of shards; the order of the workers does not matter
		for shards := range fixture.Size(8, 9) {
			for split := range splits(shards, workers+1) {
				alike := slices.Clone(split)
				slices.Sort(alike[:workers])
				want, ok := known[fmt.Sprint(alike)]
				if !ok {
					want = optimum(inOrder(ownersOf(alike), unlimited))
					known[fmt.Sprint(alike)] = want
				}
				checkPlan(t, scattered(rng, ownersOf(split), unlimited), want)
			}
		}
	}
}

func TestEvenIsOptimalWithLimitsAndLeavers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	kinds := []rebalance.Worker{{}, {Limit: 1}, {Limit: 2}, {Limit: 3}, {Leaving: true}}
	for n := range fixture.Size(4, 5) {
		for split := range splits(n, len(kinds)) { // how many workers there are of each kind
			var workers []rebalance.Worker
			for k, many := range split {
				workers = append(workers, slices.Repeat(kinds[k:k+1], many)...)
			}
			for shards := range 6 {
				for split := range splits(shards, n+1) {
					owners := ownersOf(split)
					v := scattered(rng, owners, workers)
					want := optimum(inOrder(owners, workers))
					if reckoned := reckon(v); reckoned != want {
						t.Fatalf("reckon returns %+v, optimum %+v, for %+v", reckoned, want, v)
					}
					checkPlan(t, v, want)
				}
			}
		}
	}
}

// Cordoned and unwell workers are bound by the same rule, and a pin by none.
func TestEvenIsOptimalWithCordonsAndPins(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	kinds := []rebalance.Worker{{}, {Limit: 2}, {Cordoned: true}, {Unwell: true, Limit: 2}, {Leaving: true, Cordoned: true}}
	for n := 1; n < 4; n++ {
		for split := range splits(n, len(kinds)) {
			var workers []rebalance.Worker
			for k, many := range split {
				workers = append(workers, slices.Repeat(kinds[k:k+1], many)...)
			}
			for shards := range 5 {
				for split := range splits(shards, n+1) {
					v := inOrder(ownersOf(split), workers)
					for i := range v.Shards {
						v.Shards[i].Tie = rng.Uint64()
						if v.Pins == nil {
							v.Pins = map[int]int{}
						}
						if rng.IntN(3) == 0 {
							v.Pins[i] = rng.IntN(n)
						}
					}
					want := optimum(v)
					if reckoned := reckon(v); reckoned != want {
						t.Fatalf("reckon returns %+v, optimum %+v, for %+v", reckoned, want, v)
					}
					checkPlan(t, v, want)
				}
			}
		}
	}
}

// randomView returns a view of up to 200 shards and 20 workers: some workers have limits, some
// are leaving, cordoned or unwell, some shards are free or pinned, and some have an owner whose
// index is out of range.
func randomView(rng *rand.Rand) rebalance.View {
	v := fleet(rng.IntN(200), rng.IntN(20))
	for w := range v.Workers {
		v.Workers[w].Limit = max(0, rng.IntN(40)-20)
		v.Workers[w].Leaving = rng.IntN(5) == 0
		v.Workers[w].Cordoned, v.Workers[w].Unwell = rng.IntN(6) == 0, rng.IntN(6) == 0
	}
	crowd := 1 + rng.IntN(len(v.Workers)+1) // workers with higher indices hold few shards or none
	for i := range v.Shards {
		v.Shards[i].Owner = rng.IntN(crowd+2) - 1
	}
	if v.Pins = map[int]int{}; len(v.Shards)*len(v.Workers) > 0 {
		for range rng.IntN(10) {
			v.Pins[rng.IntN(len(v.Shards))] = rng.IntN(len(v.Workers))
		}
	}
	return v
}

func TestEvenIsOptimalInRandomFleets(t *testing.T) {
	for seed := range uint64(500) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			v := randomView(rand.New(rand.NewPCG(seed, 3)))
			checkPlan(t, v, reckon(v))
		})
	}
}

func TestPlanHoldsStillWhileItIsCarriedOut(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 4))
		v := randomView(rng)
		for i := range v.Shards {
			v.Shards[i].Tie &= math.MaxUint64 << (seed % 2 * 64) // every other fleet has only equal ties
		}
		plan := rebalance.Even{}.Plan(v)
		for range 5 {
			done := slices.Clone(plan)
			for i := range done {
				if rng.IntN(2) == 0 {
					done[i] = rebalance.Nobody
				}
			}
			v = applied(v, done)
			if next := (rebalance.Even{}).Plan(v); !slices.Equal(next, plan) {
				t.Fatalf("seed %d: plan %v, partly carried out %v\nof %+v", seed, plan, next, v)
			}
		}
	}
}

// Without room to spare, a shard that has no place must not take one from a shard that has.
func TestWhoStandsInLineWhenThereIsNoRoom(t *testing.T) {
	v := fleet(8, 3)
	v.Workers[0].Limit, v.Workers[1].Limit, v.Workers[2].Leaving = 3, 2, true
	for i, owner := range []int{0, 0, 0, 0, 1, 2, 2, rebalance.Nobody} {
		v.Shards[i].Owner = owner
	}
	plan := rebalance.Even{}.Plan(v)
	if plan[4] != 1 || plan[7] != 1 || plan[5] != rebalance.Nobody || plan[6] != rebalance.Nobody {
		t.Errorf("plan %v: worker 1 should keep shard 4 and take the free one, not one of the leaving worker", plan)
	}
	v.Workers[1].Limit = 3
	if plan = (rebalance.Even{}).Plan(v); plan[5] == plan[6] || max(plan[5], plan[6]) != 1 {
		t.Errorf("plan %v: worker 1 should take a shard of the leaving worker, not one above a limit", plan)
	}
}

func TestEvenWithNobodyThere(t *testing.T) {
	gone := fleet(3, 2)
	gone.Workers[0].Leaving, gone.Workers[1].Leaving = true, true
	gone.Shards[0].Owner = 1
	for _, v := range []rebalance.View{{}, fleet(3, 0), fleet(0, 3), gone} {
		checkPlan(t, v, outcome{})
	}
}

func TestEachJoinMovesOnlyWhatTheNewWorkerGets(t *testing.T) {
	const shards, workers = 3800, 500
	v := fleet(shards, workers)
	all := v.Workers
	for n := 1; n <= workers; n++ {
		v.Workers = all[:n]
		plan := rebalance.Even{}.Plan(v)
		o, fault := outcomeOf(v, plan)
		want := outcome{placed: shards, kept: shards - shards/n, moved: shards / n}
		if n == 1 {
			want = outcome{placed: shards} // all shards are free
		}
		if o != want || fault != "" {
			t.Fatalf("worker %d joins: %+v %s; want %+v", n, o, fault, want)
		}
		v = applied(v, plan)
	}
}

// Neighbours by name are spread over the workers: a plan by name order would give one worker all
// partitions of one topic.
func TestNeighboursByNameAreSpread(t *testing.T) {
	const shards, workers = 2000, 10
	for _, limit := range []int{0, shards / workers / 10} { // room for all shards; room for a tenth
		v := fleet(shards, workers)
		for w := range v.Workers {
			v.Workers[w].Limit = limit
		}
		plan := slices.DeleteFunc(rebalance.Even{}.Plan(v), func(w int) bool { return w == rebalance.Nobody })
		same := 0
		for i := range plan[1:] {
			if plan[i] == plan[i+1] {
				same++
			}
		}
		if want := len(plan) / workers; same < want/2 || same > want*2 {
			t.Errorf("limit %d: %d neighbours share a worker; want about %d, as by chance", limit, same, want)
		}
	}
}

func TestLeaversFallByTie(t *testing.T) {
	const shards = 1000
	leavers := func(owner int) []int {
		v := fleet(shards, 3)
		v.Workers[3-1-owner].Leaving = true // it has no shards, so 500 go to the third worker
		for i := range v.Shards {
			v.Shards[i].Owner = owner
		}
		var is []int
		for i, w := range (rebalance.Even{}).Plan(v) {
			if w != owner {
				is = append(is, i)
			}
		}
		return is
	}
	left, right := leavers(0), leavers(2)
	firstHalf, _ := slices.BinarySearch(left, shards/2)
	if len(left) != shards/2 || firstHalf < 200 || firstHalf > 300 {
		t.Errorf("%d shards leave, %d of them from the first half by name; want 500, about 250", len(left), firstHalf)
	}
	both := 0
	for _, i := range left {
		if slices.Contains(right, i) {
			both++
		}
	}
	if both < 150 || both > 350 {
		t.Errorf("%d of 500 shards leave either worker; want about 250", both)
	}
}

// Names only sort the view: if its order is reversed, the same shards leave, the same shards have
// no room, and the same workers have one more.
func TestOrderInTheViewDecidesNothing(t *testing.T) {
	for seed := range uint64(200) {
		v := randomView(rand.New(rand.NewPCG(seed, 5)))
		reversed := rebalance.View{Shards: slices.Clone(v.Shards), Workers: slices.Clone(v.Workers)}
		slices.Reverse(reversed.Shards)
		slices.Reverse(reversed.Workers)
		reversed.Pins = map[int]int{}
		for i, w := range v.Pins {
			reversed.Pins[len(v.Shards)-1-i] = len(v.Workers) - 1 - w
		}
		for i := range reversed.Shards {
			reversed.Shards[i].Owner = len(v.Workers) - 1 - reversed.Shards[i].Owner
		}
		plan, back := rebalance.Even{}.Plan(v), rebalance.Even{}.Plan(reversed)
		counts, reversedCounts := make([]int, len(v.Workers)+1), make([]int, len(v.Workers)+1)
		for i, w := range plan {
			b := back[len(back)-1-i]
			if b != rebalance.Nobody {
				b = len(v.Workers) - 1 - b
			}
			counts[w+1]++
			reversedCounts[b+1]++
			owner := v.Shards[i].Owner
			if (w == owner) != (b == owner) || (w == rebalance.Nobody) != (b == rebalance.Nobody) {
				t.Fatalf("seed %d: shard %d of worker %d goes to %d, in the reversed view to %d", seed, i, owner, w, b)
			}
		}
		if !slices.Equal(counts, reversedCounts) {
			t.Fatalf("seed %d: nobody and the workers get %v, in the reversed view %v", seed, counts, reversedCounts)
		}
	}
}

// If many tables each have fewer shards than workers, it is not the same worker that has a shard
// in all of them.
func TestTheOneMoreFallsToAnother(t *testing.T) {
	const tables, workers = 600, 4
	var counts [workers]int
	for table := range tables {
		v := fleet(1, workers)
		v.Shards[0].Tie = rebalance.Tie(fmt.Sprint("table-", table))
		counts[rebalance.Even{}.Plan(v)[0]]++
	}
	if slices.Min(counts[:]) < tables/workers/2 || slices.Max(counts[:]) > tables/workers*2 {
		t.Errorf("of %d tables with one shard, the workers get %v", tables, counts)
	}
}

func TestPlanAllocatesLittle(t *testing.T) {
	for occasion, v := range occasions(100_000, 1000) {
		if n := testing.AllocsPerRun(3, func() { rebalance.Even{}.Plan(v) }); n > 100 {
			t.Errorf("%s: %v allocations for a plan; want 100 at most", occasion, n)
		}
	}
}

func TestTieNeverChanges(t *testing.T) {
	for name, want := range map[string]uint64{
		"":                     0xefd01f60ba992926,
		"shardId-000000000000": 0x1edcb6362243b92f,
		"shardId-000000000001": 0x2361a590846691bc,
		"orders/7":             0xc3ac8de774800c4c,
		"größe":                0x2eb895f56869eaa1,
	} {
		if got := rebalance.Tie(name); got != want {
			t.Errorf("Tie(%q) = %#x; running fleets have %#x", name, got, want)
		}
	}
}

func TestNameOfEvenCanBeStored(t *testing.T) {
	name := rebalance.Even{}.Name()
	if len(name) == 0 || len(name) > 64 {
		t.Errorf("name %q of %d bytes; want 1 to 64", name, len(name))
	}
	for _, r := range name {
		if r > unicode.MaxASCII || !unicode.IsPrint(r) {
			t.Errorf("name %q has the unprintable %q", name, r)
		}
	}
}

// FuzzPlan makes a view from bytes: no index, limit or pair of equal ties may make Plan panic or
// break a promise.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 255, 254, 253}, []byte{0, 1, 4}, 5)
	f.Add([]byte{3, 3, 3, 9}, []byte{14, 12, 10, 16}, -1)
	f.Add([]byte{}, []byte{}, math.MaxInt)
	f.Fuzz(func(t *testing.T, shards, workers []byte, limit int) {
		strange := map[byte]int{255: rebalance.Nobody, 254: math.MaxInt, 253: math.MinInt}
		limits := []int{0, 1, 2, 3, -1, math.MinInt, math.MaxInt, limit}
		var v rebalance.View
		for _, b := range shards[:min(len(shards), 100)] {
			owner, ok := strange[b]
			if !ok {
				owner = int(b % 16)
			}
			v.Shards = append(v.Shards, rebalance.Place{Owner: owner, Tie: uint64(b) << 60})
		}
		for _, b := range workers[:min(len(workers), 20)] {
			v.Workers = append(v.Workers, rebalance.Worker{
				Tie: uint64(b) << 58, Limit: limits[b>>1%8], Leaving: b&1 == 1, Cordoned: b&48 == 48, Unwell: b&80 == 80,
			})
		}
		for i, b := range shards[:len(v.Shards)] {
			if w := int(b >> 4); b&7 == 3 && w < len(v.Workers) {
				if v.Pins == nil {
					v.Pins = map[int]int{}
				}
				v.Pins[i] = w
			}
		}
		checkPlan(t, v, reckon(v))
	})
}
