package shardlease

import (
	"math"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// The methods by which the worker's loop reads the marks of a tenure, and settles and ends
// them.

// id returns the key of the tenure in the engine.
func (t *Tenure) id() engine.Tenure {
	return engine.Tenure{Shard: t.shard.Name, Generation: t.hold.Generation}
}

// report returns what the engine does not know yet; false: the tenure is over, and the
// engine need not know.
func (t *Tenure) report() (engine.Marks, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = false
	if t.over {
		return engine.Marks{}, false
	}
	in := engine.Marks{
		Tenure: t.id(), Seq: t.made, Flush: t.flush,
		Progress: t.progress, Finish: t.finish, Release: t.release,
	}
	if t.made > t.reported {
		in.Mark, in.Made, t.reported = t.last, engine.Instant(t.fresh), t.made
	}
	if t.release {
		in.Note = t.note
	}
	t.unsent = unsent{} // each of these calls is reported once; Flush is a number that stays
	return in, true
}

// settle records that the first seq marks were accepted, or with err that they never will
// be. The first of the other marks was made at oldest, unless the engine knows of none.
func (t *Tenure) settle(seq uint64, oldest int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq > t.settled {
		t.settled = seq
		if oldest == 0 && t.made > t.reported {
			oldest = t.fresh
		}
		t.since.Store(oldest)
	}
	t.refusal = err
	t.answer(false, seq, err)
	t.pending = t.made > t.settled
	if t.pending && t.made > t.reported {
		t.notify(true) // a mark was made after the last report, when the engine did not need to know at once
	}
}

// oldest returns the age of the oldest mark that is not settled; 0: there is none.
func (t *Tenure) oldest() time.Duration {
	since := t.since.Load()
	if since == 0 {
		return 0
	}
	return time.Duration(t.inbox.now() - since)
}

// close makes all further calls return an error, because the handler has returned. The
// marks that it made are still reported and written. close returns that error.
func (t *Tenure) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = t.end(event.CauseGivenUp)
	}
	return t.closed
}

// releaseNote returns the note that is stored with the release.
func (t *Tenure) releaseNote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.note
}

// conclude ends the tenure: it ends every waiting call and the contexts of the handler. If
// the handler of a worker has finished the shard, its contexts do not end yet. Nothing else shows
// a holder of a session that its tenure is over, so its contexts end before Finish returns.
func (t *Tenure) conclude(end *EndError) {
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	t.over, t.closed = true, end
	// If the final write stored the last mark, waiting commits succeed.
	var err error
	if end.Cause != event.CauseFinished {
		err, t.finishes = end, false
	}
	if end.Cause != event.CauseFinished || t.released != nil {
		// Before the answers: a caller that has one finds the contexts ended. And under the lock, so that a call whose
		// context is one of these finds its answer.
		t.stop(end)
	}
	t.answer(false, math.MaxUint64, err)
	t.answer(true, math.MaxUint64, end)
	t.waiting = nil
	t.mu.Unlock()
}

// stop ends both contexts.
func (t *Tenure) stop(why error) {
	t.drain(why)
	t.cancel(why)
}
