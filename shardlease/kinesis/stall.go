package kinesis

import (
	"context"
	"time"
)

const (
	// silentAfter is after how long the worker reports a shard without progress (event.Silent).
	silentAfter = 5 * time.Minute
	// stuckAfter is how long a function that has stalled may take to return after its context has ended. Then the tenure
	// ends without waiting for it.
	stuckAfter = 2 * time.Second
)

// alive restarts the time of the present call. It calls Tenure.Alive only if no other call of the shard has been silent
// for long: otherwise the worker would not report that one.
func (l *lane) alive() {
	now, was := max(l.p.now(), 1), l.since.Load()
	if was == 0 || !l.since.CompareAndSwap(was, now) {
		return // the call has ended, or is alive in another goroutine
	}
	if since, _ := l.p.oldest(); now-since < int64(silentAfter) {
		l.p.tenure.Alive()
	}
}

// lived notes that a call has ended, unless the reader has stopped.
func (p *pipeline) lived() {
	if was := p.life.Load(); was != ended {
		p.life.CompareAndSwap(was, p.now())
	}
}

// oldest returns since when the longest of the present calls has lasted, and the first of its records.
// Without a call it returns when there last was a sign of life.
func (p *pipeline) oldest() (since int64, of *Record) {
	since = p.life.Load()
	calls := false
	for _, l := range p.lanes {
		if at := l.since.Load(); at != 0 && (!calls || at < since) {
			since, of, calls = at, l.present(), true
		}
	}
	return since, of
}

// watch moves the shard to another worker when a call has lasted for StallAfter. It does the work of
// shardlease.Config.StallAfter, which counts a stall as a failure of the shard and does not know single calls: a lane that
// works would hide a lane that hangs.
func (p *pipeline) watch() {
	for {
		since, of := p.oldest()
		left := p.config.StallAfter
		if since != ended {
			left -= time.Duration(p.now() - since)
		}
		if left <= 0 {
			p.stalled(of)
			return
		}
		if !sleep(p.ctx, left) {
			return
		}
	}
}

// stalled releases the shard and ends the tenure. A release is no failed attempt, and this worker leaves the shard to
// others for a while.
func (p *pipeline) stalled(of *Record) {
	err := &StallError{Stream: p.stream, Shard: p.shard, After: p.config.StallAfter}
	note := "stalled: the shard was not read for " + p.config.StallAfter.String()
	if of != nil {
		err.Record, note = *of, "stalled: the function has not returned for "+p.config.StallAfter.String()
	}
	p.log.Warn("shard moves to another worker", "err", err)
	p.figures.stalls.Add(1)
	p.tenure.Release(note)
	p.fail(err)
	timer := time.NewTimer(stuckAfter)
	defer timer.Stop()
	select {
	case <-p.idle:
	case <-timer.C:
		close(p.stuck)
	}
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
