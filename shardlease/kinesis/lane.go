package kinesis

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// The pauses before a record is tried again in the same tenure.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

var (
	errGoexit  = errors.New("the function has called runtime.Goexit")
	errPartial = errors.New("the function returned no error, but fewer records as processed than it got")
)

// A lane calls the function for some of the keys of a shard, one call after the other.
type lane struct {
	p     *pipeline
	in    chan item
	ctx   context.Context // of the function; it contains the lane
	items []item          // the batch; its memory is used again
	batch []Record
	rest  []item       // the end of items that is not processed yet
	exits bool         // the call for rest has ended with runtime.Goexit
	size  int          // how many records the next call gets at most
	tries int          // how often the first record has failed alone in this tenure
	since atomic.Int64 // when the present call began or was last alive, by p.now; 0: there is no call

	mu    sync.Mutex // guards first, which another goroutine reads
	first Record     // the first record of the present call

	arrived atomic.Int64 // when Kinesis received the oldest record of the lane that is not processed; 0: there is none
}

// work processes the records of the lane until its channel is closed and empty. If the function calls runtime.Goexit, this
// goroutine ends: the call has failed, and another goroutine continues with the rest.
func (l *lane) work() {
	returned := false
	defer func() {
		if !returned {
			l.exits = true
			l.p.started.Go(l.work)
			return
		}
		if l.p.working.Add(-1) == 0 {
			close(l.p.idle)
		}
	}()
	if l.exits {
		l.process()
	}
	for first := range l.in {
		if l.skips(first) {
			continue
		}
		l.gather(first)
		l.rest, l.tries = l.items, 0
		l.process()
	}
	returned = true
}

// skips reports whether a record is not processed any more, because the tenure ends before it.
func (l *lane) skips(i item) bool { return l.p.ctx.Err() != nil || i.number >= l.p.halted.Load() }

// gather makes a batch that begins with a record. It waits until the batch is full, its window is
// over, or the reader has stopped.
func (l *lane) gather(first item) {
	l.items = append(l.items[:0], first)
	var window <-chan time.Time
	if l.p.window > 0 && l.p.most > 1 && !first.alone {
		timer := time.NewTimer(l.p.window)
		defer timer.Stop()
		window = timer.C
		l.await(first.record)
	}
	stopped := l.p.reading.Done()
	for len(l.items) < l.p.most {
		select {
		case i, open := <-l.in:
			if !open {
				return
			}
			l.items = append(l.items, i)
			continue
		default:
		}
		if window == nil {
			return
		}
		select {
		case i, open := <-l.in:
			if !open {
				return
			}
			l.items = append(l.items, i)
		case <-window:
			window = nil
		case <-stopped:
			window = nil
		}
	}
}

// process calls the function until all records of the batch are processed, or the tenure ends before one of them.
//
// After a failure the function gets half as many of the rest, and again, until one record fails
// alone: that is the one to blame. Each success doubles the size again.
func (l *lane) process() {
	defer l.arrived.Store(0)
	for len(l.rest) > 0 && !l.skips(l.rest[0]) && l.step() {
	}
	clear(l.items)                // frees the records
	clear(l.batch[:cap(l.batch)]) // the last call may have had fewer records
}

// step makes the next call. It returns false if the tenure ends before the first record.
func (l *lane) step() bool {
	l.await(l.rest[0].record)
	if !l.exits && l.expired(l.rest[0].record) {
		if !l.leaveOut(l.rest[0], ErrTooOld) {
			return false
		}
		l.rest = l.rest[1:]
		return true
	}
	now := l.rest[:l.fit(l.rest)]
	done, err := l.call(now)
	l.complete(now[:done])
	l.rest = l.rest[done:]
	left := len(now) - done
	if done > 0 {
		l.tries = 0
	}
	switch {
	case l.p.ctx.Err() != nil: // the tenure has ended, and the record has not failed
		return false
	case err == nil:
		l.size = min(2*l.size, l.p.most)
		return true
	case left > 1:
		l.size = left / 2
		l.pause(firstPause)
		return true
	}
	l.size = 1
	if l.tries++; l.tries < l.p.config.Tries {
		l.pause(min(firstPause<<min(l.tries-1, 16), lastPause))
		return true
	}
	if !l.judge(l.rest[0], err) {
		return false
	}
	l.rest, l.tries = l.rest[1:], 0
	return true
}

// await sets r as the oldest record of the lane that is not processed.
func (l *lane) await(r Record) {
	at := int64(0) // the time at which Kinesis received the record is unknown
	if !r.Arrived.IsZero() {
		at = r.Arrived.UnixNano()
	}
	l.arrived.Store(at)
}

