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

// defaultLimit is the limit of a tracker that was given none.
const defaultLimit = 1000

// A Tracker turns the records of one shard, finished in any order by many
// goroutines, into one safe position. It marks the last record of the finished
// prefix: the longest run of finished records, from the first one on, with none
// missing. Marks are made in the order of the stream and never concurrently.
//
// A record that is never done is a gap. The position stays before it, whatever
// is finished behind it, and its successor will process all of that again. This
// is what a tracker is for: a record that failed must not be skipped because
// its neighbours succeeded. Who does want to skip it, after having put it
// elsewhere, calls Done. [Tracker.Backlog] shows the gap.
//
// A tracker belongs to one tenure, as does its mark. It starts no goroutines
// and has nothing to close. Its methods are safe for concurrent use.
//
// Invariant: covered <= ready <= next <= covered+limit. What lies before
// covered is marked; before ready, finished; ready itself is unfinished, or
// next.
type Tracker struct {
	mark  func(position string) error
	limit int

	mu       sync.Mutex
	ring     []entry // record n is at n % len; grows up to limit
	covered  uint64
	ready    uint64
	next     uint64
	finished int           // of those from covered on
	since    time.Time     // when ready became the oldest unfinished record
	marking  bool          // somebody is in makeMarks
	moved    chan struct{} // closed when covered or err changes; nil: nobody waits
	err      error         // the first one of mark; no mark after it
}

type entry struct {
	position string
	finished bool
}

// NewTracker makes a tracker that calls mark, which is the tenure's Mark, and
// holds at most limit records that no mark covers yet; 0: 1,000.
//
// A negative limit or a missing mark is reported by the first Begin, where its
// caller handles errors anyway.
func NewTracker(limit int, mark func(position string) error) *Tracker {
	t := &Tracker{mark: mark, limit: limit}
	switch {
	case mark == nil:
		t.err = noMark()
	case limit < 0:
		// Negative is "off" elsewhere. Here that would be a backlog without
		// bound behind the first record that hangs.
		t.err = &InvalidError{Field: "limit", Rule: "must not be negative"}
	case limit == 0:
		t.limit = defaultLimit
	}
	return t
}

func noMark() error {
	return &InvalidError{Field: "mark", Rule: "must be given, by NewTracker: it is the tenure's Mark"}
}

// Begin announces the next record of the stream and waits for room if there is
// none. It is for the goroutine that reads the stream: the order of the calls is
// the order of the records. A position stands for one record; records that
// share one are begun once, and done when the last of them is.
//
// An error means that the record was not announced and must not be processed.
// It is the context's, with its cause, or that of a mark: the tenure is over, or
// the position goes back, and no later mark can be made.
func (t *Tracker) Begin(ctx context.Context, position string) (Record, error) {
	if t.mark == nil {
		return Record{}, noMark()
	}
	// Mark would refuse it too, but only if a prefix happened to end there.
	if err := (Mark{Position: position}).Validate(); err != nil {
		return Record{}, err
	}
	if ctx.Err() != nil {
		return Record{}, ended(ctx) // a reader that winds down begins nothing, room or not
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.await(ctx, (*Tracker).hasRoom); err != nil {
		return Record{}, err
	}
	return t.announce(position), nil
}

// Wait returns when a mark covers every record that was begun, or with an error
// as Begin does. Called after the last Begin it makes a drain complete; with a
// gap it lasts until the context ends.
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

// Done says that the record is finished, and makes the mark this allows. Calling
// it again does nothing; nor does calling it on the zero Record, which Begin
// returns beside an error.
//
// Of goroutines that finish at the same time one makes the marks for all, so a
// mark may still be under way when Done returns. It is made when Wait returns.
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

// Format keeps verbs that do not fit from printing the tracker behind r, as fmt
// does to complain about them.
func (r Record) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "record %d", r.number) }

// A Backlog is what a tracker has begun and not yet marked. The gap is the
// user's data: it does not appear in String or in log values.
type Backlog struct {
	Begun    int           // records that no mark covers yet
	Finished int           // of these, how many are finished: they wait for the gap
	Gap      string        // the oldest unfinished position, before which marks stop; empty: none
	Open     time.Duration // for how long that has been the oldest one
}

// Backlog tells how far the tracker is behind, and what it waits for.
func (t *Tracker) Backlog() Backlog {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := Backlog{Begun: int(t.next - t.covered), Finished: t.finished}
	if t.ready < t.next {
		b.Gap, b.Open = t.at(t.ready).position, time.Since(t.since)
	}
	return b
}

// String tells numbers and lengths, never the position.
func (b Backlog) String() string {
	text := fmt.Sprintf("backlog: begun %d, finished %d", b.Begun, b.Finished)
	if b.Gap != "" {
		text += fmt.Sprintf(", a gap at %d bytes of position open for %v", len(b.Gap), b.Open)
	}
	return text
}

// Format keeps every verb from printing the position.
func (b Backlog) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.String()) }

// MarshalJSON keeps the position out of logs that are JSON.
func (b Backlog) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

// LogValue keeps structured logs from printing the position.
func (b Backlog) LogValue() slog.Value { return slog.StringValue(b.String()) }

// Format prints the backlog: the fields of a tracker hold positions.
func (t *Tracker) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.Backlog().String()) }

// Everything below is called with the lock held.

func (t *Tracker) hasRoom() bool   { return t.next-t.covered < uint64(t.limit) }
func (t *Tracker) isCovered() bool { return t.next == t.covered }

// await returns when the tracker has reached what is asked for. It gives the
// lock away while it waits.
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

// ended is the context's error, and its cause where that says more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == cause {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// at is the entry of a record between covered and next.
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

// grow makes room for twice as many records: a shard that is never far behind
// pays for few, whatever the limit.
func (t *Tracker) grow() {
	size := min(max(16, 2*len(t.ring)), t.limit)
	ring := make([]entry, size)
	for n := t.covered; n < t.next; n++ {
		ring[n%uint64(size)] = *t.at(n)
	}
	t.ring = ring
}

// finish reports whether the prefix became longer.
func (t *Tracker) finish(number uint64) bool {
	if number < t.covered || t.at(number).finished {
		return false // done before
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

// makeMarks marks until no finished prefix is left. It gives the lock away
// around each mark: mark is the caller's, it may be slow against its promise, or
// ask for the backlog. Order needs no lock then, as one goroutine at a time is
// here, and the others leave their work to it.
func (t *Tracker) makeMarks() {
	t.marking = true
	defer func() { t.marking = false }() // after a panic of mark as well: the next Done tries again
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

// cover forgets the records before end. It forgets their positions too, which
// may be parts of larger texts.
func (t *Tracker) cover(end uint64) {
	for ; t.covered < end; t.covered++ {
		*t.at(t.covered) = entry{}
		t.finished--
	}
}
