package shardlease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/internal/protocol"
	"github.com/shardlease/shardlease-go/shardlease/event"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// This file counts the tenures that the writes of this process have ended, in the record of the hour ([lease.Ends]). The counts
// are for people, so the engine does not know them: the loop sees the answers to all writes, and a goroutine of its own adds
// what they have ended. It is not one of the calls of the engine, so nothing waits for it, and its failure is no fault of the
// worker's commits or reads.

const (
	endsEvery = time.Minute      // how often a worker adds to the counts at most
	endsLimit = 30 * time.Second // how long one addition may take
	endsTries = 4                // how often a process that ends makes an addition that is refused
	endsFails = 3                // after how many failures the loop reports them first
)

// ends are the tenures that the writes of a run have ended.
//
// The first end after a pause is added at a random moment within a minute, because a deploy ends tenures in many workers at
// once. After that the run adds once a minute, as long as there is something to add. An addition that is refused, because
// another process has written meanwhile, is made again with the next one.
//
// What a crash loses: the ends since the last addition. What a lost answer loses: nothing, unless so many others have
// written since that the record has forgotten whether the addition was stored.
type ends struct {
	group string
	store lease.Store
	tell  func(event.Event)
	ctx   context.Context // of all additions
	stop  context.CancelFunc
	turn  chan struct{} // has room for the one addition that is under way

	due engine.Instant // when the next addition is due; Never: nothing has ended for a minute. Only the loop uses it.

	mu    sync.Mutex
	more  map[lease.Reason]int64 // what has ended and is in no addition
	doubt *addition              // an addition of which nobody knows whether it was stored; nil: there is none

	// failed is how many additions have failed in a row, and report at which number that is reported next. Only the goroutine that
	// has the turn uses them.
	failed, report int
}

func (e *ends) init(values context.Context, group string, store lease.Store, tell func(event.Event)) {
	e.group, e.store, e.tell = group, store, tell
	e.ctx, e.stop = context.WithCancel(values)
	e.turn, e.due, e.report = make(chan struct{}, 1), engine.Never, endsFails
}

// settled counts the tenure that a write has ended, if its answer shows that the write is stored.
func (e *ends) settled(in engine.Settled, now func() engine.Instant) {
	if reason, ended := protocol.Ended(in.Write, in.Record, in.Err); ended {
		e.put(map[lease.Reason]int64{reason: 1})
		if e.due == engine.Never {
			e.due = now().Add(mathrand.N(endsEvery))
		}
	}
}

// put notes what has ended and is in no addition.
func (e *ends) put(counts map[lease.Reason]int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.more == nil {
		e.more = map[lease.Reason]int64{}
	}
	for reason, n := range counts {
		e.more[reason] += n
	}
}

// take returns the next addition: the one in doubt, or what has ended since; nil: there is nothing to add.
func (e *ends) take(at time.Time) *addition {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.doubt
	if a == nil && len(e.more) > 0 {
		a, e.more = &addition{group: e.group, at: at, counts: e.more}, nil
	}
	e.doubt = nil
	return a
}

// any reports whether there is something to add.
func (e *ends) any() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doubt != nil || len(e.more) > 0
}

// begin begins an addition when one is due.
func (e *ends) begin(now engine.Instant, wall func() time.Time, do func(func())) {
	switch {
	case now < e.due:
	case !e.any():
		e.due = engine.Never
	default:
		e.due = now.Add(endsEvery)
		at := wall()
		do(func() {
			select {
			case e.turn <- struct{}{}:
			default: // the store has not answered for a minute, and ignores its context
				return
			}
			err := error(&panicError{}) // the result if the store calls runtime.Goexit
			defer func() { e.judge(err, false); <-e.turn }()
			err = e.add(at)
		})
	}
}

// finish adds what is left when the run ends, within a third of the lease time: no other worker waits for this one by then.
func (e *ends) finish(ttl time.Duration, wall func() time.Time) {
	defer e.stop()
	if !e.any() && len(e.turn) == 0 {
		return
	}
	defer time.AfterFunc(min(ttl/3, endsLimit/10), e.stop).Stop()
	select {
	case e.turn <- struct{}{}:
	case <-e.ctx.Done():
		return
	}
	err := error(&panicError{})
	defer func() { e.judge(err, true); <-e.turn }()
	at := wall()
	for try := 1; ; try++ {
		if err = e.add(at); !e.any() || try == endsTries || !rest(e.ctx, pauseOf(try)) {
			return
		}
	}
}

