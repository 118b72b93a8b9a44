package checkpoint_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/checkpoint"
)

func TestPolicyDue(t *testing.T) {
	const first = 100 * time.Second
	for name, tc := range map[string]struct {
		policy checkpoint.Policy
		marks  int
		waited time.Duration
		want   bool
	}{
		"default, early":              {checkpoint.Policy{}, 1, 5*time.Second - 1, false},
		"default, in time":            {checkpoint.Policy{}, 1, 5 * time.Second, true},
		"default, any number":         {checkpoint.Policy{}, math.MaxInt, 0, false},
		"nothing marked":              {checkpoint.Policy{Marks: 1}, 0, time.Hour, false},
		"own time, early":             {checkpoint.Policy{Every: time.Second}, 9, time.Second - 1, false},
		"own time":                    {checkpoint.Policy{Every: time.Second}, 1, time.Second, true},
		"one mark short":              {checkpoint.Policy{Marks: 10}, 9, 0, false},
		"enough marks":                {checkpoint.Policy{Marks: 10}, 10, 0, true},
		"few marks, but in time":      {checkpoint.Policy{Marks: 10}, 1, 5 * time.Second, true},
		"marks alone, long waited":    {checkpoint.Policy{Every: -1, Marks: 10}, 9, time.Hour, false},
		"marks alone, enough":         {checkpoint.Policy{Every: -1, Marks: 10}, 10, 0, true},
		"both off":                    {checkpoint.Policy{Every: -1, Marks: -1}, math.MaxInt, 1000 * time.Hour, false},
		"negative marks, but in time": {checkpoint.Policy{Marks: -1}, 1, 5 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.policy.Due(tc.marks, first, first+tc.waited); got != tc.want {
				t.Errorf("due with %d marks after %v: %v, want %v", tc.marks, tc.waited, got, tc.want)
			}
		})
	}
}

// TestPolicyWakesWhenDue: a write is due at the time that At returns, and not a nanosecond before.
func TestPolicyWakesWhenDue(t *testing.T) {
	for _, p := range []checkpoint.Policy{{}, {Every: 1}, {Every: time.Hour, Marks: 5}} {
		at, timed := p.At(7 * time.Second)
		if !timed || !p.Due(1, 7*time.Second, at) || p.Due(1, 7*time.Second, at-1) {
			t.Errorf("%+v: At returns %v, %v, which is not when Due begins to report true", p, at, timed)
		}
	}
	if at, timed := (checkpoint.Policy{Every: -1, Marks: 5}).At(0); timed {
		t.Errorf("timed writes are off, but At returns %v", at)
	}
}

func TestPolicyBounds(t *testing.T) {
	for _, p := range []checkpoint.Policy{{}, {Every: time.Hour}, {Every: -1, Marks: -1}} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v refused: %v", p, err)
		}
	}
	err := checkpoint.Policy{Every: time.Hour + 1}.Validate()
	invalid, ok := errors.AsType[*checkpoint.InvalidError](err)
	if !ok || invalid.Limit != int64(time.Hour) {
		t.Errorf("got %v, want an InvalidError with the limit", err)
	}
}
