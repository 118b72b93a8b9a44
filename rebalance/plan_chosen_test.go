package rebalance_test

import (
	"slices"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/rebalance"
)

// chosen returns n keys for which a quickselect with the middle as its pivot makes the most
// comparisons (M. D. McIlroy, "A Killer Adversary for Quicksort"). It decides a key only when
// a comparison needs it, and then so that the pivot is the second smallest of the open keys.
func chosen(n, first int) []uint64 {
	const open = 1 << 40
	keys, items := make([]uint64, n), make([]int, n)
	for i := range keys {
		keys[i], items[i] = open, i
	}
	decided, pivot := uint64(0), 0
	selectFirst(items, first, func(a, b int) bool {
		if a != b && keys[a] == open && keys[b] == open {
			next := b
			if a == pivot {
				next = a
			}
			keys[next] = decided
			decided++
		}
		if keys[a] == open {
			pivot = a
		} else if keys[b] == open {
			pivot = b
		}
		return keys[a] < keys[b]
	})
	for i := range keys {
		if keys[i] == open {
			keys[i] = decided
			decided++
		}
	}
	return keys
}

// selectFirst is a copy of the planner's quickselect, for any order.
func selectFirst(c []int, n int, before func(a, b int) bool) {
	for 0 < n && n < len(c) {
		pivot, i, j := c[len(c)/2], 0, len(c)-1
		for i <= j {
			for before(c[i], pivot) {
				i++
			}
			for before(pivot, c[j]) {
				j--
			}
			if i <= j {
				c[i], c[j] = c[j], c[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case n <= j:
			c = c[:j+1]
		case n >= i:
			c, n = c[i:], n-i
		default:
			return
		}
	}
}

// unmix returns the tie that the planner's mixing turns into key.
func unmix(key uint64) uint64 {
	inverse := func(odd uint64) uint64 {
		x := odd
		for range 6 {
			x *= 2 - odd*x
		}
		return x
	}
	key = (key ^ key>>33) * inverse(0xc4ceb9fe1a85ec53)
	key = (key ^ key>>33) * inverse(0xff51afd7ed558ccd)
	return key ^ key>>33
}

// fastest returns the shortest time of seven plans of v.
func fastest(v rebalance.View) time.Duration {
	least := time.Hour
	for range 7 {
		from := time.Now()
		rebalance.Even{}.Plan(v)
		least = min(least, time.Since(from))
	}
	return least
}

// TestChosenTies: nobody can make a plan slow by a choice of the names of shards or workers. The
// test has the planner select half of n by ties that are chosen against it, and allows it at most
// ten times as long as with ties of ordinary names. Without the remedy they took 90 to 210 times
// as long for 16,000 shards, and 1.2 s for 40,000; now they take up to 2.6 times as long.
func TestChosenTies(t *testing.T) {
	const n = 16_000
	keys := chosen(n, n/2)
	for _, c := range []struct {
		name  string
		view  func() rebalance.View
		spoil func(v *rebalance.View)
	}{
		{"free shards, room for half", func() rebalance.View {
			v := fleet(n, 2)
			v.Workers[0].Limit, v.Workers[1].Limit = n/4, n/4
			return v
		}, func(v *rebalance.View) {
			for i, key := range keys {
				v.Shards[i].Tie = key
			}
		}},
		{"shards of a leaving worker, room for half", func() rebalance.View {
			v := fleet(n, 2)
			for i := range v.Shards {
				v.Shards[i].Owner = 0
			}
			v.Workers[0].Leaving, v.Workers[1].Limit = true, n/2
			return v
		}, func(v *rebalance.View) {
			for i, key := range keys {
				v.Shards[i].Tie = key
			}
		}},
		{"a worker that has twice its share", func() rebalance.View {
			v := fleet(n, 2)
			for i := range v.Shards {
				v.Shards[i].Owner = 0
			}
			return v
		}, func(v *rebalance.View) {
			for i, key := range keys {
				v.Shards[i].Tie = unmix(key) ^ v.Workers[0].Tie
			}
		}},
		{"more workers than shards", func() rebalance.View { return fleet(n/2, n) },
			func(v *rebalance.View) {
				salt := uint64(0)
				for _, s := range v.Shards {
					salt ^= s.Tie
				}
				for w, key := range keys {
					v.Workers[w].Tie = unmix(key<<1) ^ salt
				}
			}},
	} {
		plain, spoilt := c.view(), c.view()
		c.spoil(&spoilt)
		usual, worst := fastest(plain), fastest(spoilt)
		for tries := 4; tries > 0 && worst > 10*usual; tries-- { // a busy machine may have interrupted each of seven plans
			worst = min(worst, fastest(spoilt))
		}
		t.Logf("%s: %v, and with chosen ties %v", c.name, usual, worst)
		if worst > 10*usual {
			t.Errorf("%s: %v, and with chosen ties %v", c.name, usual, worst)
		}
		if !slices.Equal(rebalance.Even{}.Plan(spoilt), rebalance.Even{}.Plan(spoilt)) {
			t.Errorf("%s: two plans of one view differ", c.name)
		}
	}
}
