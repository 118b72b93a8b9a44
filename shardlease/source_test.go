package shardlease_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

func listing(shards ...shardlease.Shard) shardlease.Source {
	return shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) { return shards, nil })
}

func shard(name string, parents ...string) shardlease.Shard {
	return shardlease.Shard{Name: name, Parents: parents}
}

// TestListings: the valid shards of a listing are used; a listing with any fault is not
// complete.
func TestListings(t *testing.T) {
	many := make([]string, lease.MaxParents+1)
	for i := range many {
		many[i] = string(rune('a' + i))
	}
	for _, c := range []struct {
		name   string
		source shardlease.Source
		good   string
		blamed string
	}{
		{"sorted", listing(shard("b"), shard("a")), "a b", ""},
		{"an unlisted parent", listing(shard("a", "gone")), "a", ""},
		{"a parent named twice", listing(shard("a"), shard("b", "a", "a")), "a b", ""},
		{"a diamond", listing(shard("a"), shard("b", "a"), shard("c", "a"), shard("d", "b", "c")), "a b c d", ""},
		{"the same twice", listing(shard("a"), shard("b"), shard("a")), "a b", "a"},
		{"two of one name", listing(shard("a"), shard("b"), shard("a", "b")), "b", "a"},
		{"no name", listing(shard("a"), shard("")), "a", ""},
		{"a name too long", listing(shard("a"), shard(strings.Repeat("x", 256))), "a", strings.Repeat("x", 256)},
		{"its own parent", listing(shard("a", "a"), shard("b")), "b", "a"},
		{"a parent of no name", listing(shard("a", "\n"), shard("b")), "b", "a"},
		{"too many parents", listing(shard("z", many...)), "", "z"},
		{"negative weight", listing(shard("a"), shardlease.Shard{Name: "b", Weight: -1}), "a", "b"},
		{"a cycle", listing(shard("a", "c"), shard("b", "a"), shard("c", "b"), shard("d")), "d", "a b c"},
		{"descendants of a cycle", listing(shard("a", "b"), shard("b", "a"), shard("c", "b"), shard("d", "c"), shard("e")), "e", "a b c d"},
		{"ancestors of a cycle", listing(shard("r"), shard("a", "b", "r"), shard("b", "a")), "r", "a b"},
	} {
		got := shardlease.Look(t.Context(), c.source)
		var good []string
		for _, s := range got.Shards {
			good = append(good, s.Name)
		}
		if strings.Join(good, " ") != c.good {
			t.Errorf("%s: uses %q, not %q", c.name, good, c.good)
		}
		if blamed := strings.Join(faulty(got.Err), " "); blamed != c.blamed {
			t.Errorf("%s: the error is about %q, not %q: %v", c.name, blamed, c.blamed, got.Err)
		}
		if clean := len(good) > 1 && c.blamed == "" && c.name != "no name" || c.name == "an unlisted parent"; got.Complete != (got.Err == nil) || clean && !got.Complete {
			t.Errorf("%s: complete: %t, %v", c.name, got.Complete, got.Err)
		}
	}
}

// faulty returns the shards that err reports.
func faulty(err error) []string {
	var names []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			names = append(names, faulty(err)...)
		}
	}
	if fault, ok := err.(*shardlease.SourceError); ok {
		names = slices.DeleteFunc(slices.Clone(fault.Shards), func(name string) bool { return name == "" })
	}
	slices.Sort(names)
	return names
}

var errDown = errors.New("the stream is down")

func TestSourcesThatFail(t *testing.T) {
	fails := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) {
		return []shardlease.Shard{shard("a")}, errDown
	})
	if got := shardlease.Look(t.Context(), fails); !errors.Is(got.Err, errDown) || got.Complete || len(got.Shards) != 1 {
		t.Errorf("an error with a part of the shards: %+v", got)
	}
	panics := shardlease.SourceFunc(func(context.Context) ([]shardlease.Shard, error) { panic(errDown) })
	if got := shardlease.Look(t.Context(), panics); !errors.Is(got.Err, errDown) || got.Complete || len(got.Shards) != 0 {
		t.Errorf("a panic: %+v", got)
	}
	if got := shardlease.Look(t.Context(), listing()); !errors.Is(got.Err, shardlease.ErrNoShards) || got.Complete {
		t.Errorf("an empty listing: %+v", got)
	}
}

// TestSourceErrorIsShort: the names of thousands of shards would make the error unreadable.
func TestSourceErrorIsShort(t *testing.T) {
	fault := &shardlease.SourceError{Rule: "listed twice"}
	for range 1000 {
		fault.Shards = append(fault.Shards, strings.Repeat("x", 200))
	}
	if text := fault.Error(); len(text) > 500 || !strings.Contains(text, "and 995 more: listed twice") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
