package dynamostore

import (
	"sync"
	"time"
)

// A tempo is how long the table takes to answer a request at present. It rises at once and
// decays with each quicker answer, by an eighth of the difference.
type tempo struct {
	mu   sync.Mutex
	took time.Duration
}

// answered takes in how long an answer took.
func (t *tempo) answered(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = max(took, t.took-(t.took-took)/8)
}

// unanswered takes in that there was no answer in that time. The table takes twice as long,
// as far as anybody knows: the next attempt should not be cut too.
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

// limit is how long one attempt may take: twice what attempts take at present, within these
// bounds. A constant limit below what the table takes would cut every attempt, forever.
func (t *tempo) limit(least, most time.Duration) time.Duration {
	return min(max(2*t.estimate(), least), most)
}
