package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// defaultLimit is the limit of a tracker that was made with limit 0.
const defaultLimit = 1000

// A Tracker computes one safe position from the records of one shard that many goroutines finish in
// any order. It marks the last record of the finished prefix: the longest run of finished records
// from the first one on, with none missing. Marks are made in the order of the stream and never
// concurrently.
//
// A record that is never done is a gap. The position stays before it, whatever is finished after
// it, and the successor processes all of that again. That is the purpose of a tracker: a record
// that failed must not be skipped because its neighbours succeeded. To skip such a record, store
// it elsewhere and call Done. [Tracker.Backlog] shows the gap.
//
// A tracker belongs to one tenure, as does the mark function that it calls. It starts no
// goroutines and needs no Close. Its methods are safe for concurrent use.
//
// Invariant: covered <= ready <= next <= covered+limit. Records before covered are marked, and
// records before ready are finished. Record ready is unfinished, or ready equals next.
type Tracker struct {
	mark  func(position string) error
	limit int

	mu       sync.Mutex
	ring     []entry // the records from covered on, record n at n % len; grows up to limit
	covered  uint64
	ready    uint64
	next     uint64
	finished int           // how many records from covered on are finished
	since    time.Time     // when record ready became the oldest unfinished one
	marking  bool          // a goroutine is in makeMarks
	moved    chan struct{} // closed when covered or err changes; nil: nobody waits for it
	err      error         // the first error of mark; no mark is made after it
}

type entry struct {
	position string
	finished bool
}

// NewTracker returns a tracker that calls mark, usually the tenure's Mark. It holds at most limit
// records that no mark covers; 0 means 1,000.
//
// NewTracker returns no error: the first Begin reports a negative limit or a missing mark, because
// its caller handles errors anyway.
func NewTracker(limit int, mark func(position string) error) *Tracker {
	t := &Tracker{mark: mark, limit: limit}
	switch {
	case mark == nil:
		t.err = noMark()
	case limit < 0:
		// A negative value turns things off elsewhere. Here that would mean an unbounded
		// backlog behind the first record that hangs.
		t.err = &InvalidError{Field: "limit", Rule: "must not be negative"}
	case limit == 0:
		t.limit = defaultLimit
	}
	return t
}

func noMark() error {
	return &InvalidError{Field: "mark", Rule: "must not be nil: pass the tenure's Mark to NewTracker"}
}

// Begin announces the next record of the stream, and waits until there is room for it. It is for
// the goroutine that reads the stream: the order of the calls is the order of the records. A
// position stands for one record. If several records share a position, begin it once, and call Done
// when all of them are finished.
//
// After an error the record is not announced and must not be processed. The error is that of the
// context, with its cause, or that of a mark: then the tenure is over or a position moved back, and
// no later mark can be made.
func (t *Tracker) Begin(ctx context.Context, position string) (Record, error) {
	if t.mark == nil {
		return Record{}, noMark()
	}
	// Mark would refuse it too, but only if the finished prefix happened to end here.
	if err := (Mark{Position: position}).Validate(); err != nil {
		return Record{}, err
	}
	if ctx.Err() != nil {
		return Record{}, ended(ctx) // a reader that winds down begins no record, even if there is room
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.await(ctx, (*Tracker).hasRoom); err != nil {
		return Record{}, err
	}
	return t.announce(position), nil
}

// Wait waits until a mark covers every record that was begun. It returns the same errors as Begin.
// Call it after the last Begin, to complete a drain. If there is a gap, it waits until the context
// ends.
func (t *Tracker) Wait(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.await(ctx, (*Tracker).isCovered)
}

// A Record is one record that was begun.
type Record struct {
	tracker *Tracker
	number  uint64
}

// Done marks the record as finished, and makes the marks that this allows. A second call does
// nothing, and neither does a call on the zero Record, which Begin returns with an error.
//
// If several goroutines finish at once, one of them makes the marks for all. So a mark may still be
// under way when Done returns. All marks are made when Wait returns.
func (r Record) Done() {
	t := r.tracker
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finish(r.number) && !t.marking {
		t.makeMarks()
	}
}

// Format prevents fmt from printing the tracker of r when it reports a verb that does not fit.
func (r Record) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "record %d", r.number) }