// fit returns how many of the items the next call gets. The call ends before a record that is too old, or at which the
// tenure ends.
func (l *lane) fit(items []item) int {
	n := 1
	for n < min(l.size, len(items)) && !l.skips(items[n]) && !l.expired(items[n].record) {
		n++
	}
	return n
}

func (l *lane) expired(r Record) bool {
	return l.p.config.MaxAge > 0 && !r.Arrived.IsZero() && l.p.from.Now().Sub(r.Arrived) > l.p.config.MaxAge
}

// call calls the function, and returns how many of the items are processed. It turns a panic into an error, because
// package shardlease recovers panics only in the handler's goroutine. If the last call ended with runtime.Goexit, call
// returns the error of that call instead.
func (l *lane) call(items []item) (done int, err error) {
	l.batch = l.batch[:0]
	for _, i := range items {
		l.batch = append(l.batch, i.record)
	}
	l.enter(l.batch[0])
	defer l.leave()
	if err = errGoexit; !l.exits {
		err = l.guard(l.batch[0], func() (err error) { done, err = l.p.process(l.ctx, l.batch); return err })
	}
	l.exits = false
	done = min(max(done, 0), len(items))
	if err == nil && done < len(items) {
		err = errPartial
	}
	if err != nil {
		done = min(done, len(items)-1) // an error is about some record
		if l.p.ctx.Err() == nil {
			l.p.figures.failed.Add(1)
			r := items[done].record
			l.p.log.Warn("record failed", "sequence", r.Sequence, "index", r.Index, "batch", len(items), "err", err)
		}
	}
	return done, err
}

// enter begins a call for a record.
func (l *lane) enter(r Record) {
	l.mu.Lock()
	l.first = r
	l.mu.Unlock()
	l.since.Store(max(l.p.now(), 1))
}

// leave ends a call.
func (l *lane) leave() {
	l.p.lived() // first, so that a watcher sees a call, or the end of one
	l.since.Store(0)
}

// present returns the first record of the present or last call.
func (l *lane) present() *Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return new(l.first)
}

// guard calls f and returns its panic as an error.
func (l *lane) guard(r Record, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			l.p.log.Error("panic", "sequence", r.Sequence, "index", r.Index, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	return f()
}

func (l *lane) complete(items []item) {
	l.p.figures.processed.Add(int64(len(items)))
	for _, i := range items {
		i.begun.Done()
		i.entry.done()
	}
	clear(items) // frees the records, although others of the batch may take long
}

// pause waits before the next call, unless the pipeline ends.
func (l *lane) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.p.ctx.Done():
	}
}

// judge decides about a record that has failed alone Config.Tries times. It returns false if the tenure ends before
// the record.
//
// Only the first record of a tenure can have failed in earlier tenures: at the end of each the checkpoint was right
// before it. The lease row counts these tenures, and a marked record resets the count.
func (l *lane) judge(i item, err error) (leftOut bool) {
	p, attempts := l.p, l.p.attempts(i)
	if p.config.DeadLetter == nil || attempts < p.config.Attempts {
		p.halt(i.number, &PoisonError{Record: i.record, Attempts: attempts, Limit: p.config.Attempts, Err: err, dead: p.config.DeadLetter != nil})
		return false
	}
	return l.leaveOut(i, err)
}

// attempts returns how many tenures in a row will have ended before the record if this one does.
func (p *pipeline) attempts(i item) int {
	if i.number == 0 {
		return 1 + p.tenure.Attempt()
	}
	return 1
}

// leaveOut passes a record to DeadLetter. It returns false if the tenure ends before the record.
func (l *lane) leaveOut(i item, why error) bool {
	p, r := l.p, i.record
	l.enter(r)
	done := make(chan error, 1)
	go func() { // which a runtime.Goexit ends
		err := errGoexit
		defer func() { done <- err }()
		err = l.guard(r, func() error { return p.config.DeadLetter(l.ctx, r, why) })
	}()
	err := <-done
	l.leave()
	switch {
	case p.ctx.Err() != nil:
		return false
	case err != nil:
		p.log.Error("DeadLetter failed", "sequence", r.Sequence, "index", r.Index, "err", err)
		err = errors.Join(why, fmt.Errorf("DeadLetter: %w", err))
		p.halt(i.number, &PoisonError{Record: r, Attempts: p.attempts(i), Limit: p.config.Attempts, Err: err, dead: true})
		return false
	}
	p.log.Error("record left out", "sequence", r.Sequence, "index", r.Index, "err", why)
	p.figures.leftOut.Add(1)
	i.begun.Done()
	i.entry.done()
	return true
}
