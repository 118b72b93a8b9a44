package scale

import "time"

// timers is a heap of functions to call, ordered by time and then by insertion.
type timers struct {
	heap []timer
	seq  uint64
}

type timer struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (a timer) before(b timer) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (q *timers) due(until time.Duration) bool { return len(q.heap) > 0 && q.heap[0].at <= until }

func (q *timers) push(at time.Duration, do func()) {
	q.seq++
	q.heap = append(q.heap, timer{at, q.seq, do})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.heap[i].before(q.heap[up]) {
			return
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *timers) pop() timer {
	top, last := q.heap[0], len(q.heap)-1
	q.heap[0], q.heap[last] = q.heap[last], timer{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		least := i
		for _, down := range [...]int{2*i + 1, 2*i + 2} {
			if down < last && q.heap[down].before(q.heap[least]) {
				least = down
			}
		}
		if least == i {
			return top
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
