package rebalance_test

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode"

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

// judge returns the outcome of a plan for shards with these owners, and the rule that the plan
// breaks, if any.
func judge(owners []int, workers []rebalance.Worker, plan []int) (o outcome, fault string) {
	counts := make([]int, len(workers))
	for i, w := range plan {
		switch {
		case w == rebalance.Nobody:
			continue
		case w < 0 || w >= len(workers):
			return o, "a worker that does not exist"
		case workers[w].Leaving:
			return o, "a leaving worker gets a shard"
		}
		counts[w]++
		o.placed++
		if owners[i] == w {
			o.kept++
		} else if owners[i] >= 0 && owners[i] < len(workers) {
			o.moved++
		}
	}
	least, most := math.MaxInt, 0 // least: the smallest count of a worker that could take one more
	for w, worker := range workers {
		if worker.Limit > 0 && counts[w] > worker.Limit {
			return o, "a worker above its limit"
		}
		if !worker.Leaving && (worker.Limit <= 0 || counts[w] < worker.Limit) {
			least = min(least, counts[w])
		}
		most = max(most, counts[w])
	}
	if least < most-1 {
		return o, "not level"
	}
	return o, ""
}

// optimum tries every layout. It tries only one permutation of shards with the same owner, which
// must be next to each other, because they are equal.
func optimum(owners []int, workers []rebalance.Worker) outcome {
	best := outcome{placed: -1}
	plan := make([]int, len(owners))
	var try func(i int)
	try = func(i int) {
		if i == len(plan) {
			if o, fault := judge(owners, workers, plan); fault == "" && o.beats(best) {
				best = o
			}
			return
		}
		from := rebalance.Nobody
		if i > 0 && owners[i] == owners[i-1] {
			from = plan[i-1]
		}
		for w := from; w < len(workers); w++ {
			plan[i] = w
			try(i + 1)
		}
	}
	try(0)
	return best
}

// reckon computes the optimum of views that are too large to try everything. It gives out the
// places one by one, always to a worker that has fewest, and of those to one that holds a shard
// for that place already.
func reckon(v rebalance.View) outcome {
	var o outcome
	held := make([]int, len(v.Workers))
	free := 0
	for _, s := range v.Shards {
		if s.Owner >= 0 && s.Owner < len(held) {
			held[s.Owner]++
		} else {
			free++
		}
	}
	counts := make([]int, len(held))
	for ; o.placed < len(v.Shards); o.placed++ {
		next := -1
		for w, worker := range v.Workers {
			if worker.Leaving || worker.Limit > 0 && counts[w] == worker.Limit {
				continue
			}
			if next < 0 || counts[w] < counts[next] ||
				counts[w] == counts[next] && held[w] > counts[w] && held[next] <= counts[next] {
				next = w
			}
		}
		if next < 0 {
			break
		}
		if counts[next]++; counts[next] <= held[next] {
			o.kept++
		}
	}
	o.moved = max(0, o.placed-o.kept-free)
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
	got, fault := judge(owners(v), v.Workers, plan)
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

func owners(v rebalance.View) []int {
	owners := make([]int, len(v.Shards))
	for i, s := range v.Shards {
		owners[i] = s.Owner
	}
	return owners
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
		v.Workers[w].Limit, v.Workers[w].Leaving = worker.Limit, worker.Leaving
	}
	return v
}

func TestEvenIsOptimalInEverySmallFleet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for workers := 1; workers <= 5; workers++ {
		unlimited := make([]rebalance.Worker, workers)
		known := map[string]outcome{} // by counts of shards; the order of the workers does not matter
		for shards := range 9 {
			for split := range splits(shards, workers+1) {
				alike := slices.Clone(split)
				slices.Sort(alike[:workers])
				want, ok := known[fmt.Sprint(alike)]
				if !ok {
					want = optimum(ownersOf(alike), unlimited)
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
	for n := range 5 {
		for split := range splits(n, len(kinds)) { // how many workers there are of each kind
			var workers []rebalance.Worker
			for k, many := range split {
				workers = append(workers, slices.Repeat(kinds[k:k+1], many)...)
			}
			for shards := range 6 {
				for split := range splits(shards, n+1) {
					owners := ownersOf(split)
					v := scattered(rng, owners, workers)
					want := optimum(owners, workers)
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
// are leaving, some shards are free, and some have an owner whose index is out of range.
func randomView(rng *rand.Rand) rebalance.View {
	v := fleet(rng.IntN(200), rng.IntN(20))
	for w := range v.Workers {
		v.Workers[w].Limit = max(0, rng.IntN(40)-20)
		v.Workers[w].Leaving = rng.IntN(5) == 0
	}
	crowd := 1 + rng.IntN(len(v.Workers)+1) // workers with higher indices hold few shards or none
	for i := range v.Shards {
		v.Shards[i].Owner = rng.IntN(crowd+2) - 1
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
		o, fault := judge(owners(v), v.Workers, plan)
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

func TestFingerprintOfEvenCanBeAdvertised(t *testing.T) {
	name := rebalance.Even{}.Fingerprint()
	if len(name) == 0 || len(name) > 64 {
		t.Errorf("fingerprint %q of %d bytes; want 1 to 64", name, len(name))
	}
	for _, r := range name {
		if r > unicode.MaxASCII || !unicode.IsPrint(r) {
			t.Errorf("fingerprint %q has the unprintable %q", name, r)
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
				Tie: uint64(b) << 58, Limit: limits[b>>1%8], Leaving: b&1 == 1,
			})
		}
		checkPlan(t, v, reckon(v))
	})
}
