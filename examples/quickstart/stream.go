package main

import (
	"context"
	"io"
	"iter"
	"sync"
	"time"
)

// A stream has shards of numbered records. Each shard gets a record every so often,
// counted from the start, until the stream is closed. How many there are then is
// known exactly, whoever has read them or not.
type stream struct {
	start time.Time
	every time.Duration

	ended chan struct{}
	once  sync.Once
	last  int // of each shard; set before ended is closed
}

func newStream(every time.Duration) *stream {
	return &stream{start: time.Now(), every: every, ended: make(chan struct{})}
}

// close ends all shards, after the records that are there.
func (s *stream) close() {
	s.once.Do(func() {
		s.last = int(time.Since(s.start) / s.every)
		close(s.ended)
	})
}

// read yields the records of one shard after a position, as they come; io.EOF when
// the shard has ended, and the cause of the context when that ends first.
func (s *stream) read(ctx context.Context, after int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for n := after + 1; ; n++ {
			if err := s.await(ctx, n); err != nil {
				yield(0, err)
				return
			}
			if !yield(n, nil) {
				return
			}
		}
	}
}

// await waits until record n is there.
func (s *stream) await(ctx context.Context, n int) error {
	timer := time.NewTimer(time.Until(s.start.Add(time.Duration(n) * s.every)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		select { // due after the end: it was never made
		case <-s.ended:
			return s.atEnd(n)
		default:
			return nil
		}
	case <-s.ended:
		return s.atEnd(n)
	}
}

func (s *stream) atEnd(n int) error {
	if n > s.last {
		return io.EOF
	}
	return nil
}
