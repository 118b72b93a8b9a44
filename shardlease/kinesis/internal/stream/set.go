package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A Set is several streams that one fleet reads. It is a shardlease.Source; the names of its shards
// are those of the stream and the shard, with a slash between.
type Set struct{ streams []*Stream }

// NewSet returns a set of streams, which must have different names, also if they are given as ARNs. Call it before Begin
// of any of the streams.
func NewSet(streams ...*Stream) (*Set, error) {
	s := &Set{streams: streams}
	names := map[string]bool{}
	for _, one := range streams {
		if names[one.short()] {
			return nil, fmt.Errorf("two streams are called %s: read one of them in another group", one.short())
		}
		names[one.short()], one.prefix = true, one.short()+"/"
	}
	return s, nil
}

// Begin calls Begin of each stream. The shards of Start.Sequence have the names of the set.
func (s *Set) Begin(ctx context.Context, store lease.Store, group string, start Start) error {
	for shard := range start.Sequence {
		if _, _, ok := s.Find(shard); !ok {
			return &StartError{Shard: shard, Rule: "its name must begin with that of a stream and a slash"}
		}
	}
	return s.each(func(_ int, one *Stream) error { return one.Begin(ctx, store, group, start) })
}

// Shards lists the shards of all streams. If some streams cannot be listed, it returns the shards
// of the others with an error, so the worker treats no shard as gone.
func (s *Set) Shards(ctx context.Context) ([]shardlease.Shard, error) {
	lists := make([][]shardlease.Shard, len(s.streams))
	err := s.each(func(i int, one *Stream) (err error) {
		lists[i], err = one.Shards(ctx)
		return err
	})
	var all []shardlease.Shard
	for i, listed := range lists {
		prefix := s.streams[i].prefix
		for _, shard := range listed {
			next := shardlease.Shard{Name: prefix + shard.Name, Weight: shard.Weight}
			for _, parent := range shard.Parents {
				next.Parents = append(next.Parents, prefix+parent)
			}
			all = append(all, next)
		}
	}
	return all, err
}

// each calls a function for all streams at a time, because a listing may take long. A panic would
// end the process there, so it becomes an error.
func (s *Set) each(do func(i int, one *Stream) error) error {
	errs := make([]error, len(s.streams))
	var calls sync.WaitGroup
	for i, one := range s.streams {
		calls.Go(func() {
			defer recovered(&errs[i])
			errs[i] = do(i, one)
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

// Find returns the stream of a shard of the set, and the name of the shard in it.
func (s *Set) Find(shard string) (of *Stream, name string, ok bool) {
	stream, name, _ := strings.Cut(shard, "/")
	for _, one := range s.streams {
		if one.short() == stream {
			return one, name, name != ""
		}
	}
	return nil, "", false
}
