package dynamostore

import (
	"sync"
	"time"
)

// A tempo estimates how long the table takes to answer a request at present. A slower answer
// raises the estimate at once; a quicker answer lowers it by an eighth of the difference.
type tempo struct {
	mu   sync.Mutex
	took time.Duration
}

// answered records how long an answer took.
func (t *tempo) answered(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = max(took, t.took-(t.took-took)/8)
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
