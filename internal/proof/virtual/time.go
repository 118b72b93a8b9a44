package virtual

import "time"

// A Time is virtual time, with a queue of what will happen. Things that are due at one instant
// happen in the order in which they were put into the queue. The zero value is ready to use.
type Time struct {
	now   time.Duration
	seq   uint64
	done  uint64  // how many things have happened
	queue []timer // a heap; container/heap would allocate for each timer
}

type timer struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (e timer) before(f timer) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// Epoch returns the wall time at which virtual time begins.
func Epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// Now returns how much time has passed.
func (t *Time) Now() time.Duration { return t.now }

// Unique returns a number that is larger than all numbers that it has returned.
func (t *Time) Unique() uint64 {
	t.seq++
	return t.seq
}

// After makes do happen d from now, or as soon as possible if d is negative.
func (t *Time) After(d time.Duration, do func()) { t.At(t.now+d, do) }

// At makes do happen at that time, or as soon as possible if that time has passed.
func (t *Time) At(at time.Duration, do func()) {
	t.push(timer{at: max(at, t.now), seq: t.Unique(), do: do})
}

// Run lets d pass.
func (t *Time) Run(d time.Duration) { t.RunWhile(d, func() bool { return true }) }

// RunWhile lets d pass. Once goOn returns false, what is due stays in the queue.
func (t *Time) RunWhile(d time.Duration, goOn func() bool) {
	until := t.now + d
	for len(t.queue) > 0 && t.queue[0].at <= until && goOn() {
		e := t.pop()
		t.now = e.at
		t.done++
		e.do()
	}
	t.now = until
}

// Until lets time pass, a step at a time, until cond holds. It returns how much has passed, and whether that is within the limit.
// It calls cond at first, and after each step in which something has happened: passing time alone must not make cond true.
func (t *Time) Until(limit, step time.Duration, cond func() bool) (took time.Duration, ok bool) {
	from := t.now
	for !cond() {
		for done := t.done; t.done == done; t.Run(step) {
			if t.now-from > limit {
				return t.now - from, false
			}
		}
	}
	return t.now - from, true
}

func (t *Time) push(e timer) {
	t.queue = append(t.queue, e)
	h := t.queue
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (t *Time) pop() timer {
	h := t.queue
	top, last := h[0], len(h)-1
	h[0], h[last] = h[last], timer{}
	h = h[:last]
	t.queue = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return top
		}
		if down+1 < last && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(h[i]) {
			return top
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}
