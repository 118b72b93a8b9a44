package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Register is a sink with a fence: it keeps values and refuses, in one atomic step with the
// write, to overwrite a value under a lower generation than before. Get is consistent.
//
// A Put has three outcomes, like every write: stored, refused with a [*checkpoint.StaleError], and
// unknown. A Put that was not answered must not take effect after a later Put has been answered.
type Register interface {
	Put(ctx context.Context, name string, generation int64, value string) error
	// Raise is a Put of the value that is there.
	Raise(ctx context.Context, name string, generation int64) error
	Get(ctx context.Context, name string) (lease.Guarded, error)
}

// RunRegister runs the suite for a [Register]. Each test opens its own, which must be empty.
func RunRegister(t *testing.T, open func(t *testing.T) Register) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, r Register)
	}{
		{"LowerGenerationIsRefused", lowerGenerationIsRefused},
		{"RaisedValueStays", raisedValueStays},
		{"NamesAreApart", namesAreApart},
		{"OneOfManyGenerationsStays", oneOfManyGenerationsStays},
		{"WhatCannotBeKeptIsNotWritten", whatCannotBeKept},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func lowerGenerationIsRefused(t *testing.T, r Register) {
	holds(t, r, "shard", 0, "")
	for _, put := range []struct {
		generation, observed int64 // 0: it is accepted
		value                string
	}{
		{7, 0, "a"}, {7, 0, "b"}, {6, 7, "late"}, {9, 0, ""}, {8, 9, "late"}, {7, 9, "b"}, {9, 0, "\x00\xff"}, {1, 9, ""},
	} {
		before, err := r.Get(t.Context(), "shard")
		if err != nil {
			t.Fatal(err)
		}
		err = r.Put(t.Context(), "shard", put.generation, put.value)
		if put.observed == 0 {
			if err != nil {
				t.Fatalf("generation %d: %v", put.generation, err)
			}
			holds(t, r, "shard", put.generation, put.value)
			continue
		}
		stale, ok := errors.AsType[*checkpoint.StaleError](err)
		if !ok || stale.Shard != "shard" || stale.Mine != put.generation || stale.Observed != put.observed || stale.OutcomeUnknown {
			t.Errorf("generation %d after %d: %v", put.generation, put.observed, err)
		}
		holds(t, r, "shard", before.Generation, before.Value)
	}
}

// raisedValueStays: a raise keeps the value, and from then on a lower generation is refused. A value that was never
// written is raised too.
func raisedValueStays(t *testing.T, r Register) {
	for name, value := range map[string]string{"written": "a", "never": ""} {
		if value != "" {
			if err := r.Put(t.Context(), name, 7, value); err != nil {
				t.Fatal(err)
			}
		}
		for _, generation := range []int64{8, 8} {
			if err := r.Raise(t.Context(), name, generation); err != nil {
				t.Fatal(err)
			}
			holds(t, r, name, 8, value)
		}
		for what, err := range map[string]error{"Put": r.Put(t.Context(), name, 7, "late"), "Raise": r.Raise(t.Context(), name, 7)} {
			stale, ok := errors.AsType[*checkpoint.StaleError](err)
			if !ok || stale.Mine != 7 || stale.Observed != 8 {
				t.Errorf("%s under 7 after a raise to 8: %v", what, err)
			}
		}
		holds(t, r, name, 8, value)
	}
}

func namesAreApart(t *testing.T, r Register) {
	for name, generation := range map[string]int64{"shard": 5, "shard/report": 3, "Shard": 1} {
		if err := r.Put(t.Context(), name, generation, "of "+name); err != nil {
			t.Error(err)
		}
	}
	holds(t, r, "shard", 5, "of shard")
	holds(t, r, "shard/report", 3, "of shard/report")
	holds(t, r, "Shard", 1, "of Shard")
	holds(t, r, "other", 0, "")
}

// oneOfManyGenerationsStays: in whatever order concurrent writers write, the highest generation
// remains, and no reader sees the generation decrease.
func oneOfManyGenerationsStays(t *testing.T, r Register) {
	const writers, writes = 4, 4
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for n := range writes {
				generation := int64(1 + i + n*writers)
				err := r.Put(t.Context(), "shard", generation, "x")
				now, errGet := r.Get(t.Context(), "shard")
				if now.Generation < generation || errGet != nil || err != nil && !errors.Is(err, checkpoint.ErrStale) {
					t.Errorf("Put under %d: %v; then the generation is %d (%v)", generation, err, now.Generation, errGet)
				}
			}
		})
	}
	all.Wait()
	holds(t, r, "shard", writers*writes, "x")
}

func whatCannotBeKept(t *testing.T, r Register) {
	ended, end := context.WithCancel(t.Context())
	end()
	if err := r.Put(ended, "shard", 1, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	for name, err := range map[string]error{
		"no name":       r.Put(t.Context(), "", 1, "x"),
		"a long name":   r.Put(t.Context(), strings.Repeat("n", lease.MaxName+1), 1, "x"),
		"no generation": r.Put(t.Context(), "shard", 0, "x"),
		"a long value":  r.Put(t.Context(), "shard", 1, strings.Repeat("v", checkpoint.MaxState+1)),
	} {
		if !errors.Is(err, checkpoint.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	holds(t, r, "shard", 0, "")
	longest := strings.Repeat("v", checkpoint.MaxState)
	if err := r.Put(t.Context(), "shard", 1, longest); err != nil {
		t.Error(err)
	}
	holds(t, r, "shard", 1, longest)
}

func holds(t *testing.T, r Register, name string, generation int64, value string) {
	t.Helper()
	now, err := r.Get(t.Context(), name)
	if want := (lease.Guarded{Name: name, Generation: generation, Value: value}); err != nil || now != want {
		t.Errorf("the value is %+v (%v), want %+v", now, err, want)
	}
}
