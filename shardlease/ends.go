package shardlease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
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
	endsStop  = 3 * time.Second  // how long the last addition of a process may take, and that of a command
	endsTries = 4                // how often a process that ends makes an addition that is refused
	endsFails = 3                // after how many failures the loop reports them first, and makes additions less often
	endsRests = 59               // how many additions are left out at most after a failed one
	endsHangs = 2                // the loop reports an addition that has not returned when that many others were due
)

// ends are the tenures that the writes of a run have ended.
//
// The first end after a pause is added at a random moment within a minute, because a deploy ends tenures in many workers at
// once. After that the run adds once a minute, as long as there is something to add. An addition that is refused, because
// another process has written meanwhile, is made again with the next one. After three failures in a row the intervals
// grow, up to an hour: a process that lacks the permission would otherwise ask every minute forever. The next addition includes
// the ends of one that failed.
//
// What a crash loses: the ends since the last addition. What a lost answer loses: nothing, unless so many others have
// written since that the record has forgotten whether the addition was stored. Both what that loses and what the last addition
// of a run loses are reported.
type ends struct {
	group string
	store lease.Store
	tell  func(event.Event)
	ctx   context.Context // of all additions
	stop  context.CancelFunc
	turn  chan struct{} // has room for the one addition that is under way

	// Only the loop uses these.
	due  engine.Instant // when the next addition is due; Never: nothing has ended for a minute
	hung int            // how many additions were due since one began that has not returned

	mu    sync.Mutex
	more  map[lease.Reason]int64 // what has ended and is in no addition
	under int64                  // how many ends the addition adds that is under way
	doubt *addition              // an addition of which nobody knows whether it was stored; nil: there is none
	rests time.Duration          // how much longer to wait for the next addition, because others have failed

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
	if e.doubt = nil; a != nil {
		e.under = a.size()
	}
	return a
}

// left returns how many ends are not added.
func (e *ends) left() (n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.doubt != nil {
		n = e.doubt.size()
	}
	return n + e.under + (&addition{counts: e.more}).size()
}

// pause returns, once, how much longer to wait for the addition that is due.
func (e *ends) pause() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.rests
	e.rests = 0
	return d
}

// begin begins an addition when one is due.
func (e *ends) begin(now engine.Instant, wall func() time.Time, do func(func())) {
	if now < e.due {
		return
	}
	e.due = now.Add(endsEvery)
	if len(e.turn) > 0 { // the last addition has not returned, and its context has ended
		if e.hung++; e.hung == endsHangs { // not at once: this process may have been paused
			e.fault(errNoAnswer, 0)
		}
		return
	}
	e.hung = 0
	if e.left() == 0 {
		e.due = engine.Never
		return
	}
	if d := e.pause(); d > 0 {
		e.due = now.Add(d)
		return
	}
	at := wall()
	e.turn <- struct{}{}
	do(func() {
		err := error(&panicError{}) // the result if the store calls runtime.Goexit
		defer func() { e.judge(err); <-e.turn }()
		err = e.add(at)
	})
}

// finish adds what is left when the run ends, within a third of the lease time: no other worker waits for this one by then. It
// reports the ends that it cannot add: they are lost.
func (e *ends) finish(ttl time.Duration, wall func() time.Time) {
	defer e.stop()
	if e.left() == 0 && len(e.turn) == 0 {
		return
	}
	limit := min(ttl/3, endsStop)
	defer time.AfterFunc(limit, e.stop).Stop()
	silent := func() { e.fault(errNoAnswer, e.left()) }
	defer time.AfterFunc(2*limit, silent).Stop() // Run waits for the call
	select {
	case e.turn <- struct{}{}:
	case <-e.ctx.Done():
		silent()
		return
	}
	err := error(&panicError{})
	defer func() {
		if err != nil {
			e.fault(err, e.left())
		}
		<-e.turn
	}()
	at := wall()
	err = insist(e.ctx, func() (left, doubt bool, err error) {
		err = e.add(at)
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.doubt != nil || len(e.more) > 0, e.doubt != nil, err
	})
}

