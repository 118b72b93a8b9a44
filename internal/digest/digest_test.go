package digest

import (
	"reflect"
	"testing"
)

type instant int64

type state struct {
	at    instant
	names []string
	next  *state
	less  func()
}

const never = instant(1 << 62)

func of(now instant, s state) uint64 {
	return Of(map[reflect.Type]int64{reflect.TypeFor[instant](): int64(now)}, int64(never), s)
}

// TestMomentsCountFromNow: a state has the same digest later, if everything in it is as long ago.
func TestMomentsCountFromNow(t *testing.T) {
	if of(10, state{at: 7}) != of(20, state{at: 17}) {
		t.Error("the same time ago, and another digest")
	}
	if of(10, state{at: never}) != of(20, state{at: never}) || of(10, state{}) != of(20, state{}) {
		t.Error("never, or no moment, and another digest")
	}
}

// TestEveryFieldCounts: whatever differs gives another digest, except functions.
func TestEveryFieldCounts(t *testing.T) {
	seen := map[uint64]int{}
	for i, s := range []state{
		{}, {at: 10}, {at: 9}, {at: never}, {names: []string{"a"}}, {names: []string{"a", ""}}, {names: []string{"abcdefgh", "i"}},
		{names: []string{"abcdefghi"}}, {next: new(state)}, {next: &state{at: 9}},
	} {
		sum := of(10, s)
		if first, ok := seen[sum]; ok {
			t.Errorf("states %d and %d have the same digest", first, i)
		}
		seen[sum] = i
	}
	if of(10, state{less: func() {}}) != of(10, state{}) {
		t.Error("a function counts")
	}
}
