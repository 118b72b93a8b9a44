package dynamostore

import (
	"sync"
	"time"
)

// A tempo estimates how long the table takes to answer a request at present. A slower answer
// raises the estimate at once; a quicker answer lowers it by an eighth of the difference.
//
// It also knows the quickest answer, which shows how far away the table is. Each slower answer raises this time by a
// small part of the difference, because this worker's own calls may be what makes the table slow. While the lane is narrow,
// this worker sends one call at a time, so then the part is larger: a path that becomes slower for good counts as far away
// after tens of answers.
type tempo struct {
	mu       sync.Mutex
	took     time.Duration
	quickest time.Duration // 0: there was no answer
}

// answered records how long an answer took, and returns how much later than the quickest one it came. narrow: the lane
// was narrow when the request was sent.
func (t *tempo) answered(took time.Duration, narrow bool) (late time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = max(took, t.took-(t.took-took)/8)
	if t.quickest == 0 {
		t.quickest = took
	}
	part := time.Duration(1024)
	if narrow {
		part = 16
	}
	t.quickest = min(took, t.quickest+(took-t.quickest)/part)
	return took - t.quickest
}

// unanswered records that no answer arrived within limit. It raises the estimate to twice
// the limit, so that the next attempt is not cut off as well.
func (t *tempo) unanswered(limit time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = max(t.took, 2*limit)
}

func (t *tempo) estimate() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.took
}

// limit is how long one attempt may take: twice as long as attempts take at present, but
// between least and most. A constant limit that is shorter than the answers of the table
// would cut off every attempt, forever.
func (t *tempo) limit(least, most time.Duration) time.Duration {
	return min(max(2*t.estimate(), least), most)
}
