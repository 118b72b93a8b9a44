package shardlease

import (
	"slices"
	"time"

	"github.com/shardlease/shardlease-go/internal/engine"
	"github.com/shardlease/shardlease-go/shardlease/event"
)

// The other side of a tenure: what the worker's loop asks of it, and tells it.

// id is what the engine calls the tenure.
func (t *Tenure) id() engine.Tenure {
	return engine.Tenure{Shard: t.shard.Name, Generation: t.hold.Generation}
}

// report is what the engine has not been told yet; false: it need not be.
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
	if t.made > t.told {
		in.Mark, t.told = t.last, t.made
	}
	if t.release {
		in.Note = t.note
	}
	t.asks = asks{} // what is asked for once is told once; how far to flush stays true
	return in, true
}

// settle takes in that the first marks are accepted, or with err that they never
// will be.
func (t *Tenure) settle(seq uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq > t.settled {
		if t.settled = seq; t.made > seq {
			t.since = time.Now() // they were made while the write was under way
		}
	}
	t.refusal = err
	t.waiting = slices.DeleteFunc(t.waiting, func(w wait) bool {
		if w.until > seq {
			return false
		}
		w.done <- err
		return true
	})
	t.pending = t.made > t.settled
	if t.pending && t.made > t.told {
		t.tell(true) // marked since the engine was told, when it thought that could wait
	}
}

// oldest returns the age of the oldest mark that is not settled; 0: there is none.
func (t *Tenure) oldest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.settled == t.made {
		return 0
	}
	return time.Since(t.since)
}

// close refuses all further calls: the handler has returned. What it marked is
// still told and written. It returns what refuses them.
func (t *Tenure) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = t.end(event.CauseGivenUp)
	}
	return t.closed
}

// lastWords is the note of the release.
func (t *Tenure) lastWords() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.note
}

// conclude is the end of the tenure: every call is answered, and the handler's
// contexts end, unless the handler itself has ended the shard.
func (t *Tenure) conclude(end *EndError) {
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	t.over, t.closed = true, end
	// Whoever waits has not marked in vain where the last mark was accepted with
	// the end.
	var err error
	if end.Cause != event.CauseFinished {
		err, t.finishes = end, false
	}
	for _, w := range t.waiting {
		w.done <- err
	}
	t.waiting = nil
	t.mu.Unlock()
	if end.Cause != event.CauseFinished {
		t.stop(end)
	}
}

// stop ends both contexts.
func (t *Tenure) stop(why error) {
	t.drain(why)
	t.cancel(why)
}
