package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"
)

// A stream imitates a real stream: each shard has a record every 200 ms, and an end.
type stream struct {
	shards map[string][]string
	open   atomic.Int32 // how many shards have not been read to their end
	ended  func()       // called when open becomes 0
}

type record struct{ position, text string }

func newStream(shards map[string][]string, ended func()) *stream {
	s := &stream{shards: shards, ended: ended}
	s.open.Store(int32(len(shards)))
	return s
}

// read yields the records of one shard after a position, and then io.EOF, or the cause of
// the context if that ends first.
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