// add makes one addition. An error means that it has failed; a refusal is none.
func (e *ends) add(at time.Time) error {
	a := e.take(at)
	if a == nil {
		return nil
	}
	done := false
	defer func() {
		switch {
		case done:
		case a.sent:
			e.mu.Lock()
			defer e.mu.Unlock()
			e.doubt = a
		default:
			e.put(a.counts)
		}
	}()
	_, err := guard(func() error {
		ctx, cancel := context.WithTimeout(e.ctx, endsLimit)
		defer cancel()
		var err error
		done, err = a.make(ctx, e.store)
		return sound("store.Write", err)
	})
	return err
}

// judge reports additions that fail again and again, at growing intervals. The last one of a process is reported if it fails. A
// report has no Lasted: that of other faults of the store calls people, and nothing depends on the counts.
func (e *ends) judge(err error, last bool) {
	if err == nil {
		e.failed, e.report = 0, endsFails
		return
	}
	if p, ok := err.(*panicError); ok {
		p.sealed = true
		err = &HookError{Hook: "store", Err: p}
	}
	if e.failed++; last || e.failed == e.report {
		e.tell(event.Event{Kind: event.StoreFault, Err: fmt.Errorf("%w: %w", errEnds, err)})
		e.report = min(2*e.report, e.report+60)
	}
}

var errEnds = errors.New("the ends of tenures are not counted")

// An addition adds to the counts of an hour, by one read and one write.
type addition struct {
	group  string
	at     time.Time
	counts map[lease.Reason]int64
	write  lease.Write
	sent   bool // write was sent, and nobody knows whether it was stored
}

// make makes the addition. done: it is stored, or it may be stored and nobody will know. If it is not done and there is no error,
// another process has written meanwhile: make it again later, and not at once.
func (a *addition) make(ctx context.Context, store lease.Store) (done bool, err error) {
	torn := a.sent
	if !torn {
		if a.write, err = a.read(ctx, store); err != nil {
			return false, err
		}
	}
	a.sent = true // also if the store panics
	record, err := store.Write(ctx, a.write)
	record, err = checkAnswer(a.write, record, err)
	verdict, _ := protocol.Settle("", a.write, record, err)
	refused, _ := errors.AsType[*lease.RefusedError](err)
	switch {
	case verdict == protocol.Stored, verdict == protocol.Overtaken && (torn || refused.Retried):
		return true, nil
	case verdict == protocol.Again, verdict == protocol.Overtaken:
		a.sent = false
		return false, nil
	}
	a.sent = torn || !errors.Is(err, lease.ErrQueued)
	return false, err
}

// read reads the record of the hour, and returns the write that adds to it.
func (a *addition) read(ctx context.Context, store lease.Store) (lease.Write, error) {
	old := lease.Ends{Group: a.group, Hour: protocol.HourOf(a.at)}
	record, err := store.Get(ctx, old.Key())
	if err == nil {
		err = checkRecord("store.Get", record, old.Key())
	}
	switch {
	case err == nil:
		old = record.(lease.Ends)
	case !errors.Is(err, lease.ErrNotFound):
		return lease.Write{}, err
	}
	return protocol.AddEnds(old, a.counts, protocol.Stamp{ID: lease.WriteID(rand.Text()[:13]), At: a.at}) // the record keeps many ids
}

// insist makes the addition, and a few times again if it is refused or fails. It is for a process that cannot make it later.
func (a *addition) insist(ctx context.Context, store lease.Store) {
	for try := 1; ; try++ {
		if done, _ := a.make(ctx, store); done || try == endsTries || !rest(ctx, pauseOf(try)) {
			return
		}
	}
}

// countEnds counts the tenures that commands have ended, given the rows that the commands returned. If the record cannot be
// written they are not counted: that is no fault of the commands.
func (s Supervisor) countEnds(ctx context.Context, rows ...lease.Row) {
	n := int64(0)
	for _, row := range rows {
		if row.Last.Reason == lease.ReasonForced && row.Last.From != "" {
			n++
		}
	}
	if n == 0 {
		return
	}
	a := addition{group: s.Group, at: time.Now(), counts: map[lease.Reason]int64{lease.ReasonForced: n}}
	a.insist(ctx, s.Store)
}

// pauseOf returns a random pause after an addition that was not made: others were refused at the same moment.
func pauseOf(try int) time.Duration {
	return 50*time.Millisecond + mathrand.N(time.Duration(try)*300*time.Millisecond)
}
