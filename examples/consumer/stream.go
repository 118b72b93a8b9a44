package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"
)

// A stream stands in for the real one: a record every so often, and an end.
type stream struct {
	shards map[string][]string
	open   atomic.Int32 // shards whose end nobody has read
	ended  func()       // called when there are none
}

type record struct{ position, text string }

func newStream(shards map[string][]string, ended func()) *stream {
	s := &stream{shards: shards, ended: ended}
	s.open.Store(int32(len(shards)))
	return s
}

// read yields the records of one shard after a position, io.EOF at its end, and the
// cause of the context when that ends first.
func (s *stream) read(ctx context.Context, shard, after string) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		for i, text := range s.shards[shard] {
			rec := record{position: fmt.Sprintf("%03d", i+1), text: text}
			if rec.position <= after {
				continue
			}
			select {
			case <-ctx.Done():
				yield(record{}, context.Cause(ctx))
				return
			case <-time.After(200 * time.Millisecond):
			}
			if !yield(rec, nil) {
				return
			}
		}
		if s.open.Add(-1) == 0 {
			s.ended()
		}
		yield(record{}, io.EOF)
	}
}