// A Backlog describes the records that were begun and that no mark covers yet. Gap is the user's
// data: String and log values do not contain it.
type Backlog struct {
	Begun    int           // how many records have begun and are not covered by a mark
	Finished int           // how many of these are finished and wait for the gap
	Gap      string        // the oldest unfinished position, before which marks stop; empty: none
	Open     time.Duration // how long that position has been the oldest one
}

// Backlog returns how far the marks are behind, and for which record they wait.
func (t *Tracker) Backlog() Backlog {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := Backlog{Begun: int(t.next - t.covered), Finished: t.finished}
	if t.ready < t.next {
		b.Gap, b.Open = t.at(t.ready).position, time.Since(t.since)
	}
	return b
}

// String contains numbers and lengths, and never the position.
func (b Backlog) String() string {
	text := fmt.Sprintf("backlog: begun %d, finished %d", b.Begun, b.Finished)
	if b.Gap != "" {
		text += fmt.Sprintf(", a gap at %d bytes of position open for %v", len(b.Gap), b.Open)
	}
	return text
}

// Format keeps every verb from printing the position.
func (b Backlog) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.String()) }

// MarshalJSON keeps the position out of JSON logs.
func (b Backlog) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

// LogValue keeps structured logs from printing the position.
func (b Backlog) LogValue() slog.Value { return slog.StringValue(b.String()) }

// Format prints the backlog, because the fields of a tracker contain positions.
func (t *Tracker) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.Backlog().String()) }

// The functions below are called with the lock held.

func (t *Tracker) hasRoom() bool   { return t.next-t.covered < uint64(t.limit) }
func (t *Tracker) isCovered() bool { return t.next == t.covered }

// await returns when reached reports true, or with an error. It releases the lock while it waits.
func (t *Tracker) await(ctx context.Context, reached func(*Tracker) bool) error {
	for {
		switch {
		case t.err != nil:
			return t.err
		case reached(t):
			return nil
		case ctx.Err() != nil:
			return ended(ctx)
		}
		if t.moved == nil {
			t.moved = make(chan struct{})
		}
		moved := t.moved
		t.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		t.mu.Lock()
	}
}

// ended returns the context's error, with its cause if that is another error.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// at returns the entry of a record between covered and next.
func (t *Tracker) at(number uint64) *entry { return &t.ring[number%uint64(len(t.ring))] }

func (t *Tracker) announce(position string) Record {
	if t.next-t.covered == uint64(len(t.ring)) {
		t.grow()
	}
	if t.ready == t.next {
		t.since = time.Now()
	}
	*t.at(t.next) = entry{position: position}
	t.next++
	return Record{tracker: t, number: t.next - 1}
}

// grow doubles the room for records. A tracker that is never far behind needs little memory,
// whatever its limit is.
func (t *Tracker) grow() {
	size := min(max(16, 2*len(t.ring)), t.limit)
	ring := make([]entry, size)
	for n := t.covered; n < t.next; n++ {
		ring[n%uint64(size)] = *t.at(n)
	}
	t.ring = ring
}

// finish marks a record as finished, and reports whether the finished prefix has grown.
func (t *Tracker) finish(number uint64) bool {
	if number < t.covered || t.at(number).finished {
		return false // it was finished before
	}
	t.at(number).finished = true
	t.finished++
	if number != t.ready {
		return false
	}
	for t.ready < t.next && t.at(t.ready).finished {
		t.ready++
	}
	if t.ready < t.next {
		t.since = time.Now()
	}
	return true
}

// makeMarks marks until the whole finished prefix is covered. It releases the lock during each
// mark, because mark is the caller's function: it may be slow although it should not, or may call
// Backlog. The order of the marks needs no lock, because only one goroutine at a time is in
// makeMarks, and the others leave their marks to it.
func (t *Tracker) makeMarks() {
	t.marking = true
	defer func() { t.marking = false }() // also after a panic of mark, so that the next Done tries again
	for t.err == nil && t.covered < t.ready {
		end := t.ready
		t.err = t.markUnlocked(t.at(end - 1).position)
		if t.err == nil {
			t.cover(end)
		}
		if t.moved != nil {
			close(t.moved)
			t.moved = nil
		}
	}
}

func (t *Tracker) markUnlocked(position string) error {
	t.mu.Unlock()
	defer t.mu.Lock()
	return t.mark(position)
}

// cover removes the records before end. It also clears their positions, which may keep larger texts
// in memory.
func (t *Tracker) cover(end uint64) {
	for ; t.covered < end; t.covered++ {
		*t.at(t.covered) = entry{}
		t.finished--
	}
}