// add makes one addition. An error means that it has failed; a refusal is none.
func (e *ends) add(at time.Time) error {
	a := e.take(at)
	if a == nil {
		return nil
	}
	done := false
	defer func() {
		if !done && !a.sent {
			e.put(a.counts)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.under = 0; !done && a.sent {
			e.doubt = a
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

// judge reports additions that fail again and again, at growing intervals, and makes them less often.
func (e *ends) judge(err error) {
	if e.failed++; err == nil {
		e.failed, e.report = 0, endsFails
	}
	e.mu.Lock()
	e.rests = endsEvery * time.Duration(min(1<<min(max(0, e.failed-endsFails+1), 30)-1, endsRests))
	e.mu.Unlock()
	if e.failed == e.report || errors.Is(err, errForgotten) {
		e.fault(err, 0)
		e.report = min(2*e.report, e.report+60)
	}
}

// fault reports a failure, and how many ends are lost with it. The report has no Lasted: that of other faults of the store calls
// people, and nothing depends on the counts.
func (e *ends) fault(err error, lost int64) {
	if p, ok := err.(*panicError); ok {
		p.sealed = true
		err = &HookError{Hook: "store", Err: p}
	}
	if lost > 0 {
		err = fmt.Errorf("up to %d are lost: %w", lost, err)
	}
	e.tell(event.Event{Kind: event.StoreFault, Err: fmt.Errorf("%w: %w", errEnds, err)})
}

var (
	errEnds      = errors.New("the ends of tenures are not counted")
	errCrowded   = errors.New("too many other processes write the counts at the same moment")
	errForgotten = errors.New("so many other processes have written since that nobody knows whether they were stored")
)

// An addition adds to the counts of an hour, by one read and one write.
type addition struct {
	group  string
	at     time.Time
	counts map[lease.Reason]int64
	write  lease.Write
	sent   bool // write was sent, and nobody knows whether it was stored
}

// size returns how many ends it adds.
func (a *addition) size() (n int64) {
	for _, of := range a.counts {
		n += of
	}
	return n
}

// make makes the addition. done: it is stored; with errForgotten it may be stored and nobody will know. If it is not done and there
// is no error, another process has written meanwhile: make it again later, and not at once.
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
	case verdict == protocol.Stored:
		return true, nil
	case verdict == protocol.Overtaken && (torn || refused.Retried):
		return true, fmt.Errorf("%d may be lost: %w", a.size(), errForgotten)
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

// insist makes an addition that cannot be made later: again if it is refused, and once again if it may have been stored. After
// one of which nobody will know that, it adds the rest. Any other failure is final: the store has repeated the request, or the
// permissions do not allow it.
func insist(ctx context.Context, add func() (left, doubt bool, err error)) error {
	var forgotten error
	for try, failed := 1, 0; ; try++ {
		left, doubt, err := add()
		if errors.Is(err, errForgotten) {
			forgotten, err = err, nil
		}
		if !left {
			return cmp.Or(err, forgotten)
		}
		if err != nil {
			failed++
		}
		if try == endsTries || failed > 1 || err != nil && !doubt || !rest(ctx, pauseOf(try)) {
			return cmp.Or(err, errCrowded)
		}
	}
}

// countEnds counts the tenures that a command has ended, also if ctx has ended meanwhile. If they cannot be counted, that is no
// fault of the command.
func (s Supervisor) countEnds(ctx context.Context, ended int64) {
	if ended == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endsStop)
	defer cancel()
	a := addition{group: s.Group, at: time.Now(), counts: map[lease.Reason]int64{lease.ReasonForced: ended}}
	err := insist(ctx, func() (left, doubt bool, err error) {
		done, err := a.make(ctx, s.Store)
		return !done, a.sent, err
	})
	if err != nil && s.Uncounted != nil {
		s.Uncounted(ended, err)
	}
}

// endedBy returns how many tenures an act has ended that is none of the Supervisor's: 1, if the generation that the act has begun
// took the shard from an owner.
func endedBy(ctx context.Context, s Supervisor, act lease.Act) int64 {
	row, err := s.Get(ctx, act.Subject)
	if err != nil && s.Uncounted != nil {
		s.Uncounted(1, err)
	}
	if slices.ContainsFunc(append(row.History(), row.Last), func(t lease.Transfer) bool {
		return t.Generation == act.Generation && t.Reason == lease.ReasonForced && t.From != ""
	}) {
		return 1
	}
	return 0
}

// pauseOf returns a random pause after an addition that was not made: others were refused at the same moment.
func pauseOf(try int) time.Duration {
	return 50*time.Millisecond + mathrand.N(time.Duration(try)*300*time.Millisecond)
}
